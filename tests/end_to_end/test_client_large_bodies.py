"""Compressed bodies that become large: consumers of every kind hold few of them, and skip unreadable ones."""

import asyncio
import tracemalloc
from pathlib import Path

import pytest

from rocket_client import ConsumeContext, MessageModel, RetryLater, UnreadableBodyError
from rocket_remoting import Message, MessageExt, MessageQueue
from rocket_remoting.wire.bodies import ConsumeMessageResult
from rocket_remoting.wire.compression import compress
from rocket_remoting.wire.sys_flag import COMPRESSED
from tests.end_to_end.client_stage import ClientStage, RecordingListener, play, until
from tests.traced_memory import memory_below

MIB = 1 << 20
LARGE = bytes(4 * MIB)
"""Sent, it has four kilobytes."""
BOUNDED = {"max_decompressed_body_size": 4 * MIB, "max_decompressed_size": 8 * MIB}
NARROW = {"max_decompressed_body_size": MIB, "max_decompressed_size": 2 * MIB}
QUEUE = MessageQueue("orders", "broker-a", 0)


class MemoryRecorder:
    """A listener that records how much it holds at once, and keeps nothing."""

    def __init__(self) -> None:
        self.count = self.held = self.most = 0
        self.begun = asyncio.Event()
        self.gate = asyncio.Event()

    async def __call__(self, messages: list[MessageExt], context: ConsumeContext) -> None:
        size = sum(len(message.body) for message in messages)
        self.held += size
        self.most = max(self.most, self.held)
        self.begun.set()
        await self.gate.wait()
        await asyncio.sleep(0.01)
        self.held -= size
        self.count += len(messages)


@pytest.mark.parametrize("orderly", [False, True])
def test_bodies_are_decompressed_just_before_their_call(orderly: bool) -> None:
    """Twenty of 4 MiB use no more than the limit of decompressed bytes; pulls count decompressed bodies."""

    async def scene(stage: ClientStage) -> None:
        await stage.send([LARGE] * 20)
        holder = MemoryRecorder()
        consumer = (stage.orderly if orderly else stage.concurrent)(holder, pull_threshold_size_for_queue=1, **BOUNDED)
        with memory_below(48 * MIB):
            async with consumer:
                await holder.begun.wait()
                await asyncio.sleep(5)
                assert holder.most <= 8 * MIB
                sizes = [queue.size for queue in consumer.process_queues]
                assert 4 * MIB <= sum(sizes) < 9 * MIB
                assert sum(queue.stored_size for queue in consumer.process_queues) < MIB
                assert tracemalloc.get_traced_memory()[1] < 48 * MIB
                holder.gate.set()
                await until(lambda: holder.count == 20)
                assert [queue.size for queue in consumer.process_queues] == [0] * 5
            assert holder.most <= 8 * MIB

    play(scene)


def test_small_bodies_overtake_those_that_wait_for_memory() -> None:
    """Ordinary messages do not wait for large ones."""

    async def scene(stage: ClientStage) -> None:
        await stage.send([LARGE] * 10 + [b"small"] * 10)
        small = RecordingListener()
        gate = asyncio.Event()

        async def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
            if len(messages[0].body) == 5:
                await small(messages, context)
            else:
                await gate.wait()

        async with stage.concurrent(listen, concurrency=20, **BOUNDED):
            await small.count(10)
            gate.set()

    play(scene)


def test_batch_has_as_many_messages_as_fit() -> None:
    """The others are in the next batches, in order."""

    async def scene(stage: ClientStage) -> None:
        await stage.send([b"%d" % number * MIB for number in range(9)], queue=0)
        heard = RecordingListener()
        async with stage.orderly(heard, consume_message_batch_max_size=9, **BOUNDED):
            await heard.count(9)
        assert [body[:1] for body in heard.bodies] == [b"%d" % number for number in range(9)]
        assert max(heard.batches) <= 4

    play(scene)


@pytest.mark.parametrize("orderly", [False, True])
def test_body_beyond_the_limit_is_a_dead_letter(orderly: bool, caplog: pytest.LogCaptureFixture) -> None:
    """No listener is called, the others are delivered, everything is committed, and the dead letter is unchanged."""

    async def scene(stage: ClientStage) -> None:
        await stage.send([b"before", LARGE, b"after"], queue=0)
        heard = RecordingListener()
        async with (stage.orderly if orderly else stage.concurrent)(heard, **NARROW):
            await heard.count(2)
            await until(lambda: "the listener is not called: the body of message" in caplog.text)
            assert "It goes to %DLQ%kitchen" in caplog.text
            await asyncio.sleep(10)
        assert heard.bodies == [b"before", b"after"]
        dead = RecordingListener()
        async with stage.concurrent(dead, "undertaker", topic="%DLQ%kitchen"):
            await dead.count(1)
        assert dead.messages[0].body == LARGE
        assert "exceeds 1048576 bytes when decompressed" in dead.messages[0].properties["FAILURE_MESSAGE"]
        async with stage.pulling() as reader:
            assert await reader.committed(QUEUE) == 3

    play(scene)


def test_body_beyond_the_limit_is_dropped_in_broadcasting(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """As any failed message."""

    async def scene(stage: ClientStage) -> None:
        await stage.send([b"before", LARGE, b"after"], queue=0)
        heard = RecordingListener()
        settings = {"message_model": MessageModel.BROADCASTING, "local_offset_store_dir": tmp_path}
        async with stage.concurrent(heard, **settings, **NARROW):
            await heard.count(2)
            await until(lambda: "drops a message" in caplog.text)
            assert "It is dropped: nothing is sent back in broadcasting" in caplog.text
        assert sorted(heard.bodies) == [b"after", b"before"]

    play(scene)


@pytest.mark.parametrize("orderly", [False, True])
def test_failed_message_is_sent_back_compressed(orderly: bool) -> None:
    """It is decompressed for each call, and keeps its size."""

    async def scene(stage: ClientStage) -> None:
        await stage.send([LARGE])
        sizes: list[tuple[int, int, int]] = []

        async def listen(messages: list[MessageExt], context: ConsumeContext) -> RetryLater | None:
            (message,) = messages
            sizes.append((len(message.body), message.store_size // 10_000, message.reconsume_times))
            if message.reconsume_times < 2:
                raise LookupError("not yet")
            return None

        async with (stage.orderly if orderly else stage.concurrent)(listen):
            await until(lambda: len(sizes) == 3)
        assert sizes == [(4 * MIB, 0, 0), (4 * MIB, 0, 1), (4 * MIB, 0, 2)]

    play(scene)


def test_message_keeps_its_body_after_the_call() -> None:
    """Decompressed, and flagged so."""

    async def scene(stage: ClientStage) -> None:
        await stage.send([LARGE, b"x" * 5000])
        heard = RecordingListener()
        async with stage.concurrent(heard):
            await heard.count(2)
        assert sorted(map(len, heard.bodies)) == [5000, 4 * MIB]
        assert [message.sys_flag & COMPRESSED for message in heard.messages] == [0, 0]

    play(scene)


def test_poll_returns_as_many_messages_as_fit() -> None:
    """The next poll returns those behind them, and frees the memory of the first."""

    async def scene(stage: ClientStage) -> None:
        await stage.send([b"%d" % number * MIB for number in range(9)], queue=0)
        polled: list[bytes] = []
        async with stage.polling(**BOUNDED) as consumer:
            while len(polled) < 9:
                messages = await consumer.poll(60)
                assert 1 <= len(messages) <= 4
                assert sum(queue.growth for queue in consumer.process_queues) <= 8 * MIB
                polled += [message.body[:1] for message in messages]
            assert await consumer.poll(0) == []
            assert sum(queue.size for queue in consumer.process_queues) == 0
        assert polled == [b"%d" % number for number in range(9)]

    play(scene)


def test_poll_skips_a_body_beyond_the_limit(caplog: pytest.LogCaptureFixture) -> None:
    """Its message becomes a dead letter and counts as consumed."""

    async def scene(stage: ClientStage) -> None:
        await stage.send([b"before", LARGE, b"after"], queue=0)
        async with stage.polling(**NARROW) as consumer:
            bodies = [message.body for _ in range(2) for message in await consumer.poll(60)]
        assert "is not returned by the poll: the body of message" in caplog.text
        assert "It goes to %DLQ%kitchen" in caplog.text
        assert bodies == [b"before", b"after"]
        dead = RecordingListener()
        async with stage.concurrent(dead, "undertaker", topic="%DLQ%kitchen"):
            await dead.count(1)
        assert dead.messages[0].body == LARGE
        async with stage.pulling() as reader:
            assert await reader.committed(QUEUE) == 3

    play(scene)


def test_pull_returns_as_many_messages_as_fit() -> None:
    """Its next offset is that of the first omitted message."""

    async def scene(stage: ClientStage) -> None:
        await stage.send([b"%d" % number * MIB for number in range(9)], queue=0)
        pulled: list[bytes] = []
        offset = 0
        async with stage.pulling(**BOUNDED) as consumer:
            while offset < 9:
                result = await consumer.pull(QUEUE, offset)
                assert 1 <= len(result.messages) <= 4
                pulled += [message.body[:1] for message in result.messages]
                offset = result.next_begin_offset
        assert pulled == [b"%d" % number for number in range(9)]

    play(scene)


def test_pull_reports_a_body_beyond_the_limit() -> None:
    """After the messages before it; the caller decides."""

    async def scene(stage: ClientStage) -> None:
        await stage.send([b"before", LARGE, b"after"], queue=0)
        async with stage.pulling(**NARROW) as consumer:
            result = await consumer.pull(QUEUE, 0)
            assert ([message.body for message in result.messages], result.next_begin_offset) == (
                [b"before"],
                1,
            )
            with pytest.raises(UnreadableBodyError, match="exceeds 1048576 bytes") as caught:
                await consumer.pull(QUEUE, 1)
            assert caught.value.message.queue_offset == 1
            result = await consumer.pull(QUEUE, 2)
            assert [message.body for message in result.messages] == [b"after"]

    play(scene)


def test_reply_beyond_the_limit_is_an_error_of_its_request() -> None:
    """Other requests are not affected."""

    async def scene(stage: ClientStage) -> None:
        async def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
            await waiter.reply(messages[0], bytes(2 * MIB))

        async with (
            stage.producer("waiters") as waiter,
            stage.producer("guests", **NARROW) as guest,
            stage.concurrent(listen),
        ):
            with pytest.raises(UnreadableBodyError, match="exceeds 1048576 bytes"):
                await guest.request(Message("orders", b"coffee"), timeout=10)

    play(scene)


def test_admin_gets_a_body_beyond_the_limit_compressed(caplog: pytest.LogCaptureFixture) -> None:
    """Others are decompressed."""

    async def scene(stage: ClientStage) -> None:
        async with stage.producer() as producer:
            for body in (bytes(MIB), LARGE):
                await producer.send(Message("orders", body, keys="key"))
        async with stage.admin(**NARROW) as admin:
            found = await admin.query_by_key("orders", "key")
            flags = {len(message.body): message.sys_flag & COMPRESSED for message in found}
            assert flags[MIB] == 0
            assert [flag for size, flag in flags.items() if size < 10_000] == [COMPRESSED]
            assert "exceeds 1048576 bytes when decompressed" in caplog.text

    play(scene)


@pytest.mark.parametrize("size", [MIB, 2 * MIB])
def test_directly_consumed_message_is_decompressed_or_refused(size: int) -> None:
    """As an administrator requests it."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener()
        async with stage.concurrent(heard, **NARROW) as consumer:
            body = compress(bytes(size))
            message = MessageExt("orders", body, sys_flag=COMPRESSED, broker_name="broker-a")
            result = await consumer.consume_directly(message)
        assert [len(body) for body in heard.bodies] == ([MIB] if size == MIB else [])
        expected = ConsumeMessageResult.CR_SUCCESS if size == MIB else ConsumeMessageResult.CR_THROW_EXCEPTION
        assert result.consume_result is expected

    play(scene)
