"""A producer binding: puts messages into a destination, now or later."""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from binders.inmemory.broker import InMemoryBroker
from binders.inmemory.headers import travelled
from streamkit.binder.binder import ProducerBinding, ProducerDestination
from streamkit.binder.delays import requested_delay
from streamkit.clock import Clock
from streamkit.errors import BinderError
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
        self._binder = binder
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
        headers = message.headers
        if not self._is_open:
            raise self._refused("it is stopped")
        try:
            values = travelled(headers)
            delay = self._delay(headers)
        except ValueError as error:
            raise self._refused(str(error)) from error
        partition = headers.get(portable.PARTITION)
        chosen = partition if isinstance(partition, int) else None
        if delay > 0:
            self._timers.after(delay, partial(self._destination.put, message.payload, values, chosen))
        else:
            self._destination.put(message.payload, values, chosen)

    def _delay(self, headers: MessageHeaders) -> float:
        """Seconds until the message is to be seen.

        Raises:
            ValueError: A header asks for no time there is.
        """
        level = _number(headers.get(portable.DELAY_LEVEL))
        if level:
            return self._delay_levels[min(int(level), len(self._delay_levels)) - 1].total_seconds()
        delay = requested_delay(headers, self._clock.now_ms)
        return 0 if delay is None else delay.total_seconds()

    def _refused(self, reason: str) -> BinderError:
        return BinderError(
            f"binding {self._binding!r} cannot send to {self._destination.name!r}: {reason}",
            binder=self._binder,
            binding=self._binding,
        )

    async def stop(self) -> None:
        """Take no more messages."""
        self._is_open = False

    def __repr__(self) -> str:
        return f"<InMemoryProducerBinding {self._binding!r} to {self._destination.name!r}>"


def _number(value: object) -> int:
    """A delay level as Spring Cloud Alibaba reads it: a number or its text; anything else is none."""
    if isinstance(value, int) and value > 0:
        return value
    return int(value) if isinstance(value, str) and value.strip().isdecimal() else 0
