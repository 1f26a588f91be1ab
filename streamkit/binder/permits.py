"""Permits limit how many handlers of one binding run at once, and stop all of them while a binding is paused.

::

               take, acquire             release
    free ───────────────────▶ held ──────────────────▶ the first waiter, else free
     │ withhold: no permit is given, waiters stay in line
     │ close:    no permit is given, waiters are cancelled
     └ grant:    permits are given again
"""

from asyncio import CancelledError, Future, Task, current_task, get_running_loop
from collections import deque
from collections.abc import Callable

__all__ = ["Permits"]


class Permits:
    """A fair semaphore that can be withheld and reports free permits that have no waiter.

    A binder may use :attr:`free` and :meth:`watch` to take only as many messages as handlers can start.

    Attributes:
        free: The number of permits that can be taken now; only this class changes it.
    """

    __slots__ = ("_closed", "_in_line", "_sleepers", "_waiters", "_watchers", "_withheld", "_withheld_count", "free")

    def __init__(self, count: int) -> None:
        self._watchers: tuple[Callable[[], None], ...] = ()
        self.free = count
        self._withheld_count = 0  # free permits while permits are withheld; then `free` is 0
        self._withheld = False
        self._closed = False
        self._waiters: deque[Future[None]] = deque()
        self._in_line: dict[Task[object] | None, Future[None]] = {}
        self._sleepers: set[Future[None]] = set()

    def watch(self, on_free: Callable[[], None]) -> None:
        """Call ``on_free`` on the loop whenever a permit becomes free and no waiter takes it."""
        self._watchers = (*self._watchers, on_free)

    def unwatch(self, on_free: Callable[[], None]) -> None:
        """Stop calling ``on_free``."""
        self._watchers = tuple(each for each in self._watchers if each != on_free)

    def take(self) -> bool:
        """Take a permit if one is free; return whether a permit was taken. No task in line is overtaken."""
        # None is free as long as a task is in line: see `_hand_out`.
        if self.free > 0:
            self.free -= 1
            return True
        return False

    async def acquire(self) -> bool:
        """Wait in line for a permit and take it; return True.

        Raises:
            CancelledError: The permits are closed, or the task was recalled, so no call may begin.
        """
        if self._closed:
            raise CancelledError
        if self.take():
            return True
        waiter: Future[None] = get_running_loop().create_future()
        self._waiters.append(waiter)
        task = current_task()
        self._in_line[task] = waiter
        try:
            await waiter
        except CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.release()  # this task was cancelled after it had been given the permit
            elif waiter in self._waiters:
                self._waiters.remove(waiter)
            raise
        finally:
            del self._in_line[task]
        return True

    def recall(self, task: Task[object]) -> bool:
        """Cancel the task's wait for a permit; return False if the task does not wait in line."""
        waiter = self._in_line.get(task)
        # The cancelled waiter stays in line until its task runs; `_hand_out` passes over it.
        return waiter is not None and waiter.cancel()

    def release(self) -> None:
        """Return a permit; the first task in line takes it at once, unless permits are withheld."""
        if self._withheld:
            self._withheld_count += 1
            return
        self.free += 1
        if self._waiters or self._watchers:
            self._hand_out()

    async def sleep(self, seconds: float) -> None:
        """Wait ``seconds`` seconds before the next attempt; :meth:`close` ends the wait.

        Raises:
            CancelledError: The permits are closed, so no attempt will follow.
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
        """Give no permit until :meth:`grant`; permits that are held stay held, and waiters stay in line."""
        self._withheld = True
        self._withheld_count += self.free
        self.free = 0

    def close(self) -> None:
        """Give no permit until :meth:`grant`: cancel every :meth:`acquire` and :meth:`sleep`, now and later."""
        self.withhold()
        self._closed = True
        for sleeper in self._sleepers:
            sleeper.cancel()
        while self._waiters:
            self._waiters.popleft().cancel()

    def grant(self) -> None:
        """Give permits again after :meth:`withhold` or :meth:`close`."""
        self._withheld = self._closed = False
        self.free += self._withheld_count
        self._withheld_count = 0
        self._hand_out()

    def _hand_out(self) -> None:
        while self.free > 0 and self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                self.free -= 1
                waiter.set_result(None)
        # Invariant: either none is free or no task is in line. So no `take` overtakes the line.
        for on_free in self._watchers:
            # Asked for each watcher, because the one before may have taken the last permit.
            if self.free > 0:
                on_free()


def _wake(sleeper: "Future[None]") -> None:
    if not sleeper.done():
        sleeper.set_result(None)
