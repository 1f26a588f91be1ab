"""The clock for the age of commit log files: the wall clock, but slower where that jumps ahead.

A file is deleted when it is older than ``fileReservedTime``. If the wall clock is set ahead by mistake, every file
seems to be that old at once. So this clock never runs more than twice as fast as time passes:

- A jump ahead changes no age at that moment, and takes as long as the jump to count in full. An administrator who reads
  the warning has that time to set the clock right.
- After a machine has slept, the clock catches up in as long as the sleep.
- A clock that is set back is followed at once: files are kept for longer.
"""

import logging
from datetime import timedelta

from rocket_remoting.clock import Clock

__all__ = ["AgeClock"]

logger = logging.getLogger(__name__)

FASTEST = 2
"""The largest speed of this clock, in seconds per second."""
REPORTED_FROM_MS = 60_000
"""The smallest jump that is logged. Time servers cause smaller ones, which do not matter for files that are kept for
hours."""


class AgeClock:
    """The wall clock, which never runs more than twice as fast as time passes.

    Attributes:
        behind_ms: How far this clock is behind the wall clock.
    """

    def __init__(self, clock: Clock) -> None:
        self.behind_ms = 0
        self._clock = clock
        self._read_at: float | None = None
        self._wall_ms = 0
        self._is_reported = False

    def now_ms(self, loop_time: float) -> int:
        """Return the time in milliseconds since 1970; the first call returns that of the wall clock.

        Args:
            loop_time: Seconds on a monotonic clock, such as the event loop's.
        """
        wall = self._clock.now_ms()
        if self._read_at is None:
            self.behind_ms = 0
        else:
            passed = int(max(0.0, loop_time - self._read_at) * 1000)
            jump = wall - self._wall_ms - passed
            self.behind_ms = max(0, self.behind_ms + jump - (FASTEST - 1) * passed)
            self._log_jump(jump)
        self._wall_ms, self._read_at = wall, loop_time
        return wall - self.behind_ms

    def reset(self) -> None:
        """Adopt the wall clock's time at the next call."""
        self._read_at = None

    def _log_jump(self, jump: int) -> None:
        if jump >= REPORTED_FROM_MS:
            self._is_reported = True
            logger.warning(
                "the system clock jumped ahead by %s: until they have caught up, files of the commit log age only "
                "twice as fast as time passes. If the clock is wrong, correct it; a restart accepts it as it is",
                timedelta(seconds=round(jump / 1000)),
            )
        elif self._is_reported and not self.behind_ms:
            self._is_reported = False
            logger.info("files of the commit log age by the system clock again")

    def __repr__(self) -> str:
        return f"AgeClock(behind_ms={self.behind_ms})"
