"""Searching the messages of a topic by time and conditions, in steps: each is bounded in messages and in time.

A step reads a part of every queue, from the oldest message on. It returns the offsets at which the next one begins.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Final

import msgspec

from rocket_admin.broker_answers import BrokerFailure
from rocket_admin.clients import reader_of
from rocket_admin.conditions import Condition, matches_all
from rocket_admin.messages import first_offset, read_queue
from rocket_admin.times import milliseconds
from rocket_admin.topics import topic_queues
from rocket_client import Admin, PullConsumer, UnreadableBodyError
from rocket_remoting.wire.message import MessageExt, MessageQueue

__all__ = ["QUEUES_SEARCHED", "Search", "SearchStep", "search"]

QUEUES_SEARCHED: Final = 256
"""Queues that a search reads; those behind them are left out."""
_AT_ONCE: Final = 8
"""Queues that are read at the same time."""


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions of a search.

    Attributes:
        topic: The topic.
        begin: The earliest time at which messages were stored; None for all from the oldest on.
        end: The latest time; None for all up to the newest.
        conditions: Only messages of which all of these are true.
    """

    topic: str
    begin: datetime | None = None
    end: datetime | None = None
    conditions: Sequence[Condition] = ()


class SearchStep(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one step of a search.

    Attributes:
        messages: The messages, by the time at which they were stored.
        read: The number of messages that were read.
        left: The number of messages that were not read; the search may end before the last of them.
        next: The offsets at which the next step begins; empty when the search has ended.
        left_out: The queues that the search does not read, because there are too many.
        failures: The brokers that did not answer.
    """

    messages: Sequence[MessageExt]
    read: int
    left: int
    next: Mapping[MessageQueue, int]
    left_out: int
    failures: Sequence[BrokerFailure]


async def search(
    admin: Admin,
    wanted: Search,
    places: Mapping[MessageQueue, int] | None = None,
    *,
    limit: int = 100,
    most_read: int = 20_000,
    seconds: float = 2.0,
) -> SearchStep:
    """Return the messages that one step of a search finds.

    Args:
        admin: A running admin.
        wanted: What to look for.
        places: The offsets at which the step before ended; None for the first step.
        limit: The number of found messages after which the step ends.
        most_read: The most messages that are read.
        seconds: The seconds after which no more messages are asked for.

    Raises:
        TopicNotFoundError: The topic does not exist.
        RemotingError: A broker cannot be reached, or refuses.
    """
    stored = await topic_queues(admin, wanted.topic)
    ranges = {
        MessageQueue(each.topic, each.broker, each.queue): (each.min_offset, each.max_offset) for each in stored.queues
    }
    chosen = list(ranges)[:QUEUES_SEARCHED] if places is None else [queue for queue in ranges if queue in places]
    step = _Step(wanted, limit=limit, share=max(1, most_read // max(1, len(chosen))), seconds=seconds)
    turns = asyncio.Semaphore(_AT_ONCE)
    async with reader_of(admin) as reader:
        # A client that reads any queue needs the route of its topic first.
        await reader.fetch_message_queues(wanted.topic)

        async def read(queue: MessageQueue) -> None:
            first, end = ranges[queue]
            async with turns:
                if places is not None:
                    first = max(first, places[queue])
                elif wanted.begin is not None and first < end:
                    first = max(first, await first_offset(reader, queue, milliseconds(wanted.begin)))
                await step.read(reader, queue, first, end)

        await asyncio.gather(*map(read, chosen))
    step.found.sort(key=lambda message: (message.store_timestamp, message.queue, message.queue_offset))
    return SearchStep(
        messages=tuple(step.found),
        read=step.count,
        left=step.left,
        next=step.next,
        left_out=0 if places is not None else len(ranges) - len(chosen),
        failures=stored.failures,
    )


class _Step:
    """Reads queues until it has found or read enough, or its time is over."""

    def __init__(self, wanted: Search, *, limit: int, share: int, seconds: float) -> None:
        self._conditions = wanted.conditions
        self._begin_ms = 0 if wanted.begin is None else milliseconds(wanted.begin)
        self._end_ms = None if wanted.end is None else milliseconds(wanted.end)
        self._limit = limit
        self._share = share
        self._now = asyncio.get_running_loop().time
        self._until = self._now() + seconds
        self.found: list[MessageExt] = []
        self.next: dict[MessageQueue, int] = {}
        self.count = 0
        self.left = 0

    async def read(self, reader: PullConsumer, queue: MessageQueue, first: int, end: int) -> None:
        """Read a part of a queue, and note where the next step begins, unless the search has ended there."""
        stop = min(end, first + self._share)
        place = first
        unreadable: list[MessageExt] = []

        def keep(error: UnreadableBodyError) -> None:
            unreadable.append(error.message)

        # Not a single message is read if the step has ended before this queue's turn.
        if not self._has_ended():
            async with aclosing(read_queue(reader, queue, first, stop, skipped=keep)) as messages:
                async for message in messages:
                    for each in (*unreadable, message):
                        if self._is_behind(each):
                            return
                        self._take(each)
                    unreadable.clear()
                    place = message.queue_offset + 1
                    if self._has_ended():
                        break
                else:
                    for each in unreadable:
                        if self._is_behind(each):
                            return
                        self._take(each)
                    place = stop
        if place < end:
            self.next[queue] = place
            self.left += end - place

    def _has_ended(self) -> bool:
        return len(self.found) >= self._limit or self._now() > self._until

    def _is_behind(self, message: MessageExt) -> bool:
        return self._end_ms is not None and message.store_timestamp > self._end_ms

    def _take(self, message: MessageExt) -> None:
        self.count += 1
        if message.store_timestamp >= self._begin_ms and matches_all(self._conditions, message):
            self.found.append(message)
