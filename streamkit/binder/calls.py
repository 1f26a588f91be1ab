"""The parts of drivers: the tasks of the calls in flight, the turns of sources, and the messages of the next call.

::

    sources with waiting messages ──▶ Turns ── while permits are free ──▶ a worker, one task of Calls
                                        ▲                                    │ take(): messages of the next source
                                        ├────────────────────────────────────┘ in turn
                                        └── park(): there are none, so the worker waits for the next message
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextvars import copy_context
from itertools import islice, takewhile
from typing import Any, Generic, Protocol, TypeVar

from streamkit.binder.permits import Permits

__all__ = ["Calls", "Redelivered", "Source", "Turns", "next_batch"]

logger = logging.getLogger(__name__)


class Calls:
    """The tasks of one consumer binding that call its handlers."""

    def __init__(self, binding: str) -> None:
        """Make an empty set of tasks.

        Each task begins with a copy of the context variables of this moment. Otherwise a call would see the context of
        the code that woke its source, such as the sender of its message in the same process.

        Args:
            binding: The binding's name, for task names and logs.
        """
        self._binding = binding
        self._name = f"{binding} consumer"
        self._context = copy_context()
        self._tasks: set[asyncio.Task[None]] = set()
        self._suspended: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def begin(self, work: Coroutine[object, None, None]) -> None:
        """Run ``work`` as a task."""
        task = asyncio.get_running_loop().create_task(work, name=self._name, context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def suspend(self, seconds: float) -> None:
        """Wait ``seconds`` seconds in the running task, which `end_suspensions` may cancel meanwhile."""
        task = asyncio.current_task()
        assert task is not None
        self._suspended.add(task)
        try:
            await asyncio.sleep(seconds)
        finally:
            self._suspended.discard(task)

    def end_suspensions(self) -> None:
        """Cancel the tasks that wait in `suspend`."""
        for task in self._suspended:
            task.cancel()

    async def finish(self, timeout: float) -> None:
        """Wait ``timeout`` seconds for the tasks, then cancel those that are not done and wait for their end."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=timeout)
        for task in late:
            task.cancel()
        if late:
            logger.warning(
                "Binding %r stopped with %d call(s) unfinished after %g s: they are cancelled, and their messages are "
                "delivered again",
                self._binding,
                len(late),
                timeout,
            )
            await asyncio.wait(late)


class Redelivered(Protocol):
    """A delivery of a binder.

    Attributes:
        redeliveries: The number of earlier redeliveries.
    """

    redeliveries: int


D = TypeVar("D", bound=Redelivered)


class Source(Protocol[D]):
    """A queue or partition whose messages wait for a handler.

    Attributes:
        waiting: The waiting messages, in their order. In ordered mode the messages of the call in flight are included,
            at the head.
        is_busy: Whether a task of the ordered driver handles the source; only this task begins calls then.
        calls: The number of calls in flight with messages of the source.
    """

    waiting: deque[D]
    is_busy: bool
    calls: int


S = TypeVar("S", bound=Source[Any])


def next_batch(waiting: Sequence[D], size: int) -> list[D]:
    """Return the first waiting messages, at most ``size`` of them, either all new or all redelivered.

    The two are not mixed because their deliveries make different numbers of calls (:mod:`streamkit.binder.attempts`).

    Args:
        waiting: The waiting messages, at least one.
        size: The largest number of messages.
    """
    if size == 1:
        return [waiting[0]]
    is_new = waiting[0].redeliveries == 0
    return list(islice(takewhile(lambda each: (each.redeliveries == 0) is is_new, waiting), size))


class Turns(Generic[S]):
    """The sources with waiting messages in turn, and the start of workers for them.

    A worker is a task that makes one call after the other. Workers are started only while permits are free, so a
    message stays in its source until a handler can take it. There a rebalance can still move it to another member.

    A worker without messages is parked: waking it costs less than a new task. At most as many are parked as permits are
    free; further workers end.
    """

    def __init__(
        self,
        permits: Permits,
        *,
        may_begin: Callable[[S], bool],
        room: Callable[[], int],
        start_worker: Callable[[], None],
    ) -> None:
        """Make an empty queue of sources.

        Args:
            permits: The permits of the binding's handlers.
            may_begin: Returns whether calls with messages of a source may begin now.
            room: Returns how many more workers may be started now.
            start_worker: Starts a worker as a task; the worker calls `take` before each call, and `park` if there is
                nothing to take.
        """
        self._permits = permits
        self._may_begin = may_begin
        self._room = room
        self._start_worker = start_worker
        self._ready: deque[S] = deque()
        self._listed: set[S] = set()
        self._parked: deque[asyncio.Future[bool]] = deque()
        self._is_pump_due = False
        self._is_watching = False
        self._is_closed = False

    def close(self) -> None:
        """Stop watching the permits: no worker is started for them any more, and those that are parked end."""
        self._is_closed = True
        self._permits.unwatch(self._on_free)
        while self._parked:
            self._unpark(goes_on=False)

    def wake(self, source: S) -> None:
        """Put ``source`` into the queue: it has new messages, or it may begin now."""
        if source not in self._listed:
            self._listed.add(source)
            self._ready.append(source)
        # One message needs one worker at once. With more messages, workers that were woken already may take some.
        if self._parked and self._permits.free > 0 and len(source.waiting) == 1:
            self._unpark(goes_on=True)
        else:
            self._pump_soon()

    def take(self, size: int) -> tuple[S, list[Any]] | None:
        """Remove the messages of the next call from the next source in turn that has some and may begin.

        Args:
            size: The largest number of messages.

        Returns:
            The source and the messages, or None if there are none.
        """
        ready = self._ready
        while ready:
            source = ready.popleft()
            waiting = source.waiting
            if waiting and self._may_begin(source):
                if size == 1:
                    messages = [waiting.popleft()]
                else:
                    messages = next_batch(waiting, size)
                    for _ in messages:
                        waiting.popleft()
                if waiting:
                    ready.append(source)
                else:
                    self._listed.discard(source)
                return source, messages
            # The source has no message, or may not begin. Whoever changes that calls `wake`, which lists the source
            # again.
            self._listed.discard(source)
        return None

    def park(self) -> "asyncio.Future[bool] | None":
        """Return what the running worker awaits until there may be messages for it; None if the worker is to end.

        The result is False if the worker is to end. A worker that is cancelled meanwhile must call `leave`.
        """
        if self._ready:
            self._watch()
        if self._is_closed or len(self._parked) >= self._permits.free:
            return None
        parked: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._parked.append(parked)
        return parked

    def leave(self, parked: "asyncio.Future[bool]") -> None:
        """Remove a parked worker that is cancelled."""
        if parked in self._parked:
            self._parked.remove(parked)
        else:
            self._pump_soon()  # this worker was cancelled after it had been woken for a message

    def _unpark(self, *, goes_on: bool) -> None:
        parked = self._parked.pop()  # the one parked last, so that the others are used only under load
        if not parked.done():
            parked.set_result(goes_on)

    def _watch(self) -> None:
        """Watch the permits, only while messages wait for one: most permits are returned while none does."""
        if not self._is_watching and not self._is_closed:
            self._is_watching = True
            self._permits.watch(self._on_free)

    def _on_free(self) -> None:
        if self._ready:
            self._pump_soon()
        else:
            self._is_watching = False
            self._permits.unwatch(self._on_free)

    def _pump_soon(self) -> None:
        if self._ready and not self._is_pump_due:
            self._is_pump_due = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        # The workers that the previous pump started have taken their first messages and permits by now: the loop runs
        # callbacks in the order in which they were scheduled.
        self._is_pump_due = False
        # Each worker is a task: more workers than messages would end without a call.
        waiting = sum(len(source.waiting) for source in self._ready)
        needed = min(self._permits.free, waiting)
        while needed > 0 and self._parked:
            self._unpark(goes_on=True)
            needed -= 1
        for _ in range(min(needed, self._room())):
            self._start_worker()
        if self._ready:
            self._watch()
