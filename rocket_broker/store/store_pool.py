"""The transient store pool: memory for messages until they are committed to their file of the log.

::

    buffer   memory with the length of a file; a message has the same position in both
             | given back | committed, to be given back | in memory only |  not touched yet  |
             0                                committed ┘            end ┘          file size ┘

    put ──► buffer ──commit──► file, in the page cache ──flush──► disk

A page of a buffer takes memory from its first message until it is committed. Messages that a killed process had not
committed are lost.
"""

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rocket_broker.store.mapped_file import MappedFile

__all__ = ["PoolBuffer", "StorePool", "Uncommitted"]


class Uncommitted(NamedTuple):
    """Bytes of a file that are in memory only."""

    path: Path
    start: int
    data: memoryview


class PoolBuffer:
    """The memory of one file.

    Attributes:
        file: The file.
        view: The memory.
        stop: Nothing behind this is written to the file; until the file has ended it is the file's size.
    """

    __slots__ = ("_memory", "_released", "file", "stop", "view")

    def __init__(self, file: MappedFile) -> None:
        self.file = file
        self.stop = file.size
        self._memory = mmap.mmap(-1, file.size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._released = 0
        self.view = memoryview(self._memory)

    def between(self, start: int, end: int) -> memoryview:
        """Return the bytes between two offsets of the log that belong to this file."""
        base = self.file.base
        return self.view[max(start - base, 0) : max(0, min(end - base, self.stop))]

    def release(self, end: int) -> None:
        """Free whole pages before an offset of the log."""
        position = end - self.file.base
        position -= position % mmap.PAGESIZE
        if position > self._released:
            self._memory.madvise(mmap.MADV_DONTNEED, self._released, position - self._released)
            self._released = position


class StorePool:
    """The buffers of files that are not completely committed.

    Args:
        size: The largest number of buffers.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._buffers: list[PoolBuffer] = []

    @property
    def left(self) -> int:
        """The number of free buffers."""
        return self._size - len(self._buffers)

    def borrow(self, file: MappedFile) -> PoolBuffer | None:
        """Return a buffer for a file, or None if all are in use."""
        if not self.left:
            return None
        buffer = PoolBuffer(file)
        self._buffers.append(buffer)
        return buffer

    def between(self, start: int, end: int) -> Iterator[Uncommitted]:
        """Yield the bytes in memory between two offsets of the log."""
        for buffer in self._buffers:
            data = buffer.between(start, end)
            if data:
                yield Uncommitted(buffer.file.path, max(start - buffer.file.base, 0), data)

    def release(self, end: int) -> None:
        """Free the buffers of files that end before an offset of the log, and pages of the first remaining one."""
        while self._buffers and self._buffers[0].file.base + self._buffers[0].file.size <= end:
            del self._buffers[0]
        if self._buffers:
            self._buffers[0].release(end)

    def __repr__(self) -> str:
        return f"StorePool({self.left} of {self._size} left)"
