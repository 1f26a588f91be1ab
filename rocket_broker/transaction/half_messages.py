"""The half messages in the store: reading, storing again, and ending them.

To end or replace a half message takes two records, written in one step of the loop::

    1. the replacement: the committed message in its real topic, the half message with one check more, or the half
       message moved aside after the last check. Its prepared transaction offset names the old half message.
    2. the op message, which says that the old half message has ended.

If the broker is killed between the two, the replacement is the last record of the log, and `HalfMessages.load` writes
the missing op message. So each transaction ends exactly once. A rollback writes the op message only.
"""

import asyncio
import logging
from collections.abc import Iterator

from rocket_broker.perm import READ, WRITE
from rocket_broker.store.message_store import MessageStore
from rocket_broker.store.messages import PutResult, PutStatus
from rocket_broker.tables.consumer_offset_table import ConsumerOffsetTable
from rocket_broker.tables.topic_table import TopicTable
from rocket_broker.transaction.op_messages import REMOVE_TAG, ended_offsets, op_body
from rocket_broker.transaction.pending import PendingHalves
from rocket_broker.writing.message_writer import MessageWriter
from rocket_remoting.clock import Clock
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.message import MessageExt
from rocket_remoting.wire.message_id import create_offset_id
from rocket_remoting.wire.properties import (
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TAGS,
    decode_stored_properties,
)
from rocket_remoting.wire.record import decode_record, peek_record
from rocket_remoting.wire.sys_flag import TRANSACTION_COMMIT, transaction_value, with_transaction_value
from rocket_remoting.wire.topics import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    TRANSACTION_GROUP,
)

__all__ = ["HalfMessages"]

logger = logging.getLogger(__name__)

HALF_QUEUE = 0
_OPS_AT_ONCE = 1_000


class HalfMessages:
    """The half queue and the op queue.

    Attributes:
        pending: The half messages that have not ended; none before `load`.
    """

    def __init__(
        self,
        *,
        store: MessageStore,
        writer: MessageWriter,
        topics: TopicTable,
        offsets: ConsumerOffsetTable,
        clock: Clock,
    ) -> None:
        self._store = store
        self._writer = writer
        self._topics = topics
        self._offsets = offsets
        self._clock = clock
        self._progress = (0, 0)
        self.pending = PendingHalves(0, 0)

    async def load(self) -> None:
        """Read which half messages have ended, from the offsets on that the group CID_RMQ_SYS_TRANS has committed."""
        if self.end > 0:
            self.make_topics()
        first = self._committed(TRANS_HALF_TOPIC)
        offset = self._committed(TRANS_OP_HALF_TOPIC)
        self.pending = PendingHalves(first, offset)
        end, halves_end = self._store.max_offset(TRANS_OP_HALF_TOPIC, HALF_QUEUE), self.end
        while offset < end:
            for _, body in self._records(TRANS_OP_HALF_TOPIC, offset, _OPS_AT_ONCE):
                named = ended_offsets(body.body) if body is not None else []
                # An op message that names an offset behind the half queue is damaged. To note it would take
                # a bit for each offset up to there.
                self.pending.end(half for half in named if half < halves_end)
                offset += 1
            await asyncio.sleep(0)
        # Needs all op messages: a half message that has its op message already must not get another.
        self._finish_last()
        self.pending.count_loaded(self.end)

    @property
    def end(self) -> int:
        """Offset that the next half message will have."""
        return self._store.max_offset(TRANS_HALF_TOPIC, HALF_QUEUE)

    @property
    def first_stored(self) -> int:
        """Offset of the first half message that the store still has."""
        return self._store.min_offset(TRANS_HALF_TOPIC, HALF_QUEUE)

    # Half messages

    def make_topics(self) -> None:
        """Create the two topics as Apache's brokers do: tools show them, and know them as the broker's own."""
        for topic in (TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC):
            self._topics.create_by_send_back(topic, 1, READ | WRITE)

    def find(self, commit_log_offset: int) -> MessageExt | None:
        """Return the half message whose record begins at the offset, pending or not, without its body.

        Any client may ask, so the body, which may be large, is not read. The offset may also point into another
        message's body that looks like a record, so the half queue must have an entry that leads to the record.
        """
        record = self._store.message_at(commit_log_offset)
        if record is None:
            return None
        header = peek_record(record)
        if header.topic != TRANS_HALF_TOPIC or not self._store.leads_to(
            TRANS_HALF_TOPIC, HALF_QUEUE, header.queue_offset, commit_log_offset
        ):
            return None
        return MessageExt(
            header.topic,
            b"",
            properties=decode_stored_properties(header.properties),
            queue_id=header.queue_id,
            queue_offset=header.queue_offset,
            commit_log_offset=commit_log_offset,
            store_host=header.store_host,
            store_size=header.total_size,
        )

    def read(self, offset: int, count: int) -> Iterator[tuple[int, MessageExt | None]]:
        """Yield half messages with their offsets in the half queue; None for a message that cannot be read."""
        return self._records(TRANS_HALF_TOPIC, offset, count)

    # Their ends

    def commit(self, found: MessageExt) -> PutStatus:
        """Store the message in its real topic, or behind its delay level if it has one; then end the half message."""
        half = self._whole(found)
        if half is None:
            return PutStatus.SERVICE_NOT_AVAILABLE
        return self._replace(
            half,
            half.properties[PROPERTY_REAL_TOPIC],
            int(half.properties[PROPERTY_REAL_QUEUE_ID]),
            dict(half.properties),
            sys_flag=with_transaction_value(half.sys_flag, TRANSACTION_COMMIT),
            may_delay=True,
        ).status

    def roll_back(self, half: MessageExt) -> PutStatus:
        """End the half message without a message."""
        return self._put_op(half.queue_offset)

    def put_aside(self, half: MessageExt) -> str | None:
        """Move the half message to TRANS_CHECK_MAX_TIME_TOPIC, where people find abandoned transactions.

        Returns:
            The offset message id that it has there; None if it could not be stored.
        """
        self._topics.create_by_send_back(TRANS_CHECK_MAX_TIME_TOPIC, 1, READ | WRITE)
        result = self._replace(half, TRANS_CHECK_MAX_TIME_TOPIC, 0, half.properties)
        if result.status is not PutStatus.OK:
            return None
        return create_offset_id(*self._writer.store_host, result.commit_log_offset)

    def put_back(self, half: MessageExt, added: dict[str, str] | None = None) -> PutStatus:
        """Store a pending half message again, with added properties; on success update ``half`` to the new one.

        The new half message takes the place of the old one: an end of the old one ends the new one.
        """
        properties = half.properties | (added or {})
        result = self._replace(half, TRANS_HALF_TOPIC, HALF_QUEUE, properties)
        if result.status is PutStatus.OK:
            half.properties = properties
            half.queue_offset = result.queue_offset
            half.commit_log_offset = result.commit_log_offset
            half.store_host = self._writer.store_host
        return result.status

    def resume(self, message: MessageExt) -> PutStatus:
        """Store a message that was moved aside as a pending half message again. Its age begins anew."""
        # Otherwise a message that was moved aside for its age would be moved aside again by the next round.
        message.born_timestamp = self._clock.now_ms()
        result = self._put(message, TRANS_HALF_TOPIC, HALF_QUEUE, message.properties)
        if result.status is PutStatus.OK:
            self.pending.begin(result.queue_offset)
        return result.status

    async def commit_progress(self) -> None:
        """Commit the offsets of both queues, for the next start and for Apache's brokers.

        The commit log is flushed first: with the offsets alone on the disk, a power failure would skip half messages
        whose replacements are lost.
        """
        first = self.pending.advance(self.end)
        while self.pending.pass_ops():  # noqa: ASYNC110 - lets the loop serve clients between the steps
            await asyncio.sleep(0)
        op_offset = self.pending.op_offset
        if (first, op_offset) != self._progress and await self._store.flush_to(self._store.max_commit_log_offset):
            self._progress = first, op_offset
            self._offsets.commit(TRANSACTION_GROUP, TRANS_HALF_TOPIC, HALF_QUEUE, first)
            self._offsets.commit(TRANSACTION_GROUP, TRANS_OP_HALF_TOPIC, HALF_QUEUE, op_offset)

    # Records and offsets

    def _replace(
        self,
        half: MessageExt,
        topic: str,
        queue_id: int,
        properties: dict[str, str],
        *,
        sys_flag: int | None = None,
        may_delay: bool = False,
    ) -> PutResult:
        result = self._put(half, topic, queue_id, properties, sys_flag=sys_flag, may_delay=may_delay)
        # Replacement first, op message second. The other way round, a kill in between would lose a
        # committed message.
        if result.status is PutStatus.OK:
            # The new place is noted before the old one ends: `end` of the old offset would otherwise forget
            # the owners.
            if topic == TRANS_HALF_TOPIC:
                self.pending.move(half.queue_offset, result.queue_offset)
            self._end_replaced(half.queue_offset)
        return result

    def _end_replaced(self, half_offset: int) -> None:
        """End a replaced half message; if the op message cannot be stored, at least until the broker stops."""
        status = self._put_op(half_offset)
        if status is not PutStatus.OK:
            logger.error("could not store the end of half message %d: %s", half_offset, status.value)
            self.pending.end_without_op(half_offset)

    def _put(
        self,
        message: MessageExt,
        topic: str,
        queue_id: int,
        properties: dict[str, str],
        *,
        sys_flag: int | None = None,
        may_delay: bool = False,
    ) -> PutResult:
        return self._writer.put_again(
            message,
            topic,
            queue_id,
            properties,
            sys_flag=sys_flag,
            prepared_transaction_offset=message.commit_log_offset,
            may_delay=may_delay,
        )

    def _put_op(self, half_offset: int) -> PutStatus:
        result = self._writer.put(
            TRANS_OP_HALF_TOPIC,
            HALF_QUEUE,
            op_body(half_offset),
            {PROPERTY_TAGS: REMOVE_TAG},
            flag=0,
            sys_flag=0,
            born_timestamp=self._clock.now_ms(),
            born_host=self._writer.store_host,
        )
        if result.status is PutStatus.OK:
            self.pending.end([half_offset])
        return result.status

    def _finish_last(self) -> None:
        """Write the op message that a crash prevented: the last record replaces a half message still pending."""
        record = self._store.last_message()
        last = _decoded(record, -1) if record is not None else None
        if last is None or not _takes_a_place(last):
            return
        found = self.find(last.prepared_transaction_offset)
        if found is None or not self.pending.is_pending(found.queue_offset):
            return
        half = self._whole(found)
        if half is None or not _is_same(half, last):
            return
        logger.warning("half message %d had ended when the broker was killed: storing its end now", half.queue_offset)
        if last.topic == TRANS_HALF_TOPIC:
            self.pending.move(half.queue_offset, last.queue_offset)
        self._end_replaced(half.queue_offset)

    def _whole(self, found: MessageExt) -> MessageExt | None:
        """Read a half message with its body, which `find` leaves out; None if it cannot be read."""
        record = self._store.message_at(found.commit_log_offset)
        return _decoded(record, found.commit_log_offset) if record is not None else None

    def _records(self, topic: str, offset: int, count: int) -> Iterator[tuple[int, MessageExt | None]]:
        entries = list(self._store.consume_queue_entries(topic, HALF_QUEUE, offset, count))
        for number, commit_log_offset, size, _ in entries:
            record = self._store.message_at(commit_log_offset, size)
            yield number, _decoded(record, commit_log_offset) if record is not None else None

    def _committed(self, topic: str) -> int:
        low = self._store.min_offset(topic, HALF_QUEUE)
        high = self._store.max_offset(topic, HALF_QUEUE)
        known = self._offsets.get(TRANSACTION_GROUP, topic, HALF_QUEUE)
        # The committed offset may lie before the queue, if its first files were deleted, or behind it, if a
        # power failure took the last messages.
        return low if known is None else min(max(known, low), max(low, high))


def _takes_a_place(message: MessageExt) -> bool:
    if transaction_value(message.sys_flag) == TRANSACTION_COMMIT:
        return True
    # The first half message of a transaction has 0 there, its later copies the offset of the one before.
    copy = message.topic in (TRANS_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC)
    return copy and message.prepared_transaction_offset > 0


def _is_same(half: MessageExt, replacement: MessageExt) -> bool:
    """Return whether a message has been made from the half message that its prepared transaction offset names.

    A committed message that was stored again, for a delay or a redelivery, names offset 0, where another half message
    may be. The unique key tells messages apart; clients other than Apache's need not set it.
    """
    return (half.unique_key, half.born_timestamp, half.born_host, half.body) == (
        replacement.unique_key,
        replacement.born_timestamp,
        replacement.born_host,
        replacement.body,
    )


def _decoded(record: memoryview, commit_log_offset: int) -> MessageExt | None:
    try:
        return decode_record(record, decompress=False)
    except RemoteProtocolError as e:
        logger.error("the message at %d cannot be read: %s", commit_log_offset, e)
        return None
