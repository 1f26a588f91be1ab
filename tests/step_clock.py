"""A clock for the broker's watchdog in tests: the processor's time of the step itself.

Tests share their processors with others, so seconds on the wall say little. What the garbage collector takes is left
out too: its full collections look at all that pytest and its plugins keep in memory, which no broker has.
"""

import gc
import threading
import time

from rocket_broker.loop.watchdog import Watchdog

_FULL = 2
_STALE_AFTER = 0.001
"""Seconds for which a thread's processor time is not asked for again: brokers look at the clock twice for each of their
steps, and the system needs ten times as long for this answer as for the time of day. No thread gets more processor time
than has passed, so a difference is wrong by a millisecond at most."""


class StepClock(threading.local):
    """Seconds of the calling thread's processor time, without full garbage collections, to a millisecond."""

    def __init__(self) -> None:
        self._began = 0.0
        self._collecting = 0.0
        self._asked = -1.0
        self._seconds = 0.0

    def __call__(self) -> float:
        """Return the seconds."""
        now = time.perf_counter()
        if now - self._asked > _STALE_AFTER:
            self._asked = now
            self._seconds = time.thread_time() - self._collecting
        return self._seconds

    def collected(self, phase: str, info: dict[str, int]) -> None:
        """Count what a collection takes; the garbage collector calls this at its begin and end."""
        if info["generation"] == _FULL:
            if phase == "start":
                self._began = time.thread_time()
            else:
                self._collecting += time.thread_time() - self._began


def install() -> None:
    """Have all brokers of this process watched by such a clock."""
    clock = StepClock()
    gc.callbacks.append(clock.collected)
    Watchdog.clock = clock
