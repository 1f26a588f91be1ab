"""Failed and delayed messages: request 36, retry and dead letter topics, delay levels."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from rocket_broker.embedded import EmbeddedBroker
from rocket_broker.store.messages import StoreMessage
from rocket_remoting import MemoryTransport, MessageExt
from rocket_remoting.wire.bodies import SubscriptionGroupConfig
from rocket_remoting.wire.codes import RequestCode, ResponseCode, Version
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import ConsumerSendMsgBackRequestHeader
from streamkit.testing.virtual_time import VirtualTime
from tests.end_to_end.raw_client import RawClient, with_broker

RETRY = "%RETRY%g"
DLQ = "%DLQ%g"
DOCUMENTED_SECONDS = [10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]


async def sent(client: RawClient, **properties: str) -> MessageExt:
    """Return a message that was just stored."""
    answer = await client.send(properties=properties)
    (message,) = await client.messages(offset=answer.queue_offset)
    return message


async def first(client: RawClient, topic: str) -> MessageExt:
    """Return the topic's only message."""
    (message,) = await client.messages(topic)
    return message


def test_failed_message_is_redelivered_after_ten_seconds() -> None:
    """From the group's retry topic, with its content and origin."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        message = await sent(client, TAGS="A", KEYS="k", mine="x")
        assert (await client.send_back(message)).code == ResponseCode.SUCCESS
        await asyncio.sleep(9.9)
        assert await client.end(RETRY) == 0
        await asyncio.sleep(0.2)
        back = await first(client, RETRY)
        assert (back.body, back.reconsume_times) == (b"hello", 1)
        assert back.properties == {
            "TAGS": "A",
            "KEYS": "k",
            "mine": "x",
            "CLUSTER": "DefaultCluster",
            "MSG_REGION": "DefaultRegion",
            "RETRY_TOPIC": "orders",
            "ORIGIN_MESSAGE_ID": message.offset_message_id,
            "WAIT": "false",
            "DELAY": "3",
            "REAL_TOPIC": RETRY,
            "REAL_QID": "0",
        }
        assert (back.born_timestamp, back.born_host) == (message.born_timestamp, message.born_host)

    with_broker(scene)


def test_sixteen_redeliveries_at_the_documented_times_then_a_dead_letter() -> None:
    """10 s, 30 s, 1 m … 2 h; the origin is kept."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        message = origin = await sent(client)
        for times, seconds in enumerate(DOCUMENTED_SECONDS):
            await client.send_back(message)
            await asyncio.sleep(seconds - 0.1)
            assert await client.end(RETRY) == times
            await asyncio.sleep(0.2)
            (message,) = await client.messages(RETRY, offset=times)
        await client.send_back(message)
        dead = await first(client, DLQ)
        assert dead.reconsume_times == 17
        assert dead.properties["ORIGIN_MESSAGE_ID"] == origin.offset_message_id
        assert dead.properties["RETRY_TOPIC"] == "orders"
        assert (dead.properties["DELAY"], dead.properties["WAIT"]) == ("0", "false")

    with_broker(scene)


def test_consumer_chooses_the_level_or_the_dead_letter() -> None:
    """A level above 0 is used, up to the highest; one below 0 means a dead letter at once."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        message = await sent(client)
        await client.send_back(message, delay_level=1)
        await asyncio.sleep(1.1)
        assert (await first(client, RETRY)).properties["DELAY"] == "1"
        await client.send_back(message, delay_level=99)
        (waiting,) = await client.messages("SCHEDULE_TOPIC_XXXX", queue_id=17)
        assert waiting.properties["DELAY"] == "18"
        await client.send_back(message, delay_level=-1)
        assert (await first(client, DLQ)).body == b"hello"

    with_broker(scene)


@pytest.mark.parametrize(("version", "is_dead"), [(Version.V3_4_9, True), (Version.V3_4_9 - 1, False)])
def test_consumers_retry_limit_counts_from_client_version_3_4_9(version: int, is_dead: bool) -> None:
    """Older clients send the field without meaning it."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        message = await sent(client)
        header = ConsumerSendMsgBackRequestHeader(
            offset=message.commit_log_offset, group="g", delay_level=0, max_reconsume_times=0
        )
        command = RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK, header, oneway=True)
        command.version = version
        client.connection._send(command.encode())
        await asyncio.sleep(11)
        assert [await client.end(DLQ), await client.end(RETRY)] == ([1, 0] if is_dead else [0, 1])

    with_broker(scene)


def test_groups_retry_settings_apply() -> None:
    """``retryMaxTimes``, ``retryQueueNums``; without retry queues: success without action."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        for config in (
            SubscriptionGroupConfig(group_name="g", retry_max_times=0),
            SubscriptionGroupConfig(group_name="never", retry_queue_nums=0),
            SubscriptionGroupConfig(group_name="wide", retry_queue_nums=3),
        ):
            await client.ask_ok(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config)
        message = await sent(client)
        await client.send_back(message)
        assert await client.end(DLQ) == 1
        assert (await client.send_back(message, "never")).code == ResponseCode.SUCCESS
        assert embedded.broker.topics.get("%RETRY%never") is None
        await client.send_back(message, "wide")
        wide = embedded.broker.topics.get("%RETRY%wide")
        assert wide is not None
        assert wide.read_queue_nums == 3

    with_broker(scene)


def test_send_back_to_an_unwritable_retry_topic_is_refused() -> None:
    """The consumer keeps the message; nothing is stored."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        message = await sent(client)
        await client.create_topic("%RETRY%g", perm=4)
        end = embedded.broker.store.max_commit_log_offset
        assert (await client.send_back(message)).code == ResponseCode.NO_PERMISSION
        assert embedded.broker.store.max_commit_log_offset == end

    with_broker(scene)


@pytest.mark.parametrize("offset", [-1, 3, 10**9, 2**63 - 1, -(2**63)])
def test_send_back_of_an_offset_without_a_message_is_refused(offset: int) -> None:
    """Within a record, behind the end, before the beginning."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        message = await sent(client)
        answer = await client.send_back(message, offset=offset)
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            f"look message by offset failed, {offset}",
        )

    with_broker(scene)


def test_send_back_of_an_unknown_group_is_refused_without_auto_creation() -> None:
    """SUBSCRIPTION_GROUP_NOT_EXIST; an illegal name likewise."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.ask_ok(
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, SubscriptionGroupConfig(group_name="g")
        )
        message = await sent(client)
        for group in ("unknown", "an illegal name"):
            assert (await client.send_back(message, group)).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST

    with_broker(scene, autoCreateSubscriptionGroup="false")


def test_client_may_send_to_the_retry_topic() -> None:
    """Apache's fallback: a message with level and times; above the limit it becomes a dead letter at once."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        properties = {"DELAY": "3", "RETRY_TOPIC": "orders"}
        fields: dict[str, Any] = {"properties": properties, "max_reconsume_times": 2}
        await client.send(RETRY, b"again", reconsume_times=1, **fields)
        await asyncio.sleep(10.1)
        back = await first(client, RETRY)
        assert (back.body, back.reconsume_times) == (b"again", 1)
        await client.send(RETRY, b"enough", reconsume_times=2, **fields)
        assert (await first(client, DLQ)).body == b"enough"

    with_broker(scene)


def test_delayed_message_is_delivered_when_it_is_due() -> None:
    """With the properties that Apache's consumers see."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        sent = await client.send(queue_id=2, properties={"DELAY": "2", "TAGS": "A", "WAIT": "true"})
        assert (sent.queue_id, sent.queue_offset) == (2, 0)
        await asyncio.sleep(4.9)
        assert await client.end(queue_id=2) == 0
        await asyncio.sleep(0.2)
        (message,) = (await client.pull(queue_id=2, subscription="A")).messages
        assert message.properties == {
            "DELAY": "2",
            "TAGS": "A",
            "CLUSTER": "DefaultCluster",
            "MSG_REGION": "DefaultRegion",
            "REAL_TOPIC": "orders",
            "REAL_QID": "2",
            "WAIT": "true",
        }
        assert message.store_timestamp - message.born_timestamp >= 5_000 - 1

    with_broker(scene)


def test_levels_have_their_own_time_and_order() -> None:
    """A short delay overtakes a long one; messages of one level stay in order."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        for level, body in ((3, b"long"), (1, b"a"), (1, b"b"), (2, b"middle")):
            await client.send(body=body, properties={"DELAY": str(level)})
        await asyncio.sleep(10.1)
        assert [m.body for m in await client.messages()] == [b"a", b"b", b"middle", b"long"]

    with_broker(scene)


@pytest.mark.parametrize(("level", "ok"), [("0", True), ("-3", True), ("x", False), ("", True), ("9" * 5000, False)])
def test_invalid_level(level: str, ok: bool) -> None:
    """Zero and less means no delay, other texts are illegal."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        answer = await client.try_send(properties={"DELAY": level})
        assert answer.code == (ResponseCode.SUCCESS if ok else ResponseCode.MESSAGE_ILLEGAL)
        assert await client.end() == int(ok)

    with_broker(scene)


@pytest.mark.parametrize("level", ["+2", " 2", "0_2"])
def test_level_is_stored_as_recovery_reads_it(level: str) -> None:
    """Whatever its spelling: after a crash the due time is computed from the stored text."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send(properties={"DELAY": level})
        await asyncio.sleep(5.1)
        (message,) = await client.messages()
        assert message.properties["DELAY"] == "2"

    with_broker(scene)


def test_waiting_message_is_not_polled() -> None:
    """Two hours of waiting take a few wake-ups, not seventy thousand."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send(properties={"DELAY": "18"})
        runs = 0
        run = embedded.broker.delays._run

        def counted(level: int) -> None:
            nonlocal runs
            runs += 1
            run(level)

        embedded.broker.delays._run = counted  # type: ignore[method-assign]
        await asyncio.sleep(7200.1)
        assert await client.end() == 1
        assert runs < 300

    with_broker(scene)


def test_held_pull_is_woken_by_a_delayed_message() -> None:
    """At its delivery."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.create_topic("orders")
        await client.send(properties={"DELAY": "1"})
        pulled = await client.pull(sys_flag=6, suspend_timeout_millis=15_000)
        assert len(pulled.messages) == 1
        assert asyncio.get_running_loop().time() == pytest.approx(1, abs=0.05)

    with_broker(scene)


def test_undeliverable_message_does_not_block_its_level(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One without its real topic, as in a damaged store, is skipped and logged."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        for properties in (b"", b"REAL_TOPIC\x01orders\x02REAL_QID\x01x"):
            embedded.broker.store.put(StoreMessage("SCHEDULE_TOPIC_XXXX", 0, b"poison", properties))
        await client.send(body=b"good", properties={"DELAY": "1"})
        await asyncio.sleep(1.1)
        assert [m.body for m in await client.messages()] == [b"good"]
        assert embedded.broker.delays.offsets[1] == 3

    with_broker(scene)
    assert caplog.text.count("cannot be delivered") == 2


class Restarts:
    """A broker on its own store that is restarted repeatedly in one virtual time."""

    def __init__(self, store: Path) -> None:
        self._store = store

    async def run(self, clock: Any, scene: Any, **settings: str) -> None:
        """Start the broker, run the scene, stop it."""
        transport = MemoryTransport()
        keys = {"serverChannelMaxIdleTimeSeconds": "0"} | settings
        async with EmbeddedBroker(self._store, transport=transport, clock=clock, settings=keys) as embedded:
            client = await RawClient.connect(transport, embedded.broker_address)
            await scene(client, embedded)
            await client.connection.close()


def test_restart_neither_loses_nor_repeats_delayed_messages(tmp_path: Path) -> None:
    """Those that became due meanwhile are delivered at once, the others on time."""

    async def before(client: RawClient, embedded: EmbeddedBroker) -> None:
        for level, body in (("1", b"early"), ("2", b"meanwhile"), ("5", b"late")):
            await client.send(body=body, properties={"DELAY": level})
        await asyncio.sleep(2)
        assert [m.body for m in await client.messages()] == [b"early"]

    async def after(client: RawClient, embedded: EmbeddedBroker) -> None:
        await asyncio.sleep(0.1)
        assert [m.body for m in await client.messages()] == [b"early", b"meanwhile"]
        await asyncio.sleep(35)
        assert [m.body for m in await client.messages()] == [b"early", b"meanwhile"]
        await asyncio.sleep(10)
        assert [m.body for m in await client.messages()] == [b"early", b"meanwhile", b"late"]

    async def main(clock: Any) -> None:
        restarts = Restarts(tmp_path)
        await restarts.run(clock, before)
        saved = json.loads((tmp_path / "config" / "delayOffset.json").read_text())
        assert saved["offsetTable"]["1"] == 1
        await asyncio.sleep(20)
        await restarts.run(clock, after)

    with VirtualTime() as time:
        time.run(main(time.clock))


def test_shortened_table_delivers_earlier_messages_at_once(tmp_path: Path) -> None:
    """A due time further away than its level's present delay comes from the old table."""

    async def before(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send(properties={"DELAY": "1"})

    async def after(client: RawClient, embedded: EmbeddedBroker) -> None:
        await asyncio.sleep(1.1)
        assert await client.end() == 1

    async def main(clock: Any) -> None:
        restarts = Restarts(tmp_path)
        await restarts.run(clock, before, messageDelayLevel="2h 3h")
        await restarts.run(clock, after, messageDelayLevel="1s 5s")

    with VirtualTime() as time:
        time.run(main(time.clock))


def test_delay_offsets_are_written_a_second_after_a_delivery(tmp_path: Path) -> None:
    """Not only at the stop, so that a killed broker repeats little."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        file = tmp_path / "config" / "delayOffset.json"
        await client.send(properties={"DELAY": "1"})
        await asyncio.sleep(2.01)
        assert json.loads(file.read_text())["offsetTable"]["1"] == 1

    with VirtualTime() as time:
        time.run(Restarts(tmp_path).run(time.clock, scene))
