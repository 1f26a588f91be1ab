"""Sending dead letters back to the topic that they were first sent to, as new messages without counters of failures."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing
from datetime import UTC, datetime
from typing import Final

import msgspec

from rocket_admin.clients import TOOLS_GROUP, producer_of, reader_of
from rocket_admin.conditions import Condition, matches_all
from rocket_admin.dead_letters import Skipped, kept_ranges
from rocket_admin.messages import SentMessage, fresh_copy, origin_topic, read_queue
from rocket_admin.replay_account import ReplayAccount
from rocket_client import Admin, Producer, TopicNotFoundError, UnreadableBodyError
from rocket_remoting.wire.message import Message, MessageExt, MessageQueue
from rocket_remoting.wire.properties import PROPERTY_ORIGIN_QUEUE_ID, PROPERTY_RETRY_TOPIC
from rocket_remoting.wire.topics import is_dead_letter_topic, retry_topic

__all__ = ["REPLAYED_LETTER", "Replay", "ReplayError", "ReplayedLetter", "replay_dead_letters"]

REPLAYED_LETTER: Final = "REPLAYED_LETTER"
"""The property of a replayed message with the offset message id of its dead letter."""


class ReplayError(ValueError):
    """A letter cannot be sent back; those before it were.

    Attributes:
        letter: The offset message id of the letter.
    """

    def __init__(self, letter: MessageExt, reason: str) -> None:
        super().__init__(f"dead letter {letter.offset_message_id} of {letter.topic}: {reason}")
        self.letter = letter.offset_message_id


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a replay: which letters to send, where to and how.

    Attributes:
        group: The group whose dead letters are sent.
        to: The topic that they are sent to; by default each goes to the topic that it was first sent to. All groups of
            the topic receive them, not only this one.
        to_group_alone: Whether to send them to the group's retry topic, so that no other group receives them. Its
            members see the topic that they were first sent to.
        conditions: Only letters of which all of these are true.
        rate: The most letters a second; None for as many as possible.
        limit: The most letters; None for all.
        within: The seconds after which no further letter is sent; None for any time.
        with_dropped: Whether to send dropped letters, too.
        dry_run: Whether to send nothing, and only to tell what would be sent.
    """

    group: str
    to: str | None = None
    to_group_alone: bool = False
    conditions: Sequence[Condition] = ()
    rate: float | None = None
    limit: int | None = None
    within: float | None = None
    with_dropped: bool = False
    dry_run: bool = False


class ReplayedLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter that was sent back, or would be.

    Attributes:
        letter: The offset message id of the letter.
        broker: The broker that has the letter.
        queue: The queue of the dead letter topic.
        offset: Its place there.
        topic: The topic that it is sent to.
        message_id: The id of the new message; absent with `dry_run`.
        sent: The place of the new message; absent with `dry_run`.
    """

    letter: str
    broker: str
    queue: int
    offset: int
    topic: str
    message_id: str | None = None
    sent: SentMessage | None = None


async def replay_dead_letters(
    admin: Admin, replay: Replay, account: ReplayAccount | None = None, *, skipped: Skipped | None = None
) -> AsyncGenerator[ReplayedLetter, None]:
    """Send a group's dead letters back, one after the other, and yield each when its broker has stored it.

    The new messages have the body, keys, tags and user properties of the letters, an id of their own, and the property
    `REPLAYED_LETTER`. Of letters that tell their queue the new message goes to the same queue. When all are sent, the
    letters at the beginning of the dead letter topic that were sent are dropped.

    Args:
        admin: A running admin.
        replay: What to send, and where to.
        account: The account, open. Letters that it names are not sent again; those that are sent are written into it.
            With `dry_run` it is only read.
        skipped: Called for each letter whose body is damaged or too large, which is not sent; without it, the first of
            them is an error.

    Raises:
        TopicNotFoundError: The group has never had a dead letter.
        UnreadableBodyError: The body of a letter is damaged or too large.
        ReplayError: A letter does not tell its topic, or the topic does not exist.
        SendError: No broker stored a message.
        RemotingError: A broker cannot be reached, or refuses.
    """
    ranges = await kept_ranges(admin, replay.group, with_dropped=replay.with_dropped)
    sent_before: dict[MessageQueue, int] = {}
    async with AsyncExitStack() as stack:
        reader = await stack.enter_async_context(reader_of(admin))
        sender = _Sender(admin, replay, await stack.enter_async_context(producer_of(admin)), account)
        for queue, first, end in ranges:
            is_unbroken = True  # whether all letters of the queue so far were sent
            unreadable: list[UnreadableBodyError] = []
            note = None if skipped is None else unreadable.append
            async with aclosing(read_queue(reader, queue, first, end, skipped=note)) as letters:
                async for letter in letters:
                    is_unbroken = is_unbroken and not unreadable
                    _report(unreadable, skipped)
                    if sender.is_done:
                        break
                    is_sent = account is not None and letter.offset_message_id in account
                    if not is_sent and matches_all(replay.conditions, letter):
                        yield await sender.send(letter)
                        is_sent = True
                    is_unbroken = is_unbroken and is_sent
                    if is_unbroken:
                        sent_before[queue] = letter.queue_offset + 1
            _report(unreadable, skipped)
    if not replay.dry_run and not replay.with_dropped:
        for queue, offset in sent_before.items():
            await admin.commit_offset(queue, TOOLS_GROUP, offset)


def _report(unreadable: list[UnreadableBodyError], skipped: Skipped | None) -> None:
    """Report the letters that were passed over since the last call."""
    if skipped is not None:
        for error in unreadable:
            skipped(error)
    unreadable.clear()


class _Sender:
    """Sends letters, not faster than the replay says."""

    def __init__(self, admin: Admin, replay: Replay, producer: Producer, account: ReplayAccount | None) -> None:
        self._admin = admin
        self._replay = replay
        self._producer = producer
        self._account = account
        self._queues: dict[str, Sequence[MessageQueue]] = {}
        self._begun: float | None = None
        self._now = asyncio.get_running_loop().time
        self._until = None if replay.within is None else self._now() + replay.within
        self._count = 0

    @property
    def is_done(self) -> bool:
        """Whether the replay's limit is reached, or its time is over."""
        if self._until is not None and self._now() > self._until:
            return True
        return self._replay.limit is not None and self._count >= self._replay.limit

    async def send(self, letter: MessageExt) -> ReplayedLetter:
        """Send a letter and write it into the account; with `dry_run` do nothing."""
        message = self._message(letter)
        queues = await self._queues_of(letter, message.topic)
        sent = None
        if not self._replay.dry_run:
            await self._wait_for_turn()
            result = await self._producer.send(message, queue=_same_queue(letter, queues))
            sent = SentMessage.of(result)
        self._count += 1
        replayed = ReplayedLetter(
            letter=letter.offset_message_id,
            broker=letter.broker_name,
            queue=letter.queue_id,
            offset=letter.queue_offset,
            topic=message.topic,
            message_id=None if sent is None else sent.message_id,
            sent=sent,
        )
        if self._account is not None and not self._replay.dry_run:
            self._enter(self._account, replayed)
        return replayed

    def _message(self, letter: MessageExt) -> Message:
        origin = origin_topic(letter)
        properties = {REPLAYED_LETTER: letter.offset_message_id}
        topic = self._replay.to or origin
        if self._replay.to_group_alone:
            topic = retry_topic(self._replay.group)
            properties[PROPERTY_RETRY_TOPIC] = origin
        if self._replay.to is None and is_dead_letter_topic(origin):
            raise ReplayError(letter, "it does not tell which topic it was sent to; name one to send it to")
        return fresh_copy(letter, topic, properties)

    async def _queues_of(self, letter: MessageExt, topic: str) -> Sequence[MessageQueue]:
        """Return the writable queues of a topic. A missing topic is not created: its name may be a mistake."""
        if topic not in self._queues:
            try:
                self._queues[topic] = (await self._admin.topic_route(topic)).publish_queues
            except TopicNotFoundError as error:
                raise ReplayError(letter, f"topic {topic!r} does not exist; create it, or name another one") from error
        return self._queues[topic]

    async def _wait_for_turn(self) -> None:
        now = self._now()
        if self._begun is None:
            self._begun = now
        if self._replay.rate is not None:
            await asyncio.sleep(self._begun + self._count / self._replay.rate - now)

    def _enter(self, account: ReplayAccount, replayed: ReplayedLetter) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        account.begin(now)
        account.add(
            replayed.letter,
            {
                "queue": f"{replayed.broker}:{replayed.queue}",
                "offset": replayed.offset,
                "topic": replayed.topic,
                "message_id": replayed.message_id,
                "sent_at": now,
            },
        )


def _same_queue(letter: MessageExt, queues: Sequence[MessageQueue]) -> MessageQueue | None:
    """Return the queue that the letter was first sent to, if it is one of these; None for any queue."""
    number = letter.properties.get(PROPERTY_ORIGIN_QUEUE_ID)
    return next(
        (
            queue
            for queue in queues
            if str(queue.queue_id) == number
            and queue.broker_name == letter.broker_name
            and queue.topic == origin_topic(letter)
        ),
        None,
    )
