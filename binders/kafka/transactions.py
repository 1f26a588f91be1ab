"""Kafka's transactions: what a listener sends and the offset of its message count together, or not at all.

::

    a message comes ─▶ a transaction is opened ─▶ the listener: what it sends is part of it
                                                     │ accepted   the offset too, and all is committed at once
                                                     │ retried    aborted: nobody who reads committed messages sees any
                                                     │ rejected   aborted; then the dead letter, by itself
    a message is sent outside of a listener ─▶ a transaction of its own

A transaction has a producer to itself; the producers are numbered, and the number is kept: `<prefix>0`, `<prefix>1`, …
What belongs to a transaction is told by its context, so it has to be sent in the listener's own task or thread.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeAlias

from binders.kafka.clients import Producer
from binders.kafka.handling import Hand
from binders.kafka.partition import Delivery
from binders.kafka.producer import KafkaProducerBinding
from binders.kafka.properties import KafkaProducerProperties
from binders.kafka.sending import Sender
from kafka import OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaError
from streamkit.binder.binder import ConsumerDestination, ProducerDestination
from streamkit.binder.settlement import Accept, Retry, Settlement
from streamkit.errors import ConfigurationError
from streamkit.messaging.message import Message

log = logging.getLogger(__name__)

_LAST_ABORT: Final = 5.0
"""How long brokers are given to hear that a transaction is aborted whose call was given up, in seconds."""

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
        await asyncio.shield(asyncio.to_thread(self._commit, offsets or {}, group))
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
        await asyncio.shield(asyncio.to_thread(self._producer.abort_transaction))
        self.is_open = False


class Transactions:
    """The transactions of one binder, and the producers that wait for the next."""

    def __init__(self, sender: Callable[[int], Sender]) -> None:
        """Make one; `sender` makes the sender with a number, not connected yet."""
        self._sender = sender
        self._free: list[tuple[int, Sender]] = []
        self._made = 0
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
        number, sender = self._free.pop() if self._free else (self._next(), None)
        if sender is None:
            sender = self._sender(number)
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
            if transaction is not None and transaction.is_open:
                await self._abandon(transaction)
            raise
        finally:
            if transaction is None or transaction.is_open:
                # Whatever state the producer is in, another one with its number ends what it began.
                await sender.close(0)
                sender = self._sender(number)
            self._free.append((number, sender))

    async def _abandon(self, transaction: Transaction) -> None:
        try:
            async with asyncio.timeout(_LAST_ABORT):
                await transaction.abort()
        except (KafkaError, TimeoutError) as error:
            log.warning("A transaction could not be aborted, so that it is left to the brokers: %r", error)

    def _next(self) -> int:
        number, self._made = self._made, self._made + 1
        return number

    async def close(self) -> None:
        """Disconnect the producers."""
        while self._free:
            _, sender = self._free.pop()
            await sender.close()

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
                membership = await asyncio.to_thread(group)
                async with self.open() as transaction:
                    settlements = await hand(deliveries)
                    if all(isinstance(settlement, Accept) for settlement in settlements):
                        await transaction.commit(_offsets(deliveries), membership)
                        for delivery in deliveries:
                            delivery.partition.transacted = delivery.record.offset + 1
                return settlements
            except Exception as error:  # whatever it is, the partition must not stop
                log.warning("Binding %r: a transaction failed, and is tried again: %r", binding, error)
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
            async with self._transactions.open() as transaction:
                await transaction.send(topic, record)
                await transaction.commit()
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
