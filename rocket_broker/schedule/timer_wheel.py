"""The wheel: for each moment of the coming days the last of its timers, in Apache 5.x's file ``timerwheel``.

::

    slot of a moment t = (t / precision) mod 1,209,600          32 bytes each, two weeks of seconds

    pos  size  field
      0     8  the moment, t / precision: a slot with another one, or 0, is empty
      8     8  where the first timer of that moment lies in the timer log
     16     8  where the last one lies; each leads to the one before
     24     4  how many they are, those that cancel one counted as -1
     28     4  0

Slots are cleared when their timers are through, so that pages of zeros are pages without timers. The file is
made with the first timer, and is a hole but for the pages that were used.
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
    """Return the bytes of the file of a wheel that turns once in twice so many slots."""
    return 2 * slots * _SLOT.size


class Slot(NamedTuple):
    """The timers of one moment."""

    first: int
    last: int
    number: int


class TimerWheel:
    """The slots.

    Attributes:
        path: The file.
    """

    def __init__(self, path: Path, slots: int, precision_ms: int, file_system: FileSystem) -> None:
        self.path = path
        self._precision = precision_ms
        self._count = 2 * slots
        self._size = wheel_size(slots)
        self._maps = OpenMaps(file_system, 1)
        self._file = MappedFile(path, 0, self._size, self._maps)
        self._pages = -(-self._size // PAGE_SIZE)
        self._used = bytearray(self._pages)  # 1: the page has room on the disk, and perhaps timers
        self._exists = False

    def load(self) -> bool:
        """Open the file, and return whether there is one.

        Raises:
            StoreCorrupt: It is not as long as every wheel is.
        """
        size = self._maps.file_system.size(self.path)
        if not size:
            return False
        if size != self._size:
            raise StoreCorrupt(
                self.path, size, f"a timer wheel has {self._size} bytes; mend it with: streamkit store repair"
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
        """Return the timers of a moment, None if there are none."""
        index = self._index(moment)
        if not self._used[index // _PER_PAGE]:
            return None
        value, first, last, count, _ = _SLOT.unpack_from(self._file.open(), index * _SLOT.size)
        return Slot(first, last, count) if value == moment // self._precision else None

    def reserve(self, moment: int) -> None:
        """Make sure that `put` succeeds.

        Raises:
            StoreFull: The disk has no room.
        """
        page = self._index(moment) // _PER_PAGE
        if not self._used[page]:
            self._use(page)

    def put(self, moment: int, slot: Slot) -> None:
        """Set the timers of a moment that was reserved."""
        index = self._index(moment)
        value = moment // self._precision
        _SLOT.pack_into(self._file.open(), index * _SLOT.size, value, slot.first, slot.last, slot.number, 0)

    def clear(self, moment: int) -> None:
        """Let a moment have no timers."""
        index = self._index(moment)
        if self._used[index // _PER_PAGE]:
            _SLOT.pack_into(self._file.open(), index * _SLOT.size, 0, 0, 0, 0, 0)

    def clear_all(self) -> None:
        """Let no moment have timers."""
        for page in range(self._pages):
            if self._used[page]:
                self._file.open()[page * PAGE_SIZE : (page + 1) * PAGE_SIZE] = bytes(PAGE_SIZE)

    def slots(self, moment: int) -> Iterator[tuple[int, Slot]]:
        """Yield the moments that have timers, in order, from one on, half a wheel's turn far."""
        value, begin = moment // self._precision, self._index(moment)
        for page in self._pages_from(begin // _PER_PAGE):
            view = self._file.open()[page * PAGE_SIZE : (page + 1) * PAGE_SIZE]
            if bytes(view) == _EMPTY[: len(view)]:  # of all pages that were ever used, few have timers
                continue
            for index, (found, first, last, number, _) in enumerate(
                _SLOT.iter_unpack(view), page * _PER_PAGE
            ):
                if value <= found and found - value == (index - begin) % self._count:
                    yield found * self._precision, Slot(first, last, number)

    def moments(self) -> Iterator[int]:
        """Yield the number in every slot that has one, whatever precision it was written with."""
        for page in range(self._pages):
            if self._used[page]:
                view = self._file.open()[page * PAGE_SIZE : (page + 1) * PAGE_SIZE]
                for found, *_ in _SLOT.iter_unpack(view):
                    if found:
                        yield found

    def sync(self) -> None:
        """Bring the slots to the disk.

        Raises:
            OSError: The disk refused.
        """
        if self._exists:
            self._maps.file_system.sync(self.path)

    def _pages_from(self, first: int) -> Iterator[int]:
        """Yield the used pages in the wheel's order."""
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
