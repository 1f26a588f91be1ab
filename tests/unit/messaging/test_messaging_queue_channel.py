"""The queue channel, with threads and loops on both ends."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from streamkit.errors import BlockingSendError, MessagingError
from streamkit.messaging import Message, QueueChannel

MESSAGES = [Message(n) for n in range(100)]


def test_first_in_first_out():
    """An empty channel returns None."""
    channel = QueueChannel("c")
    for message in MESSAGES:
        assert channel.send(message)
    assert len(channel) == 100
    assert [channel.receive(0) for _ in MESSAGES] == MESSAGES
    assert channel.receive(0) is None
    assert channel.receive(0.001) is None


def test_receive_waits_for_a_message():
    """Until another thread sends one."""
    channel = QueueChannel("c")
    with ThreadPoolExecutor(1) as executor:
        received = executor.submit(channel.receive)
        channel.send(MESSAGES[0])
        assert received.result(10) == MESSAGES[0]


def test_send_to_a_full_channel_waits():
    """Its message comes after those already there."""
    channel = QueueChannel("c", capacity=1)
    channel.send(MESSAGES[0])
    with ThreadPoolExecutor(1) as executor:
        sent = executor.submit(channel.send, MESSAGES[1])
        assert channel.receive(10) == MESSAGES[0]
        assert sent.result(10) is True
    assert channel.receive(0) == MESSAGES[1]


def test_send_to_a_full_channel_times_out():
    """The message is not queued later."""
    channel = QueueChannel("c", capacity=1)
    channel.send(MESSAGES[0])
    assert channel.send(MESSAGES[1], 0.001) is False
    assert channel.send(MESSAGES[1], 0) is False
    assert asyncio.run(channel.asend(MESSAGES[1], 0.001)) is False
    assert channel.receive(0) == MESSAGES[0]
    assert channel.receive(0) is None


def test_both_ends_can_be_awaited():
    """Without blocking the loop."""

    async def main():
        channel = QueueChannel("c", capacity=3)

        async def produce():
            for message in MESSAGES:
                assert await channel.asend(message)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(produce())
            return [await channel.areceive() for _ in MESSAGES]

    assert asyncio.run(main()) == MESSAGES


def test_areceive_times_out():
    """It returns None, and a later message goes to the next receiver."""

    async def main():
        channel = QueueChannel("c")
        assert await channel.areceive(0.001) is None
        await channel.asend(MESSAGES[0])
        assert await channel.areceive(0.001) == MESSAGES[0]

    asyncio.run(main())


def test_timed_out_receivers_are_removed():
    """Endless polling uses no memory."""
    channel = QueueChannel("c", capacity=1)
    for _ in range(3):
        assert channel.receive(0) is None
        assert channel.receive(0.001) is None
        assert asyncio.run(channel.areceive(0.001)) is None
        assert asyncio.run(channel.areceive(0)) is None
    channel.send(MESSAGES[0])
    for _ in range(3):
        assert channel.send(MESSAGES[1], 0.001) is False
    assert (len(channel._receivers), len(channel._senders)) == (0, 0)


def test_cancelled_receiver_loses_no_message():
    """A message that arrives at that moment returns to the front."""

    async def main():
        channel = QueueChannel("c")
        receiver = asyncio.create_task(channel.areceive())
        await asyncio.sleep(0)
        await channel.asend(MESSAGES[0])
        await channel.asend(MESSAGES[1])
        receiver.cancel()
        with pytest.raises(asyncio.CancelledError):
            await receiver
        assert [await channel.areceive(0.1), await channel.areceive(0.1)] == MESSAGES[:2]

    asyncio.run(main())


def test_cancelled_sender_has_not_sent():
    """While it waited for space."""

    async def main():
        channel = QueueChannel("c", capacity=1)
        await channel.asend(MESSAGES[0])
        sender = asyncio.create_task(channel.asend(MESSAGES[1]))
        await asyncio.sleep(0)
        sender.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sender
        assert channel.clear() == MESSAGES[:1]

    asyncio.run(main())


def test_many_threads_receive_each_message_once():
    """Every message that is sent is received once, whatever the threads do."""
    channel = QueueChannel("c", capacity=2)
    received = []

    def consume():
        while (message := channel.receive(10)).payload is not None:
            received.append(message.payload)

    consumers = [threading.Thread(target=consume) for _ in range(3)]
    for thread in consumers:
        thread.start()
    with ThreadPoolExecutor(3) as executor:
        list(executor.map(channel.send, MESSAGES))
    for _ in consumers:
        channel.send(Message(None))
    for thread in consumers:
        thread.join()
    assert sorted(received) == list(range(100))


def test_blocking_a_loop_is_refused():
    """The errors name the async method."""

    async def main():
        channel = QueueChannel("c", capacity=1)
        with pytest.raises(MessagingError, match=r"await channel\.areceive"):
            channel.receive()
        assert channel.send(MESSAGES[0])
        with pytest.raises(BlockingSendError, match=r"await channel\.asend"):
            channel.send(MESSAGES[1])
        assert channel.receive() == MESSAGES[0]

    asyncio.run(main())


def test_clear_returns_queued_and_waiting_messages():
    """Clearing gives what was queued and what was waiting for room."""
    channel = QueueChannel("c", capacity=1)
    channel.send(MESSAGES[0])
    with ThreadPoolExecutor(1) as executor:
        waiting = executor.submit(channel.send, MESSAGES[1])
        cleared = channel.clear()
        if len(cleared) < 2:  # the second sender had not come yet
            cleared.append(channel.receive(10))
        assert waiting.result(10)
    assert cleared == MESSAGES[:2]


def test_invalid_capacity_is_an_error():
    """A channel must hold at least one message."""
    with pytest.raises(ValueError, match="capacity 0 of channel 'c'"):
        QueueChannel("c", capacity=0)
