"""Dead letters: which groups have some, why, and what they are.

The dead letters of group `kitchen` are the messages of topic `%DLQ%kitchen`. Messages cannot be deleted from a topic:
brokers keep them until their retention is over. To drop dead letters is to remember an offset before which they count
as dropped. This offset is committed at the broker for the group of the tools, which consumes nothing, in the dead
letter topic; so it is the same for everybody, and listeners of the dead letter topic are not affected.
"""

import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Final, Self

import msgspec

from rocket_admin.clients import TOOLS_GROUP, reader_of
from rocket_admin.conditions import Condition, matches_all
from rocket_admin.failure_causes import Cause, cause_of
from rocket_admin.messages import StoredMessage, first_offset, origin_topic, read_queue
from rocket_admin.ordered_results import ordered_results
from rocket_admin.times import milliseconds, moment
from rocket_client import Admin, PullConsumer, TopicNotFoundError, UnreadableBodyError
from rocket_remoting.wire.message import MessageExt, MessageQueue
from rocket_remoting.wire.properties import (
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_ORIGIN_QUEUE_ID,
    PROPERTY_ORIGIN_QUEUE_OFFSET,
)
from rocket_remoting.wire.topics import DLQ_PREFIX, dlq_topic, is_dead_letter_topic

__all__ = [
    "CauseGroup",
    "DeadLetter",
    "DeadLetterGroup",
    "DroppedLetters",
    "Skipped",
    "by_cause",
    "dead_letter_groups",
    "dead_letters",
    "drop_dead_letters",
    "first_kept",
    "groups_with_dead_letter_topic",
    "kept_ranges",
    "letters_of",
]

Skipped = Callable[[UnreadableBodyError], None]
"""Called for a letter whose body is damaged or too large."""

_TOPICS_AT_ONCE: Final = 32
_NUMBERS: Final = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-fA-F]{8,}(?:-[0-9a-fA-F]{4,})*\b|\d+")
"""Parts of a failure's text that differ from message to message: numbers, addresses, ids."""
_MAX_TEXT: Final = 200


class DeadLetterGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group with dead letters.

    Attributes:
        group: The group.
        count: Its dead letters that are not dropped.
        dropped: Those that are dropped, but still stored.
        newest_at: When the newest was stored; absent if the broker does not tell.
    """

    group: str
    count: int
    dropped: int
    newest_at: datetime | None


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A message that a group has given up.

    Attributes:
        group: The group.
        letter: The record in the dead letter topic.
        origin_topic: The topic that the message was first sent to.
        origin_queue: Its queue there; absent if the client that gave it up has not written it: Java's do not.
        origin_offset: Its place there; absent in the same cases.
        origin_message_id: The offset message id of its first record; absent if nobody has written it.
        cause: Why it was given up; absent if nobody has written it.
    """

    group: str
    letter: StoredMessage
    origin_topic: str
    origin_queue: int | None
    origin_offset: int | None
    origin_message_id: str | None
    cause: Cause | None

    @classmethod
    def of(cls, message: MessageExt, *, whole_body: bool = False) -> Self:
        """Return what there is to know about a message of a dead letter topic."""
        properties = message.properties
        return cls(
            group=message.topic.removeprefix(DLQ_PREFIX),
            letter=StoredMessage.of(message, whole_body=whole_body),
            origin_topic=origin_topic(message),
            origin_queue=_number(properties.get(PROPERTY_ORIGIN_QUEUE_ID)),
            origin_offset=_number(properties.get(PROPERTY_ORIGIN_QUEUE_OFFSET)),
            origin_message_id=properties.get(PROPERTY_ORIGIN_MESSAGE_ID),
            cause=cause_of(message),
        )


class CauseGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters with the same cause: the same class of exception, and the same text but for its numbers and ids.

    Attributes:
        type: The class of the exception; absent if it is not known.
        text: The text of the oldest one; absent if it is not known.
        place: Where the exception of the oldest one was raised; absent if it is not known.
        count: How many there are.
        oldest_at: When the oldest of them was stored.
        newest_at: When the newest of them was stored.
        origin_topics: The topics that they were first sent to, sorted.
        example: The offset message id of the oldest letter.
    """

    type: str | None
    text: str | None
    place: str | None
    count: int
    oldest_at: datetime
    newest_at: datetime
    origin_topics: Sequence[str]
    example: str


class DroppedLetters(msgspec.Struct, frozen=True, kw_only=True):
    """What dropping the dead letters of one queue has changed, or would change.

    Attributes:
        broker: The broker.
        queue: The queue of the dead letter topic.
        from_offset: The offset of the first letter that was not dropped before.
        to_offset: The offset of the first letter that is not dropped now.
        count: How many letters that are: those of the queue between the two offsets.
    """

    broker: str
    queue: int
    from_offset: int
    to_offset: int
    count: int


async def groups_with_dead_letter_topic(admin: Admin) -> list[str]:
    """Return the groups that have a dead letter topic, which may be empty, sorted."""
    return sorted(topic.removeprefix(DLQ_PREFIX) for topic in await admin.topics() if is_dead_letter_topic(topic))


async def dead_letter_groups(admin: Admin, groups: Iterable[str]) -> AsyncGenerator[DeadLetterGroup, None]:
    """Yield those of the groups that have dead letters, dropped or not, in their order, as brokers answer.

    Args:
        admin: A running admin.
        groups: The groups; `groups_with_dead_letter_topic` returns all that come into question.

    Raises:
        RemotingError: A broker cannot be reached, or refuses.
    """

    async def of(group: str) -> DeadLetterGroup | None:
        try:
            return await _group(admin, dlq_topic(group))
        except TopicNotFoundError:  # deleted meanwhile
            return None

    async with aclosing(ordered_results(of, groups, at_once=_TOPICS_AT_ONCE)) as found:
        async for group in found:
            if group is not None and group.count + group.dropped:
                yield group


async def _group(admin: Admin, topic: str) -> DeadLetterGroup:
    stats = await admin.topic_stats(topic)
    count = dropped = newest = 0
    for queue, offsets in stats.items():
        stored = offsets.max_offset - offsets.min_offset
        if not stored:
            continue
        first = await first_kept(admin, queue, offsets.min_offset)
        dropped += min(first - offsets.min_offset, stored)
        count += max(0, offsets.max_offset - first)
        newest = max(newest, offsets.last_update_timestamp)
    return DeadLetterGroup(
        group=topic.removeprefix(DLQ_PREFIX),
        count=count,
        dropped=dropped,
        newest_at=moment(newest) if newest > 0 else None,
    )


async def first_kept(admin: Admin, queue: MessageQueue, min_offset: int) -> int:
    """Return the offset of the first letter that is stored and not dropped."""
    return max(min_offset, await admin.committed_offset(queue, TOOLS_GROUP) or 0)


async def kept_ranges(admin: Admin, group: str, *, with_dropped: bool = False) -> list[tuple[MessageQueue, int, int]]:
    """Return the queues of a group's dead letter topic with the offsets of their first letter and behind the last one.

    Args:
        admin: A running admin.
        group: The group.
        with_dropped: Whether dropped letters count, too.

    Raises:
        TopicNotFoundError: The group has never had a dead letter.
        RemotingError: A broker cannot be reached, or refuses.
    """
    ranges = []
    for queue, offsets in sorted((await admin.topic_stats(dlq_topic(group))).items()):
        low = offsets.min_offset
        first = low if with_dropped else await first_kept(admin, queue, low)
        ranges.append((queue, min(first, offsets.max_offset), offsets.max_offset))
    return ranges


async def letters_of(
    reader: PullConsumer,
    ranges: Iterable[tuple[MessageQueue, int, int]],
    conditions: Sequence[Condition] = (),
    *,
    skipped: Skipped | None = None,
) -> AsyncGenerator[MessageExt, None]:
    """Yield the letters of these queues and offsets, queue by queue, of which all conditions are true.

    Args:
        reader: A running reader.
        ranges: The queues, each with its first offset and the one behind the last.
        conditions: Only letters of which all of these are true.
        skipped: Called for each letter whose body is damaged or too large; without it, the first of them is an error.

    Raises:
        UnreadableBodyError: The body of a letter is damaged or too large.
        RemotingError: A broker cannot be reached, or refuses.
    """
    for queue, first, end in ranges:
        async with aclosing(read_queue(reader, queue, first, end, skipped=skipped)) as messages:
            async for message in messages:
                if matches_all(conditions, message):
                    yield message


async def dead_letters(
    admin: Admin,
    group: str,
    *,
    conditions: Sequence[Condition] = (),
    with_dropped: bool = False,
    skipped: Skipped | None = None,
) -> AsyncGenerator[MessageExt, None]:
    """Yield the dead letters of a group, the oldest of each queue first; `DeadLetter.of` tells what they are.

    Args:
        admin: A running admin.
        group: The group.
        conditions: Only letters of which all of these are true.
        with_dropped: Whether to yield dropped letters, too.
        skipped: Called for each letter whose body is damaged or too large; without it, the first of them is an error.

    Raises:
        TopicNotFoundError: The group has never had a dead letter.
        UnreadableBodyError: The body of a letter is damaged or too large.
        RemotingError: A broker cannot be reached, or refuses.
    """
    ranges = await kept_ranges(admin, group, with_dropped=with_dropped)
    async with reader_of(admin) as reader, aclosing(letters_of(reader, ranges, conditions, skipped=skipped)) as letters:
        async for letter in letters:
            yield letter


def by_cause(letters: Iterable[MessageExt]) -> list[CauseGroup]:
    """Return groups of letters with the same cause, the largest first."""
    groups: dict[tuple[str | None, str | None], list[MessageExt]] = {}
    for letter in letters:
        groups.setdefault(_cause_key(letter), []).append(letter)
    found = [_cause_group(letters) for letters in groups.values()]
    return sorted(found, key=lambda group: (-group.count, group.oldest_at))


def _cause_key(letter: MessageExt) -> tuple[str | None, str | None]:
    cause = cause_of(letter)
    if cause is None:
        return None, None
    text = None if cause.message is None else _NUMBERS.sub("#", cause.message[:_MAX_TEXT])
    return cause.type, text


def _cause_group(letters: Sequence[MessageExt]) -> CauseGroup:
    oldest = min(letters, key=lambda letter: letter.store_timestamp)
    cause = cause_of(oldest) or Cause()
    return CauseGroup(
        type=cause.type,
        text=cause.message,
        place=cause.place,
        count=len(letters),
        oldest_at=moment(oldest.store_timestamp),
        newest_at=moment(max(letter.store_timestamp for letter in letters)),
        origin_topics=tuple(sorted({origin_topic(letter) for letter in letters})),
        example=oldest.offset_message_id,
    )


async def drop_dead_letters(
    admin: Admin, group: str, *, before: datetime | None = None, dry_run: bool = False
) -> list[DroppedLetters]:
    """Drop a group's dead letters: they are not listed and not replayed any more.

    Brokers store them until their retention is over, and `dead_letters` still yields them if it is told to.

    Args:
        admin: A running admin.
        group: The group.
        before: Only letters that were stored before this time; by default all that there are now.
        dry_run: Whether to change nothing, and only to return what would be changed.

    Returns:
        What has changed for each queue.

    Raises:
        TopicNotFoundError: The group has never had a dead letter.
        RemotingError: A broker cannot be reached, or refuses.
    """
    ends = None if before is None else await _ends_before(admin, group, before)
    dropped = []
    for queue, first, end in await kept_ranges(admin, group):
        to = end if ends is None else max(first, min(end, ends.get(queue, first)))
        if to > first and not dry_run:
            await admin.commit_offset(queue, TOOLS_GROUP, to)
        dropped.append(
            DroppedLetters(
                broker=queue.broker_name,
                queue=queue.queue_id,
                from_offset=first,
                to_offset=to,
                count=to - first,
            )
        )
    return dropped


async def _ends_before(admin: Admin, group: str, time: datetime) -> Mapping[MessageQueue, int]:
    """Return for each queue the offset of the first letter that was stored at a time or later."""
    limit = milliseconds(time)
    ends: dict[MessageQueue, int] = {}
    ranges = await kept_ranges(admin, group)
    async with reader_of(admin) as reader:
        for queue, first, end in ranges:
            begin = max(first, await first_offset(reader, queue, limit))
            late: list[int] = []

            def note(letter: MessageExt, late: list[int] = late) -> bool:
                if letter.store_timestamp >= limit:
                    late.append(letter.queue_offset)
                return bool(late)

            def note_unreadable(error: UnreadableBodyError, note: Callable[[MessageExt], bool] = note) -> None:
                note(error.message)

            async with aclosing(read_queue(reader, queue, begin, end, skipped=note_unreadable)) as letters:
                async for letter in letters:
                    if note(letter):
                        break
            ends[queue] = min(late, default=end)
    return ends


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 20 else None
