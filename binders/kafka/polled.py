"""A polled source: a member of a group whose messages wait until the application polls."""

import asyncio
from collections import deque
from functools import partial

from binders.kafka.consumer import KafkaMember, Membership
from binders.kafka.handling import Redeliveries, to_framework
from binders.kafka.partition import AssignedPartition, Delivery
from streamkit.binder.binder import PolledMessage, PolledSource
from streamkit.errors import BinderError
from streamkit.settlement import Reject, Requeue, Settlement


class KafkaPolledSource(KafkaMember, PolledSource):
    """Returns the waiting messages of its partitions, one partition after the other; requeued messages come again."""

    def __init__(self, membership: Membership, poll_timeout: float) -> None:
        """Prepare a member; `start` joins the group.

        Args:
            membership: The settings and parts of the member.
            poll_timeout: How long a poll waits for a message, in seconds.
        """
        super().__init__(membership)
        self._terms = membership.destination.delivery
        self._redeliveries = Redeliveries()
        self._group = membership.group
        self._poll_timeout = poll_timeout
        self._ready: deque[AssignedPartition] = deque()
        self._arrived = asyncio.Event()

    async def poll(self) -> PolledMessage | None:
        """Return the next message; wait up to `poll-timeout`, then return None. Unreadable records are rejected."""
        while True:
            try:
                async with asyncio.timeout(self._poll_timeout):
                    delivery = await self._arrival()
            except TimeoutError:
                return None
            message = to_framework(delivery, self.binding, self._group, self._dead_letters.topic)
            if not isinstance(message, Reject):
                return PolledMessage(message, delivery.redeliveries, partial(self._settle, delivery))
            await self._settle(delivery, message)

    async def _arrival(self) -> Delivery:
        while (delivery := self._next()) is None:
            self._arrived.clear()
            await self._arrived.wait()
        return delivery

    def _wake(self, partition: AssignedPartition) -> None:
        if partition not in self._ready:
            self._ready.append(partition)
        self._arrived.set()

    def _next(self) -> Delivery | None:
        while self._ready:
            partition = self._ready.popleft()
            if partition.waiting and partition.may_begin:
                self._ready.append(partition)
                partition.calls += 1
                return partition.waiting.popleft()
        return None

    async def _settle(self, delivery: Delivery, settlement: Settlement) -> None:
        partition = delivery.partition
        try:
            await self._carry_out(delivery, settlement)
        except BaseException:  # raised to the caller; the next poll returns the message again
            partition.waiting.appendleft(delivery)
            self._wake(partition)
            raise
        finally:
            partition.calls -= 1

    async def _carry_out(self, delivery: Delivery, settlement: Settlement) -> None:
        if not self.is_open:
            return
        if isinstance(settlement, Requeue):
            pause = self._terms.pause_before(settlement, delivery.redeliveries)
            self._redeliveries.add(delivery, pause, self._wake)
            return
        if isinstance(settlement, Reject) and not delivery.partition.is_lost:
            try:
                await self._dead_letters.keep(delivery.record, settlement)
            except BinderError:  # the source was stopped: the message stays unsettled and comes again
                return
        delivery.partition.settle(delivery.record.offset)
        self.thread.wake_if_room(delivery.partition)

    async def _finish(self, timeout: float) -> None:
        self._redeliveries.close()
        self._arrived.set()
