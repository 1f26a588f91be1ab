"""Lite pull consumers on the bundled broker: polls, commits, positions, pauses, assignment."""

import asyncio

import pytest

from rocket_client import (
    ClientStateError,
    IllegalOffsetError,
    LitePullConsumer,
    MessageModel,
    QueueNotAssignedError,
)
from rocket_remoting import Message, MessageExt, MessageQueue
from rocket_remoting.wire.topics import dlq_topic, retry_topic
from tests.end_to_end.client_stage import ClientStage, play, until

QUEUE = MessageQueue("orders", "broker-a", 0)


async def polled(consumer: LitePullConsumer, count: int, timeout: float = 30.0) -> list[MessageExt]:
    """Return that many polled messages, or fewer if a poll times out."""
    messages: list[MessageExt] = []
    while len(messages) < count:
        more = await consumer.poll(timeout)
        if not more:
            break
        messages += more
    return messages


def bodies(messages: list[MessageExt]) -> list[bytes]:
    return sorted(message.body for message in messages)


def test_every_message_is_polled_once() -> None:
    """From all queues; each poll returns messages of one queue."""

    async def scene(stage: ClientStage) -> None:
        sent = sorted(b"%03d" % number for number in range(100))
        await stage.send(sent)
        async with stage.polling() as consumer:
            messages = await polled(consumer, 100)
            assert bodies(messages) == sent
            assert await consumer.poll(0) == []
            assert messages[0].properties["MAX_OFFSET"] == "25"

    play(scene)


def test_poll_waits_for_a_message() -> None:
    """Until one is sent or the timeout."""

    async def scene(stage: ClientStage) -> None:
        async with stage.polling() as consumer, stage.producer() as producer:
            begun = asyncio.get_running_loop().time()
            assert await consumer.poll(3) == []
            assert asyncio.get_running_loop().time() - begun == pytest.approx(3, abs=0.01)
            asyncio.get_running_loop().call_later(7, lambda: producer.send_async(Message("orders", b"x")))
            assert bodies(await consumer.poll(20)) == [b"x"]
            assert asyncio.get_running_loop().time() - begun == pytest.approx(10, abs=0.01)

    play(scene)


def test_polled_messages_are_committed_at_the_end() -> None:
    """The next member continues behind them."""

    async def scene(stage: ClientStage) -> None:
        await stage.send([b"0", b"1"])
        async with stage.polling() as consumer:
            assert bodies(await polled(consumer, 2)) == [b"0", b"1"]
        await stage.send([b"2"])
        async with stage.polling() as consumer:
            assert bodies(await polled(consumer, 5, timeout=5)) == [b"2"]

    play(scene)


def test_last_polled_messages_of_a_failing_block_are_redelivered() -> None:
    """Only earlier polls count as consumed."""

    async def fail(stage: ClientStage) -> None:
        async with stage.polling(pull_batch_size=1) as consumer:
            await polled(consumer, 2)
            raise ValueError("no such dish")

    async def scene(stage: ClientStage) -> None:
        await stage.send([b"0", b"1", b"2"], queue=0)
        with pytest.raises(ValueError, match="no such dish"):
            await fail(stage)
        async with stage.polling() as consumer:
            assert bodies(await polled(consumer, 5, timeout=5)) == [b"1", b"2"]

    play(scene)


def test_application_commits_without_auto_commit() -> None:
    """All that was polled, or given offsets."""

    async def scene(stage: ClientStage) -> None:
        await stage.send([b"%d" % number for number in range(5)], queue=0)
        async with stage.polling(auto_commit=False) as consumer:
            assert len(await polled(consumer, 5)) == 5
            await asyncio.sleep(60)
        async with stage.polling(auto_commit=False, pull_batch_size=2) as consumer:
            assert bodies(await consumer.poll(5)) == [b"0", b"1"]
            await consumer.commit()
            assert await consumer.committed(QUEUE) == 2
            await consumer.poll(5)
            await consumer.commit({QUEUE: 3})
            assert await consumer.committed(QUEUE) == 3
        async with stage.polling(auto_commit=False) as consumer:
            assert bodies(await polled(consumer, 2)) == [b"3", b"4"]

    play(scene)


def test_seek_moves_the_next_poll() -> None:
    """To an offset, the beginning, the end or a time; messages already pulled are dropped."""

    async def scene(stage: ClientStage) -> None:
        sent = await stage.send([b"%d" % number for number in range(9)], queue=0)
        await asyncio.sleep(10)
        moment = stage.time.clock.now_ms() - 5000
        await stage.send([b"9"], queue=0)
        async with stage.polling(pull_batch_size=3) as consumer:
            assert bodies(await consumer.poll()) == [b"0", b"1", b"2"]
            await consumer.seek(QUEUE, 7)
            assert bodies(await polled(consumer, 3)) == [b"7", b"8", b"9"]
            await consumer.seek_to_begin(QUEUE)
            assert len(await polled(consumer, 10)) == 10
            await consumer.seek(QUEUE, await consumer.offset_for_timestamp(QUEUE, moment))
            assert (await polled(consumer, 2, timeout=5))[-1].body == b"9"
            await consumer.seek_to_end(QUEUE)
            assert await consumer.poll(1) == []
            with pytest.raises(IllegalOffsetError, match="no offset 11: it has 0 to 10"):
                await consumer.seek(QUEUE, 11)
            with pytest.raises(QueueNotAssignedError, match="not assigned"):
                await consumer.seek(MessageQueue(retry_topic("kitchen"), "broker-a", 0), 0)
        assert len(sent) == 9

    play(scene)


def test_sought_position_is_committed() -> None:
    """Also when nothing was polled after the seek."""

    async def scene(stage: ClientStage) -> None:
        await stage.send([b"%d" % number for number in range(9)], queue=0)
        async with stage.polling() as consumer:
            await polled(consumer, 9)
            await consumer.seek(QUEUE, 4)
        async with stage.polling() as consumer:
            assert bodies(await polled(consumer, 9, timeout=5)) == [b"4", b"5", b"6", b"7", b"8"]

    play(scene)


def test_paused_queues_are_skipped() -> None:
    """Their messages are polled after they are resumed."""

    async def scene(stage: ClientStage) -> None:
        await stage.send([b"0"], queue=0)
        await stage.send([b"1"], queue=1)
        async with stage.polling() as consumer:
            consumer.pause([QUEUE])
            assert bodies(await polled(consumer, 2, timeout=5)) == [b"1"]
            assert consumer.paused == {QUEUE}
            poll = asyncio.ensure_future(consumer.poll(30))
            await asyncio.sleep(1)
            consumer.resume([QUEUE])
            assert bodies(await poll) == [b"0"]

    play(scene)


def test_assigned_queues_are_not_shared() -> None:
    """Two members with the same queue both get all its messages, by its own expression;

    subscribing as well is an error.
    """

    async def scene(stage: ClientStage) -> None:
        async with stage.producer() as producer:
            for tag in ("A", "B"):
                await producer.send(Message("orders", tag.encode(), tags=tag), queue=QUEUE)
        first, second = stage.polling(topic=""), stage.polling(topic="")
        first.assign([QUEUE])
        second.assign([QUEUE], "B")
        with pytest.raises(ClientStateError, match="limited to assigned queues"):
            first.subscribe("orders")
        async with first, second:
            assert bodies(await polled(first, 2)) == [b"A", b"B"]
            assert bodies(await polled(second, 2, timeout=5)) == [b"B"]
            first.assign([MessageQueue("orders", "broker-a", 1)])
            await until(lambda: {queue.queue_id for queue in first.assigned} == {1})

    play(scene)


def test_members_share_the_queues_and_are_notified() -> None:
    """Rebalance listeners get the member's queues."""

    async def scene(stage: ClientStage) -> None:
        reported: list[tuple[str, int, set[int]]] = []
        first = stage.polling()
        first.on_rebalance(
            lambda topic, everything, mine: reported.append(
                (topic, len(everything), {queue.queue_id for queue in mine})
            )
        )
        async with first:
            async with stage.polling():
                await until(lambda: len(first.assigned) == 2)
            await until(lambda: len(reported) == 3)
        assert [len(mine) for _, _, mine in reported] == [4, 2, 4]
        assert {(topic, count) for topic, count, _ in reported} == {("orders", 4)}

    play(scene)


def test_joining_member_starts_at_the_committed_offsets() -> None:
    """It takes over gradually as polls go on."""

    async def scene(stage: ClientStage) -> None:
        await stage.send([b"%d" % number for number in range(8)])
        async with stage.polling(pull_batch_size=1) as first:
            assert len(await polled(first, 9, timeout=20)) == 8
            async with stage.polling() as second:
                await until(lambda: len(first.assigned) == 2)
                assert await second.poll(5) == []

    play(scene)


def test_buffered_messages_are_limited() -> None:
    """With too many no queue is pulled until some are polled."""

    async def scene(stage: ClientStage) -> None:
        await stage.send([b"x"] * 400)
        async with stage.polling(pull_threshold_for_all=50, pull_batch_size=10) as consumer:
            await asyncio.sleep(5)
            waiting = sum(len(queue) for queue in consumer.process_queues)
            assert 50 < waiting <= 90
            assert len(await polled(consumer, 400)) == 400

    play(scene)


def test_broadcast_members_each_poll_everything(tmp_path_factory: pytest.TempPathFactory) -> None:
    """They keep their offsets in a file."""

    async def scene(stage: ClientStage) -> None:
        await stage.send([b"0", b"1"])
        for name in ("a", "b", "a"):
            async with stage.polling(
                message_model=MessageModel.BROADCASTING,
                instance_name=f"{name}",
                local_offset_store_dir=home,
            ) as consumer:
                heard.append(bodies(await polled(consumer, 2, timeout=5)))

    home, heard = tmp_path_factory.mktemp("offsets"), list[list[bytes]]()
    play(scene)
    assert heard == [[b"0", b"1"], [b"0", b"1"], []]


def test_messages_sent_back_arrive_by_the_retry_topic() -> None:
    """To members that subscribe to it, in that topic's queue; after too many retries they are dead letters."""

    async def scene(stage: ClientStage) -> None:
        await stage.send([b"bad"])
        consumer, times = stage.polling(), list[tuple[str, int]]()
        consumer.subscribe(retry_topic("kitchen"))
        async with consumer:
            for _ in range(3):
                message = (await polled(consumer, 1, timeout=120))[0]
                times.append((consumer.origin_topic(message), message.reconsume_times))
                assert message.queue in consumer.assigned
                assert message.topic == ("orders" if len(times) == 1 else retry_topic("kitchen"))
                await consumer.send_back(message, 1, max_reconsume_times=2, cause="not edible")
        assert times == [("orders", 0), ("orders", 1), ("orders", 2)]
        async with stage.polling("graveyard", dlq_topic("kitchen")) as graveyard:
            letter = (await polled(graveyard, 1))[0]
            assert (letter.body, letter.properties["FAILURE_MESSAGE"]) == (b"bad", "not edible")

    play(scene)


def test_offset_reset_reaches_a_running_consumer() -> None:
    """The next polls start at the new offset."""

    async def scene(stage: ClientStage) -> None:
        await stage.send([b"%d" % number for number in range(4)], queue=0)
        async with stage.polling() as consumer, stage.admin() as admin:
            assert len(await polled(consumer, 4)) == 4
            await consumer.commit()
            await admin.reset_offsets("kitchen", "orders", 0)
            assert len(await polled(consumer, 4)) == 4

    play(scene)


def test_offset_reset_drops_buffered_messages() -> None:
    """They no longer count towards `pull_threshold_for_all`, which stopped the pulls."""

    async def scene(stage: ClientStage) -> None:
        sent = [b"%03d" % number for number in range(100)]
        await stage.send(sent, queue=0)
        async with stage.polling(pull_threshold_for_all=10) as consumer, stage.admin() as admin:
            assert len(await polled(consumer, 10)) == 10
            await consumer.commit()
            await admin.reset_offsets("kitchen", "orders", 0)
            await asyncio.sleep(1)
            assert bodies(await polled(consumer, 100)) == sent

    play(scene)


def test_misuse_is_an_error() -> None:
    """Nothing subscribed, assigned after subscribing, polled before the start."""

    async def scene(stage: ClientStage) -> None:
        with pytest.raises(ClientStateError, match="call subscribe or assign first"):
            await stage.polling(topic="").start()
        consumer = stage.polling()
        with pytest.raises(ClientStateError, match="do not assign queues to it as well"):
            consumer.assign([QUEUE])
        with pytest.raises(ClientStateError, match="not started"):
            await consumer.poll()

    play(scene)
