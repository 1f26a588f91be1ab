"""Our pull consumers on Apache's brokers: request 361 where it is served (5.x), otherwise 11 (4.9)."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable

from rocket_client import (
    Admin,
    ClientSettings,
    ConsumeFromWhere,
    LitePullConsumer,
    LitePullConsumerSettings,
    Producer,
    ProducerSettings,
    PullConsumer,
    PullConsumerSettings,
    PullStatus,
)
from rocket_remoting import Message, MessageExt, MessageQueue
from tests.peer.apache import ApacheBroker
from tests.peer.stage import ANSWER_TIMEOUT, SEND_TIMEOUT

_numbers = itertools.count(1)


class Desk:
    """A topic and a group of its own, and their consumers."""

    def __init__(self, broker: ApacheBroker) -> None:
        number = next(_numbers)
        self.topic, self.group = f"polled-topic-{number}", f"polled-group-{number}"
        self.address = broker.name_server
        self.queue = MessageQueue(self.topic, "broker-a", 0)

    def polling(self) -> LitePullConsumer:
        settings = LitePullConsumerSettings(name_servers=self.address, consume_from_where=ConsumeFromWhere.FIRST_OFFSET)
        consumer = LitePullConsumer(self.group, settings)
        consumer.subscribe(self.topic)
        return consumer

    def pulling(self) -> PullConsumer:
        return PullConsumer(self.group, PullConsumerSettings(name_servers=self.address))

    async def send(self, *bodies: bytes) -> None:
        """Send to the queue and wait until the message is in it: Apache's brokers add it after their answer."""
        settings = ProducerSettings(name_servers=self.address, send_timeout=SEND_TIMEOUT)
        async with Producer(f"{self.group}-p", settings) as producer:
            for body in bodies:
                sent = await producer.send(Message(self.topic, body, tags=body.decode()), queue=self.queue)
        async with self.pulling() as consumer, asyncio.timeout(60):
            while await consumer.max_offset(self.queue) <= sent.queue_offset:  # noqa: ASYNC110 - a broker tells no one
                await asyncio.sleep(0.05)


def play(broker: ApacheBroker, scene: Callable[[Desk], Awaitable[None]]) -> None:
    async def main() -> None:
        desk = Desk(broker)
        async with Admin(ClientSettings(name_servers=broker.name_server, request_timeout=ANSWER_TIMEOUT)) as admin:
            await admin.create_topic(desk.topic, 2)
            await admin.await_topic(desk.topic, queues=2, timeout=60)
            await scene(desk)

    asyncio.run(main())


async def polled(consumer: LitePullConsumer, count: int) -> list[bytes]:
    """Return that many polled bodies."""
    messages: list[MessageExt] = []
    async with asyncio.timeout(60):
        while len(messages) < count:
            messages += await consumer.poll(1)
    return [message.body for message in messages]


def test_polls_share_commit_and_seek(apache_broker: ApacheBroker) -> None:
    """The next member continues behind the polled messages; a seek goes back."""

    async def scene(desk: Desk) -> None:
        await desk.send(b"0", b"1", b"2")
        async with desk.polling() as consumer:
            assert await polled(consumer, 3) == [b"0", b"1", b"2"]
        await desk.send(b"3")
        async with desk.polling() as consumer:
            assert await polled(consumer, 1) == [b"3"]
            await consumer.seek(desk.queue, 1)
            assert await polled(consumer, 3) == [b"1", b"2", b"3"]

    play(apache_broker, scene)


def test_waiting_poll_is_answered_at_once(apache_broker: ApacheBroker) -> None:
    """The broker holds lite pulls like others."""

    async def scene(desk: Desk) -> None:
        async with desk.polling() as consumer:
            poll = asyncio.ensure_future(consumer.poll(30))
            assert await consumer.poll(0) == []
            await desk.send(b"0")
            assert [message.body for message in await poll] == [b"0"]

    play(apache_broker, scene)


def test_pull_statuses(apache_broker: ApacheBroker) -> None:
    """Messages, none that match, none yet, an illegal offset."""

    async def scene(desk: Desk) -> None:
        await desk.send(b"A", b"B")
        async with desk.pulling() as consumer:
            assert len(await consumer.fetch_message_queues(desk.topic)) == 2
            found = await consumer.pull(desk.queue, 0, expression="B")
            assert ([message.body for message in found.messages], found.next_begin_offset) == ([b"B"], 2)
            unmatched = await consumer.pull(desk.queue, 0, expression="C")
            assert (unmatched.status, unmatched.next_begin_offset) == (PullStatus.NO_MATCHED_MSG, 2)
            assert (await consumer.pull(desk.queue, 2)).status is PullStatus.NO_NEW_MSG
            assert (await consumer.pull(desk.queue, 99)).status is PullStatus.OFFSET_ILLEGAL

    play(apache_broker, scene)
