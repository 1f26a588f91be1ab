"""The timer log: one unit for each timer, in Apache 5.x's files ``timerlog``.

::

    pos  size  unit                                             blank at the end of a file
      0     4  52                                               number of bytes left in the file
      4     8  position of the slot's previous timer, or -1     0
     12     4  1, +2 rolls (waits again), +4 cancels another    0xCBD43194
     16     8  time of writing, a multiple of the precision
     24     4  milliseconds from then to the timer's moment
     28     8  commit log offset of the message
     36     4  size of the message's record
     40     4  hash of the message's real topic
     44     8  0

Units are never split: a blank fills the file's end if fewer than 68 bytes are left. Zeros follow the log's end.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rocket_broker.store.files import FileSystem
from rocket_broker.store.mapped_file import MappedFile, MappedFileQueue, OpenMaps
from rocket_remoting.wire.record import BLANK_MAGIC

__all__ = ["CANCELS", "ROLLS", "TimerLog", "TimerUnit"]

PLAIN = 1
ROLLS = 1 << 1
CANCELS = 1 << 2

UNIT_SIZE = 52
_UNIT = struct.Struct(">iqiqiqiiq")
_BLANK = struct.Struct(">iqi")
_MOST_MAPS = 8
_AHEAD = 64 * 1024
# Apache's isMagicOK accepts four bits, of which 5.3.3 sets three.
_KNOWN_BITS = 0xF


class TimerUnit(NamedTuple):
    """A timer.

    Attributes:
        previous: Position of the slot's previous timer; -1 if this is the first.
        bits: `ROLLS` and `CANCELS`.
        written_ms: Time of writing, in milliseconds since 1970.
        moment: The timer's moment, in milliseconds since 1970.
        commit_log_offset: Commit log offset of the message's record.
        size: Size of the record in bytes.
        topic_hash: Java's hash of the message's real topic.
    """

    previous: int
    bits: int
    written_ms: int
    moment: int
    commit_log_offset: int
    size: int
    topic_hash: int


class TimerLog:
    """The units of all timers, in files.

    Attributes:
        end: Position of the next unit.
        flushed: Position up to which the log is on the disk.
    """

    def __init__(self, directory: Path, file_size: int, file_system: FileSystem) -> None:
        self.end = 0
        self.flushed = 0
        self._files = MappedFileQueue(directory, file_size, OpenMaps(file_system, _MOST_MAPS), "mappedFileSizeTimerLog")

    def load(self, flushed: int, messages_end: int) -> list[tuple[int, TimerUnit]]:
        """Find the end, and return the units from ``flushed`` on; cut off malformed ones.

        A unit whose message is lost is cut off too, with all units behind it, since another message will begin at the
        same offset.

        Args:
            flushed: Position up to which the log is known to be on the disk.
            messages_end: The end of the commit log.

        Raises:
            StoreCorrupt: A file is missing.
            FileSizeMismatch: A file's size differs from the settings.
        """
        self._files.load()
        file = self._files.file_at(flushed)
        if file is None:
            file = self._files.files[-1] if self._files.files else None
            flushed = file.base if file is not None else 0
        # A position inside a unit is wrong. The file's beginning is the nearest place before it where surely a
        # unit begins.
        elif (flushed - file.base) % UNIT_SIZE:
            flushed = file.base
        self.end = flushed
        units = []
        for at, unit in self.walk(flushed):
            if unit.commit_log_offset + unit.size > messages_end:
                break  # before `walk` moves the end behind it
            units.append((at, unit))
        self._files.cut(self.end)
        for file in self._files.files:
            file.written_to(min(file.size, max(0, self.end - file.base)))
        self.flushed = self.end
        return units

    @property
    def first(self) -> int:
        """Position of the oldest unit."""
        return self._files.first

    def append(self, unit: TimerUnit) -> int:
        """Append a timer, and return its position.

        Raises:
            StoreFull: The disk is full. Nothing has changed.
            OSError: The next file could not be created. Nothing has changed.
        """
        file = self._files.file_at(self.end) or self._files.add(self.end)
        position = self.end - file.base
        # Room for a blank must stay behind the unit: without a blank, `walk` would take the file's end for
        # the log's end.
        if position + UNIT_SIZE + _BLANK.size > file.size:
            self._end_file(file, position)
            return self.append(unit)
        file.allocate(position + UNIT_SIZE, _AHEAD)
        _pack(file.open(), position, unit)
        at = self.end
        self.end += UNIT_SIZE
        return at

    def read(self, at: int) -> TimerUnit | None:
        """Return the timer at the position; None if there is none."""
        file = self._files.file_at(at) if 0 <= at < self.end else None
        return _unpack(file.open(), at - file.base) if file is not None else None

    def link(self, at: int, previous: int) -> None:
        """Change the previous timer that the timer at the position leads to."""
        unit, file = self.read(at), self._files.file_at(at)
        if unit is not None and file is not None:
            _pack(file.open(), at - file.base, unit._replace(previous=previous))

    def walk(self, at: int) -> Iterator[tuple[int, TimerUnit]]:
        """Yield the well-formed units from a position on; `end` moves behind each."""
        while (file := self._files.file_at(at)) is not None:
            view = file.open()
            while (unit := _unpack(view, at - file.base)) is not None:
                yield at, unit
                at += UNIT_SIZE
                self.end = max(self.end, at)
            if not _is_blank(view, at - file.base):
                return
            at = file.base + file.size
            self.end = max(self.end, at)

    def remove_before(self, moment: int, longest_ms: int) -> None:
        """Delete the first files while all their timers are before ``moment``.

        Args:
            moment: Milliseconds since 1970.
            longest_ms: Maximum milliseconds between a timer's writing and its moment.

        Raises:
            OSError: A file could not be deleted.
        """
        while len(self._files.files) > 1:
            last = self._last_of(self._files.files[0])
            # Units are in the order of their writing, not of their moments. No moment is later than the
            # window behind its writing, so the file's last unit bounds the moments of all.
            if last is None or last.written_ms + longest_ms >= moment:
                return
            self._files.remove_first()

    def unflushed(self) -> list[Path]:
        """Return the files with units that are not on the disk yet."""
        return self._files.between(self.flushed, self.end)

    def _end_file(self, file: MappedFile, position: int) -> None:
        file.allocate(position + _BLANK.size, 0)
        # The next file comes before the blank: if the disk is full, `append` has changed nothing and can be
        # repeated.
        self._files.add(file.base + file.size)
        _BLANK.pack_into(file.open(), position, file.size - position, 0, BLANK_MAGIC)
        self.end = file.base + file.size

    def _last_of(self, file: MappedFile) -> TimerUnit | None:
        position = (file.size - _BLANK.size) // UNIT_SIZE * UNIT_SIZE - UNIT_SIZE
        return _unpack(file.open(), position)

    def __repr__(self) -> str:
        return f"TimerLog({self.first}…{self.end})"


def _pack(view: memoryview, position: int, unit: TimerUnit) -> None:
    _UNIT.pack_into(
        view,
        position,
        UNIT_SIZE,
        unit.previous,
        unit.bits | PLAIN,
        unit.written_ms,
        unit.moment - unit.written_ms,
        unit.commit_log_offset,
        unit.size,
        unit.topic_hash,
        0,
    )


def _unpack(view: memoryview, position: int) -> TimerUnit | None:
    if position < 0 or position + UNIT_SIZE > len(view):
        return None
    size, previous, bits, written, delay, offset, record, topic, _ = _UNIT.unpack_from(view, position)
    if size != UNIT_SIZE or bits & ~_KNOWN_BITS or not bits:
        return None
    return TimerUnit(previous, bits, written, written + delay, offset, record, topic)


def _is_blank(view: memoryview, position: int) -> bool:
    if position + _BLANK.size > len(view):
        return False
    left, _, magic = _BLANK.unpack_from(view, position)
    return bool(left == len(view) - position and magic == BLANK_MAGIC)
