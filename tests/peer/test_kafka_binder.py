"""Settings of the Kafka binder, and their results in Kafka."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition, codec
from kafka.admin import ConfigResource, ConfigResourceType

from binders.kafka.fetching import ConsumerClient
from streamkit import Message, StreamApplication
from streamkit.binder.binder import ConsumerDestination, HealthStatus
from streamkit.binder.binding import InputBinding
from streamkit.errors import BinderError, ConfigurationError, StreamkitError
from streamkit.messaging.headers import KEY, PARTITION
from streamkit.messaging.message import NO_PAYLOAD, ErrorMessage
from tests.peer.kafka import KafkaServer

STREAM = "spring.cloud.stream"
PATIENCE = 60.0
_numbers = count(1)

pytestmark = [pytest.mark.slow]


class Inbox:
    """Records what a listener got, in order."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._more = asyncio.Event()

    def add(self, item: object) -> None:
        self.items.append(item)
        self._more.set()

    async def wait(self, number: int) -> list[Any]:
        """Return the items once there are so many."""
        async with asyncio.timeout(PATIENCE):
            while len(self.items) < number:
                self._more.clear()
                await self._more.wait()
        return self.items


class Shop:
    """Applications on one Kafka, with a topic and a group of their own."""

    def __init__(self, server: KafkaServer) -> None:
        self.brokers = server.address
        self.topic = f"orders-{next(_numbers)}"
        self.group = f"kitchen-{next(_numbers)}"

    @asynccontextmanager
    async def app(
        self, listen: Callable[[StreamApplication], object] | None = None, **settings: object
    ) -> AsyncIterator[StreamApplication]:
        """Run an application; settings by their keys below the binding `in` or `out`, or below the binder."""
        keys: dict[str, object] = {
            "default-binder": "kafka",
            "kafka.binder.brokers": self.brokers,
            "kafka.binder.consumer-properties.heartbeat.interval.ms": 200,
        }
        for side in ("in", "out"):
            keys[f"bindings.{side}.destination"] = self.topic
        keys["bindings.in.group"] = self.group
        if listen is None:
            keys["output-bindings"] = "out"
        keys |= {key.replace("__", "."): value for key, value in settings.items()}
        app = StreamApplication(
            config_location="optional:/none",
            properties={f"{STREAM}.{key}": str(value) for key, value in keys.items() if value is not None},
        )
        if listen is not None:
            listen(app)
        await app.start(watch_loop=False)
        try:
            yield app
        finally:
            await app.stop(5)

    def listening(self, inbox: Inbox) -> Callable[[StreamApplication], object]:
        """Return a function that adds to an application a listener on `in`, which fills the inbox."""

        async def note(message: Message[bytes]) -> None:
            inbox.add(message)

        return lambda app: app.stream_listener("in")(note)

    async def send(self, *payloads: object, headers: Mapping[str, object] | None = None) -> None:
        """Send messages one after the other."""
        async with self.app() as app:
            for payload in payloads:
                await app.bridge.asend("out", Message(payload, headers))

    def admin(self) -> KafkaAdminClient:
        return KafkaAdminClient(bootstrap_servers=self.brokers)

    async def make_topic(self, partitions: int, **configs: object) -> None:
        """Create the topic with these properties."""
        wanted = {"num_partitions": partitions, "configs": {key: str(each) for key, each in configs.items()}}

        def make() -> None:
            with self.admin() as admin:
                admin.create_topics({self.topic: wanted}, wait_for_metadata=True)

        await asyncio.to_thread(make)

    async def partitions(self, topic: str | None = None) -> int:
        """Return the number of partitions; 0 without the topic."""

        def look() -> int:
            with self.admin() as admin:
                return len(admin.describe_topics([topic or self.topic])[0]["partitions"])

        return await asyncio.to_thread(look)

    async def configs(self, topic: str) -> dict[str, str]:
        """Return a topic's own configuration."""

        def look() -> dict[str, str]:
            with self.admin() as admin:
                resource = ConfigResource(ConfigResourceType.TOPIC, topic)
                found = admin.describe_configs([resource])["topic"][topic]
                return {key: each["value"] for key, each in found.items()}

        return await asyncio.to_thread(look)

    async def committed(self) -> dict[int, int]:
        """Return the group's committed offsets by partition."""

        def look() -> dict[int, int]:
            with self.admin() as admin:
                offsets = admin.list_group_offsets({self.group: None})[self.group]
                return {key.partition: each.offset for key, each in offsets.items()}

        return await asyncio.to_thread(look)

    async def records(self, topic: str, number: int, isolation: str = "read_uncommitted") -> list[Any]:
        """Return the first records of a topic's partitions."""

        def read() -> list[Any]:
            found: list[Any] = []
            consumer = KafkaConsumer(
                bootstrap_servers=self.brokers, auto_offset_reset="earliest", isolation_level=isolation
            )
            keys = [TopicPartition(topic, each) for each in consumer.partitions_for_topic(topic)]
            consumer.assign(keys)
            deadline = time.monotonic() + PATIENCE
            while len(found) < number and time.monotonic() < deadline:
                for records in consumer.poll(timeout_ms=500).values():
                    found += records
            consumer.close()
            assert len(found) >= number, f"{len(found)} records in {topic}, not {number}"
            return found

        return await asyncio.to_thread(read)


async def eventually(look: Callable[[], Awaitable[object]], expected: object) -> None:
    """Wait until the observed value is the expected one."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if await look() == expected:
                return
            await asyncio.sleep(0.05)


@pytest.fixture
def shop(kafka_server: KafkaServer) -> Shop:
    return Shop(kafka_server)


def test_topics_are_created_by_settings(shop: Shop) -> None:
    """With the producer's partitions, at least the binder's, and the topic's own configuration."""

    async def main() -> None:
        more = {"kafka.bindings.out.producer.topic.properties.retention.ms": 60000}
        async with shop.app(**more, bindings__out__producer__partition_count=3):
            assert await shop.partitions() == 3
            assert (await shop.configs(shop.topic))["retention.ms"] == "60000"

    asyncio.run(main())


@pytest.mark.parametrize("ordered", [True, False])
def test_calls_without_partitions_stay_idle_only_in_order(
    shop: Shop, ordered: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise calls do not depend on partitions."""

    async def main() -> None:
        await shop.make_topic(2)
        more = {"kafka.bindings.in.consumer.ordered": ordered}
        async with shop.app(shop.listening(Inbox()), bindings__in__consumer__concurrency=4, **more):
            pass

    asyncio.run(main())
    assert any("has 2 partition(s), and 4 calls" in text for text in caplog.messages) is ordered


def test_topics_grow_only_if_settings_allow_it(shop: Shop) -> None:
    """Otherwise a producer that needs more partitions is refused."""

    async def main() -> None:
        await shop.make_topic(2)
        with pytest.raises(StreamkitError, match=r"has 2 partition\(s\), but 4 are configured"):
            async with shop.app(bindings__out__producer__partition_count=4):
                raise AssertionError("it must not start")
        more = {"kafka.binder.auto-add-partitions": "true"}
        async with shop.app(**more, bindings__out__producer__partition_count=4):
            await eventually(shop.partitions, 4)

    asyncio.run(main())


def test_min_partition_count_applies_to_created_or_enlarged_topics(shop: Shop) -> None:
    """As in Spring's binder, an existing one may have fewer, unless partitions may be added."""

    async def main() -> None:
        await shop.make_topic(2)
        least = {"kafka.binder.min-partition-count": 4}
        async with shop.app(**least):
            assert await shop.partitions() == 2
        async with shop.app(**least, **{"kafka.binder.auto-add-partitions": "true"}):
            await eventually(shop.partitions, 4)

    asyncio.run(main())


def test_missing_topic_is_refused_without_auto_create_topics(shop: Shop) -> None:
    """The error says how to create it; the brokers' own auto-creation is not triggered."""

    async def main() -> None:
        with pytest.raises(BinderError, match=r"does not exist and .*auto-create-topics=false"):
            async with shop.app(**{"kafka.binder.auto-create-topics": "false"}):
                raise AssertionError("it must not start")
        assert await shop.partitions() == 0

    asyncio.run(main())


@pytest.mark.parametrize(("settings", "expected"), [({}, ["0", "1"]), ({"start-offset": "latest"}, ["1"])])
def test_new_group_starts_at_the_configured_end(shop: Shop, settings: dict[str, str], expected: list[str]) -> None:
    """At the first message or at the next; later it continues at its offsets."""
    own = {f"kafka.bindings.in.consumer.{key}": value for key, value in settings.items()}

    async def main() -> None:
        await shop.send("0")
        inbox = Inbox()
        async with shop.app(shop.listening(inbox), **own):
            await shop.send("1")
            texts = [message.payload.decode() for message in await inbox.wait(len(expected))]
        assert sorted(texts) == expected
        await shop.send("2")
        async with shop.app(shop.listening(inbox), **own):
            assert (await inbox.wait(len(expected) + 1))[-1].payload == b"2"

    asyncio.run(main())


def test_offsets_may_be_reset_at_every_start(shop: Shop) -> None:
    """reset-offsets=true starts at start-offset, whatever the group has committed."""

    async def main() -> None:
        await shop.send("0", "1")
        for _ in range(2):
            inbox = Inbox()
            async with shop.app(shop.listening(inbox), **{"kafka.bindings.in.consumer.reset-offsets": "true"}):
                assert len(await inbox.wait(2)) == 2

    asyncio.run(main())


def test_committed_offset_is_the_smallest_unsettled_one(shop: Shop) -> None:
    """Later settled messages do not advance it."""

    async def main() -> None:
        await shop.make_topic(1)
        inbox, go_on = Inbox(), asyncio.Event()

        async def hold_the_second(message: Message[str]) -> None:
            inbox.add(message.payload)
            if message.payload == "1":
                await go_on.wait()

        async with shop.app(
            lambda app: app.stream_listener("in")(hold_the_second),
            bindings__in__consumer__concurrency=4,
            **{"kafka.bindings.in.consumer.ordered": "false"},
        ):
            await shop.send("0", "1", "2", "3")
            await inbox.wait(4)
            await eventually(shop.committed, {0: 1})
            go_on.set()
            await eventually(shop.committed, {0: 4})

    asyncio.run(main())


def test_time_ack_mode_commits_periodically(shop: Shop) -> None:
    """Every auto.commit.interval.ms, and at the end."""

    async def main() -> None:
        await shop.make_topic(1)
        inbox = Inbox()
        own = "kafka.bindings.in.consumer"
        async with shop.app(
            shop.listening(inbox),
            **{f"{own}.ack-mode": "time", f"{own}.configuration.auto.commit.interval.ms": 600_000},
        ):
            await shop.send("0", "1")
            await inbox.wait(2)
            assert (await shop.committed()).get(0, 0) == 0
        assert await shop.committed() == {0: 2}

    asyncio.run(main())


def test_tombstone_round_trip(shop: Shop) -> None:
    """A missing payload is null in Kafka, and None for a listener that allows it."""

    async def main() -> None:
        inbox = Inbox()

        async def note(order: dict[str, int] | None, message: Message[object]) -> None:
            inbox.add((order, message.headers[KEY]))

        await shop.send({"n": 1}, NO_PAYLOAD, headers={KEY: "k"})
        async with shop.app(lambda app: app.stream_listener("in")(note)):
            assert await inbox.wait(2) == [({"n": 1}, "k"), (None, "k")]
        assert [record.value for record in await shop.records(shop.topic, 2)] == [b'{"n":1}', None]

    asyncio.run(main())


def test_dead_letter_has_its_origin(shop: Shop) -> None:
    """It keeps its key and partition; the topic has as many partitions as the destination."""

    async def main() -> None:
        await shop.make_topic(3)
        letters = f"error.{shop.topic}.{shop.group}"

        async def fail(message: Message[str]) -> None:
            raise ValueError("never")

        async with shop.app(lambda app: app.stream_listener("in")(fail), bindings__in__consumer__max_attempts=1):
            assert await shop.partitions(letters) == 0
            await shop.send("bad", headers={KEY: "k", PARTITION: 2})
            await eventually(lambda: shop.partitions(letters), 3)
            (letter,) = await shop.records(letters, 1)
        assert (letter.partition, letter.key, letter.value) == (2, b"k", b"bad")
        headers = dict(letter.headers)
        assert headers["x-original-topic"] == shop.topic.encode()
        assert headers["x-original-partition"] == b"\0\0\0\2"
        assert headers["x-exception-message"] == b"never"

    asyncio.run(main())


def letters_of(app: StreamApplication) -> str | None:
    """Return the dead-letter topic of the binding `in`."""
    bound = app.binding("in")
    assert isinstance(bound, InputBinding)
    return bound.binder.binder.dead_letter_destination(bound.consumer_destinations[0])


def test_dead_letter_topic_follows_settings(shop: Shop) -> None:
    """enable-dlq=true creates it at the start with the configured name and partitions."""
    own = "kafka.bindings.in.consumer"

    async def main() -> None:
        letters = f"letters-of-{shop.topic}"
        async with shop.app(
            shop.listening(Inbox()),
            **{f"{own}.enable-dlq": "true", f"{own}.dlq-name": letters, f"{own}.dlq-partitions": 1},
        ) as app:
            assert await shop.partitions(letters) == 1
            assert letters_of(app) == letters

    asyncio.run(main())


def test_dead_letter_topic_has_its_own_configuration(shop: Shop) -> None:
    """That of its producer, as in Spring; the destination's compaction would lose letters of one key."""
    own = "kafka.bindings.in.consumer"

    async def main() -> None:
        async with shop.app(
            shop.listening(Inbox()),
            **{
                f"{own}.enable-dlq": "true",
                f"{own}.topic.properties.cleanup.policy": "compact",
                f"{own}.dlq-producer-properties.topic.properties.retention.ms": 60000,
            },
        ):
            assert (await shop.configs(shop.topic))["cleanup.policy"] == "compact"
            found = await shop.configs(f"error.{shop.topic}.{shop.group}")
            assert found.get("cleanup.policy", "delete") == "delete"
            assert found["retention.ms"] == "60000"

    asyncio.run(main())


def test_rejected_message_without_dead_letters_is_logged_and_dropped(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """With enable-dlq=false, Spring's default; the next message is delivered."""

    async def main() -> None:
        inbox = Inbox()

        async def fail_first(payload: str) -> None:
            inbox.add(payload)
            if payload == "bad":
                raise ValueError("never")

        await shop.make_topic(1)
        async with shop.app(
            lambda app: app.stream_listener("in")(fail_first),
            bindings__in__consumer__max_attempts=1,
            **{"kafka.bindings.in.consumer.enable-dlq": "false"},
        ) as app:
            await shop.send("bad", "good")
            assert await inbox.wait(2) == ["bad", "good"]
            assert letters_of(app) is None

    asyncio.run(main())
    (lost,) = (record.getMessage() for record in caplog.records if record.levelname == "ERROR")
    assert lost.startswith(f"Binding 'in' gives up message {shop.topic}-0, offset 0 of topic {shop.topic!r}")
    assert lost.endswith("ValueError: never. It is lost: the binding has no dead letters")


def test_message_refused_by_kafka_fails_alone(shop: Shop) -> None:
    """For example one too large for its topic: later ones are sent."""

    async def main() -> None:
        await shop.make_topic(1, **{"max.message.bytes": 2000})
        async with shop.app() as app:
            with pytest.raises(StreamkitError, match="MessageSizeTooLarge"):
                await app.bridge.asend("out", "x" * 3000)
            await app.bridge.asend("out", "y")
        assert [record.value for record in await shop.records(shop.topic, 1)] == [b"y"]

    asyncio.run(main())


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_messages_are_sent_and_received(shop: Shop, compression: str) -> None:
    """With each of Kafka's compressions; the topic accepts only small ones."""
    inbox, text = Inbox(), "x" * 30_000

    async def main() -> None:
        await shop.make_topic(1, **{"max.message.bytes": 5000})
        own = "kafka.bindings.out.producer.compression-type"
        async with shop.app(shop.listening(inbox)), shop.app(**{own: compression}) as app:
            await app.bridge.asend("out", text)
            (message,) = await inbox.wait(1)
        assert message.payload == text.encode()

    asyncio.run(main())


def test_compression_with_a_missing_library_is_refused(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start, by the setting."""
    monkeypatch.setattr(codec, "snappy", None)

    async def main() -> None:
        own = "kafka.bindings.out.producer.compression-type"
        with pytest.raises(ConfigurationError, match=f"given in code: {STREAM}.{own}: snappy needs the package"):
            async with shop.app(**{own: "snappy"}):
                raise AssertionError("it must not start")

    asyncio.run(main())


def test_anonymous_group_cannot_have_a_dead_letter_topic(shop: Shop) -> None:
    """An error before anything is connected."""

    async def main() -> None:
        with pytest.raises(ConfigurationError, match="enable-dlq=true needs a group"):
            async with shop.app(
                shop.listening(Inbox()),
                bindings__in__group=None,
                **{"kafka.bindings.in.consumer.enable-dlq": "true"},
            ):
                raise AssertionError("it must not start")

    asyncio.run(main())


def test_partitions_may_be_fixed(shop: Shop) -> None:
    """auto-rebalance-enabled=false: an instance takes every n-th partition, and uses the group's offsets."""

    async def main() -> None:
        await shop.make_topic(4)
        inbox = Inbox()
        async with shop.app(
            shop.listening(inbox),
            **{
                "kafka.bindings.in.consumer.auto-rebalance-enabled": "false",
                "instance-count": 2,
                "instance-index": 1,
            },
        ):
            for partition in range(4):
                await shop.send(str(partition), headers={PARTITION: partition})
            await inbox.wait(2)
        assert sorted(message.headers[PARTITION] for message in inbox.items) == [1, 3]
        assert await shop.committed() == {1: 1, 3: 1}

    asyncio.run(main())


def test_destination_may_be_a_pattern(shop: Shop) -> None:
    """Every topic whose whole name matches."""

    async def main() -> None:
        await shop.send("0")
        inbox = Inbox()
        async with shop.app(
            shop.listening(inbox),
            bindings__in__destination=f"{shop.topic[:-1]}[{shop.topic[-1]}]",
            **{"kafka.bindings.in.consumer.destination-is-pattern": "true"},
        ):
            (message,) = await inbox.wait(1)
        assert message.headers["kafka_receivedTopic"] == shop.topic

    asyncio.run(main())


def test_anonymous_group_of_a_pattern_receives_everything_sent_after_its_binding(shop: Shop) -> None:
    """Also before its partitions are assigned, and no earlier messages."""

    async def main() -> None:
        await shop.send("old")
        inbox = Inbox()
        pattern: Mapping[str, object] = {
            "bindings.in.destination": f"{shop.topic[:-1]}[{shop.topic[-1]}]",
            "bindings.in.group": None,
            "kafka.bindings.in.consumer.destination-is-pattern": "true",
        }
        async with shop.app() as sender, shop.app(shop.listening(inbox), **pattern):
            for number in range(20):
                await sender.bridge.asend("out", str(number))
            heard = await inbox.wait(20)
        assert sorted(int(message.payload) for message in heard) == list(range(20))

    asyncio.run(main())


@pytest.mark.parametrize("resets", ["false", "true"])
def test_anonymous_group_receives_everything_of_partitions_added_later(shop: Shop, resets: str) -> None:
    """Also from before it notices them, and no earlier messages of the others."""
    settings: Mapping[str, object] = {
        "bindings.in.group": None,
        "kafka.bindings.in.consumer.reset-offsets": resets,
        "kafka.bindings.in.consumer.configuration.metadata.max.age.ms": 2000,
    }

    async def main() -> None:
        await shop.make_topic(1)
        await shop.send("old")
        inbox = Inbox()
        async with shop.app(shop.listening(inbox), **settings):
            more = {"kafka.binder.auto-add-partitions": "true", "bindings.out.producer.partition-count": 2}
            async with shop.app(**more) as sender:
                for number in range(4):
                    await sender.bridge.asend("out", Message(str(number), {PARTITION: number % 2}))
            heard = await inbox.wait(4)
        assert sorted(int(message.payload) for message in heard) == [0, 1, 2, 3]

    asyncio.run(main())


def test_group_reset_to_the_end_receives_everything_sent_after_its_binding(shop: Shop) -> None:
    """Also before its partitions are assigned, and no earlier messages."""

    async def main() -> None:
        inbox = Inbox()
        async with shop.app() as sender:
            async with shop.app(shop.listening(inbox)):
                await sender.bridge.asend("out", "handled")
                await inbox.wait(1)
            await sender.bridge.asend("out", "passed over")
            late = {"start-offset": "latest", "reset-offsets": "true"}
            settings = {f"kafka.bindings.in.consumer.{key}": value for key, value in late.items()}
            async with shop.app(shop.listening(inbox), **settings):
                for number in range(20):
                    await sender.bridge.asend("out", str(number))
                _, *heard = await inbox.wait(21)
        assert sorted(int(message.payload) for message in heard) == list(range(20))

    asyncio.run(main())


def test_application_may_listen_to_rebalances(shop: Shop) -> None:
    """It gets assigned and revoked partitions, and may seek."""

    class Rewind:
        def __init__(self) -> None:
            self.reported: list[tuple[str, int]] = []

        def on_partitions_assigned(self, consumer: Any, partitions: set[TopicPartition]) -> None:
            self.reported.append(("assigned", len(partitions)))
            for partition in partitions:
                consumer.seek(partition, 0)

        def on_partitions_revoked(self, consumer: Any, partitions: set[TopicPartition]) -> None:
            self.reported.append(("revoked", len(partitions)))

    async def main() -> None:
        await shop.make_topic(1)
        await shop.send("0", "1")
        rewind, inbox = Rewind(), Inbox()

        def customize(client: ConsumerClient, destination: ConsumerDestination) -> None:
            client.rebalance_listener = rewind
            client.config["client_id"] = f"reader of {destination.name}"

        def listen(app: StreamApplication) -> None:
            shop.listening(inbox)(app)
            app.customize_consumer(customize)

        for number in (2, 4):
            async with shop.app(listen):
                await inbox.wait(number)
        assert rewind.reported[1] == ("assigned", 1)
        assert rewind.reported[-1] == ("revoked", 1)

    asyncio.run(main())


def test_waiting_call_does_not_begin_after_its_partition_may_have_moved(shop: Shop) -> None:
    """One handler, four partitions: three messages wait for it when another member takes partitions over."""

    async def main() -> None:
        await shop.make_topic(4)
        begun, elsewhere, go_on = Inbox(), Inbox(), asyncio.Event()

        async def slow(text: str) -> None:
            begun.add(text)
            await go_on.wait()

        async def quick(text: str) -> None:
            elsewhere.add(text)

        async def send(texts: str) -> None:
            for number, text in enumerate(texts):
                await shop.send(text, headers={PARTITION: number})

        await send("abcd")
        # With this interval, a rebalance waits for calls for one second.
        brief = {"kafka.bindings.in.consumer.configuration.max.poll.interval.ms": 4000}
        async with shop.app(lambda app: app.stream_listener("in")(slow), **brief):
            await begun.wait(1)
            async with shop.app(lambda app: app.stream_listener("in")(quick), **brief):
                await elsewhere.wait(1)
                go_on.set()
                # Messages that have waited longer are consumed before these.
                await send("efgh")
                await eventually(shop.committed, dict.fromkeys(range(4), 2))
        assert not set(begun.items[1:]) & set(elsewhere.items)

    asyncio.run(main())


def test_lag_is_a_metric(shop: Shop) -> None:
    """A gauge per input over all its destinations; transaction markers and aborted records do not count."""

    def send_in_transactions() -> None:
        producer = KafkaProducer(bootstrap_servers=shop.brokers, transactional_id=shop.topic)
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            producer.send(f"{shop.topic}-{number % 2}", b"%d" % number)
            if number < 2:
                producer.commit_transaction()
            else:
                producer.flush()
                producer.abort_transaction()
        producer.close()

    async def main() -> None:
        begun, go_on = Inbox(), asyncio.Event()

        async def wait(payload: str) -> None:
            begun.add(payload)
            await go_on.wait()

        both = ",".join(f"{shop.topic}-{number}" for number in range(2))
        own = "kafka.bindings.in.consumer.configuration.isolation.level"
        async with (
            shop.app(
                lambda app: app.stream_listener("in")(wait),
                bindings__in__destination=both,
                **{own: "read_committed"},
            ) as app,
        ):
            await asyncio.to_thread(send_in_transactions)
            await begun.wait(1)
            # Each partition has four records: a message, its commit marker, an aborted message and its abort marker.
            await eventually(app.lags, {"in": 8})
            go_on.set()
            await eventually(app.lags, {"in": 0})
        assert sorted(begun.items) == ["0", "1"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("metrics.default-offset-lag-metrics-enabled=false", [{}, {}]),
        ("metrics.offset-lag-metrics-interval=1h", [{"in": 0}, {"in": 0}]),
    ],
)
def test_settings_control_the_lag_requests(shop: Shop, setting: str, message: list[dict[str, int]]) -> None:
    """Brokers are asked at most once per interval."""
    key, _, value = setting.partition("=")

    async def main() -> list[object]:
        async with shop.app(shop.listening(Inbox()), **{f"kafka.binder.{key}": value}) as app:
            first = await app.lags()
            await app.controller.change_state("in", "PAUSED")
            await shop.send("more")
            return [first, await app.lags()]

    assert asyncio.run(main()) == message


def test_health_includes_the_lag(shop: Shop) -> None:
    """Unsettled messages per binding."""

    async def main() -> None:
        await shop.make_topic(1)
        begun, go_on = Inbox(), asyncio.Event()

        async def wait(payload: str) -> None:
            begun.add(payload)
            await go_on.wait()

        async with shop.app(lambda app: app.stream_listener("in")(wait)) as app:
            await shop.send("0", "1", "2")
            await begun.wait(1)
            binder = app.binding("in").binder.binder

            async def lag() -> str:
                return (await binder.health()).details["lag.in"]

            await eventually(lag, "3")
            assert (await binder.health()).status is HealthStatus.UP
            go_on.set()
            await eventually(lag, "0")

    asyncio.run(main())


def test_health_is_down_for_a_consumer_that_cannot_fetch(shop: Shop) -> None:
    """A group without offsets or a start position, although the brokers answer."""

    async def main() -> None:
        await shop.make_topic(1)
        nowhere = {"kafka.bindings.in.consumer.configuration.auto.offset.reset": "none"}
        async with shop.app(shop.listening(Inbox()), **nowhere) as app:
            binder = app.binding("in").binder.binder

            async def is_failing() -> bool:
                health = await binder.health()
                return health.status is HealthStatus.DOWN and "NoOffset" in health.details.get("error.in", "")

            await eventually(is_failing, True)

    asyncio.run(main())


def test_unawaited_sends_report_errors_later(shop: Shop) -> None:
    """sync=false returns at once; a message too large for the broker goes to the error channel."""

    async def main() -> None:
        errors, inbox = Inbox(), Inbox()

        async def note(error: ErrorMessage) -> None:
            errors.add(error.payload)

        own = "kafka.bindings.out.producer"
        limit: dict[str, object] = {f"{own}.topic.properties.max.message.bytes": 5000, f"{own}.sync": "false"}
        limit["output-bindings"] = "out"
        async with shop.app(lambda app: app.error_listener(f"{shop.topic}.errors")(note), **limit) as app:
            for number in range(100):
                await app.bridge.asend("out", str(number))
            await app.bridge.asend("out", Message(b"x" * 10_000))
            (error,) = await errors.wait(1)
            assert "MessageSizeTooLarge" in str(error)
        async with shop.app(shop.listening(inbox)):
            assert len(await inbox.wait(100)) == 100

    asyncio.run(main())


def test_expression_makes_the_key(shop: Shop) -> None:
    """From payload and headers; without a value there is no key."""

    async def main() -> None:
        own = "kafka.bindings.out.producer"
        async with shop.app(**{f"{own}.message-key-expression": "payload.get('customer')"}) as app:
            await app.bridge.asend("out", {"customer": 7})
            await app.bridge.asend("out", {"nobody": 7})
        found = await shop.records(shop.topic, 2)
        assert {record.value: record.key for record in found} == {
            b'{"customer":7}': b"7",
            b'{"nobody":7}': None,
        }

    asyncio.run(main())


def test_header_may_select_the_topic(shop: Shop) -> None:
    """With use-topic-header=true, where a message has one."""

    async def main() -> None:
        other = f"{shop.topic}-other"
        async with shop.app(**{"kafka.bindings.out.producer.use-topic-header": "true"}) as app:
            async with shop.app(bindings__out__destination=other):
                pass
            await app.bridge.asend("out", Message("x", {"kafka_topic": other, KEY: "order-1"}))
        (record,) = await shop.records(other, 1)
        assert (record.topic, record.key) == (other, b"order-1")

    asyncio.run(main())


def test_partition_header_applies_to_the_topic_that_a_header_selected(shop: Shop) -> None:
    """Not to the binding's own."""

    async def main() -> None:
        other = f"{shop.topic}-other"
        async with shop.app(bindings__out__destination=other, bindings__out__producer__partition_count=6):
            pass
        async with shop.app(**{"kafka.bindings.out.producer.use-topic-header": "true"}) as app:
            await app.bridge.asend("out", Message("x", {"kafka_topic": other, PARTITION: 5}))
        (record,) = await shop.records(other, 1)
        assert record.partition == 5

    asyncio.run(main())


def test_springs_headers_select_partition_and_timestamp(shop: Shop) -> None:
    """As in Spring's Kafka handler they precede ours; an invalid value is named in the error."""

    async def main() -> None:
        await shop.make_topic(3)
        async with shop.app() as app:
            headers: dict[str, object] = {"kafka_partitionId": 2, "kafka_timestamp": 1234567890123}
            await app.bridge.asend("out", Message("spring's", headers))
            await app.bridge.asend("out", Message("ours", headers | {PARTITION: 1}))
            for name, value in (("kafka_partitionId", "two"), ("kafka_timestamp", -5)):
                with pytest.raises(StreamkitError, match=f"{name}.*{value}"):
                    await app.bridge.asend("out", Message("x", {name: value}))
        found = {record.value: record for record in await shop.records(shop.topic, 2)}
        assert {value: record.partition for value, record in found.items()} == {b"spring's": 2, b"ours": 1}
        assert {record.timestamp for record in found.values()} == {1234567890123}
        assert not {name for record in found.values() for name, _ in record.headers} & headers.keys()

    asyncio.run(main())


@pytest.mark.parametrize("prefix", [None, "tx-growing-"])
def test_keys_are_distributed_over_all_present_partitions(shop: Shop, prefix: str | None) -> None:
    """Also over those added after the application's start."""
    settings: Mapping[str, object] = {
        "bindings.out.producer.partition-key-expression": "headers['lane']",
        "kafka.binder.configuration.metadata.max.age.ms": 500,
        "kafka.binder.transaction.transaction-id-prefix": prefix,
        "bindings.in.consumer.max-attempts": 1,
    }

    async def main() -> None:
        await shop.make_topic(2)
        inbox = Inbox()
        async with shop.app(shop.listening(inbox), **settings, **{"output-bindings": "out"}) as app:

            async def lane() -> object:
                """Return where a message came from; None if the listener did not read that partition yet."""
                await app.bridge.asend("out", Message("x", {"lane": 3}))
                with suppress(TimeoutError):
                    async with asyncio.timeout(PATIENCE / 10):
                        *_, last = await inbox.wait(len(inbox.items) + 1)
                        return last.headers[PARTITION]
                return None

            await eventually(lane, 1)

            def grow() -> None:
                with shop.admin() as admin:
                    admin.create_partitions({shop.topic: 4})

            await asyncio.to_thread(grow)
            await eventually(lane, 3)

    asyncio.run(main())
