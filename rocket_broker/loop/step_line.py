"""A line of work: each turn of the loop runs a slice of the first work, which then goes to the end of the line.

::

    turn of the loop    one slice of the first work in line
                        all requests that have arrived meanwhile are read and handled
    next turn           one slice of the next work …
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from typing import Generic, TypeVar

from rocket_broker.loop.watchdog import Watchdog

__all__ = ["SLICE_SECONDS", "StepLine", "run_slice"]

SLICE_SECONDS = 0.002
"""Seconds of a slice, and so the longest time that clients wait for work in line."""

Work = TypeVar("Work")


class StepLine(Generic[Work]):
    """A line of work.

    Args:
        advance: Runs a slice of a work; returns whether the work has ended.
        follow: Returns the work that joins the line when a work has ended; None for none.

    Attributes:
        waiting: The work in line; to be read only.
    """

    def __init__(self, advance: Callable[[Work], bool], follow: Callable[[], Work | None] = lambda: None) -> None:
        self._advance = advance
        self._follow = follow
        self.waiting: deque[Work] = deque()
        self._is_scheduled = False

    def add(self, work: Work) -> None:
        """Append work to the line."""
        self.waiting.append(work)
        self._schedule()

    def take(self) -> Work | None:
        """Remove and return the first work in line; None if the line is empty."""
        return self.waiting.popleft() if self.waiting else None

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        work = self.take()
        if work is None:
            return
        # One slice for each turn, not one for each work: the loop polls the sockets before the next slice,
        # so clients wait for 2 ms at most, however long the line is.
        next_work = self._follow() if self._advance(work) else work
        if next_work is not None:
            self.waiting.append(next_work)
        if self.waiting:
            self._schedule()

    def __len__(self) -> int:
        return len(self.waiting)


def run_slice(steps: Generator[None, None, object]) -> None:
    """Run steps for `SLICE_SECONDS`.

    Raises:
        StopIteration: The steps have ended; the exception has their result.
    """
    until = Watchdog.clock() + SLICE_SECONDS
    while True:
        next(steps)
        if Watchdog.clock() >= until:
            return
