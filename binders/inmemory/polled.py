"""A polled source: a member of a group that returns a message to each poll."""

from functools import partial

from binders.inmemory.consumer import InMemoryMember
from binders.inmemory.group import Delivery, GroupQueue
from streamkit.binder.binder import PolledMessage, PolledSource
from streamkit.settlement import Reject, Requeue, Settlement


class InMemoryPolledSource(InMemoryMember, PolledSource):
    """Takes the first messages of its queues, the queues in turn; at the stop unsettled messages go back to them."""

    _turn = 0

    def start(self) -> None:
        """Join the group; its messages wait until they are polled."""
        self._open: dict[int, tuple[GroupQueue, Delivery]] = {}
        super().start()

    def wake(self, queue: GroupQueue) -> None:
        """Do nothing: the application polls."""

    async def poll(self) -> PolledMessage | None:
        """Return the next message, or None if no message waits; do not wait for one."""
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
        if self._open.pop(id(delivery), None) is not None:
            if isinstance(settlement, Requeue):
                self._redeliver(delivery, self._delivery.pause_before(settlement, delivery.redeliveries))
            elif isinstance(settlement, Reject):
                self._put_dead_letter(delivery, settlement)

    async def _finish(self, timeout: float) -> None:
        # Each goes to the front of its queue, so the last one goes first to keep their order.
        for queue, delivery in reversed(self._open.values()):
            self._group.give_back(queue, [delivery])
        self._open.clear()
