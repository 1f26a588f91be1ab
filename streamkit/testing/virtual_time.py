"""Virtual time: an event loop whose clock jumps ahead whenever the loop would wait.

Two hours of retries pass in milliseconds, in the same order as on a real clock, because everything in this
project waits with the loop (``asyncio.sleep``, ``asyncio.timeout``, ``loop.call_at``) and takes timestamps from an
injected clock that follows the loop::

    time = VirtualTime()
    time.run(main(time.clock))

Jobs in executors take real time and hold the clock until they are done. A job that has called back into the loop
may be waiting for the loop, so such a job holds the clock only for a moment (:data:`CALLBACK_GRACE`), and on Linux
for as long as its thread computes. Real sockets are served when they are ready, but do not hold the clock: use
in-memory transports, or :meth:`VirtualTimeLoop.hold`.

A loop that runs already, such as that of pytest-asyncio or anyio, becomes a virtual one for a while::

    time = VirtualTime.of_running_loop()
    await asyncio.sleep(7200)
    time.close()
"""

import asyncio
import selectors
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Executor, Future, wait
from contextlib import contextmanager
from contextvars import Context, copy_context
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar, TypeVarTuple

from streamkit.clock import use_clock
from streamkit.errors import ApplicationError

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

_TURN: Final = 0.01
"""Real seconds after which a thread looks again whether the loop is free for it to run."""


class StalledError(RuntimeError):
    """Nothing is scheduled and no job runs, so the loop would wait for ever."""


class _JumpingSelector(selectors.BaseSelector):
    """Polls the real selector; if nothing is ready, lets the loop's time pass instead of waiting."""

    def __init__(self, real: selectors.BaseSelector) -> None:
        self.real = real
        self.idle: Callable[[float | None], float | None] = lambda timeout: timeout

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self.real.select(0)
        # With a timeout of 0 the loop has callbacks to run or a timer that is due: no time passes before them.
        if ready or (timeout is not None and timeout <= 0):
            return ready
        wait = self.idle(timeout)
        return [] if wait == 0 else self.real.select(wait)

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self.real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self.real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self.real.modify(fileobj, events, data)

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        return self.real.get_key(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self.real.get_map()

    def close(self) -> None:
        self.real.close()


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An asyncio loop that starts at time 0 and jumps to its next timer when it would wait."""

    def __init__(self) -> None:
        self._begin(0.0)
        selector = _JumpingSelector(selectors.DefaultSelector())
        super().__init__(selector)
        selector.idle = self._let_time_pass

    def _begin(self, now: float) -> None:
        self._began = self._now = now
        self._holds = 0
        self._job_threads: set[int] = set()
        self._called_back: dict[int, int] = {}  # native numbers of jobs' threads, by their identities
        self._stalled_for = 0.0
        self._borrowers = 0
        self._is_borrowed = False

    @classmethod
    def borrow(cls, loop: asyncio.AbstractEventLoop) -> "VirtualTimeLoop":
        """Make a loop of asyncio, which may run, a virtual one until :meth:`give_back` is called as often as this.

        Its time continues from its present time.

        Raises:
            ApplicationError: It is a loop of another kind, such as uvloop's, whose time cannot be changed.
        """
        if type(loop) is asyncio.SelectorEventLoop:
            now, state = loop.time(), vars(loop)
            selector = state["_selector"] = _JumpingSelector(state["_selector"])
            loop.__class__ = cls
            assert isinstance(loop, VirtualTimeLoop)
            loop._begin(now)
            loop._is_borrowed = True
            selector.idle = loop._let_time_pass
        if not isinstance(loop, VirtualTimeLoop):
            kind = f"{type(loop).__module__}.{type(loop).__qualname__}"
            raise ApplicationError(
                f"the time of a {kind} cannot be virtual: run this test on asyncio.SelectorEventLoop or on "
                "streamkit.testing.virtual_time.VirtualTimeLoop, which pytest-asyncio's hook "
                "pytest_asyncio_loop_factories or anyio's fixture anyio_backend chooses"
            )
        loop._borrowers += 1
        return loop

    def give_back(self) -> None:
        """End one use of a borrowed loop; after the last one, a loop of asyncio has its own time again."""
        self._borrowers -= 1
        selector = vars(self)["_selector"]
        if self._borrowers == 0 and self._is_borrowed:
            vars(self)["_selector"] = selector.real
            self.__class__ = asyncio.SelectorEventLoop  # type: ignore[assignment]

    @property
    def elapsed(self) -> float:
        """The virtual seconds since the loop's time became virtual."""
        return self._now - self._began

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Stop the clock while the block runs; use it around work in your own threads and on real sockets."""
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
            # One real second for threads of the test itself, which do not hold the clock; no limit for sockets.
            if waited == 0.0:
                return _PATIENCE
            if self._has_sockets():
                return None
            raise StalledError(f"nothing is scheduled and no job runs, but these tasks wait: {self._waiting()}")
        self._stalled_for = 0.0
        if timeout is not None:
            self._now += timeout
        return 0

    def _is_any_computing(self) -> bool:
        """Return whether a job that has called back runs, or waits for a processor; False where that is unknown."""
        return any(_state_of_thread(number) == "R" for number in list(self._called_back.values()))

    def _has_sockets(self) -> bool:
        """Return whether sockets other than the one that wakes the loop are registered."""
        return len(vars(self)["_selector"].get_map()) > 1

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
    """Wall-clock time that follows a loop: a fixed epoch plus the virtual time that has passed."""

    def __init__(self, loop: VirtualTimeLoop, epoch_ms: int = DEFAULT_EPOCH_MS) -> None:
        self._loop = loop
        self._epoch_ms = epoch_ms

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return self._epoch_ms + round(self._loop.elapsed * 1000)


class VirtualTime:
    """A virtual-time loop with its clock; ``run`` may be called again and again until ``close``.

    Timestamps of code that runs on the loop come from that clock.

    Attributes:
        loop: The loop.
        clock: Its clock.
    """

    def __init__(
        self, epoch_ms: int = DEFAULT_EPOCH_MS, loop_factory: Callable[[], VirtualTimeLoop] = VirtualTimeLoop
    ) -> None:
        self._runner: asyncio.Runner | None = asyncio.Runner(loop_factory=loop_factory)
        loop = self._runner.get_loop()
        assert isinstance(loop, VirtualTimeLoop)
        self._attach(loop, epoch_ms)

    def _attach(self, loop: VirtualTimeLoop, epoch_ms: int) -> None:
        self.loop = loop
        self.clock = VirtualClock(loop, epoch_ms)
        self._turn = threading.Lock()
        with use_clock(self.clock):
            self._context = copy_context()

    @classmethod
    def of_running_loop(cls, start_ms: int | None = None) -> Self:
        """Make the time of the running loop virtual until :meth:`close`; time passes whenever the loop would wait.

        Args:
            start_ms: The wall-clock time now; if not given, it was `DEFAULT_EPOCH_MS` when the loop's time became
                virtual.

        Raises:
            ApplicationError: The loop is of a kind whose time cannot be changed, such as uvloop's.
        """
        time = cls.__new__(cls)
        time._runner = None
        loop = VirtualTimeLoop.borrow(asyncio.get_running_loop())
        time._attach(loop, DEFAULT_EPOCH_MS if start_ms is None else start_ms - round(loop.elapsed * 1000))
        return time

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run ``main`` to its end and return the result; time stands still between calls.

        While another thread runs the loop, ``main`` runs there; if that thread stops first, this thread continues.

        Raises:
            ApplicationError: This thread runs an event loop.
        """
        if self._runner is None or asyncio._get_running_loop() is not None:
            main.close()  # otherwise Python warns of a coroutine that was never awaited
            raise ApplicationError("this thread runs an event loop already: await the coroutine there")
        if self._turn.acquire(blocking=False):
            return self._run_in_turn(self._runner, main)
        with use_clock(self.clock):
            outcome = asyncio.run_coroutine_threadsafe(main, self.loop)
        while not wait([outcome], _TURN).done:
            if self._turn.acquire(blocking=False):
                return self._run_in_turn(self._runner, _outcome(outcome))
        return outcome.result()

    def _run_in_turn(self, runner: asyncio.Runner, main: Coroutine[Any, Any, T]) -> T:
        try:
            return runner.run(main, context=self._context)
        finally:
            self._turn.release()

    def advance(self, seconds: float) -> None:
        """Advance virtual time by ``seconds``; everything that is due happens."""
        self.run(asyncio.sleep(seconds))

    def close(self) -> None:
        """Cancel what is left and close the loop; a running loop gets its own time back instead."""
        if self._runner is None:
            self.loop.give_back()
        else:
            self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def _outcome(future: "Future[T]") -> T:
    return await asyncio.wrap_future(future)
