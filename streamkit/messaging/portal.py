"""The portal from any thread to the application's loop."""

import concurrent.futures
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Protocol, TypeVar

from streamkit.errors import ForeignLoopError

if TYPE_CHECKING:  # asyncio is imported by the code that has a loop
    from asyncio import AbstractEventLoop

R = TypeVar("R")


class Portal(Protocol):
    """Runs coroutines on one loop for callers in other threads."""

    @property
    def loop(self) -> "AbstractEventLoop":
        """The application's loop."""
        ...

    def run(self, coroutine: Coroutine[object, None, R], timeout: float | None = None) -> R:
        """Run a coroutine on the loop, and wait for its result in the calling thread.

        Raises:
            TimeoutError: It took longer than `timeout` seconds and is cancelled.
        """
        ...

    async def carry(self, coroutine: Coroutine[object, None, R], what: str) -> R:
        """Run a coroutine on the portal's loop, and await its result in a task of another loop.

        Args:
            coroutine: The coroutine.
            what: The object whose futures and locks belong to the portal's loop, such as ``channel 'orders'``, for
                errors.

        Raises:
            ForeignLoopError: This portal does not carry coroutines from one loop to another.
        """
        ...


class LoopPortal:
    """A portal to a loop that runs in another thread."""

    __slots__ = ("loop",)

    def __init__(self, loop: "AbstractEventLoop") -> None:
        self.loop = loop

    def run(self, coroutine: Coroutine[object, None, R], timeout: float | None = None) -> R:
        """Run a coroutine on the loop, and wait for its result in the calling thread.

        Raises:
            TimeoutError: It took longer than `timeout` seconds and is cancelled.
        """
        import asyncio

        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result(timeout)
        except concurrent.futures.TimeoutError:
            # The coroutine may itself have raised TimeoutError, or have finished just now.
            if future.cancel():
                raise
            return future.result()

    async def carry(self, coroutine: Coroutine[object, None, R], what: str) -> R:
        """Refuse the coroutine: the error says to call the blocking form in a thread instead.

        Raises:
            ForeignLoopError: Always.
        """
        coroutine.close()  # otherwise Python warns of a coroutine that was never awaited
        raise ForeignLoopError(
            f"{what} belongs to an application on another event loop, and cannot be awaited on this one: start the "
            "application by `async with app` on this loop, or call the blocking form in a thread, as in "
            "`await asyncio.to_thread(channel.send, message)`"
        )

    def __repr__(self) -> str:
        return f"LoopPortal({self.loop!r})"
