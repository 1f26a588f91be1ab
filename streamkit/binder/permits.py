"""Permits: how many handlers of one binding may be at work at once."""

from asyncio import CancelledError, Future, get_running_loop
from collections import deque
from collections.abc import Callable

__all__ = ["Permits"]


class Permits:
    """A fair semaphore that tells when a permit is free and nobody waits for it.

    A binder that fetches message by message may watch ``free`` and ``on_free``, so that it takes no more
    messages than handlers can start; others ignore them.

    Attributes:
        free: Permits that nobody holds.
        on_free: Called, on the loop, when a permit has become free and nobody took it.
    """

    __slots__ = ("_waiters", "free", "on_free")

    def __init__(self, count: int) -> None:
        self.free = count
        self.on_free: Callable[[], None] | None = None
        self._waiters: deque[Future[None]] = deque()

    async def acquire(self) -> None:
        """Take a permit; waits in line for one."""
        if self.free > 0 and not self._waiters:
            self.free -= 1
            return
        waiter: Future[None] = get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.release()  # the permit was handed over in the moment of the cancellation
            else:
                self._waiters.remove(waiter)
            raise

    def release(self) -> None:
        """Give a permit back; the first in line has it at once."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self.free += 1
        if self.on_free is not None:
            self.on_free()
