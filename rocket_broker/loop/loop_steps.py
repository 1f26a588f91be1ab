"""Work that no request waits for, in slices of the loop's time, so that clients are served in between.

::

    in a task                       await run_in_steps("encoding the offsets", steps)
    in a callback                   background.add("removing a closed connection", steps)
    in a task with a loop           turns = LoopTurns("delivering timed messages")
                                    with turns: …                      one item
                                    await turns.next()                 a pause once the slice is used up

Steps are generators that yield wherever they may be interrupted. Requests use
`rocket_broker.requests.request_steps`.
"""

import asyncio
import logging
from collections.abc import Collection, Generator, Iterable
from types import TracebackType
from typing import TypeVar

from rocket_broker.loop.step_line import SLICE_SECONDS, StepLine, run_slice
from rocket_broker.loop.watchdog import Watchdog

__all__ = ["BackgroundSteps", "LoopTurns", "collected", "run_in_steps"]

logger = logging.getLogger(__name__)

T = TypeVar("T")


async def run_in_steps(what: str, steps: Generator[None, None, T]) -> T:
    """Run the steps, a slice in each turn of the loop; return their result.

    Args:
        what: The work, for the watchdog's log.
        steps: The steps.
    """
    while True:
        try:
            with Watchdog(what):
                run_slice(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)


def collected(pieces: Iterable[bytes]) -> Generator[None, None, list[bytes]]:
    """Collect pieces in steps; an empty piece is a pause only."""
    found: list[bytes] = []
    for piece in pieces:
        if piece:
            found.append(piece)
        yield
    return found


class BackgroundSteps:
    """Work that callbacks begin. Each turn of the loop runs a slice of the first work in line, which then goes last.

    Work that fits into one slice is done when `add` returns, unless other work is in line already.

    Attributes:
        waiting: The work in line; to be read only.
    """

    def __init__(self) -> None:
        self._line: StepLine[tuple[str, Generator[None, None, None]]] = StepLine(self._advance)
        self.waiting: Collection[object] = self._line.waiting

    def add(self, what: str, steps: Generator[None, None, None]) -> None:
        """Begin the work.

        Args:
            what: The work, for the log.
            steps: The steps.
        """
        work = (what, steps)
        if self._line or not self._advance(work):
            self._line.add(work)

    def stop(self) -> None:
        """Drop the unfinished work."""
        while (work := self._line.take()) is not None:
            work[1].close()

    @staticmethod
    def _advance(work: tuple[str, Generator[None, None, None]]) -> bool:
        """Run a slice; return whether the work is done."""
        what, steps = work
        try:
            with Watchdog(what):
                run_slice(steps)
        except StopIteration:
            return True
        except Exception:  # one failure must not stop the other work
            logger.exception("background work failed while %s; other work continues", what)
            return True
        return False

    def __len__(self) -> int:
        return len(self._line)


class LoopTurns:
    """The slices of a task that handles one item after the other, each item within ``with``.

    Args:
        what: The work, for the watchdog's log.
    """

    __slots__ = ("_until", "_watchdog")

    def __init__(self, what: str) -> None:
        self._watchdog = Watchdog(what)
        self._until = Watchdog.clock() + SLICE_SECONDS

    @property
    def is_over(self) -> bool:
        """Whether the slice is used up."""
        return Watchdog.clock() >= self._until

    async def next(self) -> None:
        """If the time slice is used up, yield to the event loop and start the next slice."""
        if self.is_over:
            await self.pause()

    async def pause(self) -> None:
        """Yield to the event loop, then start the next time slice."""
        await asyncio.sleep(0)
        self._until = Watchdog.clock() + SLICE_SECONDS

    def __enter__(self) -> None:
        self._watchdog.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._watchdog.__exit__(kind, error, traceback)
