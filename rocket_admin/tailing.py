"""Following a topic: its messages as they arrive."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Any, Final

import msgspec

from rocket_admin.clients import reader_of
from rocket_admin.conditions import Condition, matches_all
from rocket_admin.messages import first_offset
from rocket_admin.times import milliseconds
from rocket_client import Admin, PullConsumer
from rocket_client.core.subscription import ALL
from rocket_remoting.wire.message import MessageExt, MessageQueue

__all__ = ["Tail", "tail"]

_NEW_QUEUES_INTERVAL: Final = 30.0
"""Seconds between two searches for new queues: as often as clients refresh their routes."""
_BUFFERED: Final = 256
"""Messages that may wait for the reader of the tail; while so many do, no more are pulled."""


class Tail(msgspec.Struct, frozen=True, kw_only=True):
    """The topic to follow, and the messages of it to return.

    Attributes:
        topic: The topic.
        since: The time from which on messages are returned; None for those that arrive from now on.
        offset: The offset from which on messages of every queue are returned, in place of a time.
        tags: Only messages with these tags, such as `a || b`; brokers do not send others.
        sql: Only messages whose properties match this SQL92 expression, for brokers with `enablePropertyFilter=true`.
        conditions: Only messages of which all of these are true.
        follows: Whether to wait for messages that arrive later.
    """

    topic: str
    since: datetime | None = None
    offset: int | None = None
    tags: str = ALL
    sql: str | None = None
    conditions: Sequence[Condition] = ()
    follows: bool = True

    async def begin(self, reader: PullConsumer, queue: MessageQueue) -> int:
        """Return the offset at which a queue begins to be read."""
        if self.offset is not None:
            return max(self.offset, await reader.min_offset(queue))
        if self.since is not None:
            return await first_offset(reader, queue, milliseconds(self.since))
        return await reader.max_offset(queue)

    def takes(self, message: MessageExt) -> bool:
        """Return whether a message is one to return."""
        if self.since is not None and message.store_timestamp < milliseconds(self.since):
            return False
        return matches_all(self.conditions, message)


async def tail(admin: Admin, wanted: Tail) -> AsyncGenerator[MessageExt, None]:
    """Yield the messages of a topic in the order of their arrival; those of one queue in the queue's order.

    Nobody's offsets change. Close the iterator to end it: `contextlib.aclosing` does.

    Args:
        admin: A running admin.
        wanted: The topic, where to begin, and a filter.

    Raises:
        TopicNotFoundError: The topic does not exist.
        UnreadableBodyError: The body of a message is damaged or too large.
        RemotingError: A broker cannot be reached, or refuses.
    """
    async with reader_of(admin) as reader, aclosing(_Following(reader, wanted).messages()) as messages:
        async for message in messages:
            yield message


class _Following:
    """Pulls all queues of a topic at the same time."""

    def __init__(self, reader: PullConsumer, wanted: Tail) -> None:
        self._reader = reader
        self._wanted = wanted
        # A message, the error that has ended a task, or None from a task that has read its queue to the end.
        self._arrived: asyncio.Queue[MessageExt | Exception | None] = asyncio.Queue(_BUFFERED)
        self._tasks: list[asyncio.Task[None]] = []
        self._queues: set[MessageQueue] = set()

    async def messages(self) -> AsyncGenerator[MessageExt, None]:
        """Yield messages until all queues end, or for ever."""
        queues = await self._reader.fetch_message_queues(self._wanted.topic)
        starts = [await self._wanted.begin(self._reader, queue) for queue in queues]
        try:
            for queue, offset in zip(queues, starts, strict=True):
                self._begin(queue, offset)
            if self._wanted.follows:
                self._spawn(self._find_new_queues())
            reading = len(self._tasks)
            while reading:
                arrived = await self._arrived.get()
                if isinstance(arrived, Exception):
                    raise arrived
                if arrived is None:
                    reading -= 1
                else:
                    yield arrived
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, queue: MessageQueue, offset: int) -> None:
        self._queues.add(queue)
        self._spawn(self._pull(queue, offset))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(self._report_end(work)))

    async def _report_end(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # raised again where the messages are read
            await self._arrived.put(error)
        else:
            await self._arrived.put(None)

    async def _find_new_queues(self) -> None:
        while True:
            await asyncio.sleep(_NEW_QUEUES_INTERVAL)
            for queue in await self._reader.fetch_message_queues(self._wanted.topic):
                if queue not in self._queues:
                    self._begin(queue, 0)

    async def _pull(self, queue: MessageQueue, offset: int) -> None:
        wanted = self._wanted
        end = None if wanted.follows else await self._reader.max_offset(queue)
        pull = self._reader.pull_block_if_not_found if end is None else self._reader.pull
        while end is None or offset < end:
            result = await pull(queue, offset, expression=wanted.tags, sql=wanted.sql)
            for message in result.messages:
                if wanted.takes(message) and (end is None or message.queue_offset < end):
                    await self._arrived.put(message)
            if end is not None and result.next_begin_offset <= offset:
                return
            offset = result.next_begin_offset
