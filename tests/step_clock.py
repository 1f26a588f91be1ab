"""A clock for the broker's watchdog in tests: the processor's time of the step itself.

Tests share their processors with others, so seconds on the wall say little. What the garbage collector takes is left
out too: its full collections look at all that pytest and its plugins keep in memory, which no broker has.
"""

import gc
import time

from rocket_broker.loop.watchdog import Watchdog

_FULL = 2


class StepClock:
    """Seconds of this thread's processor time, without full garbage collections."""

    def __init__(self) -> None:
        self._began = 0.0
        self._collecting = 0.0

    def __call__(self) -> float:
        """Return the seconds."""
        return time.thread_time() - self._collecting

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
