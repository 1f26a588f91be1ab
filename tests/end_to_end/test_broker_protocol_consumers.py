"""Requests about heartbeats, groups, offsets and locks."""

import asyncio
import json
import logging

import pytest

from rocket_broker.embedded import EmbeddedBroker
from rocket_remoting import MemoryTransport, MessageQueue
from rocket_remoting.wire.bodies import (
    CheckClientRequestBody,
    ConsumeFromWhere,
    ConsumerData,
    ConsumeStats,
    ConsumeType,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageModel,
    SubscriptionData,
    SubscriptionGroupConfig,
    UnlockBatchRequestBody,
    decode_body,
)
from rocket_remoting.wire.codes import RequestCode, ResponseCode, Version
from rocket_remoting.wire.headers import (
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
    GetConsumerListByGroupRequestHeader,
    GetConsumeStatsRequestHeader,
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UnregisterClientRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from tests.end_to_end.raw_client import RawClient, with_broker

CHANGED = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
Q0, Q1 = (MessageQueue("orders", "broker-a", number) for number in (0, 1))


async def second_client(client: RawClient, embedded: EmbeddedBroker) -> RawClient:
    """Return another client with its own connection."""
    transport = embedded.broker.transport
    assert isinstance(transport, MemoryTransport)
    return await RawClient.connect(transport, embedded.broker_address)


async def members(client: RawClient, group: str = "g") -> list[str] | None:
    """Return the group's members as consumers request them."""
    header = GetConsumerListByGroupRequestHeader(consumer_group=group)
    answer = await client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
    if answer.code == ResponseCode.SYSTEM_ERROR:
        return None
    return decode_body(answer.body, GetConsumerListByGroupResponseBody).consumer_id_list


def test_heartbeat_creates_the_group_and_its_retry_topic() -> None:
    """The answer's version enables the features of a 4.1 broker."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        answer = await client.heartbeat(consumers={"g": {"orders": "*"}})
        assert answer.version >= Version.V4_1_0
        assert "g" in embedded.broker.groups
        retry = embedded.broker.topics.get("%RETRY%g")
        assert retry is not None
        assert (retry.read_queue_nums, retry.write_queue_nums, retry.perm) == (1, 1, 6)
        assert await members(client) == ["client@1"]

    with_broker(scene)


def test_short_heartbeat_renews_unchanged_groups() -> None:
    """One of 5.x with a digest instead of subscriptions; a whole one is asked for after any change, and at first."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        def data(fingerprint: int, *, short: bool) -> HeartbeatData:
            consumer = ConsumerData(
                group_name="g",
                consume_type=ConsumeType.CONSUME_PASSIVELY,
                message_model=MessageModel.CLUSTERING,
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
                subscription_data_set=[] if short else [SubscriptionData(topic="orders", sub_string="a")],
            )
            return HeartbeatData(
                client_id="client@1", consumer_data_set=[consumer], heartbeat_fingerprint=fingerprint, without_sub=short
            )

        async def is_changed(fingerprint: int, *, short: bool) -> str:
            answer = await client.ask_ok(RequestCode.HEART_BEAT, body=data(fingerprint, short=short))
            assert answer.ext_fields["IS_SUPPORT_HEART_BEAT_V2"] == "true"
            return answer.ext_fields["IS_SUB_CHANGE"]

        assert await is_changed(7, short=True) == "true"
        assert "g" not in embedded.broker.groups
        assert await is_changed(7, short=False) == "false"
        for _ in range(5):  # longer than a member without heartbeats stays in its group
            await asyncio.sleep(60)
            assert await is_changed(7, short=True) == "false"
        group = embedded.broker.consumers.get("g")
        assert group is not None
        assert group.subscriptions["orders"].data.sub_string == "a"
        assert await is_changed(8, short=True) == "true"
        header = DeleteSubscriptionGroupRequestHeader(group_name="g")
        await client.ask_ok(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
        assert await is_changed(7, short=True) == "true"

    with_broker(scene)


def test_group_with_an_illegal_name_is_refused() -> None:
    """With the rest of the heartbeat."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        with pytest.raises(AssertionError, match="group name"):
            await client.heartbeat(consumers={"g": {}, "no good": {}})
        assert await members(client) is None

    with_broker(scene)


def test_group_without_retry_queues_has_a_retry_topic_without_queues() -> None:
    """Also with a negative number, which no name server would accept in a topic."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        config = SubscriptionGroupConfig(group_name="g", retry_queue_nums=-1)
        await client.ask_ok(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config)
        await client.heartbeat(consumers={"g": {"orders": "*"}})
        retry = embedded.broker.topics.get("%RETRY%g")
        assert retry is not None
        assert (retry.read_queue_nums, retry.write_queue_nums) == (0, 0)

    with_broker(scene)


def test_heartbeat_with_too_many_groups_is_refused() -> None:
    """Each new one is stored for good with a topic; some hundreds are one change of each table."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        known = len(embedded.broker.groups)
        with pytest.raises(AssertionError, match="at most 1024 groups"):
            await client.heartbeat(consumers={f"g{number}": {} for number in range(1_000)}, producers=("p",) * 25)
        assert len(embedded.broker.groups) == known
        before = embedded.broker.topics.data_version.counter
        await client.heartbeat(consumers={f"g{number}": {} for number in range(500)})
        assert len(embedded.broker.groups) == known + 500
        assert embedded.broker.topics.data_version.counter <= before + 8  # 64 groups are made at once

    with_broker(scene)


def test_members_are_notified_of_changes_at_once() -> None:
    """When one joins, leaves, or its socket closes."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        other = await second_client(client, embedded)
        await client.heartbeat("one", consumers={"g": {"orders": "*"}})
        await other.heartbeat("two", consumers={"g": {"orders": "*"}})
        assert await members(client) == ["one", "two"]
        header = UnregisterClientRequestHeader(client_id="two", consumer_group="g")
        await other.ask_ok(RequestCode.UNREGISTER_CLIENT, header)
        assert await members(client) == ["one"]
        await other.heartbeat("two", consumers={"g": {"orders": "*"}})
        await other.connection.close()
        await asyncio.sleep(0.1)
        assert await members(client) == ["one"]
        assert [request.code for request in client.pushed] == [CHANGED] * 5
        assert all(request.is_oneway for request in client.pushed)

    with_broker(scene)


def test_member_without_heartbeats_is_removed_after_two_minutes() -> None:
    """Its connection is closed, so that it registers again."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        other = await second_client(client, embedded)
        await other.heartbeat("silent", consumers={"g": {"orders": "*"}}, producers=("p",))
        await client.begin()
        await asyncio.sleep(119)
        assert await members(client) == ["silent"]
        await asyncio.sleep(12)
        assert await members(client) is None
        assert other.connection.is_closed
        assert len(embedded.broker.producers) == 0

    with_broker(scene)


def test_differing_subscriptions_of_a_group_are_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    """Once, with both clients and subscriptions; both continue."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        other = await second_client(client, embedded)
        for _ in range(3):
            await client.heartbeat("one", consumers={"g": {"orders": "A"}})
            await other.heartbeat("two", consumers={"g": {"orders": "B"}})
        await other.connection.close()

    with caplog.at_level(logging.WARNING, "rocket_broker.clients.consumer_table"):
        with_broker(scene)
    (warning,) = caplog.messages
    assert "one subscribes to {orders: A}, two to {orders: B}" in warning


def test_consumer_with_a_differing_subscription_can_be_refused() -> None:
    """Its heartbeat's answer has both subscriptions; its other group is served."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.heartbeat("one", consumers={"g": {"orders": "A"}})
        other = RawClient(await embedded.broker.transport.connect(embedded.broker_address), [])
        wanted = {"g": {"orders": "B"}, "h": {"orders": "B"}}
        answer = await other.heartbeat("two", consumers=wanted, expected=ResponseCode.SYSTEM_ERROR)
        assert "one subscribes to {orders: A}, two to {orders: B}" in (answer.remark or "")
        assert set(embedded.broker.consumers.groups_of("orders")) == {"g", "h"}
        assert len(embedded.broker.consumers.get("g") or "") == 1
        await other.connection.close()

    with_broker(scene, refuseDifferentSubscriptions="true")


def test_unsupported_filter_is_refused_at_the_consumers_start() -> None:
    """By CHECK_CLIENT_CONFIG, which Java consumers send for expressions other than tags."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        for type_, code in (("TAG", ResponseCode.SUCCESS), ("SQL92", ResponseCode.SYSTEM_ERROR)):
            data = SubscriptionData(topic="orders", sub_string="a", expression_type=type_)
            body = CheckClientRequestBody(client_id="c", group="g", subscription_data=data)
            assert (await client.ask(RequestCode.CHECK_CLIENT_CONFIG, None, body)).code == code

    with_broker(scene, enablePropertyFilter="false")


def test_offsets_are_committed_and_queried() -> None:
    """Lower ones too."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send()
        assert await client.committed() is None
        for offset in (5, 3):
            assert (await client.commit(offset)).code == ResponseCode.SUCCESS
            assert await client.committed() == offset
        client.connection.invoke_oneway(RequestCode.UPDATE_CONSUMER_OFFSET, _commit_header(4))
        await asyncio.sleep(0.1)
        assert await client.committed() == 4

    with_broker(scene)


def _commit_header(offset: int) -> UpdateConsumerOffsetRequestHeader:
    return UpdateConsumerOffsetRequestHeader(consumer_group="g", topic="orders", queue_id=0, commit_offset=offset)


def test_new_group_starts_at_0_of_a_young_queue() -> None:
    """Also of an empty queue."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send()
        for queue_id in (0, 1):
            header = QueryConsumerOffsetRequestHeader(consumer_group="new", topic="orders", queue_id=queue_id)
            answer = await client.ask_ok(RequestCode.QUERY_CONSUMER_OFFSET, header)
            assert answer.header(QueryConsumerOffsetResponseHeader).offset == 0

    with_broker(scene)


@pytest.mark.parametrize(
    ("fields", "offset", "code"),
    [
        ({"topic": "unknown"}, 1, ResponseCode.TOPIC_NOT_EXIST),
        ({"group": "not legal"}, 1, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"queue_id": 4}, 1, ResponseCode.INVALID_PARAMETER),
        ({"queue_id": -1}, 1, ResponseCode.INVALID_PARAMETER),
        ({}, -1, ResponseCode.INVALID_PARAMETER),
    ],
)
def test_invalid_commit_is_refused(fields: dict[str, str], offset: int, code: ResponseCode) -> None:
    """The table has only offsets that a consumer can have."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send()
        assert (await client.commit(offset, **fields)).code == code  # type: ignore[arg-type]
        assert embedded.broker.offsets.table() == {}

    with_broker(scene)


def test_minimum_offset_and_earliest_time_of_a_queue() -> None:
    """0 and none for an empty one."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send()
        first = await client.ask_ok(RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader(topic="orders", queue_id=0))
        assert first.header(GetMinOffsetResponseHeader).offset == 0
        (message,) = await client.messages()
        for queue_id, expected in ((0, message.store_timestamp), (1, -1)):
            header = GetEarliestMsgStoretimeRequestHeader(topic="orders", queue_id=queue_id)
            answer = await client.ask_ok(RequestCode.GET_EARLIEST_MSG_STORETIME, header)
            assert answer.header(GetEarliestMsgStoretimeResponseHeader).timestamp == expected

    with_broker(scene)


def test_offset_is_searched_by_time() -> None:
    """The nearest message; after the last one, the last one (4.9)."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        for _ in range(3):
            await client.send()
            await asyncio.sleep(10)
        stamps = [message.store_timestamp for message in await client.messages()]
        for timestamp, expected in ((0, 0), (stamps[1], 1), (stamps[1] + 9_000, 2), (stamps[2] + 99_000, 2)):
            header = SearchOffsetRequestHeader(topic="orders", queue_id=0, timestamp=timestamp)
            answer = await client.ask_ok(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
            assert answer.header(SearchOffsetResponseHeader).offset == expected

    with_broker(scene)


def test_queue_is_locked_by_one_client_at_a_time() -> None:
    """The answer lists the client's locks; they expire after a minute or are released."""

    async def lock(client: RawClient, who: str) -> set[MessageQueue]:
        body = LockBatchRequestBody(consumer_group="g", client_id=who, mq_set={Q0, Q1})
        answer = await client.ask_ok(RequestCode.LOCK_BATCH_MQ, None, body)
        return decode_body(answer.body, LockBatchResponseBody).lock_ok_mq_set

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.create_topic("orders", 2)
        assert await lock(client, "one") == {Q0, Q1}
        assert await lock(client, "two") == set()
        given_up = UnlockBatchRequestBody(consumer_group="g", client_id="one", mq_set={Q1})
        await client.ask_ok(RequestCode.UNLOCK_BATCH_MQ, None, given_up)
        assert await lock(client, "two") == {Q1}
        await asyncio.sleep(61)
        assert await lock(client, "two") == {Q0, Q1}

    with_broker(scene)


def test_locks_have_the_json_of_apaches_clients() -> None:
    """With queues as objects, in the answer too."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.create_topic("orders")
        queue = {"brokerName": "broker-a", "queueId": 0, "topic": "orders"}
        asked = {"clientId": "c", "consumerGroup": "g", "mqSet": [queue]}
        answer = await client.ask_ok(RequestCode.LOCK_BATCH_MQ, None, json.dumps(asked).encode())
        assert json.loads(answer.body) == {"lockOKMQSet": [queue]}

    with_broker(scene)


def test_progress_excludes_topics_that_a_live_group_left() -> None:
    """It covers existing topics and, while the group has members, those they subscribe to."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        for topic in ("orders", "left", "deleted"):
            await client.send(topic)
            await client.commit(1, topic=topic)
        await client.ask_ok(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="deleted"))

        async def reported() -> set[str]:
            header = GetConsumeStatsRequestHeader(topic="", consumer_group="g")
            stats = await client.fetch(RequestCode.GET_CONSUME_STATS, ConsumeStats, header)
            return {queue.topic for queue in stats.offset_table}

        assert await reported() == {"orders", "left"}
        await client.heartbeat(consumers={"g": {"orders": "*"}})
        assert await reported() == {"orders"}

    with_broker(scene)
