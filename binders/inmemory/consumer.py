"""A consumer binding: a member of a group that hands its queues' messages to the framework's receiver."""

import asyncio
import logging
from abc import abstractmethod
from functools import partial
from itertools import count
from typing import Final, Generic, TypeVar

from binders.inmemory.broker import DEAD_LETTER_PREFIX, InMemoryBroker
from binders.inmemory.destination import Destination
from binders.inmemory.group import Delivery, Group, GroupQueue
from streamkit.binder.binder import BindingState, ConsumerBinding, ConsumerDestination, Receiver
from streamkit.binder.calls import Calls, Turns
from streamkit.binder.dead_letter import cause_headers
from streamkit.binder.settlement import RETRY, Accept, RejectMessage, Retry, Settlement

logger = logging.getLogger(__name__)

# As RocketMQ's flow control: a member that has so many messages unsettled takes no more.
WINDOW: Final = 1000
# A worker whose handlers never wait lets the loop go on after so many messages.
_RUN: Final = 100

_ids = count()


R = TypeVar("R")


class InMemoryConsumerBinding(ConsumerBinding, Generic[R]):
    """One member of one group; subclasses say in which order it handles messages."""

    def __init__(
        self,
        destination: ConsumerDestination,
        home: Destination,
        group: Group,
        broker: InMemoryBroker,
        receiver: R,
    ) -> None:
        self.id = f"{destination.instance_index:04}-{next(_ids):08}"
        self._binding = destination.binding
        self._is_durable = destination.group is not None and not destination.delivery.broadcast
        self._delivery = destination.delivery
        self._permits = destination.permits
        self._home = home
        self._group = group
        self._broker = broker
        self._receiver = receiver
        self._state = BindingState.STOPPED
        self._calls = Calls(self._binding)

    @property
    def state(self) -> BindingState:
        """Running, paused or stopped."""
        return self._state

    def start(self) -> None:
        """Join the group; what it has waiting comes first."""
        self._state = BindingState.RUNNING
        self._group.join(self)

    async def pause(self) -> None:
        """Begin no more calls until `resume`."""
        if self._state is BindingState.RUNNING:
            self._state = BindingState.PAUSED

    async def resume(self) -> None:
        """Go on where `pause` stopped."""
        if self._state is BindingState.PAUSED:
            self._state = BindingState.RUNNING
            for queue in self._group.queues:
                if queue.owner is self and queue.waiting:
                    self.wake(queue)

    async def stop(self, timeout: float) -> None:
        """Leave the group at once; calls under way get `timeout` seconds."""
        if self._state is BindingState.STOPPED:
            return
        self._state = BindingState.STOPPED
        self._group.leave(self)
        self._interrupt()
        await self._calls.finish(timeout)
        self._give_back()
        if not self._is_durable:
            self._home.forget(self._group)

    @abstractmethod
    def wake(self, queue: GroupQueue) -> None:
        """There is something in `queue`, or it is this member's now."""

    def _interrupt(self) -> None:
        """End what only waits."""

    def _give_back(self) -> None:
        """Let the group have what was taken and not settled."""

    def _carry_out(self, delivery: Delivery, settlement: Settlement) -> None:
        """Have a message that was not accepted come again, or bury it."""
        if isinstance(settlement, Retry):
            again = Delivery(delivery.message, delivery.redeliveries + 1)
            pause = self._delivery.pause_before(settlement, delivery.redeliveries)
            self._broker.timers.after(pause, partial(self._group.redeliver, again))
        elif isinstance(settlement, RejectMessage):
            self._bury(delivery, settlement)

    def _bury(self, delivery: Delivery, rejected: RejectMessage) -> None:
        """Put a rejected message where the group's dead letters are."""
        message = delivery.message
        letter = {**message.headers, **cause_headers(rejected)}
        self._broker.destination(DEAD_LETTER_PREFIX + self._group.name).put(message.payload, letter, 0)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._binding!r} {self._state.value}>"


class ConcurrentMember(InMemoryConsumerBinding[R]):
    """Takes as many messages as handlers can start; those that failed come back later."""

    def __init__(
        self,
        destination: ConsumerDestination,
        home: Destination,
        group: Group,
        broker: InMemoryBroker,
        receiver: R,
    ) -> None:
        super().__init__(destination, home, group, broker, receiver)
        self._turns = Turns[GroupQueue](
            self._permits,
            may_begin=lambda queue: queue.owner is self,
            room=self._room,
            start_worker=lambda: self._calls.begin(self._work()),
        )

    def _interrupt(self) -> None:
        self._turns.close()

    def wake(self, queue: GroupQueue) -> None:
        """There is something in `queue`, or it is this member's now."""
        self._turns.wake(queue)

    def _room(self) -> int:
        return WINDOW - len(self._calls) if self._state is BindingState.RUNNING else 0

    @abstractmethod
    async def _work(self) -> None:
        """Make one call after the other, while there is something to handle and a permit for it."""


class ConcurrentConsumerBinding(ConcurrentMember[Receiver]):
    """Hands over one message after the other."""

    async def _work(self) -> None:
        handled = 0
        while self._state is BindingState.RUNNING and self._permits.free > 0:
            queue = self._turns.next()
            if queue is None:
                return
            delivery = queue.waiting.popleft()
            try:
                settlement = await _received(self._receiver, delivery, self._binding)
            except asyncio.CancelledError:
                self._group.give_back(queue, [delivery])
                raise
            if not isinstance(settlement, Accept):
                self._carry_out(delivery, settlement)
            handled += 1
            if handled % _RUN == 0:
                await asyncio.sleep(0)


class OrderedMember(InMemoryConsumerBinding[R]):
    """One call in flight per queue; a message leaves its queue when it is settled."""

    def wake(self, queue: GroupQueue) -> None:
        """There is something in `queue`, or it is this member's now."""
        if not queue.busy and self._state is BindingState.RUNNING:
            queue.busy = True
            self._calls.begin(self._drive(queue))

    async def _drive(self, queue: GroupQueue) -> None:
        try:
            handled = 0
            while queue.waiting and queue.owner is self and self._state is BindingState.RUNNING:
                await self._handle(queue)
                handled += 1
                if handled % _RUN == 0:
                    await asyncio.sleep(0)
        finally:
            queue.busy = False
            if queue.waiting and queue.owner is not None and queue.owner is not self:
                queue.owner.wake(queue)

    @abstractmethod
    async def _handle(self, queue: GroupQueue) -> None:
        """Make one call with what is at the head of ``queue``, and carry out what comes of it."""

    def _interrupt(self) -> None:
        """End the suspensions: the message that waits stays at its queue's head."""
        self._calls.end_suspensions()


class OrderedConsumerBinding(OrderedMember[Receiver]):
    """Hands over one message after the other."""

    async def _handle(self, queue: GroupQueue) -> None:
        delivery = queue.waiting[0]
        settlement = await _received(self._receiver, delivery, self._binding)
        if isinstance(settlement, Retry):
            delivery.redeliveries += 1
            await self._calls.suspend(self._delivery.pause_before(settlement, delivery.redeliveries - 1))
            return
        queue.waiting.popleft()
        if isinstance(settlement, RejectMessage):
            self._bury(delivery, settlement)


async def _received(receiver: Receiver, delivery: Delivery, binding: str) -> Settlement:
    try:
        return await receiver(delivery.message, delivery.redeliveries)
    except Exception:
        logger.exception("The receiver of binding %r raised; its message is retried", binding)
        return RETRY
