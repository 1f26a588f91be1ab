"""Deadlines of calls: one timer for all calls of a binding, so that a call in time costs next to nothing."""

import asyncio

__all__ = ["Call", "Deadlines"]


class Call:
    """One call under way; ``expired`` says that its task was cancelled because it took too long."""

    __slots__ = ("cancelling", "due", "expired", "task")

    def __init__(self, task: asyncio.Task[object], due: float) -> None:
        self.task = task
        self.due = due
        # Set when the call is cancelled; taken back when the cancellation has come out of it.
        self.expired = False
        self.cancelling = task.cancelling()


class Deadlines:
    """Cancels calls that take longer than ``timeout`` seconds, as ``asyncio.timeout`` would.

    All calls have the same time to run, so they expire in the order they began: the oldest is the first key
    of the table, and one timer is enough.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._calls: dict[Call, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> Call:
        """Note that the running task begins a call."""
        task = asyncio.current_task()
        assert task is not None, "a receiver is called in a task"
        loop = task.get_loop()
        call = Call(task, loop.time() + self._timeout)
        self._calls[call] = None
        if self._timer is None:
            self._timer = loop.call_at(call.due, self._expire, loop)
        return call

    def has(self, task: asyncio.Task[object] | None) -> bool:
        """Return whether a call in ``task`` is under way."""
        return any(call.task is task for call in self._calls)

    def end(self, call: Call) -> None:
        """Note that the call is over; a cancellation it swallowed is taken back."""
        self._calls.pop(call, None)
        if call.expired:
            call.task.uncancel()

    @staticmethod
    def is_timeout(call: Call) -> bool:
        """Return whether a cancellation that came out of ``call`` is ours; it is taken back then."""
        if not call.expired:
            return False
        call.expired = False
        return call.task.uncancel() <= call.cancelling

    def close(self) -> None:
        """Forget every call and drop the timer."""
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
