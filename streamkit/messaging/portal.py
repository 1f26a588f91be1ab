"""The way from any thread onto the application's loop."""

import asyncio
import concurrent.futures
from collections.abc import Coroutine
from typing import Protocol, TypeVar

from streamkit.errors import ForeignLoopError

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

    def check_loop(self, what: str) -> None:
        """Refuses `what` when this code runs on another loop: its futures and locks belong to the portal's.

        Raises:
            ForeignLoopError: It does.
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

    def check_loop(self, what: str) -> None:
        """Refuses `what` when this code runs on another loop.

        Raises:
            ForeignLoopError: It does.
        """
        if asyncio.get_running_loop() is not self.loop:
            raise ForeignLoopError(
                f"{what} belongs to an application on another event loop, and cannot be awaited on this one: call its "
                "blocking form in a thread, as in `await asyncio.to_thread(channel.send, message)`"
            )

    def __repr__(self) -> str:
        return f"LoopPortal({self.loop!r})"
