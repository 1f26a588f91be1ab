"""The thread that flushes the log, so that the loop does not wait for the disk.

::

    loop      run ─┐                            ┌─ the future has its result
                   │ queue                      │ a byte in a pipe
    thread         └─ the function, with fsync ─┘

With SYNC_FLUSH and a fast disk, the way to a thread and back takes longer than the flush. An executor of
`concurrent.futures` makes two futures for each call and takes seven locks. This thread needs one future, a queue that
is written in C, and a byte that wakes the loop.
"""

import asyncio
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from queue import SimpleQueue
from typing import TypeVar, cast

__all__ = ["FlushThread"]

T = TypeVar("T")

_Call = tuple[Callable[[], object], "asyncio.Future[None]"]
_Ended = tuple["asyncio.Future[None]", BaseException | None]


class FlushThread:
    """A thread that calls one function after the other for the running loop, until it is closed or the loop ends.

    Args:
        name: The name of the thread.
    """

    # Invariant: for each entry of _ended there is a byte in the pipe, or the thread is about to write it.
    __slots__ = ("__weakref__", "_calls", "_ended", "_loop", "_reader", "_release", "_thread")

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._ended: deque[_Ended] = deque()
        self._reader, writer = os.pipe()
        # The thread does not refer to this object. So without `close` both end with the loop, as an executor does.
        # It is a daemon, so that the process can end, too.
        self._thread = threading.Thread(target=_run, args=(self._calls, self._ended, writer), name=name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # too many threads
            os.close(self._reader)
            os.close(writer)
            raise
        self._release = weakref.finalize(self, _end, self._calls, self._reader)
        self._loop.add_reader(self._reader, self._read)

    def run(self, function: Callable[[T], None], argument: T) -> "asyncio.Future[None]":
        """Call a function in the thread, behind the calls that wait there.

        Returns:
            A future that is done when the function has returned; it has the exception that the function raised. If it
            is cancelled, the function is called nevertheless.
        """
        # The loop returns a future of `submit` as it is if the future is one of asyncio. A loop of virtual time lets no
        # time pass until such a future is done.
        return self._loop.run_in_executor(cast("Executor", self), function, argument)

    def submit(self, function: Callable[..., object], *arguments: object) -> "asyncio.Future[None]":
        """Do what `run` does, as the loop calls it."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._calls.put((lambda: function(*arguments), future))
        return future

    def close(self) -> None:
        """End the thread when it has made all calls."""
        self._calls.put(None)
        self._thread.join()
        self._loop.remove_reader(self._reader)
        while self._ended:
            self._finish()
        self._release()

    def close_later(self) -> None:
        """End the thread when it has made all calls, without waiting for that: the disk may not answer for a while."""
        self._calls.put(None)

    def _read(self) -> None:
        if os.read(self._reader, 1):
            self._finish()
        else:  # The thread has ended.
            self._loop.remove_reader(self._reader)
            self._release()

    def _finish(self) -> None:
        future, error = self._ended.popleft()
        if future.done():  # cancelled
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    def __repr__(self) -> str:
        return f"<FlushThread: {self._thread.name}, {self._calls.qsize()} wait>"


def _run(calls: "SimpleQueue[_Call | None]", ended: "deque[_Ended]", writer: int) -> None:
    """Make calls until None comes, and then close the writing end of the pipe."""
    while (call := calls.get()) is not None:
        function, future = call
        error: BaseException | None = None
        try:
            function()
        except BaseException as e:
            error = e
        ended.append((future, error))
        del call, function, future, error  # a thread that waits keeps no store alive
        with suppress(BrokenPipeError):  # the loop has ended
            os.write(writer, b"\0")
    os.close(writer)


def _end(calls: "SimpleQueue[_Call | None]", reader: int) -> None:
    calls.put(None)
    os.close(reader)
