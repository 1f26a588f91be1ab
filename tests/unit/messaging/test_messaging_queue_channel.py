"""The channel that keeps messages: threads and loops on both ends."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from streamkit.errors import BlockingSendError, MessagingError
from streamkit.messaging import Message, QueueChannel

MESSAGES = [Message(n) for n in range(100)]


def test_first_in_first_out():
    """Messages come out in the order they went in; an empty channel gives None."""
    channel = QueueChannel("c")
    for message in MESSAGES:
        assert channel.send(message)
    assert len(channel) == 100
    assert [channel.receive(0) for _ in MESSAGES] == MESSAGES
    assert channel.receive(0) is None
    assert channel.receive(0.001) is None


def test_receiving_waits_for_a_message():
    """A thread that receives waits until another sends."""
    channel = QueueChannel("c")
    with ThreadPoolExecutor(1) as executor:
        received = executor.submit(channel.receive)
        channel.send(MESSAGES[0])
        assert received.result(10) == MESSAGES[0]


def test_sending_to_a_full_channel_waits():
    """A sender waits for room, and its message comes after those that were there."""
    channel = QueueChannel("c", capacity=1)
    channel.send(MESSAGES[0])
    with ThreadPoolExecutor(1) as executor:
        sent = executor.submit(channel.send, MESSAGES[1])
        assert channel.receive(10) == MESSAGES[0]
        assert sent.result(10) is True
    assert channel.receive(0) == MESSAGES[1]


def test_a_full_channel_refuses_in_time():
    """A message for which there is no room in time is not queued later either."""
    channel = QueueChannel("c", capacity=1)
    channel.send(MESSAGES[0])
    assert channel.send(MESSAGES[1], 0.001) is False
    assert channel.send(MESSAGES[1], 0) is False
    assert asyncio.run(channel.asend(MESSAGES[1], 0.001)) is False
    assert channel.receive(0) == MESSAGES[0]
    assert channel.receive(0) is None


def test_awaiting_both_ends():
    """On a loop both ends wait without blocking it."""

    async def main():
        channel = QueueChannel("c", capacity=3)

        async def produce():
            for message in MESSAGES:
                assert await channel.asend(message)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(produce())
            return [await channel.areceive() for _ in MESSAGES]

    assert asyncio.run(main()) == MESSAGES


def test_areceive_in_time():
    """Nothing within the limit is None; what comes later goes to who asks then."""

    async def main():
        channel = QueueChannel("c")
        assert await channel.areceive(0.001) is None
        await channel.asend(MESSAGES[0])
        assert await channel.areceive(0.001) == MESSAGES[0]

    asyncio.run(main())


def test_polling_an_empty_channel_leaves_nothing():
    """Receivers that gave up are forgotten: polling for ever costs no memory."""
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


def test_a_cancelled_receiver_loses_nothing():
    """A receiver cancelled in the very moment a message arrived for it puts it back in front."""

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


def test_a_cancelled_sender_leaves_nothing():
    """A sender cancelled while it waits for room has not sent."""

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


def test_many_threads():
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
    """Where waiting would block this thread's loop, the errors name the other method."""

    async def main():
        channel = QueueChannel("c", capacity=1)
        with pytest.raises(MessagingError, match=r"await channel\.areceive"):
            channel.receive()
        assert channel.send(MESSAGES[0])
        with pytest.raises(BlockingSendError, match=r"await channel\.asend"):
            channel.send(MESSAGES[1])
        assert channel.receive() == MESSAGES[0]

    asyncio.run(main())


def test_clearing():
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


def test_a_useless_capacity():
    """A channel that could keep nothing is an error."""
    with pytest.raises(ValueError, match="capacity 0 of channel 'c'"):
        QueueChannel("c", capacity=0)
