"""One heap of timers on the loop's time: delayed messages and redeliveries."""

import asyncio
import heapq
from collections.abc import Callable
from itertools import count

Action = Callable[[], None]


class Timers:
    """Runs actions at their time, in the order of their times; the loop holds one timer for all of them."""

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
        """Forget every action."""
        self._heap.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def move(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait on `loop` from now on: the one before may be gone."""
        self._arm(loop)

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = loop.call_at(self._heap[0][0], self._fire, loop) if self._heap else None

    def _fire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._handle = None
        # The loop calls a timer up to its clock's resolution early.
        now = loop.time() + 1e-6
        while self._heap and self._heap[0][0] <= now:
            heapq.heappop(self._heap)[2]()
        self._arm(loop)
