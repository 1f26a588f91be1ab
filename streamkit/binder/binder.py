"""The SPI: the classes that a messaging system implements to connect an application's channels.

This module is the manual for authors of binders.

**Finding a binder.** A distribution declares an entry point in the group ``streamkit.binders``. The name of the entry
point is the binder's type, and its value is a module with the hook ``streamkit_binder_types``::

    [project.entry-points."streamkit.binders"]
    mymq = "my_package.plugin"

The module is imported when a setting first names the type. The module should import the system's client only in the
methods of its :class:`~streamkit.binder.binder_type.BinderType`.

**Life of a binder.** The framework calls these methods in this order::

    check_consumer, check_producer   for each binding: wrong settings are errors with file and line, before a connection
    start                            connects
    capabilities                     is compared with the requirements of the settings
    bind_producer                    for each output
    bind_consumer                    for each input, or bind_batch_consumer, or bind_polled
    stop of each ConsumerBinding, then stop of each ProducerBinding
    stop                             closes everything that start opened

Without a start, :meth:`Binder.examine` tells what is wrong with the system.

Every method and every callback runs on the application's event loop; a binder starts no loop of its own. If the system
cannot be reached, ``start`` and ``bind_*`` raise :class:`~streamkit.errors.BinderUnavailable`, and the framework calls
them again every ``spring.cloud.stream.binding-retry-interval``. Any other exception ends the start of the application.
Translate the client's exceptions with ``raise ... from``. Every ``bind_*`` method calls
``destination.customize(client)`` with the consumer or producer that it made, before that consumer or producer starts.

**Delivering.** For each message the binder calls its :data:`Receiver` with the message as it arrived (payload
``bytes``, portable headers set, see :mod:`streamkit.messaging.headers`) and the number of earlier redeliveries. The
receiver converts the payload, makes the attempts in process, calls the listener and the error channels, and returns a
:class:`~streamkit.settlement.Settlement`. The receiver raises only ``CancelledError``. The binder carries the
settlement out and makes no decision of its own:

* ``Accept``: move the group's offset past the message;
* ``Requeue``: deliver the message again with ``redeliveries + 1``, after the settlement's ``after`` or, if that is
  ``None``, after
  :meth:`Delivery.redelivery_delay(redeliveries) <streamkit.binder.delivery.Delivery.redelivery_delay>`;
* ``Reject``: put the message into the dead letter destination with
  :func:`~streamkit.binder.dead_letter.cause_headers`.

The receiver applies the limit of redeliveries: it returns ``Reject`` for a message that has reached the limit, never
``Requeue``. Under broadcast the receiver always returns ``Accept``: it reports failures and drops the messages.

**Order and concurrency.** With ``delivery.ordered`` the binder calls the receiver for one message of a partition at a
time. It calls the receiver for the next message after the settlement has been carried out; after a ``Requeue`` the next
message is the same message again. Without ``delivery.ordered`` the binder may call the receiver for any number of
messages at once: the receiver holds one of the binding's ``concurrency`` permits only while a handler runs, so a
message that waits for its next attempt occupies no handler. The binder itself limits its unsettled messages, by a
flow-control window.

**Transactions.** A binder with :attr:`Capability.TRANSACTION` returns a :class:`TransactionalProducerBinding` for a
destination that has a ``checker``. If the system does not learn how a transaction ended, the binder asks the checker
after some time, and again as long as the answer is unknown. The transaction may have been begun by another member of
the same producer group (:meth:`Binder.producer_group`). After a limited number of checks the message is moved to a
destination that operators can read.

**Batches.** A binding with ``consumer.batch-mode=true`` is bound with :meth:`Binder.bind_batch_consumer` if the binder
has :attr:`Capability.BATCH`. The binder calls the :class:`BatchReceiver` with waiting messages of one partition, in
their order and at most ``delivery.batch_size`` of them; the binder does not wait for more messages. The messages of a
batch are all new or all redelivered. The binder carries out the settlement of each message separately. With
``delivery.ordered`` the requeued messages come first again, in their order, in a batch of their own.

**Polling.** A binding of ``spring.cloud.stream.pollable-source`` is bound with :meth:`Binder.bind_polled` if the binder
has :attr:`Capability.POLLED`. Each call of :meth:`PolledSource.poll` returns one message. Its settlement may come at
once or long after other messages were polled. Messages that are polled but not settled when the source stops are
delivered again.

**Stopping.** ``ConsumerBinding.stop(timeout)`` stops fetching before its first ``await``, waits up to ``timeout``
seconds for calls in flight, carries out their settlements, commits and leaves the group. It cancels the calls that are
still in flight after ``timeout``. For messages that no handler has begun with, the receiver raises ``CancelledError``.
The messages of cancelled calls stay unsettled, and the group's members receive them again.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias

import msgspec

from streamkit.binder.capabilities import Capability
from streamkit.binder.delivery import (
    ConsumerModel,
    Delivery,
    ExtendedConsumerProperties,
    ExtendedProducerProperties,
    ProducerModel,
)
from streamkit.binder.permits import Permits
from streamkit.binder.stand_in import StandIn
from streamkit.clock import Clock
from streamkit.config.environment import Environment
from streamkit.config.settings import ConsumerProperties, ProducerProperties
from streamkit.errors import BinderError, BinderUnavailable
from streamkit.messaging.message import Message
from streamkit.messaging.transaction import BrokerTransaction, TransactionState
from streamkit.settlement import Settlement

if TYPE_CHECKING:  # most processes neither explore nor examine a system, and have no Spark
    from streamkit.binder.exploring import Explorer
    from streamkit.binder.spark_format import SparkFormat
    from streamkit.findings import Finding

__all__ = [
    "BatchReceiver",
    "Binder",
    "BinderContext",
    "BindingState",
    "ConsumerBinding",
    "ConsumerDestination",
    "FailureListener",
    "Health",
    "HealthStatus",
    "PolledMessage",
    "PolledSource",
    "ProducerBinding",
    "ProducerDestination",
    "Receiver",
    "TransactionChecker",
    "TransactionalProducerBinding",
]

Receiver: TypeAlias = Callable[[Message[bytes], int], Awaitable[Settlement]]
"""Handles one delivered message: ``await receiver(message, redeliveries)`` returns its settlement."""


class BindingState(Enum):
    """The state of a binding."""

    STOPPED = "stopped"
    RUNNING = "running"
    PAUSED = "paused"


class HealthStatus(Enum):
    """Whether a binder can be used now."""

    UP = "UP"
    DOWN = "DOWN"
    UNKNOWN = "UNKNOWN"


class Health(msgspec.Struct, frozen=True):
    """The result of a binder's health check.

    Attributes:
        status: Whether the binder can be used now.
        details: Names and values for people.
    """

    status: HealthStatus
    details: Mapping[str, str] = msgspec.field(default_factory=dict)


class ConsumerDestination(msgspec.Struct, frozen=True):
    """The destination of a consumer binding, with its settings.

    Attributes:
        name: The topic. If a setting lists several topics, each is bound separately; for a binder that multiplexes
            (:attr:`Binder.multiplexes`), the topics separated by commas.
        group: The consumer group; ``None`` is an anonymous group, which has this member only, is not durable and
            receives only messages sent from now on.
        binding: The binding's name, for errors and logs.
        properties: ``spring.cloud.stream.bindings.<binding>.consumer.*``.
        extended: The binder's own settings of this binding, an instance of its ``consumer_properties``.
        delivery: The portable meaning of ``extended``.
        permits: The permits that the receiver takes; a binder may watch them, to fetch no more than can be handled.
        instance_index: The number of this process among ``instance_count`` instances, from 0.
        instance_count: The number of instances of the application.
        customizers: Calls the application's customizers of consumers; see :meth:`customize`.
    """

    name: str
    group: str | None
    binding: str
    properties: ConsumerProperties
    extended: ExtendedConsumerProperties
    delivery: Delivery
    permits: Permits
    instance_index: int = 0
    instance_count: int = 1
    customizers: "Callable[[object, ConsumerDestination], None] | None" = None

    def customize(self, native: object) -> None:
        """Call the application's customizers with the client's consumer. Called once, before the consumer starts.

        Args:
            native: The consumer of the messaging system's client.

        Raises:
            ConfigurationError: A customizer raised.
        """
        if self.customizers is not None:
            self.customizers(native, self)


TransactionChecker: TypeAlias = Callable[[Message[bytes]], Awaitable[TransactionState]]
"""Returns how the local transaction of a half message ended; raises only ``CancelledError``."""

FailureListener: TypeAlias = Callable[[Message[bytes], BinderError], Awaitable[None]]
"""Called with a message whose sending failed after ``send`` had returned."""


class ProducerDestination(msgspec.Struct, frozen=True):
    """The destination of a producer binding, with its settings.

    Attributes:
        name: The topic.
        binding: The binding's name, for errors and logs.
        properties: ``spring.cloud.stream.bindings.<binding>.producer.*``.
        extended: The binder's own settings of this binding, an instance of its ``producer_properties``.
        on_failure: To be awaited when a message is lost after ``send`` has returned; it reports to the binding's error
            channel and never raises.
        checker: On a transactional binding, returns how a local transaction of its producer group ended.
        customizers: Calls the application's customizers of producers; see :meth:`customize`.
    """

    name: str
    binding: str
    properties: ProducerProperties
    extended: ExtendedProducerProperties
    on_failure: FailureListener
    checker: TransactionChecker | None = None
    customizers: "Callable[[object, ProducerDestination], None] | None" = None

    def customize(self, native: object) -> None:
        """Call the application's customizers with the client's producer. Called once, before the producer starts.

        Args:
            native: The producer of the messaging system's client.

        Raises:
            ConfigurationError: A customizer raised.
        """
        if self.customizers is not None:
            self.customizers(native, self)

    def unsent(self, binder: str, reason: object, *, away: bool = False) -> BinderError:
        """Return the error for a message that could not be sent to this destination.

        Args:
            binder: The binder's name.
            reason: The reason, as text or exception.
            away: Whether the system is away or busy, so that the same message may be accepted later. The error is
                `BinderUnavailable` then.
        """
        kind = BinderUnavailable if away else BinderError
        return kind(
            f"binding {self.binding!r} could not send to {self.name!r}: {reason}",
            binder=binder,
            binding=self.binding,
        )


class BatchReceiver(Protocol):
    """Handles several delivered messages at once."""

    async def receive_batch(
        self, messages: Sequence[Message[bytes]], redeliveries: Sequence[int]
    ) -> Sequence[Settlement]:
        """Return the settlement of each message; raise only ``CancelledError``.

        Args:
            messages: The messages of one delivery, in their order.
            redeliveries: The number of earlier redeliveries of each message.
        """
        ...


class ConsumerBinding(ABC):
    """A consumer that its binder has bound."""

    @property
    @abstractmethod
    def state(self) -> BindingState:
        """Running, paused or stopped."""

    @abstractmethod
    async def pause(self) -> None:
        """Fetch nothing until :meth:`resume`; keep the group's offset and the membership.

        No handler starts while the binding is paused: messages that are already fetched wait in the receiver for a
        permit. Only called on binders with :attr:`Capability.PAUSE`.
        """

    @abstractmethod
    async def resume(self) -> None:
        """Deliver again after :meth:`pause`."""

    @abstractmethod
    async def stop(self, timeout: float) -> None:
        """Stop the consumer and leave the group; a second call does nothing.

        Args:
            timeout: Seconds to wait for calls in flight; calls that take longer are cancelled.
        """


class PolledMessage(msgspec.Struct, frozen=True):
    """A polled message.

    Attributes:
        message: The message.
        redeliveries: The number of earlier redeliveries.
        settle: To be awaited once, with the settlement; does nothing when the source has stopped. The framework runs a
            ``Requeue`` or ``Reject`` to its end although the poll is cancelled. ``Accept`` has no such protection, so
            it should not wait.
    """

    message: Message[bytes]
    redeliveries: int
    settle: Callable[[Settlement], Awaitable[None]]


class PolledSource(ConsumerBinding):
    """A member of a group whose messages the application polls.

    The framework stops a source when the polled messages are settled or the time for that is over. A message that a
    poll returns after the stop has begun is ignored and stays unsettled.
    """

    @abstractmethod
    async def poll(self) -> PolledMessage | None:
        """Return the next message, or ``None`` if none arrives within the time that the binder waits.

        May be called again before the message is settled, also by several tasks at once.
        """


class ProducerBinding(ABC):
    """A producer that its binder has bound."""

    @property
    def partition_count(self) -> int | None:
        """The number of partitions of the destination, or ``None`` to use the setting ``partition-count``."""
        return None

    @abstractmethod
    async def send(self, message: Message[bytes]) -> None:
        """Send ``message``; return when the system has accepted it, in the sense of the binding's settings.

        Raises:
            BinderUnavailable: The system could not be reached or is busy; the cause is chained. It may have stored the
                message.
            BinderError: The system refused the message; the cause is chained.
        """

    async def send_all(self, messages: Sequence[Message[bytes]]) -> "Sequence[Exception | None]":
        """Send messages one after the other, up to the first that fails.

        A binder whose system takes several messages in one request may override this. Messages of one partition must
        stay in their order, and nothing may be sent behind a message of the same partition that failed.

        Returns:
            The error of each message, or None if the system has accepted it. A message that was not sent because
            another one failed has the same error.
        """
        for place, message in enumerate(messages):
            try:
                await self.send(message)
            except Exception as error:
                return [*[None] * place, *[error] * (len(messages) - place)]
        return [None] * len(messages)

    @abstractmethod
    async def stop(self) -> None:
        """Finish the sends under way and close; a second call does nothing."""


class TransactionalProducerBinding(ProducerBinding):
    """A producer of messages that become visible when a local transaction commits."""

    @abstractmethod
    async def begin(self, message: Message[bytes]) -> BrokerTransaction:
        """Store ``message`` invisibly and return the transaction that commits or rolls it back.

        Raises:
            BinderError: The system refused the message or could not be reached; the cause is chained.
        """


class Binder(ABC):
    """A messaging system under one name of ``spring.cloud.stream.binders``.

    Attributes:
        type: The binder type, which settings name.
        name: The name of this binder in the settings; without ``spring.cloud.stream.binders`` it is the type.
        consumer_properties: The model of the extended consumer settings.
        producer_properties: The model of the extended producer settings.
        multiplexes: Whether one consumer takes all destinations of a binding, for systems in which all members of a
            group must have the same subscriptions. Such a binder implements :meth:`origin_of`.
        is_local: Whether its messages exist in this process only, so that no other process can send or receive them.
        possible_capabilities: The capabilities that some system of this type has. :meth:`capabilities` returns those of
            the connected one.
    """

    type: ClassVar[str]
    multiplexes: ClassVar[bool] = False
    is_local: ClassVar[bool] = False
    possible_capabilities: frozenset[Capability] = frozenset(Capability)
    consumer_properties: ConsumerModel = ExtendedConsumerProperties
    producer_properties: ProducerModel = ExtendedProducerProperties

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def extended_type(self) -> str:
        """The type in ``spring.cloud.stream.<type>``, below which the extended properties of bindings are read."""
        return self.type

    @property
    def extended_type_key(self) -> str | None:
        """The key of the setting that chooses :attr:`extended_type`; ``None`` if the type is fixed."""
        return None

    @property
    def address(self) -> str:
        """Where the system is, for logs: the addresses of its servers; empty if it has none."""
        return ""

    @abstractmethod
    async def start(self) -> None:
        """Connect to the system. Afterwards :meth:`capabilities` and ``bind_*`` may be called.

        Raises:
            BinderUnavailable: The system cannot be reached; the framework tries again.
            BinderError: The system refused the connection; the application does not start.
        """

    @abstractmethod
    async def stop(self) -> None:
        """Close everything that :meth:`start` opened. Also called after a ``start`` that failed."""

    @abstractmethod
    def capabilities(self) -> frozenset[Capability]:
        """Return the capabilities of this system; called after :meth:`start`."""

    @abstractmethod
    async def bind_consumer(self, destination: ConsumerDestination, receiver: Receiver) -> ConsumerBinding:
        """Join the group and deliver its messages to ``receiver``.

        When this returns, an anonymous or new group receives every message that is sent from now on.

        Raises:
            BinderUnavailable: The system cannot be reached; the framework tries again.
            BinderError: The system refused.
        """

    async def bind_batch_consumer(self, destination: ConsumerDestination, receiver: BatchReceiver) -> ConsumerBinding:
        """Join the group and deliver its messages in batches; only called on binders with :attr:`Capability.BATCH`.

        When this returns, an anonymous or new group receives every message that is sent from now on.

        Raises:
            BinderUnavailable: The system cannot be reached; the framework tries again.
            BinderError: The system refused, or the binder has no batches.
        """
        raise BinderError(f"binder {self.name!r} delivers no batches", binder=self.name)

    async def bind_polled(self, destination: ConsumerDestination) -> PolledSource:
        """Join the group and return a source to poll; only called on binders with :attr:`Capability.POLLED`.

        When this returns, an anonymous or new group receives every message that is sent from now on.

        Raises:
            BinderUnavailable: The system cannot be reached; the framework tries again.
            BinderError: The system refused, or the binder has no polled consumers.
        """
        raise BinderError(f"binder {self.name!r} has no polled consumers", binder=self.name)

    @abstractmethod
    async def bind_producer(self, destination: ProducerDestination) -> ProducerBinding:
        """Return a producer for a destination; create the destination if the binder's settings allow that.

        Raises:
            BinderUnavailable: The system cannot be reached; the framework tries again.
            BinderError: The system refused.
        """

    def check_consumer(self, destination: ConsumerDestination) -> None:  # noqa: B027 - most binders check nothing
        """Check a consumer binding's settings; called before :meth:`start`, so without a connection.

        Raises:
            ConfigurationError: This system can never do what a setting asks; ``key`` is the setting below the binding,
                such as ``group``.
        """

    def check_producer(self, destination: ProducerDestination) -> None:  # noqa: B027 - as above
        """Check a producer binding's settings; called before :meth:`start`, so without a connection.

        Raises:
            ConfigurationError: As for :meth:`check_consumer`.
        """

    def ignored_by_consumer(self, destination: ConsumerDestination, *, polled: bool) -> Mapping[str, str]:
        """Return the settings that a consumer of this system ignores, each with the reason.

        The application's start warns of those that are set, and reports list them.

        Args:
            destination: The destination, with all settings.
            polled: Whether the application polls the consumer.

        Returns:
            The reasons by key: `consumer.instance-count` for a setting of the binding,
            `<type>.consumer.<key>` for one of the binder's own, or for all below it.
        """
        return {}

    def ignored_by_producer(self, destination: ProducerDestination) -> Mapping[str, str]:
        """Return the settings that a producer of this system ignores, as :meth:`ignored_by_consumer` does."""
        return {}

    def origin_of(self, message: Message[bytes]) -> str | None:
        """Return the topic that a received message was sent to; only called on binders that multiplex."""
        return None

    def name_of(self, message: Message[bytes]) -> str:
        """Return the name by which the messaging system's tools find a received message, for logs; its `id` here."""
        return str(message.headers.id)

    def producer_group(self, destination: str, extended: ExtendedProducerProperties) -> str:
        """Return the producer group of a binding's transactions: the group of the settings, else the destination."""
        terms = extended.transaction()
        return destination if terms is None or terms.group is None else terms.group

    def dead_letter_destination(self, destination: ConsumerDestination) -> str | None:
        """Return the destination of a binding's dead letters, or ``None`` if rejected messages are lost."""
        return None

    def spark_source(self, destination: ConsumerDestination) -> "SparkFormat | None":
        """Return the format by which Spark itself reads the destination, or ``None`` if Spark cannot.

        May be called before :meth:`start`.

        Its rows have the columns ``body`` (binary), ``properties`` (a map of the headers), ``keys``, ``tags``,
        ``topic``, ``queue_id``, ``queue_offset`` and ``store_timestamp``.
        """
        return None

    def spark_sink(self, destination: ProducerDestination) -> "SparkFormat | None":
        """Return the format by which Spark itself writes to the destination, or ``None`` if Spark cannot.

        The format reads the columns ``body`` (binary), ``properties`` (a map of the headers), ``keys``, ``tags`` and
        ``order_key``, and the option ``delivery``: ``at-least-once`` or ``deduplicated``.
        """
        return None

    async def health(self) -> Health:
        """Return whether the system can be used now; never raise."""
        return Health(HealthStatus.UNKNOWN)

    async def lags(self) -> Mapping[str, int]:
        """Return the number of messages that each input binding has not settled yet, by the binding's name.

        Metrics read it. Bindings whose lag is unknown are left out.

        Raises:
            BinderError: The system did not answer.
        """
        return {}

    async def examine(
        self,
        consumers: Sequence[ConsumerDestination],
        producers: Sequence[ProducerDestination],
        *,
        watch: float,
        answer_within: float,
    ) -> "Sequence[Finding]":
        """Return what is wrong with the system and with the destinations of bindings, and how to mend it.

        `streamkit doctor` calls it on a binder that is not started; the binder connects and disconnects for it. The
        application may be running elsewhere, and nothing may change for it: no group is joined, no destination created,
        no producer started.

        Args:
            consumers: The destinations of input bindings.
            producers: The destinations of output bindings. A binding whose direction the settings do not tell is in
                both.
            watch: Seconds between the two measurements that show whether lag grows; 0 measures once.
            answer_within: Seconds that a server may take to answer.
        """
        return ()

    def explorer(self) -> "Explorer | None":
        """Return an object that looks at the destinations of the system for `streamkit console`; None if there is none.

        It is asked of a binder that is not started, and connects and disconnects by itself.
        """
        return None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


class BinderContext(msgspec.Struct, frozen=True):
    """The environment in which a binder is made.

    Attributes:
        environment: The settings for this binder: the application's settings, overridden by those of
            ``spring.cloud.stream.binders.<name>.environment``. ``environment.bind(prefix, model)`` reads the binder's
            own settings, such as ``spring.cloud.stream.mymq.binder``.
        clock: Wall-clock time; never call ``time.time`` (tests run on a virtual clock).
        application: The application's name, for client ids and logs.
        stand_in: Returns the terms of a binder of any installed type with these settings, for a binder that stands in
            for it.
        stands_in_for: The type that a test has replaced by this binder; ``None`` outside of tests.
    """

    environment: Environment
    clock: Clock
    application: str
    stand_in: Callable[[str], StandIn]
    stands_in_for: str | None = None
