"""The timer wheel: for each moment of the coming days the last of its timers, in Apache 5.x's file ``timerwheel``.

::

    slot of a moment t = (t / precision) mod 1,209,600          32 bytes each, two weeks of seconds

    pos  size  field
      0     8  the moment, t / precision; with another moment, or 0, the slot is empty
      8     8  position of the moment's first timer in the timer log
     16     8  position of the last one; each timer leads to the previous one
     24     4  number of the timers; those that cancel another count as -1
     28     4  0

Slots are cleared once their timers are delivered, so pages of zeros have no timers. The file is created with the first
timer, and is a hole except for the pages that were used.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rocket_broker.store.errors import StoreCorrupt
from rocket_broker.store.files import PAGE_SIZE, FileSystem
from rocket_broker.store.mapped_file import MappedFile, OpenMaps

__all__ = ["Slot", "TimerWheel", "wheel_size"]

_SLOT = struct.Struct(">qqqii")
_PER_PAGE = PAGE_SIZE // _SLOT.size
_CHUNK = 256 * PAGE_SIZE
_EMPTY = bytes(PAGE_SIZE)


def wheel_size(slots: int) -> int:
    """Return the size in bytes of a wheel's file; the wheel has twice as many slots as ``slots``."""
    return 2 * slots * _SLOT.size


class Slot(NamedTuple):
    """The timers of one moment: positions of the first and the last in the timer log, and their number."""

    first: int
    last: int
    number: int


class TimerWheel:
    """The slots of the wheel.

    Attributes:
        path: The wheel's file.
    """

    def __init__(self, path: Path, slots: int, precision_ms: int, file_system: FileSystem) -> None:
        self.path = path
        self._precision = precision_ms
        self._count = 2 * slots
        self._size = wheel_size(slots)
        self._maps = OpenMaps(file_system, 1)
        self._file = MappedFile(path, 0, self._size, self._maps)
        self._pages = -(-self._size // PAGE_SIZE)
        self._used = bytearray(self._pages)  # 1: the page has its disk space, and perhaps timers
        self._exists = False

    def load(self) -> bool:
        """Open the file; return whether it exists.

        Raises:
            StoreCorrupt: The file's size differs from the settings.
        """
        size = self._maps.file_system.size(self.path)
        if not size:
            return False
        if size != self._size:
            raise StoreCorrupt(
                self.path,
                size,
                f"a timer wheel has {self._size} bytes; repair it with: streamkit store repair",
            )
        self._exists = True
        for start in range(0, min(self._size, self._maps.file_system.data_end(self.path)), _CHUNK):
            chunk = self._file.read(start, _CHUNK)
            for position in range(0, len(chunk), PAGE_SIZE):
                page = chunk[position : position + PAGE_SIZE]
                if page.count(0) != len(page):
                    self._use((start + position) // PAGE_SIZE)
        return True

    def get(self, moment: int) -> Slot | None:
        """Return the slot of a moment; None if the moment has no timers."""
        index = self._index(moment)
        if not self._used[index // _PER_PAGE]:
            return None
        value, first, last, count, _ = _SLOT.unpack_from(self._file.open(), index * _SLOT.size)
        # The slot may have a moment of an earlier turn of the wheel, which Apache's brokers do not clear.
        return Slot(first, last, count) if value == moment // self._precision else None

    def reserve(self, moment: int) -> None:
        """Allocate the disk space of a moment's slot, so that `put` succeeds.

        Raises:
            StoreFull: The disk is full.
        """
        page = self._index(moment) // _PER_PAGE
        if not self._used[page]:
            self._use(page)

    def put(self, moment: int, slot: Slot) -> None:
        """Set the slot of a moment whose space is reserved."""
        index = self._index(moment)
        value = moment // self._precision
        _SLOT.pack_into(self._file.open(), index * _SLOT.size, value, slot.first, slot.last, slot.number, 0)

    def clear(self, moment: int) -> None:
        """Clear the slot of a moment."""
        index = self._index(moment)
        if self._used[index // _PER_PAGE]:
            _SLOT.pack_into(self._file.open(), index * _SLOT.size, 0, 0, 0, 0, 0)

    def clear_all(self) -> None:
        """Clear all slots."""
        for page in range(self._pages):
            if self._used[page]:
                self._file.open()[page * PAGE_SIZE : (page + 1) * PAGE_SIZE] = bytes(PAGE_SIZE)

    def slots(self, moment: int) -> Iterator[tuple[int, Slot]]:
        """Yield the moments with timers and their slots in order, from a moment on."""
        value, begin = moment // self._precision, self._index(moment)
        for page in self._pages_from(begin // _PER_PAGE):
            view = self._file.open()[page * PAGE_SIZE : (page + 1) * PAGE_SIZE]
            if bytes(view) == _EMPTY[: len(view)]:  # most pages that were ever used have no timers now
                continue
            for index, (found, first, last, number, _) in enumerate(_SLOT.iter_unpack(view), page * _PER_PAGE):
                # Skips slots of earlier turns: a moment belongs into this turn only if it is as far ahead
                # as its slot.
                if value <= found and found - value == (index - begin) % self._count:
                    yield found * self._precision, Slot(first, last, number)

    def moments(self) -> Iterator[int]:
        """Yield the moment's number in each slot in use, whatever precision it was written with."""
        for page in self._pages_from(0):
            view = self._file.open()[page * PAGE_SIZE : (page + 1) * PAGE_SIZE]
            for found, *_ in _SLOT.iter_unpack(view):
                if found:
                    yield found

    def sync(self) -> None:
        """Flush the slots to the disk.

        Raises:
            OSError: The file cannot be written.
        """
        if self._exists:
            self._maps.file_system.sync(self.path)

    def _pages_from(self, first: int) -> Iterator[int]:
        """Yield the used pages in the wheel's order, from the page ``first`` on and around."""
        used = self._used
        for start, stop in ((first, self._pages), (0, first)):
            page = used.find(1, start, stop)
            while page >= 0:
                yield page
                page = used.find(1, page + 1, stop)

    def _index(self, moment: int) -> int:
        return moment // self._precision % self._count

    def _use(self, page: int) -> None:
        if not self._exists:
            self._maps.create(self.path, self._size)
            self._exists = True
        self._file.allocate_range(page * PAGE_SIZE, (page + 1) * PAGE_SIZE)
        self._used[page] = 1

    def __repr__(self) -> str:
        return f"TimerWheel({str(self.path)!r}, {sum(self._used)} pages)"
