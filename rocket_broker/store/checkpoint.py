"""The checkpoint file: the times and the log offset up to which the store is on the disk.

::

    pos  size  field                                           a file of one page
      0     8  store timestamp of the last message of the commit log that is on the disk
      8     8  store timestamp of the last message whose consume queue entry is
     16     8  store timestamp of the last message whose index entries are
     24    16  of Apache's replication, left alone
     64     4  "skit", if what follows is ours
     68     8  mark: an offset of the commit log; the messages before it are on the disk, and so are
               their queue entries and index entries
     76     8  commit log offset of the last record before the mark; -1 if there is none
     84     8  end of the last record before the mark that has a queue entry; -1 if none has
     92     8  offset of the commit log from which on it records each deletion of a topic (`deletion`): messages
               before may be of Apache's brokers, which do not record deletions
    100     4  CRC-32 of the 36 bytes before

The first three are Apache's and have no offset, so its recovery begins with the file that was begun before
them. The mark says where exactly to begin; it is ours, and Apache's brokers keep the bytes that they don't
know. It stays true when they write to the store later on; that the log is still the one it was made for is
seen by the record before it. Whether they have written is seen by the lock file (`FileLock.is_apaches`): they write the
timestamps at a stop and at most once in ten seconds, so a short visit may not change them.
"""

import struct
import threading
import zlib
from typing import NamedTuple

from rocket_broker.settings.store_settings import StoreSettings
from rocket_broker.store.files import PAGE_SIZE, FileSystem

__all__ = ["Checkpoint", "Mark", "blank_checkpoint", "read_mark"]

_TIMESTAMPS = struct.Struct(">qqq")
_MARK_POSITION = 64
_MARK = struct.Struct(">4sqqqq")
_MAGIC = b"skit"
_CRC = struct.Struct(">I")
_SLACK_MS = 3_000
"""Apache's brokers write the timestamps without a lock, and subtract this when they read them."""


class Mark(NamedTuple):
    """The end of the part of the log that is on the disk together with its queue and index entries.

    Attributes:
        offset: The end.
        last_record: Where the last record before it begins: the log must have it.
        entries_to: End of the last record that has a queue entry: the queues must have it.
    """

    offset: int
    last_record: int = -1
    entries_to: int = -1


def read_mark(content: bytes | memoryview) -> tuple[Mark, int] | None:
    """Return the mark and `Checkpoint.deletions_from` in a checkpoint file; None if it has no mark of ours."""
    mark = content[_MARK_POSITION : _MARK_POSITION + _MARK.size]
    if len(content) < PAGE_SIZE:
        return None
    magic, offset, last_record, entries_to, deletions_from = _MARK.unpack(mark)
    if magic != _MAGIC or _CRC.unpack_from(content, _MARK_POSITION + _MARK.size) != (zlib.crc32(mark),):
        return None
    return Mark(offset, last_record, entries_to), deletions_from


def blank_checkpoint(first: int, deletions_from: int) -> bytes:
    """Return the content of a checkpoint file whose mark is the log's first byte: nothing is trusted."""
    content = bytearray(PAGE_SIZE)
    _pack_mark(content, Mark(first), deletions_from)
    return bytes(content)


def _pack_mark(content: bytearray | memoryview, mark: Mark, deletions_from: int) -> None:
    packed = _MARK.pack(_MAGIC, *mark, deletions_from)
    content[_MARK_POSITION : _MARK_POSITION + _MARK.size] = packed
    _CRC.pack_into(content, _MARK_POSITION + _MARK.size, zlib.crc32(packed))


class Checkpoint:
    """The checkpoint file, in memory until it is written.

    Attributes:
        log_timestamp: Store timestamp up to which the commit log is on the disk.
        queue_timestamp: The same for the consume queues.
        index_timestamp: The same for the index.
        mark: What is on the disk in log, queues and index; None if the file has no mark.
        deletions_from: From this offset on the log records each deletion of a topic.
    """

    def __init__(self, settings: StoreSettings, file_system: FileSystem) -> None:
        self.log_timestamp = self.queue_timestamp = self.index_timestamp = 0
        self.mark: Mark | None = None
        self.deletions_from = 0
        self._lock = threading.Lock()
        self._path = settings.checkpoint_path
        self._file_system = file_system
        self._view: memoryview | None = None

    def load(self) -> None:
        """Read the file, or make it."""
        size = self._file_system.size(self._path)
        # A kill while the file was made leaves a short file, which has no content yet.
        if size is not None and size < PAGE_SIZE:
            self._file_system.remove(self._path)
            size = None
        if size is None:
            self._file_system.create(self._path, PAGE_SIZE)
        self._file_system.allocate(self._path, 0, PAGE_SIZE)
        view = self._view = self._file_system.map(self._path)
        self.log_timestamp, self.queue_timestamp, self.index_timestamp = _TIMESTAMPS.unpack_from(view)
        found = read_mark(view)
        if found is not None:
            self.mark, self.deletions_from = found

    def close(self) -> None:
        """Close the file's map; `load` makes it again."""
        self._view = None

    @property
    def is_blank(self) -> bool:
        """Whether it was never written, because the broker died before its first flush."""
        return self.mark is None and not (self.log_timestamp or self.queue_timestamp or self.index_timestamp)

    @property
    def recovery_timestamp(self) -> int:
        """Messages stored before this time are on the disk, and so are their entries."""
        return max(0, min(self.log_timestamp, self.queue_timestamp) - _SLACK_MS)

    def advance(self, mark: Mark, log_timestamp: int, index_timestamp: int) -> None:
        """Write that everything before ``mark`` is on the disk: log, queues and index. May be called from any thread.

        The mark never moves back: of two concurrent flushes the earlier may end last.
        """
        with self._lock:
            if self.mark is None or mark.offset >= self.mark.offset:
                self.mark = mark
                self.log_timestamp = self.queue_timestamp = log_timestamp
                self.index_timestamp = index_timestamp
            self._write()

    def set_mark(self, mark: Mark, deletions_from: int) -> None:
        """Set the mark, and the offset from which on the log records each deletion, after recovery found other ones."""
        with self._lock:
            self.mark = mark
            self.deletions_from = deletions_from
            self._write()

    def _write(self) -> None:
        assert self._view is not None, "load() comes first"
        # A kill in between leaves the old mark beside new timestamps, as after a write of another broker, or a
        # mark with a wrong checksum, which is ignored. Both states are safe, since the messages of all
        # timestamps are on the disk.
        _TIMESTAMPS.pack_into(self._view, 0, self.log_timestamp, self.queue_timestamp, self.index_timestamp)
        assert self.mark is not None, "there is a mark to write"
        _pack_mark(self._view, self.mark, self.deletions_from)
        self._file_system.sync(self._path)

    def __repr__(self) -> str:
        return f"Checkpoint(mark={self.mark}, log={self.log_timestamp}, queues={self.queue_timestamp})"
