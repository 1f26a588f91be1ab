"""Kafka's transactions: the messages that a listener sends and the offset of its message are committed together.

::

    a message arrives ─▶ a transaction begins ─▶ the listener sends messages in the transaction
                                                    │ accepted   add the offset, commit
                                                    │ retried    abort: readers of committed messages see none of them
                                                    │ rejected   abort; then write the dead letter without transaction
    a message is sent outside of a listener ─▶ a transaction of its own

Each open transaction has a producer of its own. Producers are numbered and used again; the number ends the producer's
`transactional.id`: `<prefix>0`, `<prefix>1`, … There are as many producers as transactions at once: one for each
partition whose listener is running, and up to 16 for messages sent outside of listeners.

The calls that end a transaction block a thread until the brokers answer or the producer is closed. They have threads of
their own, so that no other blocking call of the application waits for these threads.

The current transaction is kept in a context variable, so messages belong to it only if they are sent in the listener's
own task or thread.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, TypeAlias

from binders.kafka.clients import Producer
from binders.kafka.partition import Delivery
from binders.kafka.producer import KafkaProducerBinding
from binders.kafka.properties import KafkaProducerProperties
from binders.kafka.sending import Sender, take_exception
from kafka import OffsetAndMetadata, TopicPartition
from kafka.errors import IllegalStateError, KafkaError
from streamkit.binder.binder import ConsumerDestination, ProducerDestination
from streamkit.binder.receiver_calls import ReceiverCall
from streamkit.errors import ConfigurationError
from streamkit.listeners.listener_threads import ListenerThreads
from streamkit.messaging.message import Message
from streamkit.settlement import Accept, Requeue, Settlement

logger = logging.getLogger(__name__)

_LAST_ABORT: Final = 5.0
"""How long to wait for the abort of a transaction whose block has failed or was cancelled, in seconds."""

AT_ONCE: Final = 16
"""The number of transactions at once for messages sent outside of listeners; further sends wait."""
# A bound that is never reached in practice: a transaction blocks at most two threads, one with its commit and, if the
# wait for that is cancelled, one with its abort.
_THREADS: Final = 10_000

GroupMetadata: TypeAlias = Any
"""kafka-python's `ConsumerGroupMetadata`."""


class Transaction:
    """An open transaction and its producer.

    Attributes:
        is_open: Whether the transaction is neither committed nor aborted.
    """

    def __init__(self, sender: Sender, producer: Producer) -> None:
        self._sender = sender
        self._producer = producer
        self.is_open = True

    async def send(self, topic: str, record: Mapping[str, object]) -> None:
        """Send a record in the transaction, and return when the broker has acknowledged the record.

        Args:
            topic: The topic.
            record: The arguments of kafka-python's `send`.

        Raises:
            KafkaError: The broker has not acknowledged the record.
        """
        await self._sender.send(topic, **record)

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None, group: GroupMetadata = None) -> None:
        """Commit the transaction, with offsets of a group.

        Args:
            offsets: The offsets to commit, by partition.
            group: The consumer's membership in its group; needed with offsets.

        Raises:
            KafkaError: The transaction could not be committed.
        """
        await self._call(partial(self._commit, offsets or {}, group))
        self.is_open = False

    def _commit(self, offsets: Mapping[TopicPartition, int], group: GroupMetadata) -> None:
        if offsets:
            positions = {key: OffsetAndMetadata(offset, "", -1) for key, offset in offsets.items()}
            self._producer.send_offsets_to_transaction(positions, group)
        self._producer.commit_transaction()

    async def abort(self) -> None:
        """Abort the transaction.

        Raises:
            KafkaError: The brokers could not be told; they abort the transaction after its timeout.
        """
        await self._call(self._producer.abort_transaction)
        self.is_open = False

    async def _call(self, call: Callable[[], None]) -> None:
        """Make a blocking call on a thread; if the caller is cancelled, the call itself goes on."""
        calling = asyncio.create_task(self._sender.call(call))
        calling.add_done_callback(take_exception)
        await asyncio.shield(calling)


class Transactions:
    """The transactions of one binder, and the producers for the next ones."""

    def __init__(self, sender: Callable[[int, Executor], Sender]) -> None:
        """Prepare transactions; producers connect when they are needed.

        Args:
            sender: Returns the sender with a number, whose blocking calls run on the given threads.
        """
        self._make_sender = sender
        self._threads = ListenerThreads(_THREADS, "kafka transactions")
        self._free: list[tuple[int, Sender]] = []
        self._used: set[Sender] = set()
        self._made = 0
        self._room = asyncio.Semaphore(AT_ONCE)
        self._is_closed = False
        self._current: ContextVar[Transaction | None] = ContextVar("kafka_transaction", default=None)

    @property
    def current(self) -> Transaction | None:
        """The open transaction of the listener that runs in this context; None if there is none."""
        transaction = self._current.get()
        return transaction if transaction is not None and transaction.is_open else None

    @contextmanager
    def _as_current(self, transaction: Transaction) -> Iterator[None]:
        token = self._current.set(transaction)
        try:
            yield
        finally:
            self._current.reset(token)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Transaction]:
        """Open a transaction for a block; a transaction that the block has not committed is aborted.

        Raises:
            KafkaError: The brokers are away, or refuse; or the transactions were closed.
        """
        if self._is_closed:
            raise IllegalStateError("the producers of transactions are closed")
        number, sender = self._free.pop() if self._free else self._next()
        self._used.add(sender)
        transaction: Transaction | None = None
        try:
            producer = await sender.start()
            producer.begin_transaction()
            transaction = Transaction(sender, producer)
            with self._as_current(transaction):
                yield transaction
            if transaction.is_open:
                await transaction.abort()
        except BaseException:
            if transaction is not None and transaction.is_open and not self._is_closed:
                await self._abandon(transaction)
            raise
        finally:
            self._used.discard(sender)
            if transaction is None or transaction.is_open or self._is_closed:
                # The state of this producer is unknown. A new producer with the same number replaces it; when the new
                # one connects, the brokers abort the transaction that is still open.
                await sender.close(0)
                sender = self._sender(number)
            self._free.append((number, sender))

    async def send(self, topic: str, record: Mapping[str, object]) -> None:
        """Send a record in a transaction of its own, and return when the transaction is committed.

        Args:
            topic: The topic.
            record: The arguments of kafka-python's `send`.

        Raises:
            KafkaError: The transaction was not committed.
        """
        async with self._room, self.open() as transaction:
            await transaction.send(topic, record)
            await transaction.commit()

    def partition_count(self, topic: str) -> int:
        """Return the number of a topic's partitions that a producer knows; 0 if none knows the topic."""
        senders = [*self._used, *(sender for _, sender in self._free)]
        return max((sender.partition_count(topic) for sender in senders), default=0)

    async def _abandon(self, transaction: Transaction) -> None:
        try:
            async with asyncio.timeout(_LAST_ABORT):
                await transaction.abort()
        except (KafkaError, TimeoutError) as error:
            logger.warning("A transaction could not be aborted; the brokers will abort it when it times out: %r", error)

    def _next(self) -> tuple[int, Sender]:
        number, self._made = self._made, self._made + 1
        return number, self._sender(number)

    def _sender(self, number: int) -> Sender:
        return self._make_sender(number, self._threads)

    async def close(self) -> None:
        """Disconnect the producers; transactions that stay open longer than `close-timeout` fail."""
        self._is_closed = True
        senders = [*self._used, *(sender for _, sender in self._free)]
        self._free.clear()
        await asyncio.gather(*(sender.close() for sender in senders))
        self._threads.shutdown(wait=False)

    def around(
        self, call_receiver: ReceiverCall[Delivery], binding: str, group: Callable[[], GroupMetadata]
    ) -> ReceiverCall[Delivery]:
        """Return a `ReceiverCall` that calls the receiver within a transaction.

        Args:
            call_receiver: Calls the receiver.
            binding: The binding's name, for logs.
            group: Returns the consumer's membership, which is read before the call and sent with the offsets. After a
                rebalance, which may have assigned the partition to another member, brokers refuse this membership, and
                the transaction fails.
        """

        async def call_in_transaction(deliveries: Sequence[Delivery]) -> Sequence[Settlement]:
            try:
                membership = await asyncio.get_running_loop().run_in_executor(self._threads, group)
                async with self.open() as transaction:
                    settlements = await call_receiver(deliveries)
                    if all(isinstance(settlement, Accept) for settlement in settlements):
                        await transaction.commit(_offsets(deliveries), membership)
                        for delivery in deliveries:
                            # Set before the driver settles the record: a position equal to this offset is not due, so
                            # the thread does not commit it again.
                            delivery.partition.transacted = delivery.record.offset + 1
                return settlements
            except Exception as error:  # after any error, the message is tried again: the partition must not stop
                logger.warning("Binding %r: a transaction failed, and is tried again: %r", binding, error)
                return [Requeue("its transaction failed", cause=error) for _ in deliveries]

        return call_in_transaction


def _offsets(deliveries: Sequence[Delivery]) -> dict[TopicPartition, int]:
    return {delivery.partition.key: delivery.record.offset + 1 for delivery in deliveries}


class KafkaTransactionalProducerBinding(KafkaProducerBinding):
    """A binding that sends the messages of transactions to one topic."""

    def __init__(
        self,
        binder: str,
        destination: ProducerDestination,
        extended: KafkaProducerProperties,
        sender: Sender,
        partitions: int,
        *,
        transactions: Transactions,
    ) -> None:
        """Prepare a binding; `start` connects it.

        Args:
            binder: The binder's name, for errors.
            destination: The destination and settings of the binding.
            extended: The Kafka settings of the binding.
            sender: Sends the messages that need no transaction.
            partitions: The number of the topic's partitions now.
            transactions: The transactions of the binder.
        """
        super().__init__(binder, destination, extended, sender, partitions)
        self._transactions = transactions
        self._allows_none = extended.allow_non_transactional

    @property
    def partition_count(self) -> int:
        """The number of the topic's partitions: as a producer knows it, else as when the binding was made."""
        return self._transactions.partition_count(self._topic) or super().partition_count

    async def start(self) -> None:
        """Connect the producer without transactions, if the settings allow such sends.

        Producers of transactions connect when a transaction first needs them.

        Raises:
            KafkaError: The brokers are away, or refuse.
        """
        if self._allows_none:
            await super().start()

    async def send(self, message: Message[bytes]) -> None:
        """Send a message in the transaction of the running listener.

        Outside of listeners, send without transaction if `allow-non-transactional=true`, else in a transaction of its
        own.

        Raises:
            BinderError: The broker refused the message or could not be reached, or the message cannot be written.
        """
        current = self._transactions.current
        if current is None and self._allows_none:
            await super().send(message)
            return
        topic, record = self.record_of(message)
        try:
            if current is not None:
                await current.send(topic, record)
                return
            await self._transactions.send(topic, record)
        except (KafkaError, ValueError, TypeError) as error:
            raise self._unsent(error) from error


def check_transactional(destination: ConsumerDestination) -> None:
    """Refuse settings of a consumer that do not fit transactions, in each of which one call handles one message.

    Raises:
        ConfigurationError: The binding has batches, calls in any order, or several attempts in one transaction.
    """
    properties = destination.properties
    if properties.batch_mode:
        raise ConfigurationError(
            "a transactional binder handles messages one by one: remove batch-mode", key="consumer.batch_mode"
        )
    if not destination.delivery.ordered:
        raise ConfigurationError(
            "a transactional binder handles a partition's messages in order, since an offset covers all before it: "
            "remove ordered=false"
        )
    if properties.max_attempts > 1:
        raise ConfigurationError(
            "attempts in process cannot take back what a failed one has sent: set consumer.max-attempts=1, and "
            f"spring.cloud.stream.kafka.bindings.{destination.binding}.consumer.max-reconsume-times for redeliveries, "
            "each of which is a transaction of its own",
            key="consumer.max_attempts",
        )
