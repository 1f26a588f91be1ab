"""Threads for listeners that are `def`.

`concurrent.futures.ThreadPoolExecutor` is not used, since Python waits for its threads before it ends: one
listener that never returns would keep a stopped application from ending.
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
    """Makes calls on threads of its own, started as they are needed; none of them keeps the process alive."""

    def __init__(self, width: int, name: str) -> None:
        """Make no thread yet.

        Args:
            width: How many threads there may be.
            name: What they are called, with a number behind it.
        """
        self._width = width
        self._name = name
        self._lock = Lock()
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._threads: list[Thread] = []
        # Threads that found no work, less the calls submitted since. It may be too low, which costs a thread more
        # (never above the width), but never too high, which would leave a call waiting.
        self._idle = 0
        self._closed = False

    def submit(self, call: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> "Future[R]":
        """Have the call made; the future has what came of it."""
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
            except StopIteration as error:  # asyncio's futures refuse it: who waits would wait for ever
                future.set_exception(_as_runtime_error(error))
            except BaseException as error:  # whatever it is, it belongs to who waits for the result
                future.set_exception(error)
            else:
                future.set_result(result)
            del work, future, call  # what they refer to must not live on while this thread waits

    def _next(self) -> _Work | None:
        try:
            return self._work.get_nowait()
        except Empty:
            with self._lock:
                if self._work.empty():
                    self._idle += 1
            return self._work.get()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; the threads end when those that were submitted are over.

        Args:
            wait: Whether to return only then.
            cancel_futures: Whether to cancel the calls that no thread has begun with.
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
    """What Python itself makes of a StopIteration that leaves a coroutine."""
    failure = RuntimeError("the function raised StopIteration")
    failure.__cause__ = error
    return failure


class ListenerPools:
    """The threads of one application's bindings and error channels, by name."""

    def __init__(self) -> None:
        self._pools: dict[str, Executor] = {}

    def get(self, name: str, width: int) -> Executor:
        """Return the threads of that name, ``width`` of them; they are made when a `def` listener is called."""
        found = self._pools.get(name)
        if found is None:
            found = self._pools[name] = ListenerThreads(width, f"{name} listener")
        return found

    def close(self) -> None:
        """End the threads; one at work is left to itself."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        self._pools.clear()
