"""Permits: how many handlers of one binding may be at work at once, and whether any may start."""

from asyncio import CancelledError, Future, Task, current_task, get_running_loop
from collections import deque
from collections.abc import Callable

__all__ = ["Permits"]


class Permits:
    """A fair semaphore that can be withheld, and tells when a permit is free and nobody waits for it.

    A binder that fetches message by message may look at ``free`` and :meth:`watch`, so that it takes no more
    messages than handlers can start; others ignore them.
    """

    __slots__ = ("_closed", "_free", "_in_line", "_sleepers", "_waiters", "_watchers", "_withheld")

    def __init__(self, count: int) -> None:
        self._watchers: tuple[Callable[[], None], ...] = ()
        self._free = count
        self._withheld = False
        self._closed = False
        self._waiters: deque[Future[None]] = deque()
        self._in_line: dict[Task[object] | None, Future[None]] = {}
        self._sleepers: set[Future[None]] = set()

    @property
    def free(self) -> int:
        """Permits that can be had now."""
        return 0 if self._withheld else self._free

    def watch(self, on_free: Callable[[], None]) -> None:
        """Have ``on_free`` called, on the loop, whenever a permit has become free and nobody took it."""
        self._watchers = (*self._watchers, on_free)

    def unwatch(self, on_free: Callable[[], None]) -> None:
        """Have ``on_free`` called no more."""
        self._watchers = tuple(each for each in self._watchers if each != on_free)

    async def acquire(self) -> None:
        """Take a permit; waits in line for one.

        Raises:
            CancelledError: Permits are closed, or the task was recalled: nothing may start any more.
        """
        if self._closed:
            raise CancelledError
        if self._free > 0 and not self._waiters and not self._withheld:
            self._free -= 1
            return
        waiter: Future[None] = get_running_loop().create_future()
        self._waiters.append(waiter)
        task = current_task()
        self._in_line[task] = waiter
        try:
            await waiter
        except CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.release()  # the permit was handed over in the moment of the cancellation
            elif waiter in self._waiters:
                self._waiters.remove(waiter)
            raise
        finally:
            del self._in_line[task]

    def recall(self, task: Task[object]) -> bool:
        """Cancel what the task would begin with a permit; False when it does not wait in line for one."""
        waiter = self._in_line.get(task)
        return waiter is not None and waiter.cancel()

    def release(self) -> None:
        """Give a permit back; the first in line has it at once, unless permits are withheld."""
        self._free += 1
        self._hand_out()

    async def sleep(self, seconds: float) -> None:
        """Wait before asking for a permit again.

        Raises:
            CancelledError: Permits are closed, so there is nothing to wait for.
        """
        if self._closed:
            raise CancelledError
        loop = get_running_loop()
        sleeper: Future[None] = loop.create_future()
        timer = loop.call_later(seconds, _wake, sleeper)
        self._sleepers.add(sleeper)
        try:
            await sleeper
        finally:
            timer.cancel()
            self._sleepers.discard(sleeper)

    def withhold(self) -> None:
        """Let nobody have a permit until :meth:`grant`; those who have one keep it."""
        self._withheld = True

    def close(self) -> None:
        """Cancel everybody who waits for a permit, sleeps before that, or asks for one until :meth:`grant`."""
        self._withheld = self._closed = True
        for sleeper in self._sleepers:
            sleeper.cancel()
        while self._waiters:
            self._waiters.popleft().cancel()

    def grant(self) -> None:
        """Let permits be had again."""
        self._withheld = self._closed = False
        self._hand_out()

    def _hand_out(self) -> None:
        while self._free > 0 and self._waiters and not self._withheld:
            waiter = self._waiters.popleft()
            if not waiter.done():
                self._free -= 1
                waiter.set_result(None)
        for on_free in self._watchers:
            if self.free > 0:
                on_free()


def _wake(sleeper: "Future[None]") -> None:
    if not sleeper.done():
        sleeper.set_result(None)
