"""Pulls and start offsets, with a scripted broker."""

import asyncio
import logging
import zlib
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rocket_client import ConsumeFromWhere, PushConsumerSettings, Reject, RetryLater
from rocket_client.consuming.pulling import PullLimits, PullLoop
from rocket_client.consuming.rebalance import TAKE_OVER_PAUSE
from rocket_client.core.process_queue import ProcessQueue
from rocket_remoting import Message, MessageExt, MessageQueue, RemotingCommand, RequestCode, ResponseCode
from rocket_remoting.wire.bodies import GetConsumerListByGroupResponseBody, encode_body
from rocket_remoting.wire.headers import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    PullMessageRequestHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
)
from rocket_remoting.wire.record import encode_record
from rocket_remoting.wire.sys_flag import COMPRESSED, PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND
from streamkit.testing.virtual_time import VirtualTime
from tests.unit.rocket_client.consumer_script import ConsumerScript, play, pulled, record
from tests.unit.rocket_client.scripted_cluster import SEND_CODES, ScriptedBroker, ScriptedCluster

MIB = 1 << 20


def test_pull_request_has_the_documented_fields(virtual: VirtualTime) -> None:
    """32 messages, held for 15 s, by the heartbeat's subscription; no commit offset before there is one."""

    async def scene(script: ConsumerScript) -> None:
        await asyncio.sleep(1)
        ((_, header),) = script.pulls
        assert (header.consumer_group, header.topic, header.queue_id) == ("kitchen", "orders", 0)
        assert (header.max_msg_nums, header.suspend_timeout_millis) == (32, 15_000)
        assert header.sys_flag == PULL_SUSPEND
        assert (header.subscription, header.expression_type) == (None, "TAG")

    play(virtual, scene)


def test_pull_has_the_committed_offset_and_optionally_the_expression(virtual: VirtualTime) -> None:
    """With their flag bits set."""

    async def scene(script: ConsumerScript) -> None:
        await asyncio.sleep(1)
        ((_, header),) = script.pulls
        assert header.sys_flag == PULL_SUSPEND | PULL_COMMIT_OFFSET | PULL_SUBSCRIPTION
        assert (header.commit_offset, header.queue_offset, header.subscription) == (7, 7, "A || B")

    play(virtual, scene, committed=7, post_subscription_when_pull=True)


@pytest.mark.parametrize("orderly", [False, True])
def test_undecompressable_body_becomes_a_dead_letter(
    virtual: VirtualTime, caplog: pytest.LogCaptureFixture, orderly: bool
) -> None:
    """It is stored as it was received, and the other messages are delivered."""

    async def scene(script: ConsumerScript) -> None:
        await asyncio.sleep(1)
        assert [message.body for message in script.heard] == [b"7", b"9"]
        assert script.pulled_offsets == [7, 10]
        assert "zlib body of 1 bytes" in caplog.text
        (dead,) = script.broker.stored
        assert (dead.sys_flag, dead.reconsume_times, dead.max_reconsume_times) == (COMPRESSED, 1, 0)
        await script.consumer.shutdown()
        assert script.commits[-1] == 10

    records = record(7) + record(8, sys_flag=COMPRESSED) + record(9)
    play(virtual, scene, pulled(ResponseCode.SUCCESS, 10, records), committed=7, orderly=orderly)


@pytest.mark.parametrize("orderly", [False, True])
def test_queue_is_not_pulled_while_bodies_that_may_exceed_its_limit_are_decompressed(
    virtual: VirtualTime, orderly: bool
) -> None:
    """Nor afterwards, until their call has ended."""

    async def scene(script: ConsumerScript) -> None:
        script.says = lambda: asyncio.sleep(5)
        await asyncio.sleep(4)
        assert [len(message.body) for message in script.heard] == [3 * MIB]
        assert script.pulled_offsets == [7]
        await asyncio.sleep(4)
        assert script.pulled_offsets == [7, 8]

    large = encode_record(
        "orders", zlib.compress(bytes(3 * MIB)), b"", queue_id=0, queue_offset=7, commit_log_offset=1007,
        sys_flag=COMPRESSED, flag=0, born_timestamp=1, born_host=("127.0.0.1", 1), store_timestamp=2,
        store_host=("127.0.0.1", 2),
    )  # fmt: skip
    found = pulled(ResponseCode.SUCCESS, 8, large)
    play(virtual, scene, found, committed=7, orderly=orderly, pull_threshold_size_for_queue=1)


def test_dead_letter_is_retried_until_a_broker_stores_it(virtual: VirtualTime) -> None:
    """Later messages are not committed meanwhile."""

    async def scene(script: ConsumerScript) -> None:
        broker = script.broker
        for code in (*SEND_CODES, RequestCode.CONSUMER_SEND_MSG_BACK):
            broker.answers[code] = broker.refuse
        await asyncio.sleep(12)
        assert [message.body for message in script.heard] == [b"9"]
        assert all(offset <= 8 for offset in script.commits)
        broker.answers.update(dict.fromkeys(SEND_CODES, broker._store))
        await asyncio.sleep(12)
        assert len(broker.stored) == 1
        await script.consumer.shutdown()
        assert script.commits[-1] == 10

    records = record(8, sys_flag=COMPRESSED) + record(9)
    play(virtual, scene, pulled(ResponseCode.SUCCESS, 10, records), committed=8)


def test_messages_are_delivered_and_the_next_pull_follows_at_once(virtual: VirtualTime) -> None:
    """With the properties that a consumer adds."""

    async def scene(script: ConsumerScript) -> None:
        await asyncio.sleep(1)
        assert [message.queue_offset for message in script.heard] == [0, 1]
        first = script.heard[0]
        assert (first.broker_name, first.properties["MIN_OFFSET"], first.properties["MAX_OFFSET"]) == (
            "a",
            "5",
            "99",
        )
        assert script.pulled_offsets == [0, 2]

    play(virtual, scene, pulled(ResponseCode.SUCCESS, 2, record(0) + record(1)))


@pytest.mark.parametrize(
    ("end", "requests"),
    [
        (1, [RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE]),
        (2, [RequestCode.PULL_MESSAGE, RequestCode.SEND_MESSAGE_V2]),
    ],
)
def test_sends_for_a_message_that_came_alone_leave_before_the_next_pull(
    virtual: VirtualTime, end: int, requests: list[RequestCode]
) -> None:
    """If more messages wait at the broker, the pull leaves first: their answer can come while the listener works."""

    async def scene(script: ConsumerScript) -> None:
        script.broker.late[RequestCode.PULL_MESSAGE] = 0.5  # not with the heartbeat, after 1 s
        async with script.cluster.producer() as producer:
            await producer.send(Message("orders", b"opens the connection"))

            async def answer() -> None:
                script.broker.asked.clear()
                await producer.send(Message("orders", b"answer"))

            script.says = answer
            await asyncio.sleep(2)
            assert [command.code for command in script.broker.asked[:2]] == requests

    play(virtual, scene, pulled(ResponseCode.SUCCESS, 1, record(0), end=end))


def test_pull_has_no_commit_offset_while_messages_are_unsettled(virtual: VirtualTime) -> None:
    """The offset will be outdated, and a broker might store it after the newer commit."""

    async def scene(script: ConsumerScript) -> None:
        await asyncio.sleep(1)
        flags = [header.sys_flag & PULL_COMMIT_OFFSET for _, header in script.pulls]
        assert (script.pulled_offsets, flags) == ([1, 2, 2], [PULL_COMMIT_OFFSET, 0, PULL_COMMIT_OFFSET])

    one_message = pulled(ResponseCode.SUCCESS, 2, record(1)), pulled(ResponseCode.PULL_NOT_FOUND, 2)
    play(virtual, scene, *one_message, committed=1)


def test_empty_filtered_pull_advances_the_offset(virtual: VirtualTime) -> None:
    """With nothing unsettled it is committed, so that the range is not read again."""

    async def scene(script: ConsumerScript) -> None:
        await asyncio.sleep(1)
        assert script.pulled_offsets == [0, 500, 900]
        assert script.pulls[-1][1].commit_offset == 900

    nothing = pulled(ResponseCode.PULL_RETRY_IMMEDIATELY, 500), pulled(ResponseCode.PULL_NOT_FOUND, 900)
    play(virtual, scene, *nothing)


def test_same_pull_is_not_repeated_without_a_pause(virtual: VirtualTime) -> None:
    """Slaves of Apache's 5.x ask for that whenever they have nothing new, while the master is lost."""

    async def scene(script: ConsumerScript) -> None:
        await asyncio.sleep(5)
        (first, _), *later = script.pulls
        assert [round(time - first, 1) for time, _ in later] == [0.5, 1.0, 1.0]
        assert script.pulled_offsets == [0, 0, 0, 500]

    same, further = (pulled(ResponseCode.PULL_RETRY_IMMEDIATELY, offset) for offset in (0, 500))
    play(virtual, scene, same, same, further)


def test_illegal_offset_is_corrected(virtual: VirtualTime, caplog: pytest.LogCaptureFixture) -> None:
    """The offset from the broker is committed, and the queue restarts there."""

    async def scene(script: ConsumerScript) -> None:
        script._committed = 40
        await asyncio.sleep(1)
        assert script.pulled_offsets == [7777, 40]
        assert script.commits[0] == 40

    play(virtual, scene, pulled(ResponseCode.PULL_OFFSET_MOVED, 40), committed=7777)
    assert "offset 7777 is out of range" in caplog.text


def test_illegal_offset_error_names_the_pulled_offset(virtual: VirtualTime, caplog: pytest.LogCaptureFixture) -> None:
    """Not the one at which the queue was taken over."""

    async def scene(script: ConsumerScript) -> None:
        await asyncio.sleep(1)
        assert script.pulled_offsets[:2] == [7, 500]

    nothing = pulled(ResponseCode.PULL_RETRY_IMMEDIATELY, 500), pulled(ResponseCode.PULL_OFFSET_MOVED, 40)
    play(virtual, scene, *nothing, committed=7)
    assert "offset 500 is out of range" in caplog.text


def test_failed_pull_is_retried_after_3_seconds(virtual: VirtualTime, caplog: pytest.LogCaptureFixture) -> None:
    """For as long as it fails; the log has one line."""

    async def scene(script: ConsumerScript) -> None:
        await asyncio.sleep(30)
        times = [time for time, _ in script.pulls]
        assert [round(later - times[0]) for later in times] == [0, 3, 6, 9]

    with caplog.at_level(logging.WARNING):
        play(virtual, scene, *[pulled(ResponseCode.SYSTEM_ERROR, 0)] * 3)
    assert caplog.text.count("as the script says") == 1


def test_unknown_subscription_triggers_a_heartbeat(virtual: VirtualTime) -> None:
    """A broker that lost the group gets a heartbeat at once, and the pull a second later."""

    async def scene(script: ConsumerScript) -> None:
        await asyncio.sleep(0.5)
        assert script.broker.count(RequestCode.HEART_BEAT) == 2
        await asyncio.sleep(0.7)
        times = [time for time, _ in script.pulls]
        assert [round(later - times[0], 1) for later in times] == [0, 1]

    play(virtual, scene, pulled(ResponseCode.SUBSCRIPTION_NOT_EXIST, 0))


def test_damaged_answer_is_retried(virtual: VirtualTime, caplog: pytest.LogCaptureFixture) -> None:
    """The queue is kept, and no message behind the damage is skipped."""

    async def scene(script: ConsumerScript) -> None:
        await asyncio.sleep(10)
        assert [message.queue_offset for message in script.heard] == [0]
        assert script.pulled_offsets == [0, 0, 1]

    good = record(0)
    play(
        virtual,
        scene,
        pulled(ResponseCode.SUCCESS, 1, good[:-1]),
        pulled(ResponseCode.SUCCESS, 1, good),
    )
    assert "record at 0" in caplog.text


def test_pull_goes_to_the_suggested_broker(virtual: VirtualTime) -> None:
    """The next one goes to a slave, without a commit offset."""

    async def main() -> None:
        async with ScriptedCluster(virtual, brokers=["a"]) as cluster:
            slave = ScriptedBroker(cluster.transport, "a", 10921)
            await slave.start()
            script = ConsumerScript(cluster, committed=3)
            cluster.routes["orders"].broker_datas[0].broker_addrs[1] = slave.address
            taken: list[PullMessageRequestHeader] = []

            def hold(command: RemotingCommand) -> None:
                taken.append(command.header(PullMessageRequestHeader))

            slave.answers[RequestCode.PULL_MESSAGE] = hold
            script.replies = [pulled(ResponseCode.SUCCESS, 4, record(3), suggested=1)]
            async with script.consumer:
                await asyncio.sleep(1)
            assert [header.queue_offset for header in taken] == [4]
            assert not taken[0].sys_flag & PULL_COMMIT_OFFSET
            await slave.stop()

    virtual.run(main())


def test_pull_goes_to_a_slave_when_the_master_is_gone(virtual: VirtualTime) -> None:
    """From the same offset, whether the name server knows that it is gone or not."""

    async def main() -> None:
        async with ScriptedCluster(virtual, brokers=["a"]) as cluster:
            slave = ScriptedBroker(cluster.transport, "a", 10921)
            await slave.start()
            script = ConsumerScript(cluster, committed=3)
            cluster.routes["orders"].broker_datas[0].broker_addrs[1] = slave.address
            taken: list[int] = []

            def answer(command: RemotingCommand) -> RemotingCommand | None:
                taken.append(command.header(PullMessageRequestHeader).queue_offset)
                reply = pulled(ResponseCode.SUCCESS, 5, record(4)) if len(taken) == 1 else None
                return reply(command) if reply is not None else None

            slave.answers[RequestCode.PULL_MESSAGE] = answer
            script.replies = [pulled(ResponseCode.SUCCESS, 4, record(3))]
            async with script.consumer:
                await asyncio.sleep(0.1)
                await cluster.brokers[0].stop()
                await asyncio.sleep(30)
                assert [message.body for message in script.heard] == [b"3", b"4"]
                assert taken[:2] == [4, 5]
            await slave.stop()

    virtual.run(main())


@pytest.mark.parametrize(
    ("where", "first"),
    [
        (ConsumeFromWhere.FIRST_OFFSET, 0),
        (ConsumeFromWhere.LAST_OFFSET, 77),
    ],
)
def test_group_without_an_offset_starts_at_the_configured_place(
    virtual: VirtualTime, where: ConsumeFromWhere, first: int
) -> None:
    """At 0, or at the end."""

    async def scene(script: ConsumerScript) -> None:
        await asyncio.sleep(0.1)
        assert script.pulled_offsets == [first]

    async def main() -> None:
        async with ScriptedCluster(virtual, brokers=["a"]) as cluster:
            script = ConsumerScript(cluster, committed=None, consume_from_where=where)
            script.broker.answers[RequestCode.GET_MAX_OFFSET] = max_offset
            async with script.consumer:
                await scene(script)

    def max_offset(command: RemotingCommand) -> RemotingCommand:
        command.header(GetMaxOffsetRequestHeader)
        return RemotingCommand.response(command, header=GetMaxOffsetResponseHeader(offset=77))

    virtual.run(main())


@pytest.mark.parametrize(
    ("committed", "table", "first"),
    [
        (None, None, 56),  # the broker says that the group has no offset
        (0, b'{"offsetTable":{"orders@other":{0:0},"orders@kitchen":{1:0}}}', 56),  # 4.9's answer for a young queue
        (0, b'{"offsetTable":{"orders@kitchen":{0:0}}}', 0),
        (0, None, 0),  # the broker refuses to list its offsets
        (7, None, 7),
    ],
)
def test_group_starts_at_the_first_message_stored_since_a_time(
    virtual: VirtualTime, committed: int | None, table: bytes | None, first: int
) -> None:
    """The broker finds one stored before, which is skipped. A group with an offset continues there."""
    moment = datetime(2023, 11, 14, 12, 0, 0, 123_000, tzinfo=UTC)
    moment_ms = 1_699_963_200_123

    def search(command: RemotingCommand) -> RemotingCommand:
        assert command.header(SearchOffsetRequestHeader).timestamp == moment_ms - 1
        return RemotingCommand.response(command, header=SearchOffsetResponseHeader(offset=55))

    def offsets(command: RemotingCommand) -> RemotingCommand:
        if table is None:
            return RemotingCommand.response(command, ResponseCode.NO_PERMISSION, remark="not for you")
        return RemotingCommand.response(command, body=table)

    async def main() -> None:
        async with ScriptedCluster(virtual, brokers=["a"]) as cluster:
            where = ConsumeFromWhere.TIMESTAMP
            script = ConsumerScript(cluster, committed=committed, consume_from_where=where, consume_timestamp=moment)
            script.broker.answers[RequestCode.SEARCH_OFFSET_BY_TIMESTAMP] = search
            script.broker.answers[RequestCode.GET_ALL_CONSUMER_OFFSET] = offsets
            found = record(55, stored=moment_ms - 1) + record(56, stored=moment_ms)
            script.replies = [] if committed else [pulled(ResponseCode.SUCCESS, 57, found)]
            async with script.consumer:
                await asyncio.sleep(0.1)
                assert script.pulled_offsets == ([first] if committed else [55, first])
            assert script.commits == ([] if first == 56 else [first])

    virtual.run(main())


@pytest.mark.parametrize("count", [1, 3])
def test_messages_are_delivered_although_no_worker_could_start(virtual: VirtualTime, count: int) -> None:
    """The pull fails before any listener call begins. Its messages are pulled again, and each is delivered once."""

    def without_memory(
        loop: asyncio.AbstractEventLoop, work: Coroutine[object, object, object], **options: Any
    ) -> asyncio.Task[object]:
        if work.__qualname__.endswith("_run_worker"):
            loop.set_task_factory(None)
            work.close()
            raise MemoryError
        return asyncio.Task(work, loop=loop, **options)

    async def scene(script: ConsumerScript) -> None:
        asyncio.get_running_loop().set_task_factory(without_memory)
        await asyncio.sleep(20)
        assert [message.queue_offset for message in script.heard] == [*range(7, 7 + count)]
        assert script.pulled_offsets == [7, 7, 7 + count]
        assert script.commits[-1] == 7 + count

    answer = pulled(ResponseCode.SUCCESS, 7 + count, b"".join(map(record, range(7, 7 + count))))
    play(virtual, scene, answer, answer, committed=7, pull_interval=timedelta(milliseconds=10))


@pytest.mark.parametrize("orderly", [False, True])
def test_unknown_start_offset_is_retried(virtual: VirtualTime, orderly: bool) -> None:
    """The queue is not started anywhere else, and its lock is released for other members."""

    async def main() -> None:
        async with ScriptedCluster(virtual, brokers=["a"]) as cluster:
            script = ConsumerScript(cluster, committed=9, orderly=orderly)
            broken = script.broker.answers[RequestCode.QUERY_CONSUMER_OFFSET]
            script.broker.answers[RequestCode.QUERY_CONSUMER_OFFSET] = lambda command: RemotingCommand.response(
                command, ResponseCode.SYSTEM_ERROR
            )
            async with script.consumer:
                await asyncio.sleep(5)
                assert script.pulls == []
                locks, unlocks = map(script.broker.count, (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ))
                assert locks == unlocks
                assert bool(locks) is orderly
                script.broker.answers[RequestCode.QUERY_CONSUMER_OFFSET] = broken
                await asyncio.sleep(10)
                assert script.pulled_offsets == [9]

    virtual.run(main())


def test_failed_takeover_of_one_queue_is_retried_soon(virtual: VirtualTime) -> None:
    """Before the next regular rebalance."""

    async def main() -> None:
        async with ScriptedCluster(virtual, brokers=["a"]) as cluster:
            script = ConsumerScript(cluster)
            cluster.routes["orders"] = cluster.route(queues=2)
            answers, refused = script.broker.answers, []
            known = answers[RequestCode.QUERY_CONSUMER_OFFSET]

            def refuse_once(command: RemotingCommand) -> RemotingCommand | None:
                if command.header(QueryConsumerOffsetRequestHeader).queue_id == 1 and not refused:
                    refused.append(command)
                    return script.broker.refuse(command)
                return known(command)

            answers[RequestCode.QUERY_CONSUMER_OFFSET] = refuse_once
            async with script.consumer:
                await asyncio.sleep(2)
            assert sorted(header.queue_id for _, header in script.pulls if header.topic == "orders") == [0, 1]

    virtual.run(main())


def test_consumer_missing_in_the_group_list_keeps_its_queues(virtual: VirtualTime) -> None:
    """It sends a heartbeat at once."""

    async def scene(script: ConsumerScript) -> None:
        await asyncio.sleep(2)
        before = script.broker.count(RequestCode.HEART_BEAT)
        listed = script.broker.answers[RequestCode.GET_CONSUMER_LIST_BY_GROUP]
        script.broker.answers[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = lambda command: RemotingCommand.response(
            command, ResponseCode.SYSTEM_ERROR, remark="no consumer for this group"
        )
        script.consumer.rebalance_soon()
        await asyncio.sleep(1)
        assert script.broker.count(RequestCode.HEART_BEAT) > before
        assert len(script.consumer.assigned) == 1
        script.broker.answers[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = listed

    play(virtual, scene)


@pytest.mark.parametrize(("others", "seconds"), [([], 0.0), (["~"], TAKE_OVER_PAUSE)])
def test_only_a_member_with_others_waits_before_it_pulls(
    virtual: VirtualTime, others: list[str], seconds: float
) -> None:
    """Another member may have had the queue, and commits its offset within that time."""

    async def main() -> None:
        async with ScriptedCluster(virtual, brokers=["a"]) as cluster:
            script = ConsumerScript(cluster)
            script.broker.answers[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = lambda command: RemotingCommand.response(
                command,
                body=encode_body(
                    GetConsumerListByGroupResponseBody(consumer_id_list=[script.consumer._client.client_id, *others])
                ),
            )
            async with script.consumer:
                await asyncio.sleep(1)
            assert script.pulls[0][0] == seconds

    virtual.run(main())


def test_a_pull_loop_that_fails_begins_again_behind_what_is_settled(
    virtual: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    """Settled messages come again only behind an unsettled one."""

    class FailsOnce(PullLoop):
        def __init__(self) -> None:
            self.offsets: list[int] = []

        async def run(self, offset: int) -> int | None:
            self.offsets.append(offset)
            if len(self.offsets) == 1:
                raise RuntimeError("odd")
            return None

    async def scene(script: ConsumerScript) -> None:
        loop, queue = FailsOnce(), ProcessQueue(MessageQueue("orders", "a", 0))
        pulled_messages = [MessageExt("orders", b"x", queue_offset=offset) for offset in (5, 6, 7)]
        queue.put(pulled_messages)
        queue.settle(pulled_messages[:1])
        await script.consumer._rebalancer._pull(loop, queue, 5)
        assert loop.offsets == [5, 6]

    play(virtual, scene)
    assert "odd" in caplog.text


def test_shutdown_during_a_revocation_still_commits(virtual: VirtualTime) -> None:
    """The broker does not answer the commit of the revoked queue; the shutdown sends it again."""

    async def scene(script: ConsumerScript) -> None:
        await asyncio.sleep(1)
        answer = script.broker.answers.get(RequestCode.UPDATE_CONSUMER_OFFSET, script.broker.otherwise)
        script.broker.answers[RequestCode.UPDATE_CONSUMER_OFFSET] = lambda command: None
        script.consumer.unsubscribe("orders")
        await asyncio.sleep(1)
        assert script.commits == [8]
        script.broker.answers[RequestCode.UPDATE_CONSUMER_OFFSET] = answer
        await script.consumer.shutdown()
        assert script.commits == [8, 8]

    play(virtual, scene, pulled(ResponseCode.SUCCESS, 8, record(7)), committed=7)


@pytest.mark.parametrize("says", [RetryLater(), Reject()])
def test_message_that_no_broker_takes_back_is_retried_locally(virtual: VirtualTime, says: RetryLater | Reject) -> None:
    """Every 5 s with a higher attempt count; the offset stays until a broker has taken it."""

    async def main() -> None:
        async with ScriptedCluster(virtual, brokers=["a"]) as cluster:
            script = ConsumerScript(cluster)
            script.says = says
            script.replies = [pulled(ResponseCode.SUCCESS, 1, record(0))]
            broker, answers = script.broker, dict(script.broker.answers)
            broker.answers |= dict.fromkeys([*SEND_CODES, RequestCode.CONSUMER_SEND_MSG_BACK], broker.refuse)
            async with script.consumer:
                await asyncio.sleep(11)
                assert [message.reconsume_times for message in script.heard] == [3, 3, 3]  # one message
                assert 1 not in script.commits
                broker.answers = answers
                await asyncio.sleep(10)
            assert len(script.heard) == 4
            assert [header.reconsume_times for header in broker.stored] == [4]
            assert script.commits[-1] == 1

    virtual.run(main())


def test_pull_from_a_slave_has_no_commit_offset(virtual: VirtualTime) -> None:
    """Only the master keeps offsets, also when nothing is unsettled."""

    async def main() -> None:
        async with ScriptedCluster(virtual, brokers=["a"]) as cluster:
            slave = ScriptedBroker(cluster.transport, "a", 10921)
            await slave.start()
            script = ConsumerScript(cluster, committed=3)
            cluster.routes["orders"].broker_datas[0].broker_addrs[1] = slave.address
            taken: list[PullMessageRequestHeader] = []

            def hold(command: RemotingCommand) -> None:
                taken.append(command.header(PullMessageRequestHeader))

            slave.answers[RequestCode.PULL_MESSAGE] = hold
            script.replies = [pulled(ResponseCode.PULL_NOT_FOUND, 3, suggested=1)]
            async with script.consumer:
                await asyncio.sleep(1)
            assert [(header.queue_offset, header.commit_offset) for header in taken] == [(3, 0)]
            assert not taken[0].sys_flag & PULL_COMMIT_OFFSET
            await slave.stop()

    virtual.run(main())


@pytest.mark.parametrize(
    ("records", "settings"),
    [
        (record(0) + record(11), {"consume_concurrently_max_span": 10}),
        (record(0, size=MIB + 1), {"pull_threshold_size_for_queue": 1}),
        (record(0) + record(1) + record(2), {"pull_threshold_for_queue": 2}),
    ],
    ids=["span", "bytes", "messages"],
)
def test_full_queue_is_not_pulled(virtual: VirtualTime, records: bytes, settings: dict[str, int]) -> None:
    """Until messages are consumed; full by offset span, bytes or number of messages."""

    async def scene(script: ConsumerScript) -> None:
        consumed = asyncio.Event()
        script.says = consumed.wait
        script.replies = [pulled(ResponseCode.SUCCESS, 20, records)]
        await asyncio.sleep(30)
        assert script.pulled_offsets == [0]
        script.says = None
        consumed.set()
        await asyncio.sleep(5)
        assert script.pulled_offsets == [0, 20]

    play(virtual, scene, **settings)


def test_messages_with_colliding_tag_hashes_are_skipped(virtual: VirtualTime) -> None:
    """Brokers compare only hash codes; the offset moves past those messages."""

    async def scene(script: ConsumerScript) -> None:
        await asyncio.sleep(1)
        assert [message.queue_offset for message in script.heard] == [0, 2]
        assert script.pulled_offsets == [0, 4]

    records = record(0, tags="A") + record(1, tags="C") + record(2, tags="B") + record(3)
    play(virtual, scene, pulled(ResponseCode.SUCCESS, 4, records), post_subscription_when_pull=True)


def test_topic_limits_are_divided_among_its_queues() -> None:
    """Each queue may have at least one message and one MiB."""
    settings = PushConsumerSettings(
        name_servers=["127.0.0.1:9876"], pull_threshold_for_topic=100, pull_threshold_size_for_topic=8
    )
    limits = PullLimits(settings)
    limits.divide(4)
    assert (limits.messages, limits.size) == (25, 2 * MIB)
    limits.divide(1000)
    assert (limits.messages, limits.size) == (1, MIB)
