"""The wall clock of timestamps that are stored or sent.

Nothing waits by this clock. Waiting uses the event loop's time, so that tests can drive both by virtual time.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """A source of timestamps."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""


class SystemClock:
    """The system's wall clock."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def __repr__(self) -> str:
        return "SystemClock()"
