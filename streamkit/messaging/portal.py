"""The way from any thread onto the application's loop."""

import asyncio
import concurrent.futures
from collections.abc import Coroutine
from typing import Protocol, TypeVar

R = TypeVar("R")


class Portal(Protocol):
    """Runs coroutines on one loop for callers in other threads."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop it leads to."""
        ...

    def run(self, coroutine: Coroutine[object, None, R], timeout: float | None = None) -> R:
        """The coroutine's result, waited for in the calling thread.

        Raises:
            TimeoutError: It took longer than `timeout` seconds; it is cancelled.
        """
        ...


class LoopPortal:
    """A portal to a loop that runs in another thread."""

    __slots__ = ("loop",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop

    def run(self, coroutine: Coroutine[object, None, R], timeout: float | None = None) -> R:
        """The coroutine's result, waited for in the calling thread.

        Raises:
            TimeoutError: It took longer than `timeout` seconds; it is cancelled.
        """
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result(timeout)
        except concurrent.futures.TimeoutError:
            # The coroutine may itself have raised TimeoutError, or have finished this very moment.
            if future.cancel():
                raise
            return future.result()

    def __repr__(self) -> str:
        return f"LoopPortal({self.loop!r})"
