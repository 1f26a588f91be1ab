"""Read the commit log of a store that no broker has open, record by record, across damaged bytes.

::

    read_log        record ─ record ─ damage ─ record ─ … ─ torn end

A record contains its own offset in the log, so the next record behind damaged bytes is found reliably: by its magic
number and by that offset.
"""

import mmap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rocket_broker.store.layout import StoreLayout, map_file, size_of
from rocket_broker.store.reput import has_possible_number
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.record import (
    BLANK_MAGIC,
    MAGIC_V1,
    MAGIC_V2,
    RecordHeader,
    body_crc32,
    peek_record,
    read_size_and_magic,
)

__all__ = ["Damage", "LogBytes", "Progress", "read_log"]

_MAGICS = tuple((magic & 0xFFFFFFFF).to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2))
_MAGIC_POSITION = 4
_SMALLEST_BLANK = 8
_CHUNK = 1 << 20
_ZEROS = bytes(_CHUNK)

Progress = Callable[[int], None]
"""Called with the offset of the log that has been reached."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of the commit log that hold no record, with records before or behind them.

    Attributes:
        offset: Offset of the first byte in the log.
        length: The number of bytes.
        reason: What is wrong with the record that should be there.
        is_end: Whether no record follows, because a write was torn there.
    """

    offset: int
    length: int
    reason: str
    is_end: bool

    def __contains__(self, offset: int) -> bool:
        return self.offset <= offset < self.offset + self.length


def read_log(
    layout: StoreLayout, *, progress: Progress | None = None
) -> Iterator[tuple[RecordHeader, memoryview] | Damage]:
    """Yield each whole record with its bytes, and the damage between them, in the order of the log.

    A file that was cut short is read as if zeros followed. Files that a broker deletes meanwhile are left out.
    """
    written = list(layout.log)
    while written and _is_unwritten(map_file(written[-1]), 0):  # made ahead of time, as Apache's broker does
        written.pop()
    for path in written:
        try:
            data = map_file(path)
        except FileNotFoundError:
            continue
        if not data:
            yield Damage(int(path.name), layout.log_file_size, "the file is empty", is_end=False)
            continue
        scan = _FileScan(data, int(path.name), layout.log_file_size, is_last=path == written[-1])
        yield from scan.items(progress)


class LogBytes:
    """The bytes of a log's files, by offset."""

    def __init__(self, layout: StoreLayout) -> None:
        self._file_size = layout.log_file_size
        self._paths: dict[int, Path] = {int(path.name): path for path in layout.log if size_of(path)}
        self._maps: dict[int, memoryview] = {}

    def at(self, offset: int, size: int) -> memoryview | None:
        """Return `size` bytes from an offset of the log on; None if they are not in one of the files."""
        base = offset - offset % self._file_size if self._file_size else 0
        if base not in self._paths:
            return None
        if base not in self._maps:
            self._maps[base] = map_file(self._paths[base])
        data = self._maps[base][offset - base : offset - base + size]
        return data if len(data) == size else None


class _FileScan:
    """Reads one file.

    Args:
        data: The bytes of the file, which may have been cut short.
        base: Offset of its first byte in the log.
        size: The size it should have, in bytes.
        is_last: Whether it is the log's last file, in which the log may end.
    """

    def __init__(self, data: memoryview, base: int, size: int, *, is_last: bool) -> None:
        self._data = data
        self._base = base
        self._size = max(size, len(data))
        self._is_last = is_last

    def items(self, progress: Progress | None) -> Iterator[tuple[RecordHeader, memoryview] | Damage]:
        """Yield records and damage."""
        position = 0
        while position < self._size:
            if progress is not None:
                progress(self._base + position)
            item = self._record_at(position)
            if not isinstance(item, str):
                yield item, self._data[position : position + item.total_size]
                position += item.total_size
                continue
            if self._is_blank(position) or (self._is_last and _is_unwritten(self._data, position)):
                return
            behind = self._next_record(position + 1)
            length = (behind or self._size) - position
            yield Damage(self._base + position, length, item, self._is_last and behind is None)
            if behind is None:
                return
            position = behind

    def _record_at(self, position: int) -> RecordHeader | str:
        """Return the record at a position, or why there is none."""
        if position >= len(self._data):
            return "the file was cut short"
        try:
            record = peek_record(self._data, position)
        except RemoteProtocolError as e:
            return str(e)
        if record.commit_log_offset != self._base + position:
            return f"the record says it is at {record.commit_log_offset}"
        if not has_possible_number(record):
            return f"the record says it is number {record.queue_offset} of its queue"
        body = self._data[record.body_position : record.body_position + record.body_length]
        if body_crc32(body) != record.body_crc:
            return "the body does not agree with its check sum"
        return record

    def _next_record(self, start: int) -> int | None:
        """Return where the next whole record begins, None if none does in this file."""
        found = [first for magic in _MAGICS if (first := self._first_record(magic, start)) is not None]
        return min(found, default=None)

    def _first_record(self, magic: bytes, start: int) -> int | None:
        whole = self._data.obj
        assert isinstance(whole, mmap.mmap), "files are read through maps"
        at = whole.find(magic, start + _MAGIC_POSITION)
        while at >= 0:
            if not isinstance(self._record_at(at - _MAGIC_POSITION), str):
                return at - _MAGIC_POSITION
            at = whole.find(magic, at + 1)
        return None

    def _is_blank(self, position: int) -> bool:
        left = self._size - position
        if len(self._data) - position < _SMALLEST_BLANK:
            return left < _SMALLEST_BLANK
        return read_size_and_magic(self._data, position) == (left, BLANK_MAGIC)


def _is_unwritten(data: memoryview, position: int) -> bool:
    """Return whether only zeros follow."""
    chunks = (bytes(data[start : start + _CHUNK]) for start in range(position, len(data), _CHUNK))
    return all(chunk == _ZEROS[: len(chunk)] for chunk in chunks)  # far faster than to strip the zeros
