"""Which queues may be pulled now: pausing and resuming, of all of them or of some.

This module does no I/O.
"""

import asyncio
from collections.abc import Iterable

from rocket_remoting.wire.message import MessageQueue


class PullGate:
    """Open unless closed; closed for a queue that is paused, and for every queue while it is closed as a whole."""

    def __init__(self) -> None:
        self._opened = asyncio.Event()
        self._opened.set()
        self._paused: dict[MessageQueue, asyncio.Event] = {}

    def __repr__(self) -> str:
        return f"<PullGate {'open' if self.is_open else 'closed'}, paused: {sorted(self._paused)}>"

    @property
    def is_open(self) -> bool:
        """Whether queues that are not paused may be pulled."""
        return self._opened.is_set()

    def open(self) -> None:
        """Let all queues be pulled that are not paused."""
        self._opened.set()

    def close(self) -> None:
        """Let no queue be pulled."""
        self._opened.clear()

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Let these queues not be pulled."""
        for queue in queues:
            self._paused.setdefault(queue, asyncio.Event())

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Let these queues be pulled again."""
        for queue in queues:
            event = self._paused.pop(queue, None)
            if event is not None:
                event.set()

    def is_paused(self, queue: MessageQueue) -> bool:
        """Whether `pause` holds for the queue."""
        return queue in self._paused

    @property
    def paused(self) -> frozenset[MessageQueue]:
        """All queues for which `pause` holds."""
        return frozenset(self._paused)

    def admits(self, queue: MessageQueue) -> bool:
        """Whether the queue may be pulled now."""
        return self._opened.is_set() and queue not in self._paused

    async def admitted(self, queue: MessageQueue) -> None:
        """Return when the queue may be pulled."""
        while not self.admits(queue):
            paused = self._paused.get(queue)
            await (paused.wait() if paused is not None else self._opened.wait())
