"""A producer binding: sends the messages of a channel with a producer of `rocket_client`."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Final

from binders.rocket.headers import to_properties
from binders.rocket.producer_properties import SendType
from binders.rocket.queue_batches import QueueBatches
from rocket_client import Producer, SendResult, SendStatus
from rocket_client.errors import ClientStateError, IllegalMessageError, SendRejectedError
from rocket_remoting import Message as RocketMessage
from rocket_remoting import MessageQueue, RemotingError
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELIVER_MS,
)
from streamkit.binder.binder import ProducerBinding, ProducerDestination
from streamkit.binder.delays import DELAYS, requested_delay, requested_level
from streamkit.clock import Clock
from streamkit.errors import BinderError, UnsupportedCapability
from streamkit.messaging import headers as portable
from streamkit.messaging.headers import MessageHeaders
from streamkit.messaging.message import Message

logger = logging.getLogger(__name__)

_WITH_FIELDS: Final = DELAYS | {portable.TAGS, portable.KEY, PROPERTY_TAGS, PROPERTY_KEYS}

# The number of Async sends in flight at once; a further send waits until one of them has finished.
ASYNC_WINDOW: Final = 1000


class RocketProducerBinding(ProducerBinding):
    """A binding that sends to one topic.

    Attributes:
        producer: The producer of `rocket_client`.
    """

    def __init__(
        self,
        binder: str,
        destination: ProducerDestination,
        producer: Producer,
        *,
        send_type: SendType,
        delay_levels: Sequence[timedelta],
        delays_at_will: bool,
        clock: Clock,
    ) -> None:
        self._binder = binder
        self._unsent = partial(destination.unsent, binder)
        self._binding = destination.binding
        self._topic = destination.name
        self._on_failure = destination.on_failure
        self.producer = producer
        self._send_type = send_type
        self._delay_levels = delay_levels
        self._delays_at_will = delays_at_will
        self._clock = clock
        self._batches = QueueBatches(producer, destination.name, select_partition, self._check)
        self._window = asyncio.Semaphore(ASYNC_WINDOW)
        self._in_flight: set[asyncio.Future[None]] = set()
        self._queues: list[MessageQueue] = []

    @property
    def partition_count(self) -> int | None:
        """The number of queues when the binding started; it stays, so that keys keep their queues. None if unknown."""
        return len(self._queues) or None

    async def start(self) -> None:
        """Connect, and read the queues of the topic.

        Raises:
            RemotingError: The brokers cannot be reached, or the topic does not exist.
        """
        await self.producer.start()
        self._queues = await self.producer.publish_queues(self._topic)

    async def send(self, message: Message[bytes]) -> None:
        """Send a message; with send type Async or OneWay, return before the broker has answered.

        Raises:
            BinderError: The broker refused the message, no broker could be reached, or a header cannot be written.
            UnsupportedCapability: The message asks for a delay that is not a delay level, and the brokers have no timer
                wheel.
        """
        rocket_message = self._to_rocket(message)
        partition = message.headers.get(portable.PARTITION)
        selector = None if partition is None else select_partition
        try:
            if self._send_type is SendType.ASYNC:
                await self._send_in_window(message, rocket_message, selector, partition)
            elif self._send_type is SendType.ONE_WAY:
                await self.producer.send_oneway(rocket_message, selector=selector, argument=partition)
            else:
                result = await self.producer.send(rocket_message, selector=selector, argument=partition)
                self._check(rocket_message, result)
        except RemotingError as error:
            raise self._unsent(error, away=is_away(error)) from error

    async def send_all(self, messages: Sequence[Message[bytes]]) -> Sequence[Exception | None]:
        """Send messages, with send type Sync in one request for each queue (:mod:`binders.rocket.queue_batches`).

        Returns:
            The error of each message, or None if a broker has stored it.
        """
        if self._send_type is not SendType.SYNC:
            return await super().send_all(messages)
        outgoing: list[tuple[RocketMessage, object]] = []
        illegal: Exception | None = None
        for message in messages:
            try:
                outgoing.append((self._to_rocket(message), message.headers.get(portable.PARTITION)))
            except (BinderError, UnsupportedCapability) as error:
                illegal = error
                break
        try:
            errors = await self._batches.send(outgoing)
        except RemotingError as error:  # the producer is closed, so nothing was sent
            errors = [error] * len(outgoing)
        failures = {error: self._explained(error) for error in errors}
        return [*[failures[error] for error in errors], *[illegal] * (len(messages) - len(outgoing))]

    def _explained(self, error: Exception | None) -> Exception | None:
        if not isinstance(error, RemotingError):
            return error
        failure = self._unsent(error, away=is_away(error))
        failure.__cause__ = error
        return failure

    async def _send_in_window(
        self,
        message: Message[bytes],
        rocket_message: RocketMessage,
        selector: "Selector | None",
        partition: object,
    ) -> None:
        await self._window.acquire()
        try:
            answer = self.producer.send_async(rocket_message, selector=selector, argument=partition)
        except Exception:  # an error of the message itself is raised at once, to the sender
            self._window.release()
            raise
        sending = asyncio.ensure_future(self._finish(message, rocket_message, answer))
        self._in_flight.add(sending)
        sending.add_done_callback(self._in_flight.discard)

    async def _finish(
        self, message: Message[bytes], rocket_message: RocketMessage, sending: Awaitable[SendResult]
    ) -> None:
        try:
            self._check(rocket_message, await sending)
        except RemotingError as error:
            failure = self._unsent(error, away=is_away(error))
            failure.__cause__ = error
            await self._on_failure(message, failure)
        except BinderError as failure:
            await self._on_failure(message, failure)
        finally:
            self._window.release()

    def _to_rocket(self, message: Message[bytes]) -> RocketMessage:
        headers = message.headers
        try:
            properties = to_properties(headers)
            if not _WITH_FIELDS.isdisjoint(headers._present):
                self._set_fields(properties, headers)
        except ValueError as error:
            raise BinderError(
                f"binding {self._binding!r}: {error}", binder=self._binder, binding=self._binding
            ) from error
        return RocketMessage(self._topic, message.payload, properties=properties)

    def _set_fields(self, properties: dict[str, str], headers: MessageHeaders) -> None:
        """Set the properties for headers that RocketMQ has fields for: delay, tags and keys.

        Raises:
            ValueError: A header with a delay cannot be parsed.
            UnsupportedCapability: The delay is not a delay level, and the brokers have no timer wheel.
        """
        properties |= self._delay_properties(headers)
        if tags := headers.get(portable.TAGS) or headers.get(PROPERTY_TAGS):
            properties[PROPERTY_TAGS] = str(tags)
        if keys := headers.get(portable.KEY) or headers.get(PROPERTY_KEYS):
            properties[PROPERTY_KEYS] = " ".join(map(str, keys)) if isinstance(keys, (list, tuple)) else str(keys)

    def _delay_properties(self, headers: MessageHeaders) -> dict[str, str]:
        """Return the properties that delay a message.

        A delay that is exactly a delay level becomes that level. Any other delay needs brokers with a timer wheel.

        Raises:
            UnsupportedCapability: The delay is not a delay level, and the brokers have no timer wheel.
        """
        level = requested_level(headers)
        if level:
            return {PROPERTY_DELAY_TIME_LEVEL: str(level)}
        delay = requested_delay(headers, self._clock.now_ms)
        if delay is None or delay <= timedelta(0):
            return {}
        if delay in self._delay_levels:
            return {PROPERTY_DELAY_TIME_LEVEL: str(self._delay_levels.index(delay) + 1)}
        if not self._delays_at_will:
            raise self._delay_refused(delay)
        milliseconds = max(1, round(delay / timedelta(milliseconds=1)))
        if headers.get(portable.DELAY) is not None:
            return {PROPERTY_TIMER_DELAY_MS: str(milliseconds)}
        return {PROPERTY_TIMER_DELIVER_MS: str(self._clock.now_ms() + milliseconds)}

    def _delay_refused(self, delay: timedelta) -> UnsupportedCapability:
        levels = ", ".join(str(level) for level in self._delay_levels)
        return UnsupportedCapability(
            f"binding {self._binding!r} asks RocketMQ to deliver after {delay}, which is not one of its delay levels: "
            f"{levels}. Send with one of these, or use brokers with timerWheelEnable=true (5.x, or the bundled one).",
            key=portable.DELAY,
            value=delay,
        )

    def _check(self, message: RocketMessage, result: SendResult) -> None:
        if result.status is not SendStatus.SEND_OK:
            raise BinderError(
                f"binding {self._binding!r}: the broker stored the message to {self._topic!r} but answered "
                f"{result.status.name} (message {message.unique_key})",
                binder=self._binder,
                binding=self._binding,
            )

    async def stop(self) -> None:
        """Wait for the sends in flight, then close the producer. A second call does nothing."""
        if self._in_flight:
            await asyncio.wait(self._in_flight)
        await self.producer.shutdown()

    def __repr__(self) -> str:
        return f"<RocketProducerBinding {self._binding!r} to {self._topic!r}>"


def is_away(error: RemotingError) -> bool:
    """Return whether the brokers are away or busy, so that they may accept the same message later."""
    if isinstance(error, SendRejectedError):
        return error.code == ResponseCode.SYSTEM_BUSY
    return not isinstance(error, IllegalMessageError | ClientStateError)


Selector = Callable[[Sequence[MessageQueue], RocketMessage, object], MessageQueue]


def select_partition(queues: Sequence[MessageQueue], message: RocketMessage, partition: object) -> MessageQueue:
    """Return the queue of a partition: the n-th queue of the route, modulo the number of queues."""
    return queues[int(str(partition)) % len(queues)]
