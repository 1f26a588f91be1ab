"""Timers for delayed messages and redeliveries: a heap in the order of the loop's time."""

import asyncio
import heapq
from collections.abc import Callable
from itertools import count

Action = Callable[[], None]


class Timers:
    """Runs actions at their times, in this order; one timer of the loop serves all actions."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Action]] = []
        self._sequence = count()
        self._handle: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._heap)

    def after(self, delay: float, action: Action) -> None:
        """Run `action` in `delay` seconds."""
        loop = asyncio.get_running_loop()
        entry = (loop.time() + delay, next(self._sequence), action)
        heapq.heappush(self._heap, entry)
        if self._heap[0] is entry:
            self._arm(loop)

    def close(self) -> None:
        """Remove all actions without running them."""
        self._heap.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def move(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the actions on `loop` from now on; the loop before may be closed."""
        self._arm(loop)

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = loop.call_at(self._heap[0][0], self._fire, loop) if self._heap else None

    def _fire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._handle = None
        # The loop may run a timer early, by up to the resolution of its clock.
        now = loop.time() + 1e-6
        while self._heap and self._heap[0][0] <= now:
            heapq.heappop(self._heap)[2]()
        self._arm(loop)
