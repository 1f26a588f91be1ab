"""Deadlines of calls: one timer serves all calls of a binding, so a call that ends in time costs almost nothing."""

import asyncio

from msgspec import Struct

__all__ = ["Call", "Deadlines"]


class Call(Struct, eq=False):
    """A call in flight.

    Attributes:
        task: The task that makes the call.
        due: The loop's time in seconds at which the call expires.
        cancelling: ``task.cancelling()`` at the beginning of the call.
        expired: Whether the deadline has cancelled the task, and the CancelledError has not left the call yet.
    """

    task: asyncio.Task[object]
    due: float
    cancelling: int
    expired: bool = False


class Deadlines:
    """Cancels calls that take longer than ``timeout`` seconds, as ``asyncio.timeout`` would.

    All calls have the same timeout, so they expire in the order in which they began. The oldest call is the first key
    of the table, and one timer for this call is enough.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._calls: dict[Call, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> Call:
        """Begin a call of the running task; return it for :meth:`end`."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None, "a receiver is called in a task"
        call = Call(task, loop.time() + self._timeout, task.cancelling())
        self._calls[call] = None
        if self._timer is None:
            self._timer = loop.call_at(call.due, self._expire, loop)
        return call

    def has(self, task: asyncio.Task[object] | None) -> bool:
        """Return whether ``task`` makes a call that has neither ended nor expired."""
        return any(call.task is task for call in self._calls)

    def end(self, call: Call) -> None:
        """End a call; if the call caught the CancelledError of its deadline, undo the task's cancellation request."""
        # The timer stays, even if it was set for this call: a call that ends in time cancels no timer. `_expire` sets
        # it anew for the oldest call that is left.
        self._calls.pop(call, None)
        if call.expired:
            call.task.uncancel()

    @staticmethod
    def is_timeout(call: Call) -> bool:
        """Return whether a CancelledError from ``call`` came from its deadline; if so, undo the cancellation request.

        False also if the task was cancelled by other code at the same time: that cancellation has to go on.
        """
        if not call.expired:
            return False
        # `end` follows for the same call, and must not undo the request a second time.
        call.expired = False
        # As `asyncio.Timeout` of CPython 3.11.7 decides (3.11.2 compares with 0): if more requests are left than at the
        # begin of the call, other code has cancelled the task, too.
        return call.task.uncancel() <= call.cancelling

    def close(self) -> None:
        """Remove all calls and cancel the timer."""
        self._calls.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        for call in list(self._calls):
            if call.due > now:
                self._timer = loop.call_at(call.due, self._expire, loop)
                return
            del self._calls[call]
            call.expired = True
            call.task.cancel("consume-timeout")
