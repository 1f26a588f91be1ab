"""A polled source: a member of a group that hands a message over when it is asked for one."""

from functools import partial

from binders.inmemory.consumer import InMemoryConsumerBinding
from binders.inmemory.group import Delivery, GroupQueue
from streamkit.binder.binder import PolledMessage, PolledSource
from streamkit.binder.settlement import Settlement


class InMemoryPolledSource(InMemoryConsumerBinding[None], PolledSource):
    """Takes the first message of its queues, the queues in turn; what it does not settle goes back at the end."""

    _turn = 0

    def start(self) -> None:
        """Join the group; what it has waiting stays there until it is polled."""
        self._open: dict[int, tuple[GroupQueue, Delivery]] = {}
        super().start()

    def wake(self, queue: GroupQueue) -> None:
        """Nothing: the application asks when it likes."""

    async def poll(self) -> PolledMessage | None:
        """The next message, or None when none is there."""
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
            self._carry_out(delivery, settlement)

    def _give_back(self) -> None:
        for queue, delivery in reversed(self._open.values()):
            self._group.give_back(queue, [delivery])
        self._open.clear()
