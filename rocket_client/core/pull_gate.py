"""The gate that pauses and resumes the pulls of all queues, or of some.

This module does no I/O.
"""

import asyncio
from collections.abc import Iterable

from rocket_remoting.wire.message import MessageQueue


class PullGate:
    """Admits the pulls of queues. A queue is admitted if the gate is open and the queue is not paused."""

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
        """Admit all queues that are not paused."""
        self._opened.set()

    def close(self) -> None:
        """Admit no queue."""
        self._opened.clear()

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Pause the queues."""
        for queue in queues:
            self._paused.setdefault(queue, asyncio.Event())

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """End the pause of the queues."""
        for queue in queues:
            event = self._paused.pop(queue, None)
            if event is not None:
                event.set()

    def is_paused(self, queue: MessageQueue) -> bool:
        """Return whether the queue is paused."""
        return queue in self._paused

    @property
    def paused(self) -> frozenset[MessageQueue]:
        """The paused queues."""
        return frozenset(self._paused)

    def admits(self, queue: MessageQueue) -> bool:
        """Return whether the queue may be pulled now."""
        return self._opened.is_set() and queue not in self._paused

    async def wait_admitted(self, queue: MessageQueue) -> None:
        """Wait until the queue may be pulled."""
        # A loop, because the other condition may have begun meanwhile: the queue is resumed while the gate is closed.
        while not self.admits(queue):
            paused = self._paused.get(queue)
            await (paused.wait() if paused is not None else self._opened.wait())
