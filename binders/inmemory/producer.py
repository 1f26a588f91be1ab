"""Producer bindings: they put messages into a destination, at once or after a delay."""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from binders.inmemory.broker import InMemoryBroker
from binders.inmemory.destination import Destination
from binders.inmemory.headers import received_headers, sent_names, spelt
from binders.inmemory.transactions import Half, InMemoryTransaction
from streamkit.binder.binder import (
    ProducerBinding,
    ProducerDestination,
    TransactionalProducerBinding,
    TransactionChecker,
)
from streamkit.binder.delays import DELAYS, requested_delay, requested_level
from streamkit.clock import Clock
from streamkit.messaging import headers as portable
from streamkit.messaging.headers import MessageHeaders
from streamkit.messaging.message import Message


class InMemoryProducerBinding(ProducerBinding):
    """A producer that puts messages into a destination."""

    def __init__(
        self,
        binder: str,
        destination: ProducerDestination,
        broker: InMemoryBroker,
        delay_levels: Sequence[timedelta],
        clock: Clock,
    ) -> None:
        self._unsent = partial(destination.unsent, binder)
        self._binding = destination.binding
        self._destination = broker.destination(destination.name)
        self._timers = broker.timers
        self._faults = broker.faults
        self._delay_levels = delay_levels
        self._clock = clock
        extended = destination.extended
        self._is_sent = sent_names(extended.sends_header)
        self._spellings = extended.header_spellings
        self._topic_header = extended.topic_header
        topic_header = () if self._topic_header is None else (self._topic_header,)
        # A message without any of these headers goes to the next partition at once, as most do.
        self._steers = frozenset({*self._spellings, *DELAYS, portable.PARTITION, *topic_header})
        self._largest = extended.largest_payload
        self._find = broker.destination
        self._is_open = True

    @property
    def partition_count(self) -> int:
        """The number of partitions of the destination."""
        return self._destination.partitions

    async def send(self, message: Message[bytes]) -> None:
        """Put `message` into the destination; if it has a delay, after the delay.

        Raises:
            BinderError: The binding is stopped, a header cannot be sent, the payload is too large, or the setting
                `chaos` has dropped the connection at each attempt.
        """
        headers, payload = message.headers, message.payload
        if self._faults is None and self._steers.isdisjoint(headers._present):
            self._destination.put(payload, self._received_headers(headers, payload), None, headers)
            return
        headers = spelt(headers, self._spellings)
        _ = headers.timestamp  # made now, because a delayed message is stored later
        values, delay = self._received_headers(headers, payload), self._delay(headers)
        home = self._destination
        if self._topic_header is not None and (named := headers.get(self._topic_header)):
            home = self._find(str(named))
        chosen = _partition(headers)
        if self._faults is None:
            self._put(home, payload, values, chosen, sender=headers, delay=delay)
        elif not await self._faults.send(
            lambda: self._put(home, payload, dict(values), chosen, sender=headers, delay=delay)
        ):
            reason = "chaos has dropped the connection at each attempt; the message may be stored"
            raise self._unsent(reason, away=True)

    def _put(
        self,
        home: Destination,
        payload: bytes,
        headers: dict[str, object],
        partition: int | None,
        *,
        sender: MessageHeaders,
        delay: float,
    ) -> None:
        if delay > 0:
            self._timers.after(delay, partial(home.put, payload, headers, partition, sender))
        else:
            home.put(payload, headers, partition, sender)

    def _received_headers(self, headers: MessageHeaders, payload: bytes) -> dict[str, object]:
        """Return the headers that a receiver will see.

        Raises:
            BinderError: The binding is stopped, a header cannot be sent, or the payload is too large.
        """
        if not self._is_open:
            raise self._unsent("it is stopped")
        if self._largest is not None and len(payload) > self._largest:
            raise self._unsent(f"the payload has {len(payload)} bytes, more than the largest message, {self._largest}")
        try:
            return received_headers(headers, self._is_sent)
        except ValueError as error:
            raise self._unsent(str(error)) from error

    def _delay(self, headers: MessageHeaders) -> float:
        """Return the delay of a message in seconds.

        Raises:
            BinderError: A header with a delay cannot be parsed.
        """
        level = requested_level(headers)
        if level:
            return self._delay_levels[min(level, len(self._delay_levels)) - 1].total_seconds()
        try:
            delay = requested_delay(headers, self._clock.now_ms)
        except ValueError as error:
            raise self._unsent(str(error)) from error
        return 0 if delay is None else delay.total_seconds()

    async def stop(self) -> None:
        """Refuse later sends."""
        self._is_open = False

    def __repr__(self) -> str:
        return f"<InMemoryProducerBinding {self._binding!r} to {self._destination.name!r}>"


class InMemoryTransactionalProducerBinding(InMemoryProducerBinding, TransactionalProducerBinding):
    """A producer of messages that are put into the destination when a local transaction commits."""

    def __init__(
        self,
        binder: str,
        destination: ProducerDestination,
        broker: InMemoryBroker,
        delay_levels: Sequence[timedelta],
        clock: Clock,
        *,
        group: str,
        checker: TransactionChecker,
    ) -> None:
        super().__init__(binder, destination, broker, delay_levels, clock)
        self._transactions = broker.transactions
        self._group = group
        self._checker = checker
        self._transactions.join(group, checker)

    async def begin(self, message: Message[bytes]) -> InMemoryTransaction:
        """Keep `message` as a half message, and return its transaction.

        Raises:
            BinderError: The binding is stopped, the message has a delay, a header cannot be sent, or the payload is too
                large.
        """
        headers = spelt(message.headers, self._spellings)
        _ = headers.id, headers.timestamp  # made now, so that the checker and the receiver see the same
        values = self._received_headers(headers, message.payload)
        if self._delay(headers) > 0:
            raise self._unsent("a message of a transaction cannot be delayed")
        half = Half(self._group, self._destination, message.payload, values, _partition(headers))
        return self._transactions.begin(half)

    async def stop(self) -> None:
        """Refuse later sends and transactions, and remove the checker from its producer group."""
        if self._is_open:
            self._transactions.leave(self._group, self._checker)
        await super().stop()


def _partition(headers: MessageHeaders) -> int | None:
    partition = headers.get(portable.PARTITION)
    return partition if isinstance(partition, int) else None
