"""Wall-clock stamps, injected wherever a stamp is stored or sent.

Waiting is never done by this clock: loops wait by loop time, so that virtual time can drive both.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """Where stamps come from."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""


class SystemClock:
    """The machine's wall clock."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def __repr__(self) -> str:
        return "SystemClock()"
