"""The in-memory binder: makes bindings at a broker in this process."""

from dataclasses import replace
from itertools import count

from binders.inmemory.batch_consumer import ConcurrentBatchBinding, OrderedBatchBinding
from binders.inmemory.binder_type import TYPE
from binders.inmemory.broker import DEAD_LETTER_PREFIX, InMemoryBroker
from binders.inmemory.consumer import (
    ConcurrentConsumerBinding,
    InMemoryConsumerBinding,
    OrderedConsumerBinding,
)
from binders.inmemory.destination import Destination
from binders.inmemory.group import Group
from binders.inmemory.polled import InMemoryPolledSource
from binders.inmemory.producer import InMemoryProducerBinding, InMemoryTransactionalProducerBinding
from binders.inmemory.properties import InMemoryBinderProperties
from streamkit.binder.binder import (
    BatchReceiver,
    Binder,
    BinderContext,
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
from streamkit.binder.delivery import StartPosition, parse_delay_levels
from streamkit.errors import BinderError

_anonymous = count(1)

CAPABILITIES = frozenset(Capability) - {Capability.SQL, Capability.SEEK}


class InMemoryBinder(Binder):
    """A messaging system in this process; what it holds is gone with it."""

    type = TYPE
    is_local = True

    def __init__(self, name: str, context: BinderContext) -> None:
        super().__init__(name)
        prefix = f"spring.cloud.stream.{TYPE}.binder"
        self._settings = context.environment.bind(prefix, InMemoryBinderProperties)
        self._clock = context.clock
        self._delay_levels = parse_delay_levels(self._settings.message_delay_level)
        models = context.extended_models(self._settings.stands_in_for)
        self.consumer_properties, self.producer_properties = models
        self._broker: InMemoryBroker | None = None

    @property
    def extended_type(self) -> str:
        """The type the binder stands in for."""
        return self._settings.stands_in_for

    @property
    def broker(self) -> InMemoryBroker:
        """The broker: its own, or the one applications of this process share."""
        if self._broker is None:
            raise BinderError(f"the in-memory binder {self.name!r} is not started", binder=self.name)
        return self._broker

    async def start(self) -> None:
        """Make the broker, or find the one that is shared.

        Raises:
            BinderError: It is shared with an application on another event loop.
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
        )

    async def stop(self) -> None:
        """Drop the broker if it is the binder's own."""
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
        """All but SQL and seeking."""
        return CAPABILITIES

    async def bind_consumer(self, destination: ConsumerDestination, receiver: Receiver) -> ConsumerBinding:
        """Join the group; a broadcasting or anonymous member has one of its own."""
        destination, home, group = self._group(destination)
        kind: type[InMemoryConsumerBinding[Receiver]] = ConcurrentConsumerBinding
        if destination.delivery.ordered:
            kind = OrderedConsumerBinding
        binding = kind(destination, home, group, self.broker, receiver)
        destination.customize(binding)
        binding.start()
        return binding

    async def bind_batch_consumer(
        self, destination: ConsumerDestination, receiver: BatchReceiver
    ) -> ConsumerBinding:
        """As `bind_consumer`, with batches."""
        destination, home, group = self._group(destination)
        kind: type[InMemoryConsumerBinding[BatchReceiver]] = ConcurrentBatchBinding
        if destination.delivery.ordered:
            kind = OrderedBatchBinding
        binding = kind(destination, home, group, self.broker, receiver)
        destination.customize(binding)
        binding.start()
        return binding

    async def bind_polled(self, destination: ConsumerDestination) -> PolledSource:
        """As `bind_consumer`; messages wait to be asked for."""
        destination, home, group = self._group(destination)
        source = InMemoryPolledSource(destination, home, group, self.broker, None)
        destination.customize(source)
        source.start()
        return source

    def _group(self, destination: ConsumerDestination) -> tuple[ConsumerDestination, Destination, Group]:
        """The group a consumer is to join, and where; its delays are those of this binder."""
        delivery = replace(destination.delivery, delay_levels=self._delay_levels)
        home = self.broker.destination(destination.name)
        name = destination.group or "anonymous"
        if destination.group is None or delivery.broadcast:
            name = f"{name}.{next(_anonymous)}"
        group = home.group(name, delivery.tags, delivery.start is StartPosition.EARLIEST)
        return replace(destination, delivery=delivery), home, group

    async def bind_producer(self, destination: ProducerDestination) -> ProducerBinding:
        """Open the way to a destination, which is made if it is new, with the groups its settings require."""
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

    def dead_letter_destination(self, destination: str, group: str) -> str:
        """The group's own, named as on RocketMQ."""
        return DEAD_LETTER_PREFIX + group

    async def health(self) -> Health:
        """Well, once it is started."""
        if self._broker is None:
            return Health(HealthStatus.DOWN)
        return Health(HealthStatus.UP, {"destinations": str(len(self._broker.destinations))})
