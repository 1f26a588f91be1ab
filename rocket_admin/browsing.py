"""Browsing a topic: its newest or oldest messages, and those that arrived since the last call.

Nobody's offsets change. All of this is bounded by the numbers of queues and messages that are read.
"""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from rocket_admin.broker_answers import BrokerFailure
from rocket_admin.clients import reader_of
from rocket_admin.messages import read_queue
from rocket_admin.offsets import End
from rocket_admin.topics import TopicQueue, topic_queues
from rocket_client import Admin, PullConsumer, UnreadableBodyError
from rocket_remoting.wire.message import MessageExt, MessageQueue

__all__ = ["QUEUES_READ", "Arrived", "Browsed", "arrived_since", "browse", "ends_of"]

QUEUES_READ: Final = 32
"""Maximum number of queues that one call reads: those with the newest messages, or the oldest ones."""
_MOST_ARRIVED: Final = 32
"""Maximum number of messages of one queue that one call of `arrived_since` reads."""


class Browsed(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of a topic.

    Attributes:
        messages: The messages; the newest one first, or the oldest one.
        stored: The messages that the topic has.
        left_out: The queues with messages that were not read, because there are too many.
        failures: The brokers that did not answer.
    """

    messages: tuple[MessageExt, ...]
    stored: int
    left_out: int
    failures: tuple[BrokerFailure, ...]


class Arrived(msgspec.Struct, frozen=True, kw_only=True):
    """The messages that arrived since the last call.

    Attributes:
        messages: The messages, the newest one first.
        ends: The offsets at which the next call begins, by queue.
        skipped: The number of messages that arrived and were not read, because there were too many.
    """

    messages: tuple[MessageExt, ...]
    ends: Mapping[MessageQueue, int]
    skipped: int


async def browse(
    admin: Admin,
    topic: str,
    end: End,
    *,
    limit: int = 50,
    place: tuple[str, int] | None = None,
    first: int | None = None,
) -> Browsed:
    """Return the newest or the oldest messages of a topic.

    Args:
        admin: A running admin.
        topic: The topic.
        end: `LATEST` for the newest ones, `EARLIEST` for the oldest ones.
        limit: The most messages.
        place: The name of a broker and the number of a queue there, to read only this queue.
        first: The offset from which on that queue is read, in place of an end.

    Raises:
        TopicNotFoundError: The topic does not exist.
        RemotingError: A broker cannot be reached, or refuses.
    """
    found = await topic_queues(admin, topic)
    filled = [each for each in found.queues if each.messages and (place is None or place == (each.broker, each.queue))]
    filled.sort(key=_stored_at, reverse=end is End.LATEST)
    spans: dict[MessageQueue, tuple[int, int]] = {}
    for each in filled[:QUEUES_READ]:
        begin = max(each.min_offset, each.max_offset - limit) if end is End.LATEST else each.min_offset
        begin = begin if first is None else min(max(first, each.min_offset), each.max_offset)
        spans[_queue(each)] = begin, min(begin + limit, each.max_offset)
    messages = await _read(admin, spans)
    messages.sort(key=_place, reverse=end is End.LATEST and first is None)
    return Browsed(
        messages=tuple(messages[:limit]),
        stored=sum(each.messages for each in found.queues),
        left_out=max(0, len(filled) - QUEUES_READ),
        failures=found.failures,
    )


async def ends_of(admin: Admin, topic: str) -> dict[MessageQueue, int]:
    """Return the offset behind the newest message of each queue, for the first `arrived_since`.

    Raises:
        TopicNotFoundError: The topic does not exist.
    """
    found = await topic_queues(admin, topic)
    return {_queue(each): each.max_offset for each in found.queues}


async def arrived_since(admin: Admin, topic: str, ends: Mapping[MessageQueue, int]) -> Arrived:
    """Return the messages that arrived since the last call, and all messages of a queue that is new since then.

    Args:
        admin: A running admin.
        topic: The topic.
        ends: The offsets that the last call has returned, or `ends_of`.

    Raises:
        TopicNotFoundError: The topic does not exist.
        RemotingError: A broker cannot be reached, or refuses.
    """
    found = await topic_queues(admin, topic)
    spans: dict[MessageQueue, tuple[int, int]] = {}
    skipped = 0
    now = dict(ends)
    for each in found.queues:
        queue = _queue(each)
        begin = min(max(ends.get(queue, 0), each.min_offset), each.max_offset)
        now[queue] = each.max_offset
        if begin == each.max_offset:
            continue
        first = max(begin, each.max_offset - _MOST_ARRIVED) if len(spans) < QUEUES_READ else each.max_offset
        skipped += first - begin
        if first < each.max_offset:
            spans[queue] = first, each.max_offset
    messages = await _read(admin, spans)
    messages.sort(key=_place, reverse=True)
    return Arrived(messages=tuple(messages), ends=now, skipped=skipped)


async def _read(admin: Admin, spans: Mapping[MessageQueue, tuple[int, int]]) -> list[MessageExt]:
    if not spans:
        return []
    async with reader_of(admin) as reader:
        # A client that reads any queue needs the route of its topic first.
        await reader.fetch_message_queues(next(iter(spans)).topic)
        found = await asyncio.gather(*(_span(reader, queue, *span) for queue, span in spans.items()))
    return [message for messages in found for message in messages]


async def _span(reader: PullConsumer, queue: MessageQueue, begin: int, end: int) -> list[MessageExt]:
    found: list[MessageExt] = []

    def keep(error: UnreadableBodyError) -> None:
        found.append(error.message)

    async for message in read_queue(reader, queue, begin, end, skipped=keep):
        found.append(message)
    return found


def _queue(queue: TopicQueue) -> MessageQueue:
    return MessageQueue(queue.topic, queue.broker, queue.queue)


def _stored_at(queue: TopicQueue) -> datetime:
    return queue.last_stored or datetime.fromtimestamp(0, UTC)


def _place(message: MessageExt) -> tuple[int, str, int, int]:
    return message.store_timestamp, message.broker_name, message.queue_id, message.queue_offset
