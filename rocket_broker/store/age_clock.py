"""The time by which files of the commit log grow old: the wall clock, held back where it jumps ahead.

A file is deleted when it is older than ``fileReservedTime``. If the wall clock is set ahead by mistake, every file
seems to be that old at once. So this clock never runs more than twice as fast as time passes:

- A jump ahead makes no file older at that moment, and takes as long as it was wide to count in full. Somebody who
  reads the warning has that time to set the clock right.
- A machine that slept makes up for the sleep in as long as it slept.
- A clock that is set back is followed at once: files are kept for longer.
"""

import logging
from datetime import timedelta

from rocket_remoting.clock import Clock

__all__ = ["AgeClock"]

logger = logging.getLogger(__name__)

FASTEST = 2
"""Times as fast as time passes."""
TOLD_FROM_MS = 60_000
"""Smaller jumps are usual where the time is kept by a time server, and change nothing that is kept for hours."""


class AgeClock:
    """The wall clock, held back.

    Attributes:
        behind_ms: How far this clock is behind the wall clock.
    """

    def __init__(self, clock: Clock) -> None:
        self.behind_ms = 0
        self._clock = clock
        self._read_at: float | None = None
        self._wall_ms = 0
        self._is_told = False

    def now_ms(self, loop_time: float) -> int:
        """Return the time in milliseconds since 1970; the first call returns that of the wall clock.

        Args:
            loop_time: Seconds on a clock that nobody sets, as the event loop's.
        """
        wall = self._clock.now_ms()
        if self._read_at is None:
            self.behind_ms = 0
        else:
            passed = int(max(0.0, loop_time - self._read_at) * 1000)
            jump = wall - self._wall_ms - passed
            self.behind_ms = max(0, self.behind_ms + jump - (FASTEST - 1) * passed)
            self._tell(jump)
        self._wall_ms, self._read_at = wall, loop_time
        return wall - self.behind_ms

    def reset(self) -> None:
        """Take the wall clock as it is at the next call."""
        self._read_at = None

    def _tell(self, jump: int) -> None:
        if jump >= TOLD_FROM_MS:
            self._is_told = True
            logger.warning(
                "the clock jumped ahead by %s: until that is made up for, files of the commit log grow old only "
                "twice as fast as time passes. If the clock is wrong, set it right; a restart takes it as it is",
                timedelta(seconds=round(jump / 1000)),
            )
        elif self._is_told and not self.behind_ms:
            self._is_told = False
            logger.info("files of the commit log grow old by the clock again")

    def __repr__(self) -> str:
        return f"AgeClock(behind_ms={self.behind_ms})"
