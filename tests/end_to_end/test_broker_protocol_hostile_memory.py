"""Limits on the memory and tables that clients can use; other clients are served."""

import asyncio

import pytest

from rocket_broker.clients import heartbeat_limits, queue_locks
from rocket_broker.clients.heartbeat_limits import MAX_CLIENT_ID, MAX_GROUPS, MAX_SUBSCRIPTIONS
from rocket_broker.embedded import EmbeddedBroker
from rocket_broker.filter import consumer_filter_table
from rocket_broker.filter.sql import MAX_LENGTH
from rocket_broker.filter.subscription import MAX_EXPRESSION
from rocket_broker.processors import relay
from rocket_broker.processors.relay import MAX_CALLS
from rocket_broker.pulling import pull_request_hold
from rocket_broker.tables import consumer_offset_table
from rocket_remoting import TcpTransport
from rocket_remoting.wire.bodies import (
    CreateTopicListRequestBody,
    LockBatchRequestBody,
    LockBatchResponseBody,
    SubscriptionGroupConfig,
    TopicConfig,
    decode_body,
    encode_body,
)
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import (
    CloneGroupOffsetRequestHeader,
    DeleteTopicRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    ResetOffsetRequestHeader,
    UnregisterClientRequestHeader,
)
from rocket_remoting.wire.message import MessageQueue
from tests.end_to_end.raw_client import HELD, RawClient, pull_header, with_broker

BUSY = ResponseCode.SYSTEM_BUSY
ERROR = ResponseCode.SYSTEM_ERROR


async def another(embedded: EmbeddedBroker) -> RawClient:
    """Return a client with its own connection."""
    return await RawClient.connect(embedded.broker.transport, embedded.broker_address)


def names(prefix: str, count: int) -> tuple[str, ...]:
    return tuple(f"{prefix}-{number}" for number in range(count))


# Heartbeats


def test_groups_per_connection_are_limited() -> None:
    """One more is refused until the connection leaves another."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.heartbeat(producers=names("first", MAX_GROUPS - 1))
        await client.heartbeat(producers=("second",))
        answer = await client.heartbeat(producers=("third",), expected=ERROR)
        assert "unregister from others" in (answer.remark or "")
        assert "third" not in embedded.broker.producers
        left = UnregisterClientRequestHeader(client_id="client@1", producer_group="second")
        await client.ask_ok(Code.UNREGISTER_CLIENT, left)
        await client.heartbeat(producers=("third",))

    with_broker(scene)


def test_excessive_heartbeats_keep_the_previous_state() -> None:
    """They are refused; the client's groups and connection stay."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        consumers = {"group": {"orders": "*"}}
        await client.heartbeat(producers=("shop",), consumers=consumers)
        consumers["wide"] = dict.fromkeys(names("topic", MAX_SUBSCRIPTIONS + 1), "*")
        for _ in range(10):
            await asyncio.sleep(30)
            await client.heartbeat(producers=("shop",), consumers=consumers, expected=ERROR)
        assert list(embedded.broker.consumers) == ["group"]
        assert "shop" in embedded.broker.producers
        assert not client.connection.is_closed

    with_broker(scene)


@pytest.mark.parametrize(
    ("client_id", "topics"),
    [
        ("c" * (MAX_CLIENT_ID + 1), {"orders": "*"}),
        ("c", dict.fromkeys(names("topic", MAX_SUBSCRIPTIONS + 1), "*")),
        ("c", {"orders": "a" * (MAX_EXPRESSION + 1)}),
        ("c", {"t" * 2000: "*"}),
    ],
    ids=["client id", "subscriptions", "expression", "topic"],
)
def test_heartbeat_beyond_a_limit_registers_nothing(client_id: str, topics: dict[str, str]) -> None:
    """The short answer names the limit; the connection stays."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        answer = await client.heartbeat(client_id, consumers={"good": {"orders": "*"}, "g": topics}, expected=ERROR)
        assert 20 < len(answer.remark or "") < 400
        assert len(embedded.broker.consumers) == 0
        assert "good" not in embedded.broker.groups
        await client.heartbeat(consumers={"g": {"orders": "*"}})

    with_broker(scene)


def test_subscriptions_per_client_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over all its groups and heartbeats; existing ones do not count again, and fewer are always accepted."""
    monkeypatch.setattr(heartbeat_limits, "MAX_OF_CONNECTION", 100_000)
    wide = dict.fromkeys(names("topic", 45), "*")

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        for _ in range(3):
            await client.heartbeat(consumers={"first": wide})
            await client.heartbeat(consumers={"second": wide})
        answer = await client.heartbeat(consumers={"third": wide}, expected=ERROR)
        assert "at most 100000" in (answer.remark or "")
        await client.heartbeat(consumers={"second": {"orders": "*"}})
        await client.heartbeat(consumers={"third": wide})

    with_broker(scene)


def test_subscriptions_of_all_clients_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker answers busy; present clients are served, and a leaving one frees its share."""
    monkeypatch.setattr(heartbeat_limits, "MAX_TOTAL", 100_000)
    wide = dict.fromkeys(names("topic", 80), "*")

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        greedy = await another(embedded)
        await greedy.heartbeat("greedy", consumers={"g": wide})
        await client.heartbeat(consumers={"h": {"orders": "*"}})
        await client.heartbeat(consumers={"i": wide}, expected=BUSY)
        await client.heartbeat(consumers={"h": {"orders": "*"}})
        await greedy.connection.close()
        await asyncio.sleep(1)
        await client.heartbeat(consumers={"i": wide})

    with_broker(scene)


def test_only_recent_client_ids_of_a_connection_are_kept() -> None:
    """A client has one; invented ones are dropped except the latest."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        for number in range(100):
            await client.heartbeat(f"c{number}", producers=("p",))
        producers = embedded.broker.producers
        assert producers.find("c0") is None
        assert producers.find("c99") is not None
        await client.connection.close()
        await asyncio.sleep(1)
        assert producers.find("c99") is None

    with_broker(scene)


# Topics, groups, offsets, locks


def test_automatically_created_topics_are_limited() -> None:
    """An unknown topic is refused, with the setting in the remark; known topics are served."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        answers = [await client.try_send(f"topic-{number}") for number in range(30)]
        refused = [answer for answer in answers if answer.code != ResponseCode.SUCCESS]
        assert {answer.code for answer in refused} == {ResponseCode.TOPIC_NOT_EXIST}
        assert "maxTopics" in (refused[0].remark or "")
        assert len(embedded.broker.topics) == 20
        await client.send("topic-0")
        await client.heartbeat(consumers={"g": {"topic-0": "*"}})
        (message,) = (await client.messages("topic-0"))[:1]
        assert (await client.send_back(message)).code == ERROR
        await client.ask_ok(Code.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="topic-1"))
        await client.send("topic-29")

    with_broker(scene, maxTopics="20")


def test_topics_created_by_tools_are_limited() -> None:
    """All of a request or none."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        before = len(embedded.broker.topics)
        for number in range(20 - before):
            await client.create_topic(f"topic-{number}")
        with pytest.raises(AssertionError, match="maxTopics"):
            await client.create_topic("another")
        await client.create_topic("topic-0", 2)

    with_broker(scene, maxTopics="20")


def test_configuration_of_a_topic_or_group_is_limited_in_size() -> None:
    """Including unknown fields, which would be written with every change of the table."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        long = {"message.type": "x" * 5000}
        group = SubscriptionGroupConfig(group_name="g", attributes=long)
        answer = await client.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, encode_body(group))
        assert answer.code == ResponseCode.INVALID_PARAMETER
        topic = TopicConfig(topic_name="t", read_queue_nums=1, write_queue_nums=1, attributes=long)
        body = encode_body(CreateTopicListRequestBody(topic_config_list=[topic]))
        answer = await client.ask(Code.UPDATE_AND_CREATE_TOPIC_LIST, None, body)
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert "t" not in embedded.broker.topics
        assert "g" not in embedded.broker.groups

    with_broker(scene)


def test_topics_and_groups_of_a_request_are_limited_in_number() -> None:
    """They are all created in one step of the loop, or none of them."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        topics = b",".join(b'{"topicName":"t%d"}' % number for number in range(2_001))
        groups = b",".join(b'{"groupName":"g%d"}' % number for number in range(2_001))
        for code, body in (
            (Code.UPDATE_AND_CREATE_TOPIC_LIST, b'{"topicConfigList":[%b]}' % topics),
            (Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, b'{"groupConfigList":[%b]}' % groups),
        ):
            answer = await client.ask(code, None, body)
            assert answer.code == ResponseCode.INVALID_PARAMETER
            assert "s; the limit is 2000: send the others in further requests" in (answer.remark or "")
        assert "t0" not in embedded.broker.topics
        assert "g0" not in embedded.broker.groups

    with_broker(scene)


def test_automatically_created_groups_are_limited() -> None:
    """Those beyond do not exist for pulls, offsets and tools."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send()
        for name in names("group", 30):
            await client.heartbeat(consumers={name: {"orders": "*"}})
        assert len(embedded.broker.groups) == 20
        pulled = await client.pull(consumer_group="group-29")
        assert pulled.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert (await client.commit(1, group="group-29")).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert (await client.pull(consumer_group="group-0")).code == ResponseCode.SUCCESS
        config = encode_body(SubscriptionGroupConfig(group_name="tool"))
        answer = await client.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config)
        assert (answer.code, "maxGroups" in (answer.remark or "")) == (ERROR, True)

    with_broker(scene, maxGroups="20")


def test_offsets_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of invented groups; existing ones can be committed, and a deleted topic frees its share."""
    monkeypatch.setattr(consumer_offset_table, "MAX_OFFSETS", 8)

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.create_topic("orders", 2)
        await client.create_topic("other")
        await client.commit(1, topic="other", group="f")
        groups = ("g", "h", "i")
        full = [await client.commit(1, group=group, queue_id=queue) for group in groups for queue in (0, 1)]
        full += [await client.commit(1, topic="other", group="j")]
        assert {answer.code for answer in full} == {0}
        codes = [(await client.commit(1, group="k")).code, (await client.commit(2)).code]
        assert codes == [ERROR, 0]
        copy = CloneGroupOffsetRequestHeader(src_group="g", dest_group="k", topic="orders", offline=True)
        assert (await client.ask(Code.CLONE_GROUP_OFFSET, copy)).code == ERROR
        await client.ask_ok(Code.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="other"))
        assert (await client.commit(1, group="k")).code == ResponseCode.SUCCESS

    with_broker(scene)


def test_offset_of_a_missing_queue_is_not_reset() -> None:
    """However many queue ids there are."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send()
        await client.commit(1)
        header = ResetOffsetRequestHeader(
            group="g", topic="orders", timestamp=0, is_force=True, queue_id=70_000, offset=0
        )
        answer = await client.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, header)
        assert (answer.code, "queueId[70000]" in (answer.remark or "")) == (ERROR, True)
        assert await client.committed(queue_id=70_000) is None

    with_broker(scene, useServerSideResetOffset="true")


def test_locks_are_kept_for_existing_queues_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """And up to a limit; further ones must be requested again."""
    monkeypatch.setattr(queue_locks, "MAX_LOCKS", 8)

    async def lock(client: RawClient, group: str, *queues: MessageQueue) -> set[MessageQueue]:
        wish = LockBatchRequestBody(consumer_group=group, client_id="c", mq_set=set(queues))
        answer = await client.ask_ok(Code.LOCK_BATCH_MQ, None, wish)
        return decode_body(answer.body, LockBatchResponseBody).lock_ok_mq_set

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.create_topic("orders", 2)
        both = [MessageQueue("orders", "broker-a", number) for number in range(2)]
        strange = [
            MessageQueue("orders", "broker-a", 2),
            MessageQueue("orders", "broker-b", 0),
            MessageQueue("unknown", "broker-a", 0),
        ]
        assert await lock(client, "g", *both, *strange) == set(both)
        assert await lock(client, "h", *both) == set(both)
        assert await lock(client, "i", *both) == set(both)
        assert len(await lock(client, "j", both[0])) == 1
        assert len(await lock(client, "k", *both)) == 1
        assert await lock(client, "g", *both) == set(both)
        assert len(embedded.broker.locks) == 8

    with_broker(scene)


# Pulls and filters


def test_held_pull_keeps_no_unused_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown field of any length does not count, but the filter's length does."""
    monkeypatch.setattr(pull_request_hold, "MAX_BYTES_PER_CONNECTION", 50_000)

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send()
        await client.heartbeat(consumers={"g": {"orders": "*"}})
        long = "x" * 80_000
        reported = HELD & ~4
        header = pull_header(
            "orders", 1, sys_flag=reported, subscription=long, expression_type=long, proxy_froward_client_id=long
        )
        held = asyncio.create_task(client.ask(Code.PULL_MESSAGE, header, long.encode()))
        await asyncio.sleep(1)
        assert len(embedded.broker.pull_request_hold) == 1
        await client.send()
        assert (await held).code == ResponseCode.SUCCESS
        asked = await client.pull(offset=2, sys_flag=HELD, subscription=long)
        assert asked.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED

    with_broker(scene)


def test_filters_of_held_pulls_count_by_their_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long ones reach the connection's limit, short ones do not."""
    monkeypatch.setattr(pull_request_hold, "MAX_BYTES_PER_CONNECTION", 100_000)

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send()
        by_sql = {"expression_type": "SQL92", "sys_flag": HELD, "suspend_timeout_millis": 60_000}
        long = pull_header("orders", 1, subscription="a = '" + "x" * 2000 + "'", **by_sql)
        assert (await client.ask(Code.PULL_MESSAGE, long)).code == BUSY
        short = pull_header("orders", 1, subscription="a = 'x'", **by_sql)
        held = asyncio.create_task(client.ask(Code.PULL_MESSAGE, short))
        await asyncio.sleep(1)
        assert len(embedded.broker.pull_request_hold) == 1
        await client.send(properties={"a": "x"})
        assert (await held).code == ResponseCode.SUCCESS

    with_broker(scene)


def test_filters_of_groups_are_limited_and_dead_ones_are_removed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group without space for its filter gets an error at its pulls; equal texts count once."""
    monkeypatch.setattr(consumer_filter_table, "MAX_CHARACTERS", 80)
    text = "a = '{}' AND b = 'xx'"

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send()
        filters = embedded.broker.filters

        async def tell(who: RawClient, group: str, letter: str) -> None:
            wanted = {group: {"orders": text.format(letter)}}
            await who.heartbeat(group, consumers=wanted, expression_type="SQL92")

        leaving = await another(embedded)
        await tell(leaving, "first", "x")
        await tell(client, "second", "y")
        await tell(client, "third", "y")
        assert filters.get("third", "orders") is not None
        await tell(client, "fifth", "v")
        await tell(client, "sixth", "w")
        await tell(client, "fourth", "z")
        assert filters.get("fourth", "orders") is None
        pulled = await client.ask(
            Code.PULL_MESSAGE, pull_header("orders", 0, consumer_group="fourth", sys_flag=0, sub_version=1)
        )
        assert pulled.code == ResponseCode.FILTER_DATA_NOT_EXIST
        assert "the limit of filters is reached" in (pulled.remark or "")
        await leaving.connection.close()
        await asyncio.sleep(1)
        await tell(client, "fourth", "z")
        assert filters.get("fourth", "orders") is not None
        assert filters.get("first", "orders") is None

    with_broker(scene)


# What tools ask of consumers


def test_requests_of_tools_to_consumers_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit of pending ones the broker answers busy; each that ends frees a place."""
    monkeypatch.setattr(relay, "CALL_SECONDS", 5.0)

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.heartbeat("silent", consumers={"g": {"orders": "*"}})
        header = GetConsumerRunningInfoRequestHeader(consumer_group="g", client_id="silent")
        asked = [asyncio.create_task(client.ask(Code.GET_CONSUMER_RUNNING_INFO, header)) for _ in range(MAX_CALLS)]
        await asyncio.sleep(1)
        assert (await client.ask(Code.GET_CONSUMER_RUNNING_INFO, header)).code == BUSY
        codes = {answer.code for answer in await asyncio.gather(*asked)}
        assert codes == {ResponseCode.CONSUME_MSG_TIMEOUT}
        answer = await client.ask(Code.GET_CONSUMER_RUNNING_INFO, header)
        assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT

    with_broker(scene)


def test_unknown_settings_are_refused_and_not_kept() -> None:
    """However often they are sent."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        before = list(embedded.broker.settings.warnings)
        for _ in range(3):
            answer = await client.ask(Code.UPDATE_BROKER_CONFIG, None, b"useEpollNativeSelector=true\n")
            assert answer.code == ResponseCode.NO_PERMISSION
        assert embedded.broker.settings.warnings == before

    with_broker(scene)


# Buffers


def test_client_that_reads_nothing_is_limited_when_memory_is_scarce() -> None:
    """Its pulls are refused, others are served; beyond the limit its connection is closed."""

    async def main() -> None:
        settings = {"maxBufferedBytes": str(4 * 1024 * 1024)}
        async with EmbeddedBroker(settings=settings) as embedded:
            honest = await RawClient.connect(TcpTransport(), embedded.broker_address)
            for _ in range(16):
                await honest.send(body=bytes(256 * 1024))
            greedy = await RawClient.connect(TcpTransport(), embedded.broker_address)
            assert greedy.connection._transport is not None
            greedy.connection._transport.pause_reading()
            pull = pull_header("orders", 0, max_msg_nums=4096)
            asked = [greedy.connection.invoke_async(Code.PULL_MESSAGE, pull, timeout=60) for _ in range(100)]
            budget = embedded.broker.buffers
            while not (budget.is_scarce or budget.closed):
                assert (await honest.pull(offset=15)).code == ResponseCode.SUCCESS
            greedy.connection._transport.resume_reading()
            answers = await asyncio.gather(*asked, return_exceptions=True)
            assert budget.closed or BUSY in {answer.code for answer in answers if isinstance(answer, RemotingCommand)}
            assert (await honest.pull(offset=15)).code == ResponseCode.SUCCESS
            assert budget.used <= 4 * 1024 * 1024
            await greedy.connection.close()
            await honest.connection.close()

    asyncio.run(main())


def test_hundreds_of_connections_are_served() -> None:
    """Each with its heartbeat; the broker forgets them with their connections."""

    async def main() -> None:
        async with EmbeddedBroker() as embedded:
            transport, address = TcpTransport(), embedded.broker_address
            clients = [await RawClient.connect(transport, address) for _ in range(150)]
            for number, client in enumerate(clients):
                await client.heartbeat(f"c{number}", consumers={f"g{number % 10}": {"orders": "*"}})
            assert len(embedded.broker.consumers) == 10
            assert embedded.broker.buffers.used == 0
            await asyncio.gather(*(client.send() for client in clients))
            for client in clients:
                await client.connection.close()
        assert len(embedded.broker.consumers) == 0

    asyncio.run(main())


def test_compilation_per_client_is_limited() -> None:
    """Excess filters must be sent again later; known or few ones are not affected."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send()
        honest = await another(embedded)

        async def pull(who: RawClient, text: str) -> int:
            return (await who.pull(subscription=text, expression_type="SQL92")).code

        long = "a = '" + "x" * (MAX_LENGTH - 20) + "' OR b = {}"
        codes = [await pull(client, long.format(number)) for number in range(8)]
        assert codes[:4].count(BUSY) == 0
        assert set(codes[4:]) == {BUSY}
        assert await pull(client, long.format(3)) != BUSY
        assert await pull(honest, long.format(9)) != BUSY
        await asyncio.sleep(60)
        assert await pull(client, long.format(5)) != BUSY
        await honest.connection.close()

    with_broker(scene, serverChannelMaxIdleTimeSeconds="0")
