"""A polled source: a member of a group whose messages wait until they are asked for."""

import asyncio
from collections import deque
from functools import partial

from binders.kafka.consumer import KafkaMember, Membership
from binders.kafka.handling import Redeliveries, to_framework
from binders.kafka.partition import AssignedPartition, Delivery
from streamkit.binder.binder import PolledMessage, PolledSource
from streamkit.binder.settlement import RejectMessage, Retry, Settlement
from streamkit.errors import BinderError


class KafkaPolledSource(KafkaMember, PolledSource):
    """Gives the first message of its partitions, the partitions in turn; what is retried comes again later."""

    def __init__(self, membership: Membership, poll_timeout: float) -> None:
        """Make a member that has not joined yet; a poll waits `poll_timeout` seconds for a message."""
        super().__init__(membership)
        self._terms = membership.destination.delivery
        self._redeliveries = Redeliveries(self._wake)
        self._group = membership.group
        self._poll_timeout = poll_timeout
        self._ready: deque[AssignedPartition] = deque()
        self._arrived = asyncio.Event()

    async def poll(self) -> PolledMessage | None:
        """The next message; waits for one as long as `poll-timeout` says. What cannot be read is rejected meanwhile."""
        while True:
            try:
                async with asyncio.timeout(self._poll_timeout):
                    delivery = await self._arrival()
            except TimeoutError:
                return None
            message = to_framework(delivery, self.binding, self._group)
            if not isinstance(message, RejectMessage):
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
        except BaseException:  # told to whoever settles, or theirs; the next poll goes on with it
            partition.waiting.appendleft(delivery)
            self._wake(partition)
            raise
        finally:
            partition.calls -= 1

    async def _carry_out(self, delivery: Delivery, settlement: Settlement) -> None:
        if not self.is_open:
            return
        if isinstance(settlement, Retry):
            pause = self._terms.pause_before(settlement, delivery.redeliveries)
            self._redeliveries.add(delivery, pause)
            return
        if isinstance(settlement, RejectMessage) and not delivery.partition.is_lost:
            try:
                await self._dead_letters.keep(delivery.record, settlement)
            except BinderError:  # the source has stopped meanwhile: the message comes again
                return
        delivery.partition.settle(delivery.record.offset)
        self.thread.made_room(delivery.partition)

    async def _finish(self, timeout: float) -> None:
        self._redeliveries.cancel()
        self._arrived.set()
