"""The commit log: every message of the broker, one record after the other, in files of one size.

::

    00000000000000000000                      00000000001073741824
    | record | record | … | record | blank |  | record | record | …  0 0 0 0 0
    0                                     1 GiB               end ┘  └ zeros to the file's end

    blank:  size 4, up to the end of the file   magic 4: 0xCBD43194   anything

A record is never split: when fewer than eight bytes would be left behind it, a blank fills the file and the
record begins the next one. `rocket_remoting.wire.record` draws the record. Behind the end there are only zeros:
recovery clears what it cuts off, so that bytes of records that were cut off are never read as records.
"""

import errno
import struct
from collections.abc import Callable, Iterator
from functools import partial

from rocket_broker.settings.store_settings import StoreSettings
from rocket_broker.store.errors import LogMismatch
from rocket_broker.store.files import SECTOR_SIZE
from rocket_broker.store.mapped_file import MappedFile, MappedFileQueue, OpenMaps
from rocket_broker.store.state import LogState
from rocket_broker.store.store_pool import PoolBuffer, StorePool
from rocket_remoting.wire.errors import LocalProtocolError, RemoteProtocolError
from rocket_remoting.wire.record import (
    BLANK_MAGIC,
    RecordHeader,
    RecordSource,
    body_crc32,
    pack_record_into,
    peek_record,
    read_size_and_magic,
)

__all__ = ["CommitLog", "LogWalk", "is_blank"]

_BLANK = struct.Struct(">ii")
# Each file keeps this room, so that a blank always fits: as Apache's END_FILE_MIN_BLANK_LENGTH.
_SMALLEST_BLANK = _BLANK.size
_MOST_BUT_BODY_AND_PROPERTIES = 256
"""A record's fixed fields with two IPv6 hosts are 112 bytes, its topic with both lengths at most 130."""
_SMALLEST_ALLOCATION = 64 * 1024
_SIZE_AND_MAGIC_LENGTH = 8
_WRITTEN_AT_ONCE = 1024 * 1024


class CommitLog(LogState):
    """The log.

    Attributes:
        files: Its files.
        end: Offset behind the last record: the next one's.
        found: Records before this offset were written by an earlier process, and may have been damaged on the disk.
        committed: Readers see records up to here, `last_record` included; without a pool always the end.
        flushed: The log is on the disk up to here.
        last_record: Offset of the last record that is committed, -1 if there is none.
        last_timestamp: Its store timestamp, 0 if there is none.
        copied: Bytes of a master's log are written up to here (`replica`); behind `end` there is a part of a record.
        tail: The file that the last records were written into; None if none was since the start.
        pool: Keeps records until they are committed; None if they are written to the files at once.
    """

    tail: MappedFile | None

    def __init__(self, settings: StoreSettings, maps: OpenMaps) -> None:
        self.files = MappedFileQueue(
            settings.commit_log_path,
            settings.mapped_file_size_commit_log,
            maps,
            "mappedFileSizeCommitLog",
        )
        self.end = 0
        self.found = 0
        self.committed = 0
        self.flushed = 0
        self.last_record = -1
        self.last_timestamp = 0
        self.copied = 0
        self.pool = StorePool(settings.transient_store_pool_size) if settings.uses_store_pool else None
        self._fails_fast = settings.fast_fail_if_no_buffer_in_store_pool
        self.tail = None
        self._buffer: PoolBuffer | None = None  # the tail's

    @property
    def first(self) -> int:
        """The offset of the first record."""
        return self.files.first

    def append(self, message: RecordSource, queue_offset: int, store_timestamp: int) -> int:
        """Append a message and return its record's size; the record ends at `end`.

        Raises:
            LocalProtocolError: The message cannot be encoded. Nothing has changed, as with all of these.
            StoreFull: The disk is full.
            OSError: The next file could not be made.
        """
        tail = self.tail or self._add_file()
        position = self.end - tail.base
        # An upper bound of the record's end: the exact size is known only when `pack_record_into` has packed
        # the record, and by then every byte must have space on the disk. Space is also reserved ahead, from
        # 64 KiB to 1 MiB as the file grows: small stores stay small, and large ones reserve rarely.
        need = position + len(message.body) + len(message.properties) + _MOST_BUT_BODY_AND_PROPERTIES
        if need > tail.allocated:
            tail.allocate(min(need, tail.size), max(position, _SMALLEST_ALLOCATION))
        tail.used = True
        space = tail.size - position - _SMALLEST_BLANK
        size = pack_record_into(
            tail.view or tail.open() if self._buffer is None else self._buffer.view,
            position,
            space,
            message,
            queue_offset=queue_offset,
            commit_log_offset=self.end,
            store_timestamp=store_timestamp,
        )
        if size > space:
            # `pack_record_into` has written nothing. A record that has no room in an empty file has none in
            # any.
            if size > tail.size - _SMALLEST_BLANK:
                raise LocalProtocolError(f"a record of {size} bytes, a commit log file has {tail.size}")
            self._fill_with_blank(tail)
            return self.append(message, queue_offset, store_timestamp)
        self.end += size
        if self.pool is None:
            self.commit(self.end, self.end - size, store_timestamp)
        return size

    def room_for(self, size: int) -> tuple[memoryview, int] | None:
        """Return the last file's bytes, and where records of `size` bytes in all go; only for a log without a pool.

        Returns:
            The bytes and the position; None if the file has no room.

        Raises:
            StoreFull: The disk has no room. Nothing has changed.
        """
        tail = self.tail
        if tail is None:
            return None
        position = self.end - tail.base
        end = position + size
        if end > tail.size - _SMALLEST_BLANK:
            return None
        if end > tail.allocated:
            tail.allocate(end, max(position, _SMALLEST_ALLOCATION))
        tail.used = True
        return tail.view or tail.open(), position

    def appended(self, size: int, last_size: int, store_timestamp: int) -> None:
        """Count records that have been written into `room_for` them, the last one with this size."""
        self.committed = self.end = end = self.end + size
        self.last_record = end - last_size
        self.last_timestamp = store_timestamp

    def copy(self, offset: int, data: memoryview) -> None:
        """Write bytes of a master's log, behind those that were copied before.

        Raises:
            LogMismatch: The bytes begin elsewhere, or cross the end of a file.
            StoreFull: The disk has no room. Nothing has changed.
            OSError: The next file could not be made, or the disk refused.
        """
        size = self.files.file_size
        if not self.files.files and self.end == 0 and offset % size == 0:
            self.end = self.committed = self.flushed = self.copied = offset  # the master has deleted its first files
        elif offset != self.copied:
            raise LogMismatch(self.copied, f"the bytes at {offset} came")
        if offset % size + len(data) > size:
            raise LogMismatch(
                offset, f"{len(data)} bytes came, which cross the end of a file: mappedFileSizeCommitLog must be that "
                "of the master"
            )  # fmt: skip
        tail = self.tail
        if tail is None or tail.base + tail.size == offset:
            self.tail = tail = self._next_file(offset)
        position = offset - tail.base
        if position + len(data) > tail.allocated:
            tail.allocate(position + len(data), max(position, _SMALLEST_ALLOCATION))
        # Not through the map: to touch a new page of a map costs four times as much as to write it.
        self.files.maps.file_system.write(tail.path, position, data)
        self.copied += len(data)

    def end_file(self, file: MappedFile) -> None:
        """Move the end behind the blank that was copied to a file's end."""
        file.ordered_to = file.size
        self.end = self.committed = file.base + file.size

    def drop_part(self) -> None:
        """Cut off the part of a record that was copied last.

        Raises:
            OSError: The disk refused.
        """
        if self.copied > self.end:
            flushed = self.flushed
            self.cut(self.end)
            self.flushed = flushed
        self.copied = self.end

    def commit(self, end: int, record: int, timestamp: int) -> None:
        """Publish the records before an offset, which have been written to the files: readers see them from now on.

        Args:
            end: The offset.
            record: The offset of the last record before it.
            timestamp: That record's store timestamp.
        """
        self.committed = end
        self.last_record = record
        self.last_timestamp = timestamp

    def record(self, offset: int, size: int) -> memoryview | None:
        """Return the record of a known size, or None if the log does not have it (any more)."""
        # Offset and size may be those of a damaged entry or of a filler. Such a pair gives None, or bytes of
        # one file's committed part.
        if offset < self.files.first or offset + size > self.committed or size <= 0:
            return None
        file = self.files.file_at(offset)
        if file is None:
            return None
        position = offset - file.base
        if position + size > file.size:
            return None
        file.used = True
        return (file.view or file.readable())[position : position + size]

    def record_at(self, offset: int) -> memoryview | None:
        """Return the record at an offset from outside, or None if no record begins there."""
        start = self.record(offset, _SIZE_AND_MAGIC_LENGTH)
        if start is None:
            return None
        size, _ = read_size_and_magic(start)
        record = self.record(offset, size)
        if record is None:
            return None
        try:
            header = peek_record(record)
        except RemoteProtocolError:
            return None
        # A client may name any offset, and bytes in the middle of a body may look like a record: a record
        # names its own offset.
        return record if header.commit_log_offset == offset else None

    def slice(self, offset: int, most: int) -> memoryview | None:
        """Return at most `most` committed bytes from an offset on, of one file; None if the log has none there.

        The bytes may begin and end within a record, and include the blank that ends a file.
        """
        if not self.files.first <= offset < self.committed:
            return None
        file = self.files.file_at(offset)
        if file is None:
            return None
        position = offset - file.base
        file.used = True
        return (file.view or file.readable())[position : min(position + most, file.size, self.committed - file.base)]

    def part(self, offset: int, most: int) -> Callable[[], bytes] | None:
        """Return a function that reads the bytes that `slice` returns, from the disk if need be, in any thread.

        It raises `FileNotFoundError` if the file has been deleted meanwhile, and `OSError` if the disk refuses.
        """
        if not self.files.first <= offset < self.committed:
            return None
        file = self.files.file_at(offset)
        if file is None:
            return None
        position = offset - file.base
        end = min(position + most, file.size, self.committed - file.base)
        return partial(file.read, position, end - position)

    def load(self, doubtful_from: int) -> int:
        """Find the files and return how many were deleted (`MappedFileQueue.load`). The end is not known yet."""
        deleted = self.files.load(doubtful_from)
        for file in self.files.files:
            # Recovery reads the files in order, so the operating system may read ahead; `cut` ends that for
            # the tail.
            file.ordered_to = file.size
        self.end = self.committed = self.files.end
        return deleted

    def cut(self, end: int) -> int:
        """Make ``end`` the end, with only zeros behind it; return how many files were deleted."""
        removed = self.files.cut(end)
        self.end = self.found = self.committed = end
        self.tail = self.files.file_at(end)
        if self.tail is not None:
            self._buffer = self.pool.borrow(self.tail) if self.pool is not None else None
            self.tail.written_to(end - self.tail.base)
            self.tail.ordered_to = end - self.tail.base
            self.tail.close()  # mapped again when needed
        return removed

    def write_again(self, start: int) -> None:
        """Write everything from an offset on once more, so that the next flush brings all of it to the disk.

        After a failed flush, Linux marks the pages as clean although they are not on the disk, so another flush would
        not write them.

        Raises:
            OSError: The disk refuses to read or write it.
        """
        file_system = self.files.maps.file_system
        for file in self.files.files:
            stop = min(self.end - file.base, file.size)
            if stop <= start - file.base:
                continue
            stop = min(stop, file_system.data_end(file.path))  # behind a blank there is no room
            for position in range(max(0, start - file.base), stop, _WRITTEN_AT_ONCE):
                data = file_system.read(file.path, position, min(_WRITTEN_AT_ONCE, stop - position))
                file_system.write(file.path, position, memoryview(data))

    def has_file_before(self, before_ms: int) -> bool:
        """Return whether the oldest file was last written before a time, is not the only one, and all of it is
        committed."""
        files = self.files.files
        # With a pool, the end of the oldest file may still be in memory only.
        if len(files) < 2 or files[1].base > self.committed:
            return False
        return self.files.maps.file_system.modified_ms(files[0].path) < before_ms

    def next_file(self, offset: int) -> int:
        """Return the offset at which the file behind the one that holds ``offset`` begins."""
        return offset - offset % self.files.file_size + self.files.file_size

    def _add_file(self) -> MappedFile:
        self.tail = self._next_file(self.end)
        self._buffer = self.pool.borrow(self.tail) if self.pool is not None else None
        return self.tail

    def _next_file(self, base: int) -> MappedFile:
        if self.pool is not None and self._fails_fast and not self.pool.left:
            raise OSError(errno.ENOBUFS, "the transient store pool has no buffer left", str(self.files.directory))
        return self.files.add(base)

    def _fill_with_blank(self, tail: MappedFile) -> None:
        """End the file with a blank. The next file is made first, so that an error changes nothing."""
        position = self.end - tail.base
        tail.allocate(position + _SMALLEST_BLANK, 0)
        next_file = self._next_file(tail.base + tail.size)
        view = tail.open() if self._buffer is None else self._buffer.view
        _BLANK.pack_into(view, position, tail.size - position, BLANK_MAGIC)
        tail.ordered_to = tail.size
        tail.close()  # readers map it again
        if self._buffer is not None:
            # Only the head of the blank has space in the file; the bytes behind it may have any value.
            self._buffer.stop = position + _SMALLEST_BLANK
        self.tail = next_file
        self._buffer = self.pool.borrow(next_file) if self.pool is not None else None
        self.end = next_file.base

    def __repr__(self) -> str:
        return f"CommitLog({self.first}…{self.end}, {len(self.files.files)} files)"


class LogWalk:
    """Reads a log from the beginning of a record on, record by record, up to the first one that is not whole.

    Args:
        log: The log.
        start: The offset.
        check_crc: Check the bodies.
        after_crash: Look for sectors that never reached the disk.
        take: Called with the bytes of a file, a position in them and its offset in the log; handles whole records from
            there on, and returns their size. The walk yields the records that it does not handle.

    Attributes:
        end: The end of the last whole record so far.
        torn: What is there instead of a whole record, once reading has stopped; empty if nothing is.
    """

    def __init__(
        self,
        log: CommitLog,
        start: int,
        *,
        check_crc: bool,
        after_crash: bool,
        take: Callable[[memoryview, int, int], int] | None = None,
    ) -> None:
        self.end = start
        self.torn = ""
        self._take = take
        self._log = log
        self._check_crc = check_crc
        self._after_crash = after_crash

    def __iter__(self) -> Iterator[RecordHeader]:
        while (file := self._log.files.file_at(self.end)) is not None:
            view = file.data()
            while True:
                while self._take is not None and (taken := self._take(view, self.end - file.base, self.end)):
                    self.end += taken
                record = self._record(view, self.end - file.base, file.base)
                if record is None:
                    break
                self.end += record.total_size
                yield record
            if not is_blank(file, self.end):
                return
            # `peek_record` has refused the blank, but a blank is not a tear.
            self.torn = ""
            self.end = file.base + file.size

    def _record(self, view: memoryview, position: int, base: int) -> RecordHeader | None:
        """Return the record at a position of a file, or None if there is no whole record."""
        try:
            record = peek_record(view, position)
        except RemoteProtocolError as e:
            self.torn = str(e) if any(view[position : position + _SMALLEST_BLANK]) else ""
            return None
        body_end = record.body_position + record.body_length
        # Bytes that were cut off may be whole records. We clear them (`cut`), but Apache's
        # MappedFileQueue.truncateDirtyFiles (5.3.3) only sets positions back and leaves the bytes in the
        # file.
        if record.commit_log_offset != base + position:
            self.torn = f"the record at {base + position} says it is at {record.commit_log_offset}"
        elif self._check_crc and body_crc32(view[record.body_position : body_end]) != record.body_crc:
            self.torn = f"the body of the record at {base + position} is damaged"
        elif self._after_crash and _has_lost_sector(view, record, position + record.total_size):
            self.torn = f"a sector of the record at {base + position} never reached the disk"
        else:
            return record
        return None


def is_blank(file: MappedFile, offset: int) -> bool:
    """Return whether the blank that ends a file begins at an offset."""
    blank = file.data()[offset - file.base :]
    left = file.base + file.size - offset
    return len(blank) >= _SMALLEST_BLANK and read_size_and_magic(blank) == (left, BLANK_MAGIC)


def _has_lost_sector(view: memoryview, record: RecordHeader, end: int) -> bool:
    """Return whether a sector of the topic or the properties never reached the disk; the checksum covers the body only.

    Such a sector reads as zeros, and neither topic nor properties have a zero byte. The fields with their lengths are
    not checked: without them the lengths do not agree.
    """
    topic = record.body_position + record.body_length
    properties = end - len(record.properties)
    for start, stop in ((topic, properties - 2), (properties, end)):
        for sector in range(start - start % SECTOR_SIZE, stop, SECTOR_SIZE):
            if start < stop and not any(view[max(sector, start) : min(sector + SECTOR_SIZE, stop)]):
                return True
    return False
