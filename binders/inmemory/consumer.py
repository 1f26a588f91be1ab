"""Consumer bindings: each is a member of a group and calls the framework's receiver with the messages of its queues."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import ClassVar, Final

import msgspec

from binders.inmemory.broker import InMemoryBroker
from binders.inmemory.destination import Destination
from binders.inmemory.group import Delivery, Group, GroupQueue
from streamkit.binder.binder import BindingState, ConsumerBinding, ConsumerDestination
from streamkit.binder.dead_letter import Origin
from streamkit.binder.drivers import ConcurrentDriver, Driver, OrderedDriver, Settler
from streamkit.binder.receiver_calls import ReceiverCall
from streamkit.settlement import Reject

# The largest number of calls of a concurrent member, including those that wait for their next attempt. RocketMQ's flow
# control has the same number: its clients stop pulling at 1,000 unsettled messages of a queue (pullThresholdForQueue).
WINDOW: Final = 1000

_ids = count()


class InMemoryMember(ConsumerBinding):
    """A member of a group; subclasses push the messages to a receiver, or return them to polls.

    Attributes:
        id: The key by which the members of a group are sorted.
        binding: The binding's name.
    """

    def __init__(
        self, destination: ConsumerDestination, home: Destination, group: Group, broker: InMemoryBroker
    ) -> None:
        # Padded with zeros, because members are sorted by this text: by instance index, then by age.
        self.id = f"{destination.instance_index:04}-{next(_ids):08}"
        self.binding = destination.binding
        self._letters = destination.extended.dead_letter_topic(destination.name, destination.group)
        self._letter_headers = destination.extended.dead_letter_headers
        self._named_group = destination.group
        self._letter_partitions = destination.extended.dead_letter_partitions or home.partitions
        self._is_durable = destination.group is not None and not destination.delivery.broadcast
        self._delivery = destination.delivery
        self._home = home
        self._group = group
        self._broker = broker
        self._state = BindingState.STOPPED

    @property
    def state(self) -> BindingState:
        """Running, paused or stopped."""
        return self._state

    @property
    def lag(self) -> int:
        """The number of unsettled messages in the partitions that belong to this member."""
        return self._group.lag_of(self)

    def start(self) -> None:
        """Join the group; the messages that wait in its queues are delivered first."""
        self._state = BindingState.RUNNING
        self._group.join(self)

    async def pause(self) -> None:
        """Begin no calls until `resume`."""
        if self._state is BindingState.RUNNING:
            self._state = BindingState.PAUSED

    async def resume(self) -> None:
        """Begin calls again after `pause`."""
        if self._state is BindingState.PAUSED:
            self._state = BindingState.RUNNING

    async def stop(self, timeout: float) -> None:
        """Leave the group, and remove it unless it is durable.

        Args:
            timeout: Seconds to wait for calls in flight; calls that take longer are cancelled.
        """
        if self._state is BindingState.STOPPED:
            return
        self._state = BindingState.STOPPED
        # Before the wait for calls in flight, so that other members begin with the waiting messages now.
        self._group.leave(self)
        await self._finish(timeout)
        if not self._is_durable:
            self._home.forget(self._group)

    @abstractmethod
    def wake(self, source: GroupQueue) -> None:
        """Handle the messages of a queue: it has new messages, or it belongs to this member now."""

    @abstractmethod
    async def _finish(self, timeout: float) -> None:
        """Begin no more calls, wait `timeout` seconds for those in flight, then cancel them."""

    def _redeliver(self, delivery: Delivery, pause: float) -> None:
        """Put a message into the group's queue of redeliveries after `pause` seconds."""
        again = msgspec.structs.replace(delivery, redeliveries=delivery.redeliveries + 1)
        self._broker.timers.after(pause, partial(self._group.redeliver, again))

    def _put_dead_letter(self, delivery: Delivery, rejected: Reject) -> None:
        """Put a rejected message into the dead letter topic; drop it if there is none."""
        message = delivery.message
        if self._letters is None:
            return
        headers, partition = message.headers, delivery.partition
        origin = Origin(self._home.name, partition, delivery.offset, headers.timestamp, self._named_group, headers.id)
        topic = self._broker.destination(self._letters, self._letter_partitions)
        topic.put(message.payload, {**headers, **self._letter_headers(origin, rejected)}, partition)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.binding!r} {self._state.value}>"


class InMemoryConsumerBinding(InMemoryMember, Settler[GroupQueue, Delivery]):
    """Calls the receiver with the messages of its queues, through a driver."""

    _driver_type: ClassVar[type[Driver[GroupQueue, Delivery]]]

    def __init__(
        self,
        destination: ConsumerDestination,
        home: Destination,
        group: Group,
        broker: InMemoryBroker,
        call_receiver: ReceiverCall[Delivery],
    ) -> None:
        super().__init__(destination, home, group, broker)
        size = destination.delivery.batch_size if destination.properties.batch_mode else 1
        self._driver: Driver[GroupQueue, Delivery] = self._driver_type(
            destination, self, call_receiver, size=size, window=WINDOW
        )
        if type(self).wake is InMemoryConsumerBinding.wake:
            self.wake = self._driver.wake  # type: ignore[method-assign]  # saves a call for each message

    def wake(self, source: GroupQueue) -> None:
        """Handle the messages of a queue: it has new messages, or it belongs to this member now."""
        self._driver.wake(source)

    async def pause(self) -> None:
        """Begin no calls until `resume`."""
        await super().pause()
        self._driver.pause()

    async def resume(self) -> None:
        """Begin calls again after `pause`."""
        if self._state is BindingState.PAUSED:
            await super().resume()
            self._driver.resume(self._group.queues)

    async def _finish(self, timeout: float) -> None:
        self._driver.interrupt()
        await self._driver.finish(timeout)

    # The methods of Settler

    def may_begin(self, source: GroupQueue) -> bool:
        """Return whether the queue belongs to this member."""
        return source.owner is self

    def accept(self, delivery: Delivery) -> None:
        """Count a message as settled; the driver has removed it from its queue."""
        faults = self._broker.faults
        if faults is not None and faults.lose_acceptance():
            self._group.deliver_again(delivery)
        else:
            self._group.settle(delivery)

    async def reject(self, delivery: Delivery, rejected: Reject) -> None:
        """Put a message into the dead letter topic."""
        self._put_dead_letter(delivery, rejected)
        self._group.settle(delivery)

    def redeliver(self, delivery: Delivery, pause: float, wake: Callable[[GroupQueue], None]) -> None:
        """Put a message into the group's queue of redeliveries after `pause` seconds.

        The group then wakes the member that has this queue, which may be another member.
        """
        self._redeliver(delivery, pause)

    def place(self, delivery: Delivery) -> str:
        """Return the name of a message in logs: its id."""
        return f"message {delivery.message.headers.id}"

    def give_back(self, source: GroupQueue, deliveries: Sequence[Delivery]) -> None:
        """Put the messages of a cancelled call at the front of their queue."""
        self._group.give_back(source, deliveries)

    def leave(self, source: GroupQueue) -> None:
        """Wake the queue's new member, which has waited for the call in this member to end."""
        if source.waiting and source.owner is not None and source.owner is not self:
            source.owner.wake(source)


class ConcurrentConsumerBinding(InMemoryConsumerBinding):
    """A consumer in concurrent mode: it makes as many calls at once as there are permits."""

    _driver_type = ConcurrentDriver[GroupQueue, Delivery]


class OrderedConsumerBinding(InMemoryConsumerBinding):
    """A consumer in ordered mode: it makes one call at a time for each queue."""

    _driver_type = OrderedDriver[GroupQueue, Delivery]
