"""PULL_MESSAGE and its long polling."""

import asyncio

import pytest

from rocket_broker.embedded import EmbeddedBroker
from rocket_remoting.wire.bodies import MessageModel
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.message import MessageQueue
from rocket_remoting.wire.sys_flag import PULL_COMMIT_OFFSET, PULL_SUSPEND
from tests.end_to_end.raw_client import COMMITTING, HELD, RawClient, pull_header, with_broker


def loop_time() -> float:
    return asyncio.get_running_loop().time()


def test_pull_returns_messages_and_offsets() -> None:
    """Stored records with the queue's minimum, maximum and next offset."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        for n in range(5):
            await client.send(body=b"%d" % n)
        pulled = await client.pull(offset=1, max_msg_nums=3)
        assert (pulled.code, pulled.remark, pulled.bodies) == (
            ResponseCode.SUCCESS,
            "FOUND",
            [b"1", b"2", b"3"],
        )
        header = pulled.header
        assert (header.next_begin_offset, header.min_offset, header.max_offset) == (4, 0, 5)
        assert header.suggest_which_broker_id == 0

    with_broker(scene)


def test_pull_returns_up_to_the_requested_number() -> None:
    """Apache's broker limits it to 32, ours does not."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await asyncio.gather(*(client.send() for _ in range(100)))
        assert len((await client.pull(max_msg_nums=32)).messages) == 32
        assert len((await client.pull(max_msg_nums=1000)).messages) == 100
        assert len((await client.pull(max_msg_nums=-5)).messages) == 1

    with_broker(scene)


def test_answer_is_limited_in_bytes_but_has_a_message() -> None:
    """256 KiB for 32 messages as in Apache's, with at least one."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        for _ in range(4):
            await client.send(body=bytes(100_000))
        await client.send(body=bytes(300_000))
        assert len((await client.pull()).messages) == 2
        assert len((await client.pull(max_msg_nums=33)).messages) == 5
        assert len((await client.pull(offset=4)).messages) == 1
        assert len((await client.pull(max_msg_nums=33, max_msg_bytes=1)).messages) == 1

    with_broker(scene)


@pytest.mark.parametrize(
    ("offset", "code", "next_offset"),
    [
        (0, ResponseCode.SUCCESS, 2),
        (2, ResponseCode.PULL_NOT_FOUND, 2),
        (3, ResponseCode.PULL_OFFSET_MOVED, 2),
        (2**63 - 1, ResponseCode.PULL_OFFSET_MOVED, 2),
        (-1, ResponseCode.PULL_OFFSET_MOVED, 0),
        (-(2**63), ResponseCode.PULL_OFFSET_MOVED, 0),
    ],
)
def test_offset_outside_the_queue_is_corrected(offset: int, code: ResponseCode, next_offset: int) -> None:
    """However absurd it is."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send()
        await client.send()
        pulled = await client.pull(offset=offset)
        assert (pulled.code, pulled.header.next_begin_offset) == (code, next_offset)

    with_broker(scene)


@pytest.mark.parametrize(("offset", "code"), [(0, ResponseCode.PULL_NOT_FOUND), (5, ResponseCode.PULL_OFFSET_MOVED)])
def test_empty_queue_corrects_offsets_other_than_0(offset: int, code: ResponseCode) -> None:
    """A queue in which nothing was ever stored."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.create_topic("orders")
        pulled = await client.pull(offset=offset)
        assert (pulled.code, pulled.header.next_begin_offset) == (code, 0)

    with_broker(scene)


def test_tags_are_filtered_by_the_broker() -> None:
    """Without a match the next offset is behind the checked entries."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        for tag in ("A", "B", "C", "A"):
            await client.send(body=tag.encode(), properties={"TAGS": tag})
        assert (await client.pull(subscription="A || C")).bodies == [b"A", b"C", b"A"]
        missed = await client.pull(subscription="D")
        assert (missed.code, missed.header.next_begin_offset) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 4)

    with_broker(scene)


def test_pull_without_a_subscription_uses_the_heartbeats() -> None:
    """As Apache's push consumers do."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send(body=b"A", properties={"TAGS": "A"})
        await client.send(body=b"B", properties={"TAGS": "B"})
        await client.heartbeat(consumers={"g": {"orders": "B"}}, version=5)
        assert (await client.pull(sys_flag=0, sub_version=5)).bodies == [b"B"]
        newer = await client.pull(sys_flag=0, sub_version=6)
        assert newer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST

    with_broker(scene)


def test_pull_without_any_subscription_is_refused() -> None:
    """From an unknown group, or of a topic it does not subscribe to."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send()
        no_group = await client.pull(sys_flag=0)
        await client.heartbeat(consumers={"g": {"other": "*"}})
        no_topic = await client.pull(sys_flag=0)
        assert [no_group.code, no_topic.code] == [ResponseCode.SUBSCRIPTION_NOT_EXIST] * 2

    with_broker(scene)


def test_unsupported_expression_is_refused() -> None:
    """SQL with the reason, a list without a tag as malformed."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send()
        sql = await client.pull(subscription="a > 1", expression_type="SQL92")
        assert (sql.code, sql.remark) == (
            ResponseCode.SYSTEM_ERROR,
            "The broker does not support consumer to filter message by SQL92",
        )
        assert (await client.pull(subscription="||")).code == ResponseCode.SUBSCRIPTION_PARSE_FAILED

    with_broker(scene, enablePropertyFilter="false")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "unknown"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queue_id": 4}, ResponseCode.SYSTEM_ERROR),
        ({"queue_id": -1}, ResponseCode.SYSTEM_ERROR),
        ({"queue_id": 2**31 - 1}, ResponseCode.SYSTEM_ERROR),
        ({"consumer_group": "bad group"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
    ],
)
def test_pull_from_an_impossible_place_is_refused(fields: dict[str, object], code: ResponseCode) -> None:
    """Unknown topics, queue ids out of range, illegal group names."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send()
        assert (await client.pull(**({"topic": "orders"} | fields))).code == code  # type: ignore[arg-type]

    with_broker(scene)


def test_pull_needs_read_permission() -> None:
    """Of the topic and of the group."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.create_topic("write-only", perm=2)
        assert (await client.pull("write-only")).code == ResponseCode.NO_PERMISSION
        await client.send()
        group = embedded.broker.groups.find("g")
        assert group is not None
        group.consume_enable = False
        pulled = await client.pull()
        assert (pulled.code, pulled.remark) == (
            ResponseCode.NO_PERMISSION,
            "subscription group no permission, g",
        )

    with_broker(scene)


def test_pull_carries_the_commit_offset() -> None:
    """Only if its flag says so, and never a negative one."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send()
        await client.pull(commit_offset=1)
        assert await client.committed() is None
        await client.pull(commit_offset=1, sys_flag=COMMITTING)
        assert await client.committed() == 1
        await client.pull(commit_offset=-1, sys_flag=COMMITTING)
        assert await client.committed() == 1

    with_broker(scene)


def test_pull_is_held_until_a_message_arrives() -> None:
    """It is answered at once then; its commit offset is taken when it arrives."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.create_topic("orders")
        waiting = asyncio.ensure_future(client.pull(sys_flag=HELD | PULL_COMMIT_OFFSET, commit_offset=7))
        await asyncio.sleep(10)
        assert await client.committed() == 7
        await client.send(body=b"late")
        pulled = await waiting
        assert pulled.bodies == [b"late"]
        assert loop_time() == pytest.approx(10, abs=0.01)

    with_broker(scene)


def test_held_pull_ends_empty_at_its_timeout() -> None:
    """Not before, and not only at the next periodic check."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.create_topic("orders")
        pulled = await client.pull(sys_flag=HELD, suspend_timeout_millis=17_300)
        assert pulled.code == ResponseCode.PULL_NOT_FOUND
        assert loop_time() == pytest.approx(17.3, abs=0.01)

    with_broker(scene)


def test_held_pull_is_not_woken_by_other_tags() -> None:
    """A matching message wakes it, and the others are skipped."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.create_topic("orders")
        waiting = asyncio.ensure_future(client.pull(sys_flag=HELD, subscription="A", suspend_timeout_millis=4_000))
        await asyncio.sleep(1)
        await client.send(body=b"B", properties={"TAGS": "B"})
        await asyncio.sleep(1)
        assert not waiting.done()
        await client.send(body=b"A", properties={"TAGS": "A"})
        pulled = await waiting
        assert (pulled.bodies, pulled.header.next_begin_offset) == ([b"A"], 2)

    with_broker(scene)


def test_message_wakes_all_pulls_of_its_queue_only() -> None:
    """Of several consumers."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.create_topic("orders", queues=2)
        pulls = [
            asyncio.ensure_future(client.pull(sys_flag=HELD, queue_id=queue, consumer_group=group))
            for queue, group in ((0, "g"), (0, "h"), (1, "g"))
        ]
        await asyncio.sleep(1)
        await client.send(body=b"x", queue_id=0)
        await asyncio.sleep(1)
        assert [pull.done() for pull in pulls] == [True, True, False]
        assert (await pulls[2]).code == ResponseCode.PULL_NOT_FOUND

    with_broker(scene)


def test_pull_is_held_for_a_second_without_long_polling() -> None:
    """The settings ``longPollingEnable`` and ``shortPollingTimeMills``."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.create_topic("orders")
        await client.pull(sys_flag=HELD)
        assert loop_time() == pytest.approx(1, abs=0.01)

    with_broker(scene, longPollingEnable="false")


def test_held_pulls_of_a_closed_connection_are_dropped() -> None:
    """The broker keeps nothing for a peer that is gone."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.create_topic("orders")
        waiting = asyncio.ensure_future(client.pull(sys_flag=HELD))
        await asyncio.sleep(1)
        assert len(embedded.broker.pull_request_hold) == 1
        await client.connection.close()
        await asyncio.sleep(1)
        assert len(embedded.broker.pull_request_hold) == 0
        await asyncio.gather(waiting, return_exceptions=True)

    with_broker(scene)


@pytest.mark.parametrize("timeout", [-1, -(2**63), 0])
def test_pull_with_a_past_timeout_is_answered_at_once(timeout: int) -> None:
    """The answer comes at once."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.create_topic("orders")
        await client.pull(sys_flag=HELD, suspend_timeout_millis=timeout)
        assert loop_time() < 0.1

    with_broker(scene)


def test_very_long_hold_time_is_reduced() -> None:
    """To a day, since timers of a loop are limited."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.create_topic("orders")
        await client.pull(sys_flag=HELD, suspend_timeout_millis=2**63 - 1)
        assert loop_time() == pytest.approx(24 * 3600, abs=1)

    with_broker(scene, serverChannelMaxIdleTimeSeconds="0")


def test_second_pull_code_is_served() -> None:
    """LITE_PULL_MESSAGE (361) of 5.x clients."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send()
        await client.ask_ok(RequestCode.LITE_PULL_MESSAGE, pull_header("orders", 0, sys_flag=HELD & ~PULL_SUSPEND))

    with_broker(scene)


def test_pulled_records_have_their_queue_position() -> None:
    """The record's own queue id and offset."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send(queue_id=3)
        await client.send(queue_id=3)
        messages = await client.messages(queue_id=3)
        assert [(m.queue, m.queue_offset) for m in messages] == [
            (MessageQueue("orders", "", 3), 0),
            (MessageQueue("orders", "", 3), 1),
        ]

    with_broker(scene)


def test_group_without_broadcast_permission_is_refused() -> None:
    """The group's setting ``consumeBroadcastEnable``."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send()
        group = embedded.broker.groups.find("g")
        assert group is not None
        group.consume_broadcast_enable = False
        await client.heartbeat(consumers={"g": {"orders": "*"}}, model=MessageModel.BROADCASTING)
        assert (await client.pull(sys_flag=0)).code == ResponseCode.NO_PERMISSION
        await client.heartbeat(consumers={"g": {"orders": "*"}})
        assert (await client.pull(sys_flag=0)).code == ResponseCode.SUCCESS

    with_broker(scene)
