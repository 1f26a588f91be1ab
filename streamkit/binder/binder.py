"""The SPI: what a messaging system must do to carry an application's channels.

This page is the manual for authors of binders.

**Finding a binder.** A distribution declares an entry point in group ``streamkit.binders`` whose name is the
binder's type and whose value is a module with two pluggy hooks (:mod:`streamkit.binder.plugin`)::

    [project.entry-points."streamkit.binders"]
    mymq = "my_package.plugin"

The module is imported when a setting first names the type, so it should import its client lazily.

**Life of a binder.** ``check_consumer`` and ``check_producer`` are asked about each binding, so that wrong names
are told with file and line before anything happens. ``start`` connects; then ``capabilities`` is asked; then
producers are bound, then consumers; at the end consumers are stopped, producers are stopped, and ``stop`` closes
what ``start`` opened.
All of it, and every callback, runs on the application's one event loop; a binder starts no loop of its own.
``start`` or a ``bind_*`` that fails because the system is away raises
:class:`~streamkit.errors.BinderUnavailable`: the framework tries again every
``spring.cloud.stream.binding-retry-interval`` seconds. Any other exception ends the start of the application.
Translate the client's exceptions with ``raise ... from``. ``bind_consumer`` and ``bind_producer`` call
``destination.customize(client)`` with what they made, before it starts.

**Delivering.** For each message the binder calls the :data:`Receiver` it was given, with the message as it
came (payload ``bytes``, portable headers set, see :mod:`streamkit.messaging.headers`) and the number of times
it was redelivered before. The receiver runs conversion, the attempts in process, the listener and the error
channels, and returns a :class:`~streamkit.binder.settlement.Settlement`; it never raises but for
cancellation. The binder carries the settlement out and decides nothing itself:

* ``Accept``: the message's place in the group moves on;
* ``Retry(after)``: deliver it again after ``after``, or after
  :meth:`Delivery.redelivery_delay(redeliveries) <streamkit.binder.delivery.Delivery.redelivery_delay>`,
  with ``redeliveries + 1``;
* ``RejectMessage(reason, cause)``: keep it in the dead letter destination with
  :func:`~streamkit.binder.dead_letter.cause_headers`. The limit of redeliveries is the receiver's business:
  a message over it comes back as ``RejectMessage``, never as ``Retry``. Under broadcast nothing comes back
  but ``Accept``: failures there are reported and dropped by the receiver.

**Order and concurrency.** With ``delivery.ordered`` the binder calls the receiver for one message of a
partition at a time and goes on only after the settlement is carried out; after a ``Retry`` the same message
comes again first. Otherwise it may call the receiver for any number of messages at once: the ``concurrency``
permits are inside the receiver, held only while a handler runs, so that a message waiting for its next
attempt blocks nobody. A binder bounds what it has in flight by its own means (a flow-control window).

**Transactions.** A binder with :attr:`Capability.TRANSACTION` returns a :class:`TransactionalProducerBinding` for a
destination that has a ``checker``. What began there and ended in no way it knows of, it has the checker decide after
some time, again and again while the answer is unknown: also what another member of the same producer group
(:meth:`Binder.producer_group`) began. After a bounded number of checks the message is put aside where people see it.

**Batches.** A binding with ``consumer.batch-mode=true`` is bound with :meth:`Binder.bind_batch_consumer`, where the
binder has :attr:`Capability.BATCH`. It hands the :class:`BatchReceiver` as many messages of one partition, in their
order, as are there and as ``delivery.batch_size`` allows; it does not wait for more. The messages of a batch are all
new or all redelivered. Each of the settlements that come back is carried out on its own. With ``delivery.ordered``
the messages that are retried come again first, in their order, in a batch of their own.

**Polling.** A binding of ``spring.cloud.stream.pollable-source`` is bound with :meth:`Binder.bind_polled`, where the
binder has :attr:`Capability.POLLED`. Its :class:`PolledSource` gives one message at a time when it is asked, and
carries each settlement out when that comes: at once, or long after other messages were polled. Messages that were
polled and are not settled when the source stops are delivered again.

**Stopping.** ``ConsumerBinding.stop(timeout)`` stops fetching at once, before it first waits for anything, waits
up to ``timeout`` seconds for calls in flight, carries out their settlements, commits and leaves the group; calls
that are left are cancelled. The receiver raises ``CancelledError`` to messages that no handler has begun with. What
was cancelled stays unsettled and is delivered again to whoever comes next.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, Protocol, TypeAlias

from streamkit.binder.capabilities import Capability
from streamkit.binder.delivery import (
    ConsumerModel,
    Delivery,
    ExtendedConsumerProperties,
    ExtendedProducerProperties,
    ProducerModel,
)
from streamkit.binder.permits import Permits
from streamkit.binder.settlement import Settlement
from streamkit.binder.spark_format import SparkFormat
from streamkit.clock import Clock
from streamkit.config.environment import Environment
from streamkit.config.settings import ConsumerProperties, ProducerProperties
from streamkit.errors import BinderError
from streamkit.messaging.message import Message
from streamkit.messaging.transaction import BrokerTransaction, TransactionState

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
"""Handles one delivered message: ``await receiver(message, redeliveries)`` returns what becomes of it."""


class BindingState(Enum):
    """Where a binding is in its life."""

    STOPPED = "stopped"
    RUNNING = "running"
    PAUSED = "paused"


class HealthStatus(Enum):
    """Whether a binder can do its work now."""

    UP = "UP"
    DOWN = "DOWN"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Health:
    """A binder's answer to "are you well?", with details for people."""

    status: HealthStatus
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConsumerDestination:
    """What a consumer is bound to.

    Attributes:
        name: The destination: one topic. Of several in one setting each is bound on its own.
        group: The consumer group; ``None`` is an anonymous one: the member's own, not durable, and it gets
            only messages sent from now on.
        binding: The binding's name, for messages and logs.
        properties: ``spring.cloud.stream.bindings.<binding>.consumer.*``.
        extended: The binder's own settings of this binding, an instance of its ``consumer_properties``.
        delivery: What ``extended`` means in portable terms.
        permits: The permits the receiver takes; a binder may watch them, to fetch no more than it can handle.
        instance_index: This process's number among ``instance_count`` instances.
        instance_count: How many instances of the application run.
        customizers: What the application wants to do to the consumer first; see :meth:`customize`.
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
        """Let the application change the system's own consumer; to be called once, before that starts."""
        if self.customizers is not None:
            self.customizers(native, self)


TransactionChecker: TypeAlias = Callable[[Message[bytes]], Awaitable[TransactionState]]
"""Tells how the local transaction of a half message ended; it never raises but for cancellation."""

FailureListener: TypeAlias = Callable[[Message[bytes], BinderError], Awaitable[None]]
"""Told of a message whose sending failed after ``send`` had returned."""


@dataclass(frozen=True, slots=True)
class ProducerDestination:
    """What a producer is bound to.

    Attributes:
        name: The destination: a topic.
        binding: The binding's name, for messages and logs.
        properties: ``spring.cloud.stream.bindings.<binding>.producer.*``.
        extended: The binder's own settings of this binding, an instance of its ``producer_properties``.
        on_failure: To be awaited when a message that ``send`` took is lost after all; it reports to the
            binding's error channel and never raises.
        checker: On a transactional binding, who tells how a local transaction of its producer group ended.
        customizers: What the application wants to do to the producer first; see :meth:`customize`.
    """

    name: str
    binding: str
    properties: ProducerProperties
    extended: ExtendedProducerProperties
    on_failure: FailureListener
    checker: TransactionChecker | None = None
    customizers: "Callable[[object, ProducerDestination], None] | None" = None

    def customize(self, native: object) -> None:
        """Let the application change the system's own producer; to be called once, before that starts."""
        if self.customizers is not None:
            self.customizers(native, self)

    def unsent(self, binder: str, reason: object) -> BinderError:
        """The error of a message that the binder of that name could not send here."""
        return BinderError(
            f"binding {self.binding!r} could not send to {self.name!r}: {reason}",
            binder=binder,
            binding=self.binding,
        )


class BatchReceiver(Protocol):
    """Handles several delivered messages at once."""

    async def receive_batch(
        self, messages: Sequence[Message[bytes]], redeliveries: Sequence[int]
    ) -> Sequence[Settlement]:
        """Return what becomes of each of ``messages``; ``redeliveries`` is how often each was given back before."""
        ...


class ConsumerBinding(ABC):
    """One consumer at work, as its binder returned it."""

    @property
    @abstractmethod
    def state(self) -> BindingState:
        """Running, paused or stopped."""

    @abstractmethod
    async def pause(self) -> None:
        """Fetch nothing more until :meth:`resume`; the place in the group is kept.

        The receiver lets no handler start meanwhile, so what was fetched already waits in its calls.

        Only called on binders with :attr:`Capability.PAUSE`.
        """

    @abstractmethod
    async def resume(self) -> None:
        """Go on delivering after :meth:`pause`."""

    @abstractmethod
    async def stop(self, timeout: float) -> None:
        """End the consumer; calls in flight get ``timeout`` seconds. A second call does nothing."""


@dataclass(frozen=True, slots=True)
class PolledMessage:
    """A message that was asked for.

    Attributes:
        message: The message.
        redeliveries: How often it was given back before.
        settle: To be awaited once, with what becomes of it; does nothing when the source has stopped. Runs to its end
            although the poll is cancelled, unless the message is accepted, which should need no waiting.
    """

    message: Message[bytes]
    redeliveries: int
    settle: Callable[[Settlement], Awaitable[None]]


class PolledSource(ConsumerBinding):
    """A member of a group that is asked for messages.

    It is stopped once the messages it gave are settled, or their time is up; no poll's message counts that comes after.
    """

    @abstractmethod
    async def poll(self) -> PolledMessage | None:
        """Return the next message, or ``None`` when none is there, or comes within the binder's own time.

        May be called again before the message is settled, also by several tasks at once.
        """


class ProducerBinding(ABC):
    """One open way to a destination, as its binder returned it."""

    @property
    def partition_count(self) -> int | None:
        """How many partitions the binding divides keys among, or ``None`` when the setting decides."""
        return None

    @abstractmethod
    async def send(self, message: Message[bytes]) -> None:
        """Send ``message``; return when the system has accepted it, as the binding's settings define that.

        Raises:
            BinderError: The system refused it or could not be reached; the cause is chained.
        """

    @abstractmethod
    async def stop(self) -> None:
        """Finish what is being sent and close. A second call does nothing."""


class TransactionalProducerBinding(ProducerBinding):
    """One open way to a destination that takes messages whose fate a local transaction decides."""

    @abstractmethod
    async def begin(self, message: Message[bytes]) -> BrokerTransaction:
        """Store ``message`` where nobody sees it, until the transaction returned says what becomes of it.

        Raises:
            BinderError: The system refused it or could not be reached; the cause is chained.
        """


class Binder(ABC):
    """A messaging system under one name of ``spring.cloud.stream.binders``.

    Attributes:
        type: The kind of system, the name of its entry point.
        name: The name settings use for this instance; the type, if only one is configured.
        consumer_properties: Model of the extended consumer settings.
        producer_properties: Model of the extended producer settings.
        multiplexes: Whether one consumer takes all destinations of a binding: for systems where all members of
            a group must subscribe to the same. Such a binder tells them apart by :meth:`origin_of`.
        is_local: Whether its messages live in this process alone, so that no other process can send or receive them.
    """

    type: ClassVar[str]
    multiplexes: ClassVar[bool] = False
    is_local: ClassVar[bool] = False
    consumer_properties: ConsumerModel = ExtendedConsumerProperties
    producer_properties: ProducerModel = ExtendedProducerProperties

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def extended_type(self) -> str:
        """The type below whose ``spring.cloud.stream.<type>`` the extended properties of bindings stand."""
        return self.type

    @abstractmethod
    async def start(self) -> None:
        """Connect. Afterwards :meth:`capabilities` is known and bindings can be made."""

    @abstractmethod
    async def stop(self) -> None:
        """Close what :meth:`start` opened. Also called after a ``start`` that failed."""

    @abstractmethod
    def capabilities(self) -> frozenset[Capability]:
        """Return what this system can do; asked after :meth:`start`."""

    @abstractmethod
    async def bind_consumer(self, destination: ConsumerDestination, receiver: Receiver) -> ConsumerBinding:
        """Join the group and begin to deliver to ``receiver``.

        When this returns, an anonymous or new group receives everything that is sent from now on.
        """

    async def bind_batch_consumer(
        self, destination: ConsumerDestination, receiver: BatchReceiver
    ) -> ConsumerBinding:
        """As :meth:`bind_consumer`, delivering batches; only called on binders with :attr:`Capability.BATCH`."""
        raise BinderError(f"binder {self.name!r} delivers no batches", binder=self.name)

    async def bind_polled(self, destination: ConsumerDestination) -> PolledSource:
        """Join the group, and keep messages until they are asked for; only with :attr:`Capability.POLLED`.

        When this returns, an anonymous or new group receives everything that is sent from now on.
        """
        raise BinderError(f"binder {self.name!r} has no polled consumers", binder=self.name)

    @abstractmethod
    async def bind_producer(self, destination: ProducerDestination) -> ProducerBinding:
        """Open the way to a destination; make it, if the binder's provisioning says so."""

    def check_consumer(self, destination: ConsumerDestination) -> None:  # noqa: B027 - most have nothing to say
        """Refuse what settings ask and this system never does; asked before :meth:`start`, so nothing is connected.

        Raises:
            ConfigurationError: Its ``key`` is the setting below the binding that is to blame, such as ``group``.
        """

    def check_producer(self, destination: ProducerDestination) -> None:  # noqa: B027 - as above
        """Refuse as :meth:`check_consumer` does."""

    def origin_of(self, message: Message[bytes]) -> str | None:
        """Return the topic a received message was sent to; only asked of binders that multiplex."""
        return None

    def producer_group(self, destination: str, extended: ExtendedProducerProperties) -> str:
        """Return the group under which a producer's transactions are known; the destination, unless settings say."""
        terms = extended.transaction()
        return destination if terms is None or terms.group is None else terms.group

    def dead_letter_destination(self, destination: str, group: str) -> str | None:
        """Return where rejected messages of ``group`` go, or ``None`` if they are lost."""
        return None

    def spark_source(self, destination: ConsumerDestination) -> SparkFormat | None:
        """Return how Spark reads the destination by itself; ``None``: it cannot. Asked before or after :meth:`start`.

        Its rows have the columns ``body`` (binary), ``properties`` (a map of the headers), ``keys``, ``tags``,
        ``topic``, ``queue_id``, ``queue_offset`` and ``store_timestamp``.
        """
        return None

    def spark_sink(self, destination: ProducerDestination) -> SparkFormat | None:
        """Return how Spark writes to the destination by itself; ``None``: it cannot.

        It takes the columns ``body`` (binary), ``properties`` (a map of the headers), ``keys``, ``tags`` and
        ``order_key``, and the option ``delivery``: ``at-least-once`` or ``deduplicated``.
        """
        return None

    async def health(self) -> Health:
        """Return whether the system can be used now; never raises."""
        return Health(HealthStatus.UNKNOWN)

    async def lags(self) -> Mapping[str, int]:
        """Return how many messages its inputs have not settled yet, by the bindings' names; asked for metrics.

        Without those that it does not know of.

        Raises:
            BinderError: The system did not tell.
        """
        return {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


@dataclass(frozen=True, slots=True)
class BinderContext:
    """What a binder is made with.

    Attributes:
        environment: The settings this binder may see: the application's, with those of
            ``spring.cloud.stream.binders.<name>.environment`` on top. ``environment.bind(prefix, model)``
            reads the binder's own, such as ``spring.cloud.stream.mymq.binder``.
        clock: Wall-clock time; never call ``time.time`` (tests run on a virtual clock).
        application: The application's name, for client ids and logs.
        extended_models: Returns the extended property models of any installed type, for a binder that
            stands in for another.
    """

    environment: Environment
    clock: Clock
    application: str
    extended_models: Callable[
        [str], tuple[type[ExtendedConsumerProperties], type[ExtendedProducerProperties]]
    ]
