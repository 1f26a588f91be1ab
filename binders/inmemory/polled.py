"""A polled source: a member of a group that returns a message to each poll."""

import asyncio
from functools import partial

from binders.inmemory.consumer import InMemoryMember
from binders.inmemory.group import Delivery, GroupQueue
from streamkit.binder.binder import BindingState, PolledMessage, PolledSource
from streamkit.settlement import Reject, Requeue, Settlement


class InMemoryPolledSource(InMemoryMember, PolledSource):
    """Takes the first messages of its queues, the queues in turn; at the stop unsettled messages go back to them."""

    _turn = 0

    def start(self) -> None:
        """Join the group; its messages wait until they are polled."""
        self._open: dict[int, tuple[GroupQueue, Delivery]] = {}
        self._arrived = asyncio.Event()
        super().start()

    def wake(self, source: GroupQueue) -> None:
        """Wake the polls that wait for a message."""
        self._arrived.set()

    async def poll(self) -> PolledMessage | None:
        """Return the next message; wait for one as long as the settings say, then return None.

        Other tasks run during each poll, so that a loop of polls does not hold up the loop.
        """
        await asyncio.sleep(0)
        polled = self._next()
        if polled is not None:
            return polled
        try:
            async with asyncio.timeout(self._delivery.poll_timeout.total_seconds()):
                return await self._arrival()
        except TimeoutError:
            return None

    async def _arrival(self) -> PolledMessage | None:
        while self._state is not BindingState.STOPPED:
            self._arrived.clear()
            await self._arrived.wait()
            polled = self._next()
            if polled is not None:
                return polled
        return None

    def _next(self) -> PolledMessage | None:
        queues = self._group.queues
        for step in range(len(queues)):
            queue = queues[(self._turn + step) % len(queues)]
            if queue.owner is self and queue.waiting:
                self._turn += step + 1
                delivery = queue.waiting.popleft()
                self._open[id(delivery)] = queue, delivery
                return PolledMessage(delivery.message, delivery.redeliveries, partial(self._settle, delivery))
        return None

    async def _settle(self, delivery: Delivery, settlement: Settlement) -> None:
        if self._open.pop(id(delivery), None) is None:
            return
        if isinstance(settlement, Requeue):
            self._redeliver(delivery, self._delivery.pause_before(settlement, delivery.redeliveries))
            return
        if isinstance(settlement, Reject):
            self._put_dead_letter(delivery, settlement)
        self._group.settle(delivery)

    async def _finish(self, timeout: float) -> None:
        # Each goes to the front of its queue, so the last one goes first to keep their order.
        for queue, delivery in reversed(self._open.values()):
            self._group.give_back(queue, [delivery])
        self._open.clear()
        self._arrived.set()
