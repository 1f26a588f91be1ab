"""What the tests of commands do to a cluster: send, and consume."""

import asyncio
from collections.abc import Callable

from rocket_client import (
    Admin,
    ClientSettings,
    ConsumeContext,
    ConsumeFromWhere,
    Producer,
    ProducerSettings,
    PushConsumer,
    PushConsumerSettings,
)
from rocket_remoting import Message, MessageExt


async def send(name_server: str, topic: str, count: int) -> None:
    """Send messages, one after the other, to the topic's queues in turn."""
    async with Producer("senders", ProducerSettings(name_servers=name_server)) as producer:
        for number in range(count):
            await producer.send(Message(topic, str(number).encode()))


async def commit(name_server: str, topic: str, group: str, offset: int) -> None:
    """Commit an offset of a group in each queue of a topic."""
    async with Admin(ClientSettings(name_servers=name_server)) as admin:
        for queue in (await admin.topic_route(topic)).subscribe_queues:
            await admin.commit_offset(queue, group, offset)


async def with_member(name_server: str, topic: str, group: str, work: Callable[["Consumed"], None]) -> None:
    """Do blocking work in a thread while a group has a member that consumes a topic from its beginning."""
    consumed = Consumed(asyncio.get_running_loop())
    settings = PushConsumerSettings(name_servers=name_server, consume_from_where=ConsumeFromWhere.FIRST_OFFSET)
    consumer = PushConsumer(group, settings)
    consumer.subscribe(topic)
    consumer.listen_concurrently(consumed.take)
    async with consumer:
        await asyncio.to_thread(work, consumed)


class Consumed:
    """The messages that a member was given, for a thread to wait for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._bodies: asyncio.Queue[bytes] = asyncio.Queue()

    async def take(self, messages: list[MessageExt], context: ConsumeContext) -> None:
        """Note messages."""
        for message in messages:
            self._bodies.put_nowait(message.body)

    def next(self, count: int) -> list[bytes]:
        """Return the next messages, sorted; wait for them."""

        async def bodies() -> list[bytes]:
            return sorted([await self._bodies.get() for _ in range(count)])

        return asyncio.run_coroutine_threadsafe(bodies(), self._loop).result(60)
