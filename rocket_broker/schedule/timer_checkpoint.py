"""How far the timers are, in Apache 5.x's file ``config/timercheck``.

::

    pos  size  field                                          a file of one page
      0     8  moment that is looked at next, to the precision
      8     8  up to here the timer log is on the disk
     16     8  offset in the queue of rmq_sys_wheel_timer that gets a timer next
     24     8  the same, as masters of replicas keep it
     32    24  of Apache's replication, left alone
"""

import struct
from pathlib import Path
from typing import NamedTuple

from rocket_broker.store.files import PAGE_SIZE, FileSystem

__all__ = ["TimerCheckpoint", "TimerProgress"]

_PROGRESS = struct.Struct(">qqqq")


class TimerProgress(NamedTuple):
    """How far the timers are.

    Attributes:
        moment: What is looked at next; everything before is over.
        log_end: Where the timer log ended.
        queue_offset: Which message gets a timer next.
    """

    moment: int = 0
    log_end: int = 0
    queue_offset: int = 0


class TimerCheckpoint:
    """The file."""

    def __init__(self, path: Path, file_system: FileSystem) -> None:
        self._path = path
        self._file_system = file_system
        self._view: memoryview | None = None

    def load(self) -> TimerProgress | None:
        """Return what it says, None if there is none yet."""
        size = self._file_system.size(self._path)
        if size is not None and size < PAGE_SIZE:
            self._file_system.remove(self._path)
            size = None
        if size is None:
            return None
        # Not from the map: what was never written may be a hole, and to read that there may be no room.
        return TimerProgress(*_PROGRESS.unpack(self._file_system.read(self._path, 0, _PROGRESS.size))[:3])

    def write(self, progress: TimerProgress) -> None:
        """Replace what it says, on the disk too.

        Raises:
            OSError: The disk refused.
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
