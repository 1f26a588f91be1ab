"""The in-memory binder: makes bindings to a broker in this process."""

from collections import Counter
from collections.abc import Mapping
from itertools import count
from operator import attrgetter
from typing import Final

from msgspec.structs import replace

from binders.inmemory.binder_type import TYPE
from binders.inmemory.broker import InMemoryBroker
from binders.inmemory.consumer import ConcurrentConsumerBinding, InMemoryMember, OrderedConsumerBinding
from binders.inmemory.destination import Destination
from binders.inmemory.group import Delivery, Group
from binders.inmemory.polled import InMemoryPolledSource
from binders.inmemory.producer import InMemoryProducerBinding, InMemoryTransactionalProducerBinding
from binders.inmemory.properties import InMemoryBinderProperties
from streamkit.binder.binder import (
    BatchReceiver,
    Binder,
    BinderContext,
    BindingState,
    ConsumerBinding,
    ConsumerDestination,
    Health,
    HealthStatus,
    PolledSource,
    ProducerBinding,
    ProducerDestination,
    Receiver,
)
from streamkit.binder.capabilities import Capability
from streamkit.binder.delivery import DEFAULT_DELAY_LEVELS, ExtendedProducerProperties, parse_delay_levels
from streamkit.binder.receiver_calls import ReceiverCall, ToMessage, in_batches, one_by_one
from streamkit.errors import BinderError

_anonymous = count(1)
_message_of: Final[ToMessage[Delivery]] = attrgetter("message")

_HALF_AN_HOUR_MS: Final = 30 * 60 * 1000

CAPABILITIES = frozenset(Capability) - {Capability.SQL, Capability.SEEK, Capability.PATTERN}


class InMemoryBinder(Binder):
    """A messaging system in this process; its messages are lost when the process ends."""

    type = TYPE
    is_local = True
    possible_capabilities = CAPABILITIES

    def __init__(self, name: str, context: BinderContext) -> None:
        super().__init__(name)
        prefix = f"spring.cloud.stream.{TYPE}.binder"
        self._settings = context.environment.bind(prefix, InMemoryBinderProperties)
        self._clock = context.clock
        self._replaced = context.stands_in_for
        self._stood_for = context.stand_in(self.extended_type)
        levels = self._settings.message_delay_level
        self._delay_levels = self._stood_for.delay_levels if levels is None else parse_delay_levels(levels)
        self.consumer_properties = self._stood_for.consumer_properties
        self.producer_properties = self._stood_for.producer_properties
        self.possible_capabilities = CAPABILITIES & self._stood_for.capabilities
        self._broker: InMemoryBroker | None = None
        self._members: list[InMemoryMember] = []

    @property
    def extended_type(self) -> str:
        """The binder type that this binder stands in for."""
        return self._replaced or self._settings.stands_in_for

    @property
    def extended_type_key(self) -> str | None:
        """The key `stands-in-for`; None in a test, where the replaced binder's type is fixed."""
        return None if self._replaced else f"spring.cloud.stream.{TYPE}.binder.stands-in-for"

    @property
    def broker(self) -> InMemoryBroker:
        """The broker: the binder's own, or one that the applications of this process share.

        Raises:
            BinderError: The binder is not started.
        """
        if self._broker is None:
            raise BinderError(f"the in-memory binder {self.name!r} is not started", binder=self.name)
        return self._broker

    async def start(self) -> None:
        """Make the binder's own broker, or find or make the shared one.

        Raises:
            BinderError: An application on another event loop uses the shared broker.
        """
        shared = self._settings.broker
        broker = self._new_broker() if shared is None else InMemoryBroker.named(shared, self._new_broker)
        try:
            broker.enter(self)
        except RuntimeError as error:
            raise BinderError(
                f"binder {self.name!r} cannot share the in-memory broker {shared!r}: {error}",
                binder=self.name,
            ) from error
        self._broker = broker

    def _new_broker(self) -> InMemoryBroker:
        settings = self._settings
        return InMemoryBroker(
            partitions=settings.partitions,
            retention=settings.retention,
            check_interval=settings.transaction_check_interval,
            check_max=settings.transaction_check_max,
            clock=self._clock,
            chaos=settings.chaos,
        )

    async def stop(self) -> None:
        """Leave the broker; close it if it is the binder's own.

        Raises:
            BinderError: `strict` is set, and the binder's own broker has unread messages.
        """
        broker, self._broker = self._broker, None
        if broker is None:
            return
        broker.leave(self)
        if self._settings.broker is not None:
            return
        broker.close()
        if self._settings.strict and (unread := broker.unread()):
            raise BinderError(
                f"the in-memory binder {self.name!r} stops with unread messages: {'; '.join(unread)}",
                binder=self.name,
            )

    def capabilities(self) -> frozenset[Capability]:
        """Return all capabilities but SQL, SEEK and PATTERN, of those that the system has for which it stands in."""
        return self.possible_capabilities

    async def bind_consumer(self, destination: ConsumerDestination, receiver: Receiver) -> ConsumerBinding:
        """Join the group and deliver its messages; a broadcast or anonymous consumer has a group of its own.

        Raises:
            BinderError: The binder is not started.
        """
        return self._bind(destination, one_by_one(receiver, destination.binding, _message_of))

    async def bind_batch_consumer(self, destination: ConsumerDestination, receiver: BatchReceiver) -> ConsumerBinding:
        """Join the group as `bind_consumer` does, and deliver its messages in batches.

        Raises:
            BinderError: The binder is not started.
        """
        return self._bind(destination, in_batches(receiver, destination.binding, _message_of))

    def _bind(self, destination: ConsumerDestination, call_receiver: ReceiverCall[Delivery]) -> ConsumerBinding:
        destination, home, group = self._group(destination)
        kind = OrderedConsumerBinding if destination.delivery.ordered else ConcurrentConsumerBinding
        binding = kind(destination, home, group, self.broker, call_receiver)
        destination.customize(binding)
        binding.start()
        self._members = [*self._open_members, binding]
        return binding

    async def bind_polled(self, destination: ConsumerDestination) -> PolledSource:
        """Join the group as `bind_consumer` does, and return a source to poll.

        Raises:
            BinderError: The binder is not started.
        """
        destination, home, group = self._group(destination)
        source = InMemoryPolledSource(destination, home, group, self.broker)
        destination.customize(source)
        source.start()
        self._members = [*self._open_members, source]
        return source

    def _group(self, destination: ConsumerDestination) -> tuple[ConsumerDestination, Destination, Group]:
        """Return the consumer's destination with the delay levels of this binder, the topic, and the group to join."""
        delivery = destination.delivery
        if delivery.delay_levels == DEFAULT_DELAY_LEVELS:
            delivery = replace(delivery, delay_levels=self._delay_levels)
        home = self.broker.destination(destination.name)
        name, start = destination.group or "anonymous", delivery.start
        if destination.group is None or delivery.broadcast:
            name, start = f"{name}.{next(_anonymous)}", delivery.own_start
        since_ms = delivery.start_time_ms
        if since_ms is None:
            since_ms = self._clock.now_ms() - _HALF_AN_HOUR_MS
        return replace(destination, delivery=delivery), home, home.group(name, delivery.tags, start, since_ms)

    async def bind_producer(self, destination: ProducerDestination) -> ProducerBinding:
        """Return a producer; make the destination and its `required-groups` if they are new.

        Raises:
            BinderError: The binder is not started.
        """
        home = self.broker.destination(destination.name)
        for group in destination.properties.required_groups:
            home.require(group)
        binding = self._producer_binding(destination)
        destination.customize(binding)
        return binding

    def _producer_binding(self, destination: ProducerDestination) -> ProducerBinding:
        parts = self.name, destination, self.broker, self._delay_levels, self._clock
        if destination.checker is None:
            return InMemoryProducerBinding(*parts)
        group = self.producer_group(destination.name, destination.extended)
        return InMemoryTransactionalProducerBinding(*parts, group=group, checker=destination.checker)

    def ignored_by_consumer(self, destination: ConsumerDestination, *, polled: bool) -> Mapping[str, str]:
        """Return `instance-count`: the members of a group share the partitions, however many there are."""
        return {"consumer.instance-count": "the members of a group share the partitions, however many there are"}

    def ignored_by_producer(self, destination: ProducerDestination) -> Mapping[str, str]:
        """Return `partition-count`: all destinations have the same number."""
        return {
            "producer.partition-count": f"spring.cloud.stream.{TYPE}.binder.partitions decides for all destinations"
        }

    def producer_group(self, destination: str, extended: ExtendedProducerProperties) -> str:
        """Return the producer group: the binding's setting, else that of the replaced binder, else the destination."""
        return super().producer_group(self._stood_for.producer_group or destination, extended)

    def dead_letter_destination(self, destination: ConsumerDestination) -> str | None:
        """Return the dead letter topic, named as by the binder that this one stands in for."""
        return destination.extended.dead_letter_topic(destination.name, destination.group)

    def has_destination(self, name: str) -> bool:
        """Return whether a destination exists: a message was sent to it, or a binding uses it."""
        return name in self.broker.destinations

    async def health(self) -> Health:
        """Return UP with the number of destinations and the lags, or DOWN if the binder is not started."""
        if self._broker is None:
            return Health(HealthStatus.DOWN)
        lags = {f"lag.{binding}": str(lag) for binding, lag in (await self.lags()).items()}
        return Health(HealthStatus.UP, {"destinations": str(len(self._broker.destinations))} | lags)

    @property
    def _open_members(self) -> list[InMemoryMember]:
        return [member for member in self._members if member.state is not BindingState.STOPPED]

    async def lags(self) -> Mapping[str, int]:
        """Return the number of unsettled messages by binding, in the partitions of its members here.

        A message that waits for its next delivery counts.
        """
        lags: Counter[str] = Counter()
        for member in self._open_members:
            lags[member.binding] += member.lag
        return lags
