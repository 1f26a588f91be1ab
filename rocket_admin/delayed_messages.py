"""Delayed messages: those that wait at a broker for the time at which they come into their topic.

::

    SCHEDULE_TOPIC_XXXX    a queue for each delay level; all messages of a level wait equally long. Redeliveries wait
                           here, too: their topic is %RETRY%group
    rmq_sys_wheel_timer    timed messages (5.x), in the order of their arrival; TIMER_OUT_MS is the time. A record with
                           TIMER_DEL_UNIQKEY cancels one. A message that waits long is stored again on the way

No request cancels a message of a delay level. A timed one is cancelled by RECALL_MESSAGE (370), which brokers know from
5.3 on, and Apache's refuse unless they are started with recallMessageEnable=true.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from rocket_admin.clients import reader_of
from rocket_admin.messages import StoredMessage, first_offset, fresh_copy, origin_topic, read_queue, send_message
from rocket_admin.times import duration_of, milliseconds, moment
from rocket_client import Admin, PullConsumer, TopicNotFoundError, UnreadableBodyError
from rocket_remoting import RemotingError
from rocket_remoting.wire.bodies import TopicOffset
from rocket_remoting.wire.message import MessageExt, MessageQueue
from rocket_remoting.wire.properties import (
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_OUT_MS,
)
from rocket_remoting.wire.topics import SCHEDULE_TOPIC, TIMER_TOPIC, is_retry_topic

__all__ = [
    "DelayedMessage",
    "DelayedMessages",
    "cancel_delayed",
    "delayed_messages",
    "deliver_delayed",
    "level_delays",
]

_MOST_OF_LEVEL: Final = 2_000
"""Messages of one delay level that are read."""
_MOST_TIMED: Final = 20_000
"""Records of one broker's topic of timed messages that are read, the newest first."""
_PART: Final = 256
_RECALL: Final = "recallMessageEnable"
_LEVELS: Final = "messageDelayLevel"


class DelayedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that waits for its time.

    Attributes:
        topic: The topic that it comes into; of a redelivery the group's retry topic.
        kind: `level 3`, `timed` or `redelivery`.
        due_at: When it comes into the topic.
        can_be_cancelled: Whether the broker cancels it on request.
        record: The record in the broker's topic of delayed messages.
    """

    topic: str
    kind: str
    due_at: datetime
    can_be_cancelled: bool
    record: StoredMessage


class DelayedMessages(msgspec.Struct, frozen=True, kw_only=True):
    """The delayed messages of a cluster.

    Attributes:
        waiting: Those that are not due yet, as far as they were read, the one that is due first in front.
        is_whole: Whether these are all; if not, there were too many, or the time was over.
        without_levels: The brokers that do not show their delay levels, so that messages of levels are missing.
        without_recall: The brokers that have timed messages, but do not cancel them.
    """

    waiting: Sequence[DelayedMessage]
    is_whole: bool
    without_levels: Sequence[str]
    without_recall: Sequence[str]


def level_delays(text: str) -> dict[int, timedelta]:
    """Return the delays of a broker's levels, such as `1s 5s 1m`, by number from 1."""
    found = enumerate(map(duration_of, text.split()), start=1)
    return {number: duration for number, duration in found if duration is not None}


async def delayed_messages(admin: Admin, *, seconds: float = 2.0) -> DelayedMessages:
    """Return the messages that wait for their time.

    Args:
        admin: A running admin.
        seconds: The seconds after which no more messages are asked for.

    Raises:
        RemotingError: A broker cannot be reached, or refuses.
    """
    reading = _Reading(admin, asyncio.get_running_loop().time() + seconds)
    scheduled, timed = await _queues(admin, SCHEDULE_TOPIC), await _queues(admin, TIMER_TOPIC)
    if scheduled or timed:
        try:
            reading.settings = await admin.broker_settings()
        except RemotingError:  # the account may not read them: neither delays nor what the brokers cancel is known
            reading.settings = {}
    async with reader_of(admin) as reader:
        for topic in {queue.topic for queue in (*scheduled, *timed)}:  # a client that reads needs the route first
            await reader.fetch_message_queues(topic)
        for queue, offsets in sorted(scheduled.items()):
            await reading.read_level(reader, queue, offsets)
        for queue, offsets in sorted(timed.items()):
            await reading.read_timed(reader, queue, offsets)
    waiting = sorted(reading.waiting.values(), key=lambda message: (message.due_at, message.record.offset_message_id))
    return DelayedMessages(
        waiting=waiting,
        is_whole=reading.is_whole,
        without_levels=sorted(reading.without_levels),
        without_recall=sorted(
            {str(each.record.broker) for each in waiting if each.kind == "timed" and not each.can_be_cancelled}
        ),
    )


async def cancel_delayed(admin: Admin, records: Iterable[str], *, seconds: float = 2.0) -> Sequence[DelayedMessage]:
    """Cancel timed messages that still wait: nobody receives them.

    Args:
        admin: A running admin.
        records: The offset message ids of their records.
        seconds: The seconds in which the waiting messages are read.

    Returns:
        Those that were cancelled; the others do not wait any more, or their broker cancels none.

    Raises:
        ResponseError: A broker refuses; the messages before that one are cancelled.
        RemotingError: A broker cannot be reached.
    """
    chosen = await _chosen(admin, records, seconds)
    for each in chosen:
        await _recall(admin, each)
    return chosen


async def deliver_delayed(admin: Admin, records: Iterable[str], *, seconds: float = 2.0) -> Sequence[DelayedMessage]:
    """Send copies of timed messages that still wait to their topics now, and cancel them.

    A copy is sent first: if its message cannot be cancelled then, consumers receive both.

    Args:
        admin: A running admin.
        records: The offset message ids of their records.
        seconds: The seconds in which the waiting messages are read.

    Returns:
        Those that were delivered; the others do not wait any more, or their broker cancels none.

    Raises:
        ResponseError: A broker refuses; the messages before that one are delivered.
        SendError: No broker stored a copy.
        RemotingError: A broker cannot be reached.
    """
    chosen = await _chosen(admin, records, seconds)
    for each in chosen:
        message = await admin.view_message(each.record.offset_message_id)
        await send_message(admin, fresh_copy(message, origin_topic(message)))
        await _recall(admin, each)
    return chosen


async def _chosen(admin: Admin, records: Iterable[str], seconds: float) -> list[DelayedMessage]:
    wanted, found = set(records), await delayed_messages(admin, seconds=seconds)
    return [each for each in found.waiting if each.record.offset_message_id in wanted and each.can_be_cancelled]


async def _recall(admin: Admin, message: DelayedMessage) -> None:
    record = message.record
    await admin.recall_message(
        message.topic, record.message_id, due_ms=milliseconds(message.due_at), broker_name=record.broker or ""
    )


async def _queues(admin: Admin, topic: str) -> Mapping[MessageQueue, TopicOffset]:
    try:
        return await admin.topic_stats(topic)
    except TopicNotFoundError:  # no broker has such messages
        return {}


class _Reading(msgspec.Struct):
    """Reads the topics of delayed messages, and collects the messages that are not due yet."""

    admin: Admin
    until: float
    settings: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)
    waiting: dict[str, DelayedMessage] = msgspec.field(default_factory=dict)
    is_whole: bool = True
    without_levels: set[str] = msgspec.field(default_factory=set)
    now: datetime = msgspec.field(default_factory=lambda: datetime.now(UTC))

    @property
    def _is_over(self) -> bool:
        return asyncio.get_running_loop().time() > self.until

    async def read_level(self, reader: PullConsumer, queue: MessageQueue, offsets: TopicOffset) -> None:
        """Read the messages of a level: queue n has those of level n + 1."""
        if offsets.min_offset == offsets.max_offset:
            return
        level = queue.queue_id + 1
        delay = level_delays(self._setting(queue, _LEVELS)).get(level)
        if delay is None:
            self.without_levels.add(queue.broker_name)
            return
        # All of a level wait equally long, so that those which are not due are the newest ones.
        found = await first_offset(reader, queue, milliseconds(self.now - delay))
        first = max(offsets.min_offset, found)
        stop = min(offsets.max_offset, first + _MOST_OF_LEVEL)
        self.is_whole = self.is_whole and stop == offsets.max_offset
        async with aclosing(_whole(reader, queue, first, stop)) as messages:
            async for message in messages:
                due_at = moment(message.store_timestamp) + delay
                topic = message.properties.get(PROPERTY_REAL_TOPIC, queue.topic)
                kind = "redelivery" if is_retry_topic(topic) else f"level {level}"
                self._add(message, topic, kind, due_at, can_be_cancelled=False)
                if self._is_over:
                    self.is_whole = self.is_whole and message.queue_offset + 1 >= stop
                    return

    async def read_timed(self, reader: PullConsumer, queue: MessageQueue, offsets: TopicOffset) -> None:
        """Read the timed messages, the newest first: what cancels a message is behind it, as is its next record."""
        cancelled, seen = set[str](), set[str]()
        can_be_cancelled = self._setting(queue, _RECALL).lower() == "true"
        end, low = offsets.max_offset, max(offsets.min_offset, offsets.max_offset - _MOST_TIMED)
        self.is_whole = self.is_whole and low == offsets.min_offset
        while end > low:
            begin = max(low, end - _PART)
            part = [message async for message in _whole(reader, queue, begin, end)]
            for message in reversed(part):
                properties, unique_key = message.properties, message.unique_key
                topic = properties.get(PROPERTY_REAL_TOPIC, queue.topic)
                if (key := properties.get(PROPERTY_TIMER_DEL_UNIQKEY)) is not None:
                    cancelled.add(key)
                    continue
                own_key = f"{topic}+{unique_key}"
                out_ms = properties.get(PROPERTY_TIMER_OUT_MS, "")
                is_older = unique_key is not None and own_key in seen
                seen.add(own_key)
                if is_older or own_key in cancelled or unique_key in cancelled or not _is_time(out_ms):
                    continue
                self._add(
                    message,
                    topic,
                    "timed",
                    moment(int(out_ms)),
                    can_be_cancelled=can_be_cancelled and unique_key is not None,
                )
            end = begin
            if self._is_over:
                self.is_whole = self.is_whole and end == low
                return

    def _setting(self, queue: MessageQueue, name: str) -> str:
        return self.settings.get(queue.broker_name, {}).get(name, "")

    def _add(self, message: MessageExt, topic: str, kind: str, due_at: datetime, *, can_be_cancelled: bool) -> None:
        if due_at > self.now:
            self.waiting[message.offset_message_id] = DelayedMessage(
                topic=topic,
                kind=kind,
                due_at=due_at,
                can_be_cancelled=can_be_cancelled,
                record=StoredMessage.of(message),
            )


def _is_time(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 15


async def _whole(reader: PullConsumer, queue: MessageQueue, first: int, stop: int) -> AsyncGenerator[MessageExt, None]:
    """Yield the messages of a queue between two offsets, also those whose bodies are damaged."""
    damaged: list[MessageExt] = []

    def keep(error: UnreadableBodyError) -> None:
        damaged.append(error.message)

    async with aclosing(read_queue(reader, queue, first, stop, skipped=keep)) as messages:
        async for message in messages:
            while damaged:
                yield damaged.pop(0)
            yield message
    for message in damaged:
        yield message
