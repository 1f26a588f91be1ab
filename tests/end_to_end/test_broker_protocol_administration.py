"""Requests of mqadmin and consoles to a broker."""

import asyncio
import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from rocket_broker.embedded import EmbeddedBroker
from rocket_broker.tables.consumer_offset_table import ConsumerOffsetTable
from rocket_remoting import MemoryTransport, MessageQueue, TcpTransport
from rocket_remoting.wire.bodies import (
    BrokerStatsData,
    ConsumerConnection,
    ConsumeStats,
    ConsumeStatsList,
    CreateTopicListRequestBody,
    GetConsumerStatusBody,
    GroupList,
    KVTable,
    ProducerConnection,
    ProducerTableInfo,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    QuerySubscriptionResponseBody,
    ResetOffsetBody,
    SubscriptionData,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicStatsTable,
    decode_body,
    encode_body,
)
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import (
    CloneGroupOffsetRequestHeader,
    ConsumeMessageDirectlyResultRequestHeader,
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    GetProducerConnectionListRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryConsumeQueueRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryMessageRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    QueryTopicsByConsumerRequestHeader,
    ResetOffsetRequestHeader,
    ViewBrokerStatsDataRequestHeader,
    ViewMessageRequestHeader,
)
from rocket_remoting.wire.record import decode_records
from rocket_remoting.wire.topics import DELETIONS_TOPIC
from tests.end_to_end.raw_client import RawClient, with_broker

Q0 = MessageQueue("orders", "broker-a", 0)


def offsets_on_disk(embedded: EmbeddedBroker) -> dict[str, dict[int, int]]:
    """Return the offsets that the next start would read."""
    found = ConsumerOffsetTable(embedded.broker.settings)
    found.load()
    return {key: dict(queues) for key, queues in found.table().items()}


def topic_header(**changes: Any) -> CreateTopicRequestHeader:
    """Return a request header for a topic of two queues."""
    values: dict[str, Any] = {
        "topic": "orders",
        "default_topic": "TBW102",
        "read_queue_nums": 2,
        "write_queue_nums": 2,
        "perm": 6,
        "topic_filter_type": "SINGLE_TAG",
    }
    return CreateTopicRequestHeader(**values | changes)


async def answering(embedded: EmbeddedBroker, answer: Any) -> RawClient:
    """Return a consumer that answers the broker's requests."""
    transport = embedded.broker.transport
    assert isinstance(transport, MemoryTransport)
    return await RawClient.connect(transport, embedded.broker_address, answer=answer)


def test_topic_is_created_changed_and_read() -> None:
    """Individually (5.x), or with all topics."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.ask_ok(Code.UPDATE_AND_CREATE_TOPIC, topic_header())
        wider = topic_header(read_queue_nums=8, write_queue_nums=8, attributes="+message.type=FIFO")
        await client.ask_ok(Code.UPDATE_AND_CREATE_TOPIC, wider)
        config = await client.fetch(Code.GET_TOPIC_CONFIG, TopicConfig, GetTopicConfigRequestHeader(topic="orders"))
        assert (config.read_queue_nums, config.attributes) == (8, {"message.type": "FIFO"})
        table = await client.fetch(Code.GET_ALL_TOPIC_CONFIG, TopicConfigSerializeWrapper)
        assert table.topic_config_table["orders"] == config
        assert table.data_version.counter >= 2
        await client.send(queue_id=7)

    with_broker(scene)


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": "TBW102"},
        {"topic": "no good"},
        {"topic": ""},
        {"read_queue_nums": -1},
        {"write_queue_nums": 2**31 - 1},
        {"perm": 1024},
        {"topic_filter_type": "MANY"},
        {"attributes": "+queue.type=BatchCQ"},
        {"attributes": "nonsense"},
    ],
)
def test_invalid_topic_is_refused(changes: dict[str, Any]) -> None:
    """System topics, illegal names, absurd numbers, unsupported attributes."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        before = dict(embedded.broker.topics.configs())
        answer = await client.ask(Code.UPDATE_AND_CREATE_TOPIC, topic_header(**changes))
        assert answer.code != ResponseCode.SUCCESS
        assert answer.remark
        assert embedded.broker.topics.configs() == before

    with_broker(scene)


def test_several_topics_and_groups_are_created_at_once() -> None:
    """5.x: all of them, or none if one is invalid."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        topics = [TopicConfig(topic_name=name, read_queue_nums=1, write_queue_nums=1) for name in ("a", "b")]
        body = CreateTopicListRequestBody(topic_config_list=topics)
        await client.ask_ok(Code.UPDATE_AND_CREATE_TOPIC_LIST, None, body)
        assert {"a", "b"} <= set(embedded.broker.topics)
        bad = [TopicConfig(topic_name="c"), TopicConfig(topic_name="no good")]
        body = CreateTopicListRequestBody(topic_config_list=bad)
        assert (await client.ask(Code.UPDATE_AND_CREATE_TOPIC_LIST, None, body)).code != ResponseCode.SUCCESS
        assert "c" not in embedded.broker.topics
        groups = SubscriptionGroupList(group_config_list=[SubscriptionGroupConfig(group_name="g")])
        await client.ask_ok(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, None, groups)
        assert "g" in embedded.broker.groups

    with_broker(scene)


def test_attributes_of_several_topics_are_changes() -> None:
    """As for one: others stay, and an unsupported one creates no topic."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        async def update(**attributes: dict[str, str]) -> int:
            topics = [TopicConfig(topic_name=name, attributes=changes) for name, changes in attributes.items()]
            body = CreateTopicListRequestBody(topic_config_list=topics)
            return (await client.ask(Code.UPDATE_AND_CREATE_TOPIC_LIST, None, body)).code

        def known(name: str) -> dict[str, str] | None:
            config = embedded.broker.topics.get(name)
            return None if config is None else config.attributes

        assert await update(a={"+message.type": "FIFO"}, b={}) == ResponseCode.SUCCESS
        assert (known("a"), known("b")) == ({"message.type": "FIFO"}, {})
        assert await update(a={}, b={"+message.type": "DELAY"}) == ResponseCode.SUCCESS
        assert (known("a"), known("b")) == ({"message.type": "FIFO"}, {"message.type": "DELAY"})
        assert await update(a={"-message.type": ""}) == ResponseCode.SUCCESS
        assert known("a") == {}
        assert await update(c={}, a={"message.type": "FIFO"}) == ResponseCode.INVALID_PARAMETER
        assert (known("a"), known("c")) == ({}, None)

    with_broker(scene)


def test_deleted_topic_loses_its_messages_and_offsets() -> None:
    """Created again, it starts at 0."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send()
        await client.commit(1)
        await client.ask_ok(Code.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="orders"))
        assert (await client.pull()).code == ResponseCode.TOPIC_NOT_EXIST
        await client.send(body=b"new")
        assert [m.body for m in await client.messages()] == [b"new"]
        assert await client.committed() is None
        own = await client.ask(Code.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="SCHEDULE_TOPIC_XXXX"))
        assert own.code == ResponseCode.SYSTEM_ERROR

    with_broker(scene)


@pytest.mark.parametrize("deleted", ["topic", "group"])
def test_offsets_deleted_with_a_topic_or_group_stay_deleted_after_a_kill(deleted: str) -> None:
    """Otherwise a recreated topic's first messages would be skipped."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send()
        await client.commit(1)
        offsets = embedded.broker.offsets
        offsets.save()
        assert offsets_on_disk(embedded) == {"orders@g": {0: 1}}
        if deleted == "topic":
            await client.ask_ok(Code.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="orders"))
        else:
            header = DeleteSubscriptionGroupRequestHeader(group_name="g", clean_offset=True)
            await client.ask_ok(Code.DELETE_SUBSCRIPTIONGROUP, header)
        assert offsets_on_disk(embedded) == {}

    with_broker(scene)


def test_topic_stats_have_each_queues_range() -> None:
    """Minimum and maximum offset and last update; none for an empty queue."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.create_topic("orders", queues=2)
        await client.send()
        header = GetTopicStatsInfoRequestHeader(topic="orders")
        table = (await client.fetch(Code.GET_TOPIC_STATS_INFO, TopicStatsTable, header)).offset_table
        assert (table[Q0].min_offset, table[Q0].max_offset) == (0, 1)
        assert table[Q0].last_update_timestamp > 0
        assert table[MessageQueue("orders", "broker-a", 1)].last_update_timestamp == 0
        unknown = await client.ask(Code.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader(topic="unknown"))
        assert unknown.code == ResponseCode.TOPIC_NOT_EXIST

    with_broker(scene)


def test_system_topics_are_listed() -> None:
    """Those of every broker, of its cluster, and its own name."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        topics = (await client.fetch(Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, TopicList)).topic_list
        assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "DefaultCluster", "broker-a"} <= topics

    with_broker(scene)


def test_group_is_created_changed_and_deleted() -> None:
    """Its offsets are deleted on request, by either version's field name."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send()
        config = SubscriptionGroupConfig(group_name="g", retry_max_times=3)
        await client.ask_ok(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config)
        header = GetSubscriptionGroupConfigRequestHeader(group="g")
        assert await client.fetch(Code.GET_SUBSCRIPTIONGROUP_CONFIG, SubscriptionGroupConfig, header) == config
        table = await client.fetch(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, SubscriptionGroupWrapper)
        assert table.subscription_group_table["g"] == config
        for flag in ("remove_offset", "clean_offset"):
            await client.commit(1)
            delete = DeleteSubscriptionGroupRequestHeader(group_name="g", **{flag: True})
            await client.ask_ok(Code.DELETE_SUBSCRIPTIONGROUP, delete)
            assert await client.committed() is None
        assert (await client.ask(Code.GET_SUBSCRIPTIONGROUP_CONFIG, header)).code == (
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        )
        for absurd in (
            SubscriptionGroupConfig(group_name="no good"),
            SubscriptionGroupConfig(group_name="g", retry_queue_nums=2**31 - 1),
        ):
            answer = await client.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, encode_body(absurd))
            assert answer.code != ResponseCode.SUCCESS

    with_broker(scene)


def test_connections_of_consumers_and_producers_are_listed() -> None:
    """With subscriptions and last update."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.heartbeat("me", consumers={"g": {"orders": "A"}}, producers=("p",))
        await asyncio.sleep(5)
        header = GetConsumerConnectionListRequestHeader(consumer_group="g")
        consumers = await client.fetch(Code.GET_CONSUMER_CONNECTION_LIST, ConsumerConnection, header)
        assert [c.client_id for c in consumers.connection_set] == ["me"]
        assert consumers.subscription_table["orders"].sub_string == "A"
        assert consumers.message_model == "CLUSTERING"
        producers = await client.fetch(
            Code.GET_PRODUCER_CONNECTION_LIST,
            ProducerConnection,
            GetProducerConnectionListRequestHeader(producer_group="p"),
        )
        assert producers.connection_set == consumers.connection_set
        (info,) = (await client.fetch(Code.GET_ALL_PRODUCER_INFO, ProducerTableInfo)).data["p"]
        assert embedded.broker.clock.now_ms() - info.last_update_timestamp == pytest.approx(5000, abs=50)
        for code, unknown in (
            (Code.GET_CONSUMER_CONNECTION_LIST, GetConsumerConnectionListRequestHeader(consumer_group="x")),
            (Code.GET_PRODUCER_CONNECTION_LIST, GetProducerConnectionListRequestHeader(producer_group="x")),
        ):
            assert (await client.ask(code, unknown)).code in (206, 1)

    with_broker(scene)


def test_consume_stats_show_a_groups_progress() -> None:
    """In one topic, in all its topics, and for all groups."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        for _ in range(3):
            await client.send()
        await client.commit(2)
        for topic in (None, "orders"):
            header = GetConsumeStatsRequestHeader(consumer_group="g", topic=topic)
            offset = (await client.fetch(Code.GET_CONSUME_STATS, ConsumeStats, header)).offset_table[Q0]
            assert (offset.broker_offset, offset.consumer_offset, offset.pull_offset) == (3, 2, 2)
            assert offset.last_timestamp > 0
        header = GetConsumeStatsInBrokerHeader(is_order=False)
        everybody = await client.fetch(Code.GET_BROKER_CONSUME_STATS, ConsumeStatsList, header)
        assert everybody.total_diff == 1
        assert everybody.broker_addr == embedded.broker_address

    with_broker(scene)


def test_groups_of_a_topic_and_topics_of_a_group_are_listed() -> None:
    """Live groups by their subscriptions, others by their offsets."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send()
        await client.heartbeat(consumers={"live": {"orders": "*"}})
        await client.commit(1, group="gone")
        groups = await client.fetch(
            Code.QUERY_TOPIC_CONSUME_BY_WHO, GroupList, QueryTopicConsumeByWhoRequestHeader(topic="orders")
        )
        assert groups.group_list == {"live", "gone"}
        topics = await client.fetch(
            Code.QUERY_TOPICS_BY_CONSUMER, TopicList, QueryTopicsByConsumerRequestHeader(group="gone")
        )
        assert topics.topic_list == {"orders"}

    with_broker(scene)


def test_expired_messages_are_deleted_on_request() -> None:
    """Those in files older than the retention time; queues begin behind them."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        for _ in range(10):
            await client.send(body=bytes(1000))
        oldest = min((embedded.store_path / "commitlog").iterdir())
        os.utime(oldest, (0, 0))
        for _ in range(2):
            await client.ask_ok(Code.CLEAN_EXPIRED_CONSUMEQUEUE)
        assert (await client.pull(offset=0)).code == ResponseCode.SUCCESS
        for _ in range(2):
            await client.ask_ok(Code.DELETE_EXPIRED_COMMITLOG)
        while oldest.exists():  # noqa: ASYNC110 - files are deleted in a thread
            await asyncio.sleep(0.1)
        await asyncio.sleep(1)
        pulled = await client.pull(offset=0)
        assert pulled.code == ResponseCode.PULL_OFFSET_MOVED
        assert 0 < pulled.header.min_offset < 10

    with_broker(scene, mappedFileSizeCommitLog="4096", deleteWhen="4")


def test_unexpired_messages_are_not_deleted_on_request() -> None:
    """However often it is requested."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        for _ in range(10):
            await client.send(body=bytes(1000))
        young = embedded.broker.clock.now_ms() / 1000 - 71 * 3600
        for file in (embedded.store_path / "commitlog").iterdir():
            os.utime(file, (young, young))
        for code in (Code.CLEAN_EXPIRED_CONSUMEQUEUE, Code.DELETE_EXPIRED_COMMITLOG) * 3:
            await client.ask_ok(code)
            await asyncio.sleep(30)
        assert len(await client.messages()) == 10

    with_broker(scene, mappedFileSizeCommitLog="4096", fileReservedTime="72")


def test_subscription_of_a_group_is_returned() -> None:
    """As its heartbeats said; none for an unknown group."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.heartbeat(consumers={"g": {"orders": "A"}}, version=7)

        async def reported(group: str) -> SubscriptionData | None:
            header = QuerySubscriptionByConsumerRequestHeader(group=group, topic="orders")
            code = Code.QUERY_SUBSCRIPTION_BY_CONSUMER
            return (await client.fetch(code, QuerySubscriptionResponseBody, header)).subscription_data

        assert await reported("g") == SubscriptionData(topic="orders", sub_string="A", sub_version=7)
        assert await reported("h") is None

    with_broker(scene)


def test_time_span_shows_a_groups_delay() -> None:
    """Since its oldest unconsumed message."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.create_topic("orders")
        await client.send()
        await asyncio.sleep(10)
        await client.send()
        await client.commit(1)
        await asyncio.sleep(5)
        header = QueryConsumeTimeSpanRequestHeader(topic="orders", group="g")
        body = await client.fetch(Code.QUERY_CONSUME_TIME_SPAN, QueryConsumeTimeSpanBody, header)
        (span,) = body.consume_time_span_set
        assert span.max_time_stamp - span.min_time_stamp == pytest.approx(10_000, abs=50)
        assert span.consume_time_stamp == span.min_time_stamp
        assert span.delay_time == pytest.approx(5_000, abs=50)

    with_broker(scene)


def test_offsets_are_cloned_to_another_group() -> None:
    """In all its topics, or in one."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send()
        await client.commit(1)
        header = CloneGroupOffsetRequestHeader(src_group="g", dest_group="h", offline=True)
        await client.ask_ok(Code.CLONE_GROUP_OFFSET, header)
        assert await client.committed(group="h") == 1

    with_broker(scene)


def test_messages_are_found_by_key_unique_key_and_offset() -> None:
    """As whole records; a missing one has its own code."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        for n in range(3):
            await client.send(body=b"%d" % n, properties={"KEYS": f"all k{n}", "UNIQ_KEY": f"U{n}"})
        for key, bodies in (("all", [b"0", b"1", b"2"]), ("k1", [b"1"]), ("U2", [b"2"])):
            header = QueryMessageRequestHeader(
                topic="orders", key=key, max_num=10, begin_timestamp=0, end_timestamp=2**60
            )
            found = decode_records((await client.ask_ok(Code.QUERY_MESSAGE, header)).body)
            assert sorted(message.body for message in found) == bodies
        nothing = QueryMessageRequestHeader(topic="orders", key="x", max_num=1, begin_timestamp=0, end_timestamp=1)
        assert (await client.ask(Code.QUERY_MESSAGE, nothing)).code == ResponseCode.QUERY_NOT_FOUND
        message = (await client.messages())[1]
        header = ViewMessageRequestHeader(offset=message.commit_log_offset)
        (viewed,) = decode_records((await client.ask_ok(Code.VIEW_MESSAGE_BY_ID, header)).body)
        assert viewed == message

    with_broker(scene)


@pytest.mark.parametrize("offset", [1, -1, 10**12, 2**63 - 1])
def test_offset_without_a_message_cannot_be_viewed(offset: int) -> None:
    """Only whole records leave the broker."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send()
        answer = await client.ask(Code.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=offset))
        assert answer.code == ResponseCode.SYSTEM_ERROR

    with_broker(scene)


def test_consume_queue_is_shown_with_a_groups_filter_result() -> None:
    """Entry by entry."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        for tag in "AB":
            await client.send(properties={"TAGS": tag})
        await client.heartbeat(consumers={"g": {"orders": "B"}})
        header = QueryConsumeQueueRequestHeader(topic="orders", queue_id=0, index=0, count=10, consumer_group="g")
        body = await client.fetch(Code.QUERY_CONSUME_QUEUE, QueryConsumeQueueResponseBody, header)
        assert [(entry.tags_code, entry.eval) for entry in body.queue_data] == [(65, False), (66, True)]
        assert (body.min_queue_index, body.max_queue_index) == (0, 2)

    with_broker(scene)


def test_runtime_information_has_the_fields_that_tools_read() -> None:
    """Rates for 10 s, 1 min and 10 min; both spellings of the transfer rate."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.begin()
        await asyncio.sleep(700)
        for _ in range(20):
            await client.send(properties={"DELAY": "18"})
            await asyncio.sleep(1)
        table = (await client.fetch(Code.GET_BROKER_RUNTIME_INFO, KVTable)).table
        rates = [float(rate) for rate in table["putTps"].split()]
        assert rates == [
            pytest.approx(1, abs=0.5),
            pytest.approx(20 / 60, abs=0.15),
            pytest.approx(20 / 600, abs=0.01),
        ]
        assert table["getTransferedTps"] == table["getTransferredTps"] == "0.0 0.0 0.0"
        assert table["scheduleMessageOffset_18"] == "0,20"
        assert int(table["commitLogMaxOffset"]) > 0
        assert int(table["earliestMessageTimeStamp"]) > 0
        assert table["brokerVersionDesc"] == "V4_9_7"
        assert table["msgPutTotalTodayNow"] == "20"
        assert table["remainHowManyDataToFlush"].endswith("B")
        assert table["putMessageDistributeTime"].startswith("[<=0ms]:")
        assert table["timerOffsetBehind"] == table["putMessageFailedTimes"] == table["sendThreadPoolQueueSize"] == "0"

    with_broker(scene)


def test_traffic_of_topics_and_groups_is_counted() -> None:
    """Messages and bytes by topic, and by topic and group, of a minute, an hour and a day."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        async def counted(name: str, key: str) -> tuple[int, float]:
            header = ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
            data = await client.fetch(Code.VIEW_BROKER_STATS_DATA, BrokerStatsData, header)
            assert data.stats_minute.sum == data.stats_hour.sum == data.stats_day.sum
            assert data.stats_day.tps == data.stats_day.sum / 3600  # the first hour of the day
            return data.stats_minute.sum, data.stats_minute.avgpt

        for body in (b"a", b"b", b"c"):
            await client.send(body=body)
        await client.send("later", properties={"DELAY": "1"})
        records = (await client.pull()).messages
        bytes_of = sum(record.store_size for record in records)
        assert await counted("TOPIC_PUT_NUMS", "orders") == (3, 1)
        assert await counted("TOPIC_PUT_SIZE", "orders") == (bytes_of, bytes_of / 3)
        assert await counted("GROUP_GET_NUMS", "orders@g") == (3, 3)
        assert await counted("GROUP_GET_SIZE", "orders@g") == (bytes_of, bytes_of)
        assert await counted("TOPIC_PUT_NUMS", "SCHEDULE_TOPIC_XXXX") == (1, 1)
        assert await counted("BROKER_PUT_NUMS", "DefaultCluster") == (4, 0)
        assert await counted("BROKER_GET_NUMS", "DefaultCluster") == (3, 0)
        for name, key in (("TOPIC_PUT_NUMS", "unknown"), ("GROUP_GET_NUMS", "orders"), ("NONE", "orders")):
            header = ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
            answer = await client.ask(Code.VIEW_BROKER_STATS_DATA, header)
            assert (answer.code, answer.remark) == (1, f"The stats <{name}> <{key}> not exist")

    with_broker(scene)


def test_offset_tables_are_returned() -> None:
    """Consumer and delay offsets, as a replica requests them."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send(properties={"DELAY": "1"})
        await client.commit(7)
        await asyncio.sleep(2)
        offsets = json.loads((await client.ask_ok(Code.GET_ALL_CONSUMER_OFFSET)).body)
        assert offsets == {"offsetTable": {"orders@g": {"0": 7}}}
        delays = json.loads((await client.ask_ok(Code.GET_ALL_DELAY_OFFSET)).body)
        assert delays == {"offsetTable": {"1": 1}}

    with_broker(scene)


def test_the_progress_of_timers_is_returned() -> None:
    """The next moment, the end of the timer log, and the number of messages with a timer, as replicas ask for them."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send(properties={"TIMER_DELAY_SEC": "100"})
        await asyncio.sleep(2)
        moment, log_end, messages, of_the_master = struct.unpack(
            ">qqqq", (await client.ask_ok(Code.GET_TIMER_CHECK_POINT)).body
        )
        assert (log_end, messages, of_the_master) == (52, 1, 1)
        assert 0 <= embedded.broker.clock.now_ms() - moment <= 3000

    with_broker(scene)
    with_broker(_has_no_timers, timerWheelEnable="false")


async def _has_no_timers(client: RawClient, embedded: EmbeddedBroker) -> None:
    answer = await client.ask(Code.GET_TIMER_CHECK_POINT)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "this broker delivers no timed messages, so it has no checkpoint"


def test_offset_reset_notifies_live_members() -> None:
    """Each gets the offsets of that time; the answer has them too."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.create_topic("orders")
        for _ in range(3):
            await client.send()
            await asyncio.sleep(10)
        await client.commit(3)
        await client.heartbeat(consumers={"g": {"orders": "*"}})
        stamp = (await client.messages())[1].store_timestamp
        header = ResetOffsetRequestHeader(topic="orders", group="g", timestamp=stamp, is_force=False)
        answer = await client.ask_ok(Code.INVOKE_BROKER_TO_RESET_OFFSET, header)
        assert decode_body(answer.body, ResetOffsetBody).offset_table == {Q0: 1}
        await asyncio.sleep(0.1)
        reported = client.pushed[-1]
        assert reported.code == Code.RESET_CONSUMER_CLIENT_OFFSET
        assert decode_body(reported.body, ResetOffsetBody).offset_table == {Q0: 1}
        to_the_end = ResetOffsetRequestHeader(topic="orders", group="g", timestamp=-1, is_force=True)
        answer = await client.ask_ok(Code.INVOKE_BROKER_TO_RESET_OFFSET, to_the_end)
        assert decode_body(answer.body, ResetOffsetBody).offset_table == {Q0: 3}

    with_broker(scene)


def test_offset_reset_without_topic_offset_or_member_is_refused() -> None:
    """Code 206 makes tools set the offsets themselves."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        async def reset(topic: str, group: str) -> int:
            header = ResetOffsetRequestHeader(topic=topic, group=group, timestamp=0, is_force=True)
            return (await client.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, header)).code

        await client.create_topic("orders")
        assert await reset("unknown", "g") == ResponseCode.SYSTEM_ERROR
        assert await reset("orders", "g") == ResponseCode.SYSTEM_ERROR
        await client.commit(0)
        assert await reset("orders", "g") == ResponseCode.CONSUMER_NOT_ONLINE

    with_broker(scene)


def test_members_offsets_are_queried_through_the_broker() -> None:
    """By client id; a member that does not answer is left out."""

    def answer(request: RemotingCommand) -> RemotingCommand | None:
        if request.code != Code.GET_CONSUMER_STATUS_FROM_CLIENT:
            return None
        return RemotingCommand.response(request, body=encode_body(GetConsumerStatusBody(message_queue_table={Q0: 5})))

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        consumer = await answering(embedded, answer)
        await consumer.heartbeat("talks", consumers={"g": {"orders": "*"}})
        await client.heartbeat("silent", consumers={"g": {"orders": "*"}})
        header = GetConsumerStatusRequestHeader(topic="orders", group="g")
        body = await client.fetch(Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, GetConsumerStatusBody, header)
        assert body.consumer_table == {"talks": {Q0: 5}}
        nobody = GetConsumerStatusRequestHeader(topic="orders", group="g", client_addr="unknown")
        assert (await client.ask(Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, nobody)).code == 1
        await consumer.connection.close()

    with_broker(scene)


def test_consumer_running_info_is_relayed() -> None:
    """Body and code; silence becomes a timeout, absence an error."""

    def answer(request: RemotingCommand) -> RemotingCommand | None:
        if request.code != Code.GET_CONSUMER_RUNNING_INFO:
            return None
        assert request.ext_fields["clientId"] == "me"
        return RemotingCommand.response(request, body=b'{"properties":{}}')

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        consumer = await answering(embedded, answer)
        await consumer.heartbeat("me", consumers={"g": {"orders": "*"}})
        await client.heartbeat("silent", consumers={"g": {"orders": "*"}})
        results = {}
        for who in ("me", "silent", "unknown"):
            header = GetConsumerRunningInfoRequestHeader(consumer_group="g", client_id=who)
            response = await client.ask(Code.GET_CONSUMER_RUNNING_INFO, header)
            results[who] = (response.code, response.body)
        assert results["me"] == (0, b'{"properties":{}}')
        assert results["silent"][0] == ResponseCode.CONSUME_MSG_TIMEOUT
        assert results["unknown"][0] == ResponseCode.SYSTEM_ERROR
        await consumer.connection.close()

    with_broker(scene)


def test_message_is_consumed_directly_by_one_consumer() -> None:
    """The broker adds the record and its own name."""
    got: list[RemotingCommand] = []

    def answer(request: RemotingCommand) -> RemotingCommand | None:
        if request.code != Code.CONSUME_MESSAGE_DIRECTLY:
            return None
        got.append(request)
        return RemotingCommand.response(request, body=b'{"consumeResult":"CR_SUCCESS"}')

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        consumer = await answering(embedded, answer)
        await consumer.heartbeat("me", consumers={"g": {"orders": "*"}})
        sent = await client.send(body=b"again")
        header = ConsumeMessageDirectlyResultRequestHeader(consumer_group="g", client_id="me", msg_id=sent.msg_id)
        response = await client.ask_ok(Code.CONSUME_MESSAGE_DIRECTLY, header)
        assert json.loads(response.body) == {"consumeResult": "CR_SUCCESS"}
        assert got[0].ext_fields["brokerName"] == "broker-a"
        assert [m.body for m in decode_records(got[0].body)] == [b"again"]
        header.msg_id = "garbage"
        assert (await client.ask(Code.CONSUME_MESSAGE_DIRECTLY, header)).code == ResponseCode.SYSTEM_ERROR
        await consumer.connection.close()

    with_broker(scene)


def test_topics_of_a_removed_table_return_with_their_messages(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A damaged table is moved away by hand: topics are found in the store, and their queues do not count as unused."""

    async def main() -> None:
        async with EmbeddedBroker(tmp_path) as embedded:
            client = await RawClient.connect(TcpTransport(), embedded.broker_address)
            await client.create_topic("orders", 6)
            await client.send("orders", queue_id=3)
            await client.connection.close()
        for table in (embedded.broker.settings.config_dir).glob("topics.json*"):
            table.unlink()
        async with EmbeddedBroker(tmp_path) as embedded:
            config = embedded.broker.topics.get("orders")
            assert config is not None
            assert (config.read_queue_nums, config.write_queue_nums) == (4, 4)
            client = await RawClient.connect(TcpTransport(), embedded.broker_address)
            await client.ask_ok(Code.CLEAN_UNUSED_TOPIC)
            assert len(await client.messages("orders", queue_id=3)) == 1
            await client.connection.close()

    asyncio.run(main())
    assert "recreated 1 topic(s) from their queues" in caplog.text


def test_queues_of_unknown_topics_are_deleted_on_request() -> None:
    """CLEAN_UNUSED_TOPIC: topics in the store but not in the table."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send("kept")
        await client.send("forgotten")
        embedded.broker.topics.delete("forgotten")
        await client.ask_ok(Code.CLEAN_UNUSED_TOPIC)
        assert set(embedded.broker.store.topics_with_queues()) == {"kept", DELETIONS_TOPIC}

    with_broker(scene)


def test_no_message_is_stored_in_an_unused_topic_while_it_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A send would create the topic again, store its message in a queue that is deleted next, and succeed."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        flusher = embedded.broker.store._flusher
        flush, answers = flusher.flush, []
        sender = await RawClient.connect(embedded.broker.transport, embedded.broker_address)

        async def send_first() -> None:
            answers.append(await sender.try_send("forgotten"))
            await flush()

        await client.send("forgotten")
        embedded.broker.topics.delete("forgotten")
        monkeypatch.setattr(flusher, "flush", send_first)
        await client.ask_ok(Code.CLEAN_UNUSED_TOPIC)
        assert [answer.code for answer in answers] == [ResponseCode.SYSTEM_BUSY]
        assert "is being deleted" in str(answers[0].remark)
        monkeypatch.undo()
        await client.send("forgotten", body=b"later")
        assert [message.body for message in await client.messages("forgotten")] == [b"later"]
        await sender.connection.close()

    with_broker(scene)
