"""Dispatches records of the commit log to consume queues and index, where their entries are missing.

Apache's brokers do this all the time (ReputMessageService). Here `MessageStore.put` makes a message's entries in the
step in which it appends the record, so only recovery and the log of a slave (`replica`) need a reput.

Where the native core is installed, it reads the records that are plain in blocks, and makes the entries of a block in
one call. All other records are dispatched one by one.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from rocket_broker.store.commit_log import LogWalk
from rocket_broker.store.consume_queue import ConsumeQueue
from rocket_broker.store.deletion import deleted_topic
from rocket_broker.store.store_files import StoreFiles
from rocket_remoting.native import has_native_core
from rocket_remoting.wire.errors import LocalProtocolError
from rocket_remoting.wire.java_hash import java_hash
from rocket_remoting.wire.properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_TAGS,
    decode_stored_properties,
)
from rocket_remoting.wire.record import RecordHeader, record_size
from rocket_remoting.wire.sys_flag import (
    TRANSACTION_COMMIT,
    TRANSACTION_NOT,
    TRANSACTION_ROLLBACK,
    transaction_value,
)
from rocket_remoting.wire.topics import DELETIONS_TOPIC, SCHEDULE_TOPIC

if TYPE_CHECKING:
    from rocket_native import BlockQueue, LogBlock, LogReader, Place

__all__ = ["Block", "Entered", "Reput", "has_possible_number"]

logger = logging.getLogger(__name__)

Entered = Callable[[ConsumeQueue, int, Sequence[int], int], None]
"""Called with a queue whose messages have got their entries, the queue offset of the first of them, the tags code of
each, and the store timestamp of the last."""

_tags_code = lru_cache(maxsize=4096)(java_hash)

_SMALLEST_RECORD = record_size(0, 1, 0)
"""Bytes of the smallest record. The log must have had room for n of them before the message with the number n."""

_BLOCK_BYTES = 256 * 1024
"""The largest size of a block. Small messages of that size take some 0.5 ms."""


class Block(NamedTuple):
    """Records that were dispatched together.

    Attributes:
        size: Their bytes.
        messages: Their number.
        last_record: The offset of the last one.
        last_timestamp: Its store timestamp.
    """

    size: int
    messages: int
    last_record: int
    last_timestamp: int


class Reput:
    """Makes the entries that are missing; entries that exist stay as they are.

    The messages of a deleted topic are in no queue: at the record of the deletion (`deletion`), the queues that were
    made of earlier messages are deleted.

    Attributes:
        makes_queues_from: Messages before this offset get no new queue, because their queue was deleted.
        entries_added: Queue entries made so far.
        messages_indexed: Messages indexed so far.
    """

    def __init__(
        self,
        files: StoreFiles,
        makes_queues_from: int,
        *,
        checks_bodies: bool,
        entered: Entered | None = None,
        reads_back: bool = True,
    ) -> None:
        """Make a reput.

        Args:
            files: The files of the store.
            makes_queues_from: Messages before this offset get no new queue.
            checks_bodies: Whether records in blocks must have the checksums of their bodies.
            entered: Called for new queue entries.
            reads_back: Whether to read the whole log for the entries that lack before one that is made.
        """
        self.makes_queues_from = makes_queues_from
        self.entries_added = 0
        self.messages_indexed = 0
        self._settings = files.settings
        self._commit_log = files.log
        self._queues = files.queues
        self._index = files.index
        self._gap_seen = not reads_back
        self._entered = entered
        self._filled: ConsumeQueue | None = None
        self._reader = _log_reader(files.settings.max_index_num, checks_bodies=checks_bodies)
        self._one_by_one_to = 0  # records before this offset have been read as a block that could not be entered

    def dispatch_block(
        self, data: memoryview, position: int, offset: int, publish: Callable[[Block], None]
    ) -> Block | None:
        """Make the entries of the plain records at a place of the log.

        Args:
            data: The bytes of a file of the log, up to where they are written.
            position: Where the first record begins in them.
            offset: The offset of this record in the log.
            publish: Called when the entries are made, and before `entered`.

        Returns:
            The records; None if the first one is to be dispatched by itself.

        Raises:
            StoreFull: The disk has no room. Nothing has changed, as with OSError.
            OSError: A file could not be made.
        """
        if self._reader is None or offset < self._one_by_one_to:
            return None
        room = self._index.room if self._settings.message_index_enable else None
        found = self._reader.read(data, position, offset, _BLOCK_BYTES, room)
        if found is None:
            return None
        size, count, last_size, last_timestamp, indexed = found.records
        parts = found.queues
        queues = self._enter(found, parts, offset)
        if queues is None:
            self._one_by_one_to = offset + size
            return None
        self.entries_added += count
        self.messages_indexed += indexed
        block = Block(size, count, offset + size - last_size, last_timestamp)
        publish(block)
        if self._entered is not None:
            for queue, (_, _, number, *_, timestamp), tags_codes in zip(queues, parts, found.tags_codes, strict=True):
                self._entered(queue, number, tags_codes, timestamp)
        return block

    def _enter(self, block: "LogBlock", parts: "list[BlockQueue]", offset: int) -> list[ConsumeQueue] | None:
        """Write the entries of a block, and return its queues; None if its records must be dispatched one by one."""
        if block.key_count and offset <= self._index.end_offset:
            return None
        queues: list[ConsumeQueue] = []
        places: list[Place] = []
        for topic, queue_id, number, first, count, _, _ in parts:
            queue = self._queues.find((topic, queue_id))
            if queue is None and number == 0 and first >= self.makes_queues_from:
                try:
                    queue = self._queues.add(topic, queue_id)
                except LocalProtocolError:
                    return None
            if queue is None or number != queue.max_offset or first < queue.max_physical:
                return None
            place = queue.room_for(count)
            if place is None:
                return None
            queues.append(queue)
            places.append(place)
        index_place = None
        if block.key_count:
            index_place = self._index.room_for(block, 0)
            if index_place is None:
                return None
        header = block.write(places, index_place)
        if header is not None:
            self._index.appended(header)
        for queue, (*_, count, end, _) in zip(queues, parts, strict=True):
            queue.appended(count, end)
        return queues

    def dispatch(self, record: RecordHeader) -> None:
        """Make the entries of a record's message where they are missing."""
        self._follow_deletion(record)
        transaction = transaction_value(record.sys_flag)
        queue = self._queue(record) if transaction in (TRANSACTION_NOT, TRANSACTION_COMMIT) else None
        needs_entry = queue is not None and _is_missing(queue, record)
        needs_index = (
            self._settings.message_index_enable
            and transaction != TRANSACTION_ROLLBACK
            and record.commit_log_offset > self._index.end_offset
        )
        if needs_entry or needs_index:
            properties = decode_stored_properties(record.properties)
            if queue is not None and needs_entry:
                self._add_entry(self._closed(queue, record), record, properties)
            if needs_index:
                self._add_to_index(record, properties)

    def _queue(self, record: RecordHeader) -> ConsumeQueue | None:
        """Return the message's queue; None if its entries were on the disk, and it has been deleted."""
        if not has_possible_number(record):  # the checksum covers the body only
            logger.error(
                "the message at %d has no queue entry: its queue offset %d is impossible in %s queue %d",
                record.commit_log_offset, record.queue_offset, record.topic, record.queue_id,
            )  # fmt: skip
            return None
        queue = self._queues.find((record.topic, record.queue_id))
        if queue is None and record.commit_log_offset >= self.makes_queues_from:
            try:
                queue = self._queues.add(record.topic, record.queue_id)
            except LocalProtocolError as e:  # the checksum covers the body only
                logger.error("the message at %d has no queue entry: %s", record.commit_log_offset, e)
        return queue

    def _follow_deletion(self, record: RecordHeader) -> None:
        """Delete the queues of a topic whose deletion is recorded, except those with later messages."""
        if record.topic != DELETIONS_TOPIC:
            return
        data = self._commit_log.record_at(record.commit_log_offset)
        topic = deleted_topic(data) if data is not None else None
        if topic is not None:
            self._queues.remove(topic, record.commit_log_offset)

    def _closed(self, queue: ConsumeQueue, record: RecordHeader) -> ConsumeQueue:
        """Return the message's queue, with all entries before that of the message.

        If entries are missing that should have been on the disk, the whole log is read for all queues, once.
        """
        if record.queue_offset == queue.max_offset:
            return queue
        if record.queue_offset and not self._gap_seen:
            self._gap_seen = True
            logger.warning("%s: entries are missing, reading the whole commit log for them", queue)
            for earlier in LogWalk(self._commit_log, self._commit_log.first, check_crc=False, after_crash=False):
                if earlier.commit_log_offset >= record.commit_log_offset:
                    break
                self._restore_entry(earlier)
            queue = self._queues.add(record.topic, record.queue_id)  # the former queue may have been deleted
        _end_before(queue, record)
        self._filled = queue
        return queue

    def _restore_entry(self, record: RecordHeader) -> None:
        self._follow_deletion(record)
        if transaction_value(record.sys_flag) in (TRANSACTION_NOT, TRANSACTION_COMMIT):
            queue = self._queues.find((record.topic, record.queue_id))
            if queue is not None and has_possible_number(record) and _is_missing(queue, record):
                _end_before(queue, record)
                self._add_entry(queue, record, decode_stored_properties(record.properties))

    def _add_entry(self, queue: ConsumeQueue, record: RecordHeader, properties: Mapping[str, str]) -> None:
        queue.prepare()
        tags_code = self._tags_code(record, properties)
        queue.append(record.commit_log_offset, record.total_size, tags_code)
        self.entries_added += 1
        if self._filled is queue:
            self._filled = None
            queue.correct_min_offset(self._commit_log.first)
        if self._entered is not None:
            self._entered(queue, record.queue_offset, (tags_code,), record.store_timestamp)

    def _tags_code(self, record: RecordHeader, properties: Mapping[str, str]) -> int:
        level = properties.get(PROPERTY_DELAY_TIME_LEVEL, "")
        if record.topic == SCHEDULE_TOPIC and level.isdecimal() and int(level) > 0:
            levels = self._settings.delay_levels
            return levels.deliver_at(levels.bounded(int(level)), record.store_timestamp)
        tags = properties.get(PROPERTY_TAGS)
        return _tags_code(tags) if tags else 0

    def _add_to_index(self, record: RecordHeader, properties: Mapping[str, str]) -> None:
        hashes = self._index.hashes_of(record.topic, properties)
        if hashes:
            self._index.prepare(hashes, record.store_timestamp)
            self._index.put(hashes, record.commit_log_offset, record.store_timestamp)
            self.messages_indexed += 1


def _log_reader(max_index_num: int, *, checks_bodies: bool) -> "LogReader | None":
    """Return the native core's reader of blocks; None without the core."""
    if not has_native_core():
        return None
    from rocket_native import LogReader

    # The entries of a message are all in one file of the index, which never uses entry 0. A message has one key more
    # than separators, and perhaps a unique key.
    most_keys = max(0, max_index_num - 2)
    return LogReader(apart=[SCHEDULE_TOPIC, DELETIONS_TOPIC], most_keys=most_keys, checks_bodies=checks_bodies)


def has_possible_number(record: RecordHeader) -> bool:
    """Return whether the log has had room for the messages that came before a message in its queue."""
    return 0 <= record.queue_offset * _SMALLEST_RECORD <= record.commit_log_offset


def _end_before(queue: ConsumeQueue, record: RecordHeader) -> None:
    """Make the queue end where the message's entry belongs."""
    if queue.max_offset and record.queue_offset == 0:
        queue.cut_to(0)
    queue.fill_to(record.queue_offset)


def _is_missing(queue: ConsumeQueue, record: RecordHeader) -> bool:
    """Return whether a message has no entry: it lies behind those that have one, and has the next number or a later
    one.

    If the message has the first number, the messages with entries were deleted with their topic, which was made again.
    The log also has deleted messages with numbers that the new queue has not reached: they are before those with an
    entry.
    """
    return record.commit_log_offset >= queue.max_physical and (
        record.queue_offset >= queue.max_offset or record.queue_offset == 0
    )
