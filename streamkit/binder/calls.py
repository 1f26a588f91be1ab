"""For binders that call handlers themselves: the calls under way, whose turn it is, and what one call takes.

::

    sources with something waiting ──▶ Turns ── while permits are free ──▶ a worker, one of the Calls
                                         ▲                                    │ next(): the source whose turn it is
                                         └────────────────────────────────────┘
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence, Sized
from contextvars import copy_context
from itertools import islice, takewhile
from typing import Generic, Protocol, TypeVar

from streamkit.binder.permits import Permits

__all__ = ["Calls", "Redelivered", "Source", "Turns", "next_batch"]

logger = logging.getLogger(__name__)


class Calls:
    """The tasks of one consumer binding that call its handlers."""

    def __init__(self, binding: str) -> None:
        """None yet; each will begin with the context in which this is made, not with that of who sent a message."""
        self._binding = binding
        self._name = f"{binding} consumer"
        self._context = copy_context()
        self._tasks: set[asyncio.Task[None]] = set()
        self._suspended: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def begin(self, work: Coroutine[object, None, None]) -> None:
        """Run `work` as a task."""
        task = asyncio.get_running_loop().create_task(work, name=self._name, context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def suspend(self, seconds: float) -> None:
        """Wait in a call's task, until `end_suspensions` cancels it at the latest."""
        task = asyncio.current_task()
        assert task is not None
        self._suspended.add(task)
        try:
            await asyncio.sleep(seconds)
        finally:
            self._suspended.discard(task)

    def end_suspensions(self) -> None:
        """Cancel the tasks that are suspended."""
        for task in self._suspended:
            task.cancel()

    async def finish(self, timeout: float) -> None:
        """Wait for the calls under way; those that outlast `timeout` seconds are cancelled."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=timeout)
        for task in late:
            task.cancel()
        if late:
            logger.warning("Binding %r stopped with %d call(s) unfinished", self._binding, len(late))
            await asyncio.wait(late)


class Source(Protocol):
    """Where messages wait for a handler: a queue or a partition."""

    @property
    def waiting(self) -> Sized:
        """The messages."""
        ...


S = TypeVar("S", bound=Source)


class Redelivered(Protocol):
    """A message on its way to the handler."""

    @property
    def redeliveries(self) -> int:
        """How often it was given back."""
        ...


D = TypeVar("D", bound=Redelivered)


def next_batch(waiting: Sequence[D], size: int) -> list[D]:
    """The first of the messages that wait, so many at most: all new ones, or all redelivered, as attempts count."""
    is_new = waiting[0].redeliveries == 0
    return list(islice(takewhile(lambda each: (each.redeliveries == 0) is is_new, waiting), size))


class Turns(Generic[S]):
    """Sources that have something, taking turns, and the workers that are started for them.

    A worker makes one call after the other. It is only ever started while a permit is free, so nothing is taken from a
    source that would have to wait in the worker for its handler.
    """

    def __init__(
        self,
        permits: Permits,
        *,
        may_begin: Callable[[S], bool],
        room: Callable[[], int],
        start_worker: Callable[[], None],
    ) -> None:
        """Nobody's turn.

        Args:
            permits: Handlers that can start.
            may_begin: Whether a source's messages may be handled here now.
            room: How many further workers there may be now.
            start_worker: Starts one, as a task; it calls `next` before each call.
        """
        self._permits = permits
        self._may_begin = may_begin
        self._room = room
        self._start_worker = start_worker
        self._ready: deque[S] = deque()
        self._listed: set[S] = set()
        self._is_pump_due = False
        permits.watch(self._pump_soon)

    def close(self) -> None:
        """Hear of free permits no more."""
        self._permits.unwatch(self._pump_soon)

    def wake(self, source: S) -> None:
        """There is something in `source`, or it may begin now."""
        if source not in self._listed:
            self._listed.add(source)
            self._ready.append(source)
        self._pump_soon()

    def next(self) -> S | None:
        """A source that has something and may begin."""
        ready = self._ready
        while ready:
            source = ready.popleft()
            if source.waiting and self._may_begin(source):
                ready.append(source)
                return source
            self._listed.discard(source)
        return None

    def _pump_soon(self) -> None:
        if self._ready and not self._is_pump_due:
            self._is_pump_due = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        # The workers of the pump before have begun by now, since tasks begin in the order in which they are made.
        self._is_pump_due = False
        waiting = sum(len(source.waiting) for source in self._ready)
        for _ in range(min(self._permits.free, self._room(), waiting)):
            self._start_worker()
