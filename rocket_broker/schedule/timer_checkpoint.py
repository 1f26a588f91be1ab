"""The progress of the timers, in Apache 5.x's file ``config/timercheck``.

::

    pos  size  field                                          a file of one page
      0     8  next moment to deliver, a multiple of the precision
      8     8  position up to which the timer log is on the disk
     16     8  offset in the queue of rmq_sys_wheel_timer of the next message that gets a timer
     24     8  the same offset of the master: that of this broker if it is the master, behind it in a slave's file
     32    24  for Apache's replication, left unchanged

A master answers slaves with the first 32 bytes (GET_TIMER_CHECK_POINT).
"""

import struct
from pathlib import Path
from typing import NamedTuple

from rocket_broker.store.files import PAGE_SIZE, FileSystem

__all__ = ["TimerCheckpoint", "TimerProgress"]

_PROGRESS = struct.Struct(">qqqq")


class TimerProgress(NamedTuple):
    """The progress of the timers.

    Attributes:
        moment: Next moment to deliver, in milliseconds since 1970; all earlier ones have been delivered.
        log_end: End of the timer log.
        queue_offset: Queue offset of the next message that gets a timer.
        masters_queue_offset: The same of the master at `moment`: messages before it whose moment is before `moment`
            have been delivered. More than `queue_offset` in the store of a slave, which makes no timers.
    """

    moment: int = 0
    log_end: int = 0
    queue_offset: int = 0
    masters_queue_offset: int = 0

    def encode(self) -> bytes:
        """Return the form in the file, which is the answer to a slave too."""
        return _PROGRESS.pack(*self)

    @classmethod
    def decode(cls, data: bytes | memoryview) -> "TimerProgress":
        """Return the progress in an answer of a master, or at the beginning of the file.

        Raises:
            ValueError: The data are too short.
        """
        if len(data) < _PROGRESS.size:
            raise ValueError(f"a timer checkpoint has {_PROGRESS.size} bytes, these are {len(data)}")
        return cls(*_PROGRESS.unpack_from(data))


class TimerCheckpoint:
    """The checkpoint's file."""

    def __init__(self, path: Path, file_system: FileSystem) -> None:
        self._path = path
        self._file_system = file_system
        self._view: memoryview | None = None

    def load(self) -> TimerProgress | None:
        """Return the progress in the file; None if there is no file yet."""
        size = self._file_system.size(self._path)
        if size is not None and size < PAGE_SIZE:
            self._file_system.remove(self._path)
            size = None
        if size is None:
            return None
        # Read the file and not the map: a page that was never written may be a hole, and mapping it needs disk space.
        return TimerProgress.decode(self._file_system.read(self._path, 0, _PROGRESS.size))

    def write(self, progress: TimerProgress) -> None:
        """Write the progress, and wait until it is on the disk.

        Raises:
            OSError: The file cannot be written.
        """
        view = self._map()
        _PROGRESS.pack_into(view, 0, *progress)
        self._file_system.sync(self._path)

    def _map(self) -> memoryview:
        if self._view is None:
            if self._file_system.size(self._path) is None:
                self._file_system.make_directory(self._path.parent)
                self._file_system.create(self._path, PAGE_SIZE)
            self._file_system.allocate(self._path, 0, PAGE_SIZE)
            self._view = self._file_system.map(self._path)
        return self._view

    def __repr__(self) -> str:
        return f"TimerCheckpoint({str(self._path)!r})"
