"""The progress of the timers, in Apache 5.x's file ``config/timercheck``.

::

    pos  size  field                                          a file of one page
      0     8  next moment to deliver, a multiple of the precision
      8     8  position up to which the timer log is on the disk
     16     8  offset in the queue of rmq_sys_wheel_timer of the next message that gets a timer
     24     8  the same offset, kept by masters for replicas
     32    24  for Apache's replication, left unchanged
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
    """

    moment: int = 0
    log_end: int = 0
    queue_offset: int = 0


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
        return TimerProgress(*_PROGRESS.unpack(self._file_system.read(self._path, 0, _PROGRESS.size))[:3])

    def write(self, progress: TimerProgress) -> None:
        """Write the progress, and wait until it is on the disk.

        Raises:
            OSError: The file cannot be written.
        """
        view = self._map()
        _PROGRESS.pack_into(view, 0, *progress, progress.queue_offset)
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
