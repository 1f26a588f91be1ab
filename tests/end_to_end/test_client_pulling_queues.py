"""Pull consumers on the bundled broker: queues, statuses, and offsets kept by the application."""

import asyncio

import pytest

from rocket_client import ClientStateError, PullStatus, TopicNotFoundError
from rocket_remoting import Message, MessageQueue
from tests.end_to_end.client_stage import ClientStage, play

QUEUE = MessageQueue("orders", "broker-a", 0)


def test_application_keeps_the_offsets() -> None:
    """It pulls each queue from its own offset to the end."""

    async def scene(stage: ClientStage) -> None:
        sent = sorted(b"%03d" % number for number in range(100))
        await stage.send(sent)
        got: list[bytes] = []
        async with stage.pulling() as consumer:
            queues = await consumer.fetch_message_queues("orders")
            assert queues == [MessageQueue("orders", "broker-a", number) for number in range(4)]
            for queue in queues:
                offset = 0
                while (result := await consumer.pull(queue, offset, max_messages=10)).status is PullStatus.FOUND:
                    assert len(result.messages) <= 10
                    got += [message.body for message in result.messages]
                    offset = result.next_begin_offset
                assert (result.status, offset) == (PullStatus.NO_NEW_MSG, 25)
        assert sorted(got) == sent

    play(scene)


def test_pull_statuses() -> None:
    """Messages, none yet, none that match, an illegal offset."""

    async def scene(stage: ClientStage) -> None:
        async with stage.producer() as producer, stage.pulling() as consumer:
            for tag in ("A", "B"):
                await producer.send(Message("orders", tag.encode(), tags=tag), queue=QUEUE)
            found = await consumer.pull(QUEUE, 0, expression="B")
            assert [message.body for message in found.messages] == [b"B"]
            assert (found.next_begin_offset, found.min_offset, found.max_offset) == (2, 0, 2)
            assert (await consumer.pull(QUEUE, 2)).status is PullStatus.NO_NEW_MSG
            unmatched = await consumer.pull(QUEUE, 0, expression="C")
            assert (unmatched.status, unmatched.next_begin_offset) == (PullStatus.NO_MATCHED_MSG, 2)
            illegal = await consumer.pull(QUEUE, 99)
            assert (illegal.status, illegal.next_begin_offset) == (PullStatus.OFFSET_ILLEGAL, 2)

    play(scene)


def test_blocking_pull_waits_for_a_message() -> None:
    """The broker holds it until one is stored, or for 20 s."""

    async def scene(stage: ClientStage) -> None:
        loop = asyncio.get_running_loop()
        async with stage.producer() as producer, stage.pulling() as consumer:
            begun = loop.time()
            loop.call_later(7, lambda: producer.send_async(Message("orders", b"x"), queue=QUEUE))
            result = await consumer.pull_block_if_not_found(QUEUE, 0)
            assert [message.body for message in result.messages] == [b"x"]
            assert loop.time() - begun == pytest.approx(7, abs=0.1)
            assert (await consumer.pull_block_if_not_found(QUEUE, 1)).status is PullStatus.NO_NEW_MSG
            assert 20 <= loop.time() - begun - 7 <= 26

    play(scene)


def test_offsets_can_be_kept_by_the_broker() -> None:
    """For the group, as a push consumer's."""

    async def scene(stage: ClientStage) -> None:
        await stage.send([b"0", b"1", b"2"], queue=0)
        async with stage.pulling() as consumer:
            await consumer.commit({QUEUE: 2})
            assert await consumer.committed(QUEUE) == 2
            assert (await consumer.min_offset(QUEUE), await consumer.max_offset(QUEUE)) == (0, 3)
            assert await consumer.offset_for_timestamp(QUEUE, 0) == 0
        async with stage.polling() as polls:
            assert [message.body for message in await polls.poll()] == [b"2"]

    play(scene)


def test_pull_consumer_is_registered_with_the_broker() -> None:
    """Consoles can list it and query its running info."""

    async def scene(stage: ClientStage) -> None:
        async with stage.pulling() as consumer, stage.admin() as admin:
            await consumer.fetch_message_queues("orders")
            await asyncio.sleep(40)
            connections = await admin.consumer_connections("kitchen")
            assert [member.client_id for member in connections.connection_set] == [consumer.client_id]

    play(scene)


def test_misuse_is_an_error() -> None:
    """Pulls before the start, and unknown topics."""

    async def scene(stage: ClientStage) -> None:
        consumer = stage.pulling()
        with pytest.raises(ClientStateError, match="not started"):
            await consumer.pull(QUEUE, 0)
        async with consumer:
            with pytest.raises(TopicNotFoundError, match="does not exist"):
                await consumer.fetch_message_queues("nowhere")

    play(scene)
