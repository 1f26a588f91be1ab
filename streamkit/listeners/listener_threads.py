"""The threads of `def` listeners.

`concurrent.futures.ThreadPoolExecutor` does not fit: at exit Python joins its threads, so a listener that never
returns would keep a stopped application from ending. The threads here are daemons.
"""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import ParamSpec, TypeVar

__all__ = ["ListenerPools", "ListenerThreads"]

P = ParamSpec("P")
R = TypeVar("R")

_Work = tuple["Future[object]", Callable[[], object]]


class ListenerThreads(Executor):
    """An executor whose daemon threads start on demand and do not keep the process alive."""

    def __init__(self, width: int, name: str) -> None:
        """Create the executor; threads are started by :meth:`submit`.

        Args:
            width: The most threads that run at once.
            name: The prefix of the threads' names; a number follows.
        """
        self._width = width
        self._name = name
        self._lock = Lock()
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._threads: list[Thread] = []
        # The idle threads, less the calls submitted since they became idle. The count may be too low: a thread too
        # many is started then, but never more than the width. The count is never too high, because a call would
        # then wait although a thread may be started.
        self._idle = 0
        self._closed = False

    def submit(self, call: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> "Future[R]":
        """Queue the call for a thread, and start a thread if none is idle; return the future of the call's result.

        Raises:
            RuntimeError: The executor is shut down.
        """
        future: Future[R] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError(f"{self._name}: the threads are closed")
            self._work.put((future, partial(call, *args, **kwargs)))  # type: ignore[arg-type]  # Future is invariant
            if self._idle:
                self._idle -= 1
            elif len(self._threads) < self._width:
                self._start_thread()
        return future

    def _start_thread(self) -> None:
        thread = Thread(target=self._run, name=f"{self._name} {len(self._threads) + 1}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self) -> None:
        while (work := self._next()) is not None:
            future, call = work
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = call()
            except StopIteration as error:  # asyncio futures refuse it: an awaiting coroutine would hang
                future.set_exception(_as_runtime_error(error))
            except BaseException as error:  # any exception belongs to the caller that awaits the future
                future.set_exception(error)
            else:
                future.set_result(result)
            del work, future, call  # while this thread waits, it must not keep the call's objects alive

    def _next(self) -> _Work | None:
        try:
            return self._work.get_nowait()
        except Empty:
            # submit() queues a call and reads the count under the same lock: either this thread sees the call here,
            # or submit() sees this thread as idle.
            with self._lock:
                if self._work.empty():
                    self._idle += 1
            return self._work.get()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Refuse new calls; the threads end after the calls that are already queued.

        Args:
            wait: Whether to block until the threads have ended.
            cancel_futures: Whether to cancel the calls that have not begun.
        """
        with self._lock:
            self._closed = True
            while cancel_futures:
                try:
                    work = self._work.get_nowait()
                except Empty:
                    break
                if work is not None:
                    work[0].cancel()
            for _ in self._threads:
                self._work.put(None)
        if wait:
            for thread in self._threads:
                thread.join()


def _as_runtime_error(error: StopIteration) -> RuntimeError:
    """Return the error into which Python turns a StopIteration that leaves a coroutine (PEP 479)."""
    failure = RuntimeError("the function raised StopIteration")
    failure.__cause__ = error
    return failure


class ListenerPools:
    """The threads of an application's bindings and error channels, by name."""

    def __init__(self) -> None:
        self._pools: dict[str, Executor] = {}

    def get(self, name: str, width: int) -> Executor:
        """Return the executor of that name, created on first use with up to ``width`` threads."""
        found = self._pools.get(name)
        if found is None:
            found = self._pools[name] = ListenerThreads(width, f"{name} listener")
        return found

    def close(self) -> None:
        """Cancel the calls that have not begun and shut down; running calls are not awaited."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        self._pools.clear()
