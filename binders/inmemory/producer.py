"""A producer binding: puts messages into a destination, now or later."""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from binders.inmemory.broker import InMemoryBroker
from binders.inmemory.headers import travelled
from binders.inmemory.transactions import Half, InMemoryTransaction
from streamkit.binder.binder import (
    ProducerBinding,
    ProducerDestination,
    TransactionalProducerBinding,
    TransactionChecker,
)
from streamkit.binder.delays import requested_delay, requested_level
from streamkit.clock import Clock
from streamkit.messaging import headers as portable
from streamkit.messaging.headers import MessageHeaders
from streamkit.messaging.message import Message


class InMemoryProducerBinding(ProducerBinding):
    """One open way to a destination."""

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
        self._delay_levels = delay_levels
        self._clock = clock
        self._is_open = True

    @property
    def partition_count(self) -> int:
        """How many partitions the destination has."""
        return self._destination.partitions

    async def send(self, message: Message[bytes]) -> None:
        """Put `message` into the destination; with a delay, when that is over.

        Raises:
            BinderError: The binding is closed, or a header could not travel.
        """
        values, delay = self._travelling(message)
        chosen = _partition(message)
        if delay > 0:
            self._timers.after(delay, partial(self._destination.put, message.payload, values, chosen))
        else:
            self._destination.put(message.payload, values, chosen)

    def _travelling(self, message: Message[bytes]) -> tuple[dict[str, object], float]:
        """The headers a receiver will see, and the seconds until then."""
        if not self._is_open:
            raise self._unsent("it is stopped")
        try:
            return travelled(message.headers), self._delay(message.headers)
        except ValueError as error:
            raise self._unsent(str(error)) from error

    def _delay(self, headers: MessageHeaders) -> float:
        """Seconds until the message is to be seen.

        Raises:
            ValueError: A header asks for no time there is.
        """
        level = requested_level(headers)
        if level:
            return self._delay_levels[min(level, len(self._delay_levels)) - 1].total_seconds()
        delay = requested_delay(headers, self._clock.now_ms)
        return 0 if delay is None else delay.total_seconds()

    async def stop(self) -> None:
        """Take no more messages."""
        self._is_open = False

    def __repr__(self) -> str:
        return f"<InMemoryProducerBinding {self._binding!r} to {self._destination.name!r}>"


class InMemoryTransactionalProducerBinding(InMemoryProducerBinding, TransactionalProducerBinding):
    """One open way to a destination for messages of transactions."""

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
        """Keep `message` until the transaction decides.

        Raises:
            BinderError: The binding is closed, the message is delayed, or a header could not travel.
        """
        values, delay = self._travelling(message)
        if delay > 0:
            raise self._unsent("a message of a transaction cannot be delayed")
        half = Half(self._group, self._destination, message.payload, values, _partition(message))
        return self._transactions.begin(half)

    async def stop(self) -> None:
        """Take no more messages, and answer no more checks."""
        if self._is_open:
            self._transactions.leave(self._group, self._checker)
        await super().stop()


def _partition(message: Message[bytes]) -> int | None:
    partition = message.headers.get(portable.PARTITION)
    return partition if isinstance(partition, int) else None
