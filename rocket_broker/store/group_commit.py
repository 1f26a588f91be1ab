"""Group commit: senders that wait for the disk share its flushes.

::

    a b c ┐ d e f g ┐ h …         each waits until the log is on the disk up to an offset
          [ round 1 ][ round 2 ][ …    d to g came while round 1 ran: it may have begun without them

A round begins as soon as a sender waits, and the next one when it has ended. No round is delayed by a timer, or to
collect more senders.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

__all__ = ["GroupCommit"]

_Waiting = tuple[int, float, "asyncio.Future[bool]"]
"""The offset, when the wait ends at the latest, in seconds of the loop's time, and the future that is awaited."""


class GroupCommit:
    """The senders that wait until one log is on the disk.

    Args:
        flush: Brings to the disk what is stored when it begins. It gets the largest offset that is waited for, and does
            not raise an exception if the disk refuses.
        flushed: Returns the offset up to which the log is on the disk.
        is_broken: Returns whether the disk has refused a flush, so that nobody need wait.
        seconds: How long somebody waits at most.
    """

    # Invariant: while somebody waits, _rounds is a task. _waiting is in the order in which the waits end at the latest,
    # and _timer is due when the first of them does, or earlier.
    __slots__ = ("_flush", "_flushed", "_is_broken", "_rounds", "_seconds", "_timer", "_waiting")

    def __init__(
        self,
        flush: Callable[[int], Awaitable[None]],
        flushed: Callable[[], int],
        is_broken: Callable[[], bool],
        seconds: float,
    ) -> None:
        self._flush = flush
        self._flushed = flushed
        self._is_broken = is_broken
        self._seconds = seconds
        self._waiting: deque[_Waiting] = deque()
        self._rounds: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def wait_for(self, offset: int) -> "asyncio.Future[bool]":
        """Return a future of whether the log is on the disk up to an offset: False if that takes too long, or fails."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[bool] = loop.create_future()
        if self._flushed() >= offset or self._is_broken():
            result.set_result(self._flushed() >= offset)
            return result
        due = loop.time() + self._seconds
        self._waiting.append((offset, due, result))
        if self._timer is None:
            self._timer = loop.call_at(due, self._time_up)
        if self._rounds is None:
            self._rounds = loop.create_task(self._run_rounds(), name="group commit")
        return result

    async def stop(self) -> None:
        """Return when the last wait has ended."""
        if self._rounds is not None:
            await asyncio.wait((self._rounds,))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _run_rounds(self) -> None:
        try:
            while self._waiting:
                await self._flush(max(offset for offset, _, _ in self._waiting))
                self._release(gives_up=self._is_broken())
        finally:
            self._rounds = None
            self._release(gives_up=True)

    def _release(self, *, gives_up: bool) -> None:
        """End the waits for what is on the disk now; all waits, if they are given up."""
        flushed, waiting = self._flushed(), self._waiting
        self._waiting = deque()
        for one in waiting:
            offset, _, result = one
            if result.done():  # cancelled
                continue
            if offset <= flushed or gives_up:
                result.set_result(offset <= flushed)
            else:
                self._waiting.append(one)

    def _time_up(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        now, waiting = loop.time(), self._waiting
        while waiting:
            offset, due, result = waiting[0]
            if due > now and not result.done():
                self._timer = loop.call_at(due, self._time_up)
                return
            waiting.popleft()
            if not result.done():
                result.set_result(offset <= self._flushed())

    def __repr__(self) -> str:
        return f"<GroupCommit: {len(self._waiting)} wait>"
