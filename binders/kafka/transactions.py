"""Kafka's transactions: what a listener sends and the offset of its message count together, or not at all.

::

    a message comes ─▶ a transaction is opened ─▶ the listener: what it sends is part of it
                                                     │ accepted   the offset too, and all is committed at once
                                                     │ retried    aborted: nobody who reads committed messages sees any
                                                     │ rejected   aborted; then the dead letter, by itself
    a message is sent outside of a listener ─▶ a transaction of its own

A transaction has a producer to itself; the producers are numbered, and the number is kept: `<prefix>0`, `<prefix>1`, …
So there are as many as transactions at once: one for each partition a listener is at work at, and 16 for what is sent
outside of listeners. Whoever waits for a transaction's end waits on a thread, until brokers answer or the producer is
closed; these threads are the transactions' own, so that nobody else waits for one of them.

What belongs to a transaction is told by its context, so it has to be sent in the listener's own task or thread.
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
from binders.kafka.handling import Hand
from binders.kafka.partition import Delivery
from binders.kafka.producer import KafkaProducerBinding
from binders.kafka.properties import KafkaProducerProperties
from binders.kafka.sending import Sender, take_exception
from kafka import OffsetAndMetadata, TopicPartition
from kafka.errors import IllegalStateError, KafkaError
from streamkit.binder.binder import ConsumerDestination, ProducerDestination
from streamkit.binder.settlement import Accept, Retry, Settlement
from streamkit.errors import ConfigurationError
from streamkit.listeners.listener_threads import ListenerThreads
from streamkit.messaging.message import Message

logger = logging.getLogger(__name__)

_LAST_ABORT: Final = 5.0
"""How long brokers are given to hear that a transaction is aborted whose call was given up, in seconds."""

AT_ONCE: Final = 16
"""Transactions of messages that are sent outside of listeners: more wait for one of them to end."""
# Each transaction has at most two calls that wait: its commit, and its abort if that is given up.
_THREADS: Final = 10_000

GroupMetadata: TypeAlias = Any
"""kafka-python's `ConsumerGroupMetadata`."""


class Transaction:
    """One transaction that is open, with its producer."""

    def __init__(self, sender: Sender, producer: Producer) -> None:
        self._sender = sender
        self._producer = producer
        self.is_open = True

    async def send(self, topic: str, record: Mapping[str, object]) -> None:
        """Make a record part of the transaction; returns when the broker has it.

        Raises:
            KafkaError: It has not.
        """
        await self._sender.send(topic, **record)

    async def commit(
        self, offsets: Mapping[TopicPartition, int] | None = None, group: GroupMetadata = None
    ) -> None:
        """Let everything count, and these offsets of the group.

        Raises:
            KafkaError: Nothing counts.
        """
        await self._call(partial(self._commit, offsets or {}, group))
        self.is_open = False

    def _commit(self, offsets: Mapping[TopicPartition, int], group: GroupMetadata) -> None:
        if offsets:
            positions = {key: OffsetAndMetadata(offset, "", -1) for key, offset in offsets.items()}
            self._producer.send_offsets_to_transaction(positions, group)
        self._producer.commit_transaction()

    async def abort(self) -> None:
        """Let nothing count.

        Raises:
            KafkaError: It could not be told; the brokers abort it when its time is over.
        """
        await self._call(self._producer.abort_transaction)
        self.is_open = False

    async def _call(self, call: Callable[[], None]) -> None:
        """Whoever gives up waiting does not end the call."""
        calling = asyncio.create_task(self._sender.call(call))
        calling.add_done_callback(take_exception)
        await asyncio.shield(calling)


class Transactions:
    """The transactions of one binder, and the producers that wait for the next."""

    def __init__(self, sender: Callable[[int, Executor], Sender]) -> None:
        """Make one; `sender` makes the sender with a number, not connected yet, that blocks these threads."""
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
        """The transaction of the listener that is at work in this context."""
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
        """A transaction; if the block ends without having committed it, it is aborted.

        Raises:
            KafkaError: The brokers are away, or refuse.
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
                # Whatever state the producer is in, another one with its number ends what it began.
                await sender.close(0)
                sender = self._sender(number)
            self._free.append((number, sender))

    async def send(self, topic: str, record: Mapping[str, object]) -> None:
        """Send a record in a transaction of its own; returns when it counts.

        Raises:
            KafkaError: It does not.
        """
        async with self._room, self.open() as transaction:
            await transaction.send(topic, record)
            await transaction.commit()

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has, as far as one of the producers knows; 0 if none does."""
        senders = [*self._used, *(sender for _, sender in self._free)]
        return max((sender.partition_count(topic) for sender in senders), default=0)

    async def _abandon(self, transaction: Transaction) -> None:
        try:
            async with asyncio.timeout(_LAST_ABORT):
                await transaction.abort()
        except (KafkaError, TimeoutError) as error:
            logger.warning("A transaction could not be aborted, so that it is left to the brokers: %r", error)

    def _next(self) -> tuple[int, Sender]:
        number, self._made = self._made, self._made + 1
        return number, self._sender(number)

    def _sender(self, number: int) -> Sender:
        return self._make_sender(number, self._threads)

    async def close(self) -> None:
        """Disconnect the producers; transactions that are open get their `close-timeout`, and fail then."""
        self._is_closed = True
        senders = [*self._used, *(sender for _, sender in self._free)]
        self._free.clear()
        await asyncio.gather(*(sender.close() for sender in senders))
        self._threads.shutdown(wait=False)

    def around(self, hand: Hand, binding: str, group: Callable[[], GroupMetadata]) -> Hand:
        """Have each delivery handled in a transaction.

        Args:
            hand: Calls the receiver.
            binding: The binding's name, for logs.
            group: Returns the consumer's membership. What a call has done counts with the one it began with: brokers
                refuse that after a rebalance, which may have given the partition to another member.
        """

        async def hand_in_transaction(deliveries: Sequence[Delivery]) -> Sequence[Settlement]:
            try:
                membership = await asyncio.get_running_loop().run_in_executor(self._threads, group)
                async with self.open() as transaction:
                    settlements = await hand(deliveries)
                    if all(isinstance(settlement, Accept) for settlement in settlements):
                        await transaction.commit(_offsets(deliveries), membership)
                        for delivery in deliveries:
                            delivery.partition.transacted = delivery.record.offset + 1
                return settlements
            except Exception as error:  # whatever it is, the partition must not stop
                logger.warning("Binding %r: a transaction failed, and is tried again: %r", binding, error)
                return [Retry(None, error) for _ in deliveries]

        return hand_in_transaction


def _offsets(deliveries: Sequence[Delivery]) -> dict[TopicPartition, int]:
    return {delivery.partition.key: delivery.record.offset + 1 for delivery in deliveries}


class KafkaTransactionalProducerBinding(KafkaProducerBinding):
    """One open way to a topic whose messages are part of transactions."""

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
        """Make a binding; `sender` sends what needs no transaction."""
        super().__init__(binder, destination, extended, sender, partitions)
        self._transactions = transactions
        self._allows_none = extended.allow_non_transactional

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has, as far as that is known; when the binding was made, at first."""
        return self._transactions.partition_count(self._topic) or super().partition_count

    async def start(self) -> None:
        """Connect what sends without a transaction, where settings allow it; else transactions connect when they begin.

        Raises:
            KafkaError: The brokers are away, or refuse.
        """
        if self._allows_none:
            await super().start()

    async def send(self, message: Message[bytes]) -> None:
        """Send `message` in the transaction of the listener at work, else in one of its own.

        Raises:
            BinderError: The broker refused it or could not be reached, or it cannot be written.
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
    """Refuse what cannot be taken back with a transaction, or would commit more than it.

    Raises:
        ConfigurationError: The binding does one call for several messages, or several calls for one.
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
