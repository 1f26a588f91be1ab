"""Virtual time: an event loop whose clock jumps ahead whenever the loop would wait.

Two hours of retries pass in milliseconds, in the same order as on a real clock, because everything in this
project waits with the loop (``asyncio.sleep``, ``asyncio.timeout``, ``loop.call_at``) and takes timestamps from an
injected clock that follows the loop::

    time = VirtualTime()
    time.run(main(time.clock))

Jobs in executors take real time and hold the clock until they are done. A job that has called back into the loop
may be waiting for the loop, so such a job holds the clock only for a moment (:data:`CALLBACK_GRACE`), and on Linux
for as long as its thread computes. Real sockets are served when they are ready, but do not hold the clock: use
in-memory transports.
"""

import asyncio
import selectors
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from contextvars import Context, copy_context
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar, TypeVarTuple

from streamkit.clock import use_clock

__all__ = [
    "CALLBACK_GRACE",
    "DEFAULT_EPOCH_MS",
    "StalledError",
    "VirtualClock",
    "VirtualTime",
    "VirtualTimeLoop",
]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

DEFAULT_EPOCH_MS: Final = 1_700_000_000_000
"""Wall-clock time at loop time 0: 14 November 2023, 22:13:20 UTC."""

CALLBACK_GRACE: Final = 0.02
"""Real seconds that a job which has called into the loop may hold the clock without computing."""

_PATIENCE: Final = 1.0


class StalledError(RuntimeError):
    """Nothing is scheduled and no job runs, so the loop would wait for ever."""


class _JumpingSelector(selectors.BaseSelector):
    """Polls the real selector; if nothing is ready, lets the loop's time pass instead of waiting."""

    def __init__(self, real: selectors.BaseSelector) -> None:
        self._real = real
        self.idle: Callable[[float | None], float | None] = lambda timeout: timeout

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._real.select(0)
        # With a timeout of 0 the loop has callbacks to run or a timer that is due: no time passes before them.
        if ready or (timeout is not None and timeout <= 0):
            return ready
        wait = self.idle(timeout)
        return [] if wait == 0 else self._real.select(wait)

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.get_key(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An asyncio loop that starts at time 0 and jumps to its next timer when it would wait."""

    def __init__(self) -> None:
        self._now = 0.0
        self._holds = 0
        self._job_threads: set[int] = set()
        self._called_back: dict[int, int] = {}  # native numbers of jobs' threads, by their identities
        selector = _JumpingSelector(selectors.DefaultSelector())
        super().__init__(selector)
        selector.idle = self._let_time_pass
        self._stalled_for = 0.0

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Stop the clock while the block runs; use it around work in your own threads."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1

    def _let_time_pass(self, timeout: float | None) -> float | None:
        """Return how long to wait in real time: until a job calls, for a moment, or not at all."""
        # A job that has not called back, or a block of `hold`, does not wait for the loop: real time passes until it
        # is done.
        if self._holds > len(self._called_back):
            return None
        if self._called_back:
            waited, self._stalled_for = self._stalled_for, self._stalled_for + CALLBACK_GRACE
            # The first round always gives the job its moment. Later rounds let time pass, unless a job computes, or
            # no timer is set to which time could jump.
            if waited == 0.0 or timeout is None or self._is_any_computing():
                return CALLBACK_GRACE
        elif timeout is None:
            waited, self._stalled_for = self._stalled_for, self._stalled_for + _PATIENCE
            # One real second for what does not hold the clock: sockets, and threads of the test itself.
            if waited == 0.0:
                return _PATIENCE
            raise StalledError(f"nothing is scheduled and no job runs, but these tasks wait: {self._waiting()}")
        self._stalled_for = 0.0
        if timeout is not None:
            self._now += timeout
        return 0

    def _is_any_computing(self) -> bool:
        """Whether a job that has called back runs, or would if a processor were free; False where that is unknown."""
        return any(_state_of_thread(number) == "R" for number in list(self._called_back.values()))

    def _waiting(self) -> str:
        return ", ".join(sorted(task.get_name() for task in asyncio.all_tasks(self))) or "none"

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Schedule ``callback`` from any thread, as asyncio does."""
        self._stalled_for = 0.0
        ident = threading.get_ident()
        if ident in self._job_threads:
            self._called_back[ident] = threading.get_native_id()
        return super().call_soon_threadsafe(callback, *args, context=context)

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Run ``func`` in a thread; the clock stands still until it is done."""

        def job() -> T:
            ident = threading.get_ident()
            self._job_threads.add(ident)
            try:
                return func(*args)
            finally:
                self._job_threads.discard(ident)
                self._called_back.pop(ident, None)

        future = super().run_in_executor(executor, job)
        self._holds += 1
        # The job's end is counted on the loop, not in the thread: time must not jump before the loop has the result.
        future.add_done_callback(self._job_done)
        return future

    def _job_done(self, _: asyncio.Future[Any]) -> None:
        self._holds -= 1

    async def shutdown_default_executor(self, *args: Any) -> None:
        """Join the default executor's threads, however long that takes."""
        # asyncio joins the executor in a thread of its own, which `run_in_executor` does not count.
        with self.hold():
            await super().shutdown_default_executor(*args)


def _state_of_thread(number: int) -> str | None:
    """Return the state of a thread of this process as Linux names it: R for one that runs or is ready to run."""
    try:
        status = Path(f"/proc/self/task/{number}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:  # the thread has ended, or this is not Linux
        return None
    return status.rpartition(") ")[2][:1]  # "number (name) state …", and a name may have any character


class VirtualClock:
    """Wall-clock time that follows a loop: a fixed epoch plus the loop's time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, epoch_ms: int = DEFAULT_EPOCH_MS) -> None:
        self._loop = loop
        self._epoch_ms = epoch_ms

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return self._epoch_ms + round(self._loop.time() * 1000)


class VirtualTime:
    """A virtual-time loop with its clock; ``run`` may be called again and again until ``close``.

    Timestamps of code that runs on the loop come from that clock.
    """

    def __init__(
        self, epoch_ms: int = DEFAULT_EPOCH_MS, loop_factory: Callable[[], VirtualTimeLoop] = VirtualTimeLoop
    ) -> None:
        self._runner = asyncio.Runner(loop_factory=loop_factory)
        loop = self._runner.get_loop()
        assert isinstance(loop, VirtualTimeLoop)
        self.loop = loop
        self.clock = VirtualClock(loop, epoch_ms)
        with use_clock(self.clock):
            self._context = copy_context()

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run ``main`` to its end and return the result; time stands still between calls."""
        return self._runner.run(main, context=self._context)

    def advance(self, seconds: float) -> None:
        """Advance virtual time by ``seconds``; everything that is due happens."""
        self.run(asyncio.sleep(seconds))

    def close(self) -> None:
        """Cancel what is left and close the loop."""
        self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
