"""Half messages: messages of transactions that are open, so that no consumer gets them yet.

Brokers store them in topic RMQ_SYS_TRANS_HALF_TOPIC, and for each that has ended an op message with its offset in
RMQ_SYS_TRANS_OP_HALF_TOPIC. Brokers of 4.9 do not show the second topic to clients. Group CID_RMQ_SYS_TRANS has
passed those that are settled. A half message is stored again, with one check more, when the broker has asked its
producers.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Final

import msgspec

from rocket_admin.clients import reader_of
from rocket_admin.messages import StoredMessage, origin_topic, read_queue
from rocket_client import Admin, PullConsumer, TopicNotFoundError, UnreadableBodyError
from rocket_remoting.wire.bodies import TopicOffset
from rocket_remoting.wire.message import MessageExt, MessageQueue
from rocket_remoting.wire.properties import PROPERTY_PRODUCER_GROUP, PROPERTY_TRANSACTION_CHECK_TIMES
from rocket_remoting.wire.topics import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC, TRANSACTION_GROUP

__all__ = ["HalfMessage", "HalfMessages", "end_half_messages", "half_messages"]

_MOST_HALVES: Final = 2_000
"""Half messages of one queue that are read."""
_MOST_OPS: Final = 20_000
"""Op messages of one queue that are read."""


class HalfMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message of an open transaction.

    Attributes:
        topic: The topic that it comes into when the transaction commits.
        group: The group of the producers that the broker asks; absent if the message does not tell.
        checks: How often the broker has asked.
        begun_at: When the producer made the message.
        record: The record in the broker's topic of half messages.
    """

    topic: str
    group: str | None
    checks: int
    begun_at: datetime
    record: StoredMessage


class HalfMessages(msgspec.Struct, frozen=True, kw_only=True):
    """The half messages of a cluster.

    Attributes:
        pending: Those that had not ended when the reading began, as far as they were read, the oldest one first; of
            each message its newest record. Brokers of 5.x write up to three seconds later that one has ended.
        ends_are_known: Whether all brokers show which half messages have ended. Those of others are listed until the
            broker's next round of checks has passed them.
        is_whole: Whether these are all; if not, there were too many, or the time was over.
    """

    pending: Sequence[HalfMessage]
    ends_are_known: bool
    is_whole: bool


async def half_messages(admin: Admin, *, seconds: float = 2.0) -> HalfMessages:
    """Return the messages of open transactions.

    Args:
        admin: A running admin.
        seconds: The seconds after which no more messages are asked for.

    Raises:
        RemotingError: A broker cannot be reached, or refuses.
    """
    # A check stores a half message again, then says that the record before has ended, and then the group passes both.
    # So the bounds are asked for the other way round: otherwise a check meanwhile would hide the message.
    op_firsts, firsts = await _firsts(admin, TRANS_OP_HALF_TOPIC), await _firsts(admin, TRANS_HALF_TOPIC)
    ops, halves = await _queues(admin, TRANS_OP_HALF_TOPIC), await _queues(admin, TRANS_HALF_TOPIC)
    pending: list[MessageExt] = []
    is_whole = ends_are_known = True
    async with reader_of(admin) as reader:
        reading = _Reading(reader, asyncio.get_running_loop().time() + seconds)
        for topic in {queue.topic for queue in (*halves, *ops)}:  # a client that reads a queue needs the route first
            await reader.fetch_message_queues(topic)
        for queue, offsets in sorted(halves.items()):
            first = firsts.get(queue, offsets.min_offset)
            found, found_all = await reading.messages(queue, first, offsets.max_offset, _MOST_HALVES)
            op_queue = MessageQueue(TRANS_OP_HALF_TOPIC, queue.broker_name, queue.queue_id)
            ended: set[int] = set()
            knows_all = True
            if op_queue in ops:
                first = op_firsts.get(op_queue, ops[op_queue].min_offset)
                ends, knows_all = await reading.messages(op_queue, first, ops[op_queue].max_offset, _MOST_OPS)
                ended = {offset for each in ends for offset in _ended_offsets(bytes(each.body))}
            elif found:
                ends_are_known = False
            pending += (each for each in found if each.queue_offset not in ended)
            is_whole = is_whole and found_all and knows_all
    # Each check stores a half message again; brokers of 4.9 do not show that the records before have ended.
    pending = list({(message.broker_name, message.msg_id): message for message in pending}.values())
    pending.sort(key=lambda message: message.born_timestamp)
    return HalfMessages(pending=tuple(map(_half_message, pending)), ends_are_known=ends_are_known, is_whole=is_whole)


async def end_half_messages(
    admin: Admin, halves: Iterable[str], *, commits: bool, seconds: float = 2.0
) -> Sequence[HalfMessage]:
    """Commit or roll back open transactions, as their producers would after a check.

    The open transactions are read once more first, so that one that has ended meanwhile is left alone, as far as the
    broker shows that.

    Args:
        admin: A running admin.
        halves: The ids that the senders gave the messages: those of records change with each check.
        commits: Whether consumers get the messages; if not, they are discarded.
        seconds: The seconds after which no more half messages are read.

    Returns:
        The half messages whose transactions are ended now; the others had ended before.

    Raises:
        ResponseError: A broker refuses; the transactions before that one are ended.
        RemotingError: A broker cannot be reached.
    """
    wanted = set(halves)
    found = await half_messages(admin, seconds=seconds)
    ended = [half for half in found.pending if half.record.message_id in wanted]
    for half in ended:
        await admin.end_transaction(await admin.view_message(half.record.offset_message_id), commits=commits)
    return ended


async def _firsts(admin: Admin, topic: str) -> Mapping[MessageQueue, int]:
    """Return for each queue of a topic the offset up to which the brokers' own group has passed the messages."""
    return {
        queue: max(offsets.min_offset, await admin.committed_offset(queue, TRANSACTION_GROUP) or 0)
        for queue, offsets in (await _queues(admin, topic)).items()
    }


async def _queues(admin: Admin, topic: str) -> Mapping[MessageQueue, TopicOffset]:
    try:
        return await admin.topic_stats(topic)
    except TopicNotFoundError:  # no broker has had a transaction yet, or they do not show the topic
        return {}


class _Reading:
    """Reads queues until a time."""

    def __init__(self, reader: PullConsumer, until: float) -> None:
        self._reader = reader
        self._until = until

    async def messages(self, queue: MessageQueue, first: int, end: int, most: int) -> tuple[list[MessageExt], bool]:
        """Return the messages of a queue between two offsets, and whether these are all."""
        stop = min(end, first + most)
        found: list[MessageExt] = []

        def keep(error: UnreadableBodyError) -> None:
            found.append(error.message)

        now = asyncio.get_running_loop().time
        async with aclosing(read_queue(self._reader, queue, first, stop, skipped=keep)) as messages:
            async for message in messages:
                found.append(message)
                if now() > self._until:
                    return found, message.queue_offset + 1 >= end
        return found, stop >= end


def _ended_offsets(body: bytes) -> list[int]:
    """Return the offsets in an op message: `417` of brokers of 4.9, `417,419,` of those of 5.x."""
    return [int(part) for part in body.split(b",") if part.isdigit()]


def _half_message(message: MessageExt) -> HalfMessage:
    record = StoredMessage.of(message)
    checks = message.properties.get(PROPERTY_TRANSACTION_CHECK_TIMES, "0")
    return HalfMessage(
        topic=origin_topic(message),
        group=message.properties.get(PROPERTY_PRODUCER_GROUP),
        checks=int(checks) if checks.isascii() and checks.isdecimal() and len(checks) < 10 else 0,
        begun_at=record.born_at,
        record=record,
    )
