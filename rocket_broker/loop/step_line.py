"""Work in line: each turn of the loop runs a slice of the first piece, which then goes to the end of the line.

::

    turn of the loop    one slice of the first piece in line
                        all that came in meanwhile is read and handled
    next turn           one slice of the next piece …
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from typing import Generic, TypeVar

from rocket_broker.loop.watchdog import Watchdog

__all__ = ["SLICE_SECONDS", "StepLine", "run_slice"]

SLICE_SECONDS = 0.002
"""How long the first piece runs in one turn of the loop: all clients wait for that long at most."""

Work = TypeVar("Work")


class StepLine(Generic[Work]):
    """The pieces of work in line.

    Args:
        advance: Runs a slice of a piece; returns whether the piece has ended.
        follow: Returns the piece that joins the line when one has ended, None for none.
    """

    def __init__(
        self, advance: Callable[[Work], bool], follow: Callable[[], Work | None] = lambda: None
    ) -> None:
        self._advance = advance
        self._follow = follow
        self._line: deque[Work] = deque()
        self._is_scheduled = False

    def add(self, work: Work) -> None:
        """Put work at the end of the line."""
        self._line.append(work)
        self._schedule()

    def take(self) -> Work | None:
        """Take the first piece out of the line; None if there is none."""
        return self._line.popleft() if self._line else None

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        work = self.take()
        if work is None:
            return
        next_work = self._follow() if self._advance(work) else work
        if next_work is not None:
            self._line.append(next_work)
        if self._line:
            self._schedule()

    def __len__(self) -> int:
        return len(self._line)


def run_slice(steps: Generator[None, None, object]) -> None:
    """Run steps for `SLICE_SECONDS`.

    Raises:
        StopIteration: That was the last step; the exception has the result.
    """
    until = Watchdog.clock() + SLICE_SECONDS
    while True:
        next(steps)
        if Watchdog.clock() >= until:
            return
