"""A producer binding: sends the messages of a channel as records."""

import asyncio
from functools import partial
from typing import Final

from binders.kafka.headers import TOPIC, HeaderPatterns, key_of, partition_of, timestamp_of, to_record
from binders.kafka.properties import KafkaProducerProperties
from binders.kafka.sending import RecordMetadata, Sender
from kafka.errors import KafkaError
from streamkit.binder.binder import ProducerBinding, ProducerDestination
from streamkit.errors import BinderError
from streamkit.messaging.message import NO_PAYLOAD, Message

# The number of sends in flight at once with `sync=false`; a further send waits until one of them has finished.
ASYNC_WINDOW: Final = 1000


class KafkaProducerBinding(ProducerBinding):
    """A binding that sends to one topic."""

    def __init__(
        self,
        binder: str,
        destination: ProducerDestination,
        extended: KafkaProducerProperties,
        sender: Sender,
        partitions: int,
    ) -> None:
        """Prepare a binding; `start` connects it.

        Args:
            binder: The binder's name, for errors.
            destination: The destination and settings of the binding.
            extended: The Kafka settings of the binding.
            sender: Sends the records.
            partitions: The number of the topic's partitions now.
        """
        self._unsent = partial(destination.unsent, binder)
        self._binding = destination.binding
        self._topic = destination.name
        self._on_failure = destination.on_failure
        self._travels = HeaderPatterns(extended.header_patterns)
        self._uses_topic_header = extended.use_topic_header
        self._waits = extended.sync
        self._sender = sender
        self._partitions = partitions
        self._window = asyncio.Semaphore(ASYNC_WINDOW)
        self._under_way: set[asyncio.Task[None]] = set()

    @property
    def partition_count(self) -> int:
        """The number of the topic's partitions: as the producer knows it, else as when the binding was made."""
        return self._sender.partition_count(self._topic) or self._partitions

    async def start(self) -> None:
        """Connect, and read the topic's partitions.

        Raises:
            KafkaError: The brokers are away, or refuse.
        """
        await self._sender.ready(self._topic)

    async def send(self, message: Message[bytes]) -> None:
        """Send a message, and return when the broker has acknowledged it; with `sync=false` return before that.

        Raises:
            BinderError: The broker refused the message or could not be reached, or the message cannot be written.
        """
        if self._waits:
            await self._acknowledged(await self._handed_over(message))
            return
        await self._window.acquire()
        try:
            answer = await self._handed_over(message)
        except BaseException:  # an error of the message itself is raised at once, to the sender
            self._window.release()
            raise
        sending = asyncio.create_task(self._finish(message, answer))
        self._under_way.add(sending)
        sending.add_done_callback(self._under_way.discard)

    async def _finish(self, message: Message[bytes], answer: "asyncio.Future[RecordMetadata]") -> None:
        try:
            await self._acknowledged(answer)
        except BinderError as error:
            await self._on_failure(message, error)
        finally:
            self._window.release()

    async def _acknowledged(self, answer: "asyncio.Future[RecordMetadata]") -> None:
        try:
            await answer
        except KafkaError as error:
            raise self._unsent(error, away=error.retriable) from error

    async def _handed_over(self, message: Message[bytes]) -> "asyncio.Future[RecordMetadata]":
        """Pass a message to the producer, and return a future of the acknowledgment."""
        topic, record = self.record_of(message)
        try:
            return self._sender.begin(await self._sender.ready(topic), topic, **record)
        except (KafkaError, ValueError, TypeError) as error:
            raise self._unsent(error, away=getattr(error, "retriable", False)) from error

    def record_of(self, message: Message[bytes]) -> tuple[str, dict[str, object]]:
        """Return the topic of a message, and its record as arguments of kafka-python's `send`.

        Raises:
            BinderError: The message cannot be written as a record.
        """
        headers = message.headers
        topic = self._topic
        if self._uses_topic_header and (named := headers.get(TOPIC)):
            topic = str(named)
        try:
            return topic, {
                "value": None if message.payload is NO_PAYLOAD else message.payload,
                "key": key_of(headers),
                "headers": to_record(headers, self._travels),
                "partition": partition_of(headers),
                "timestamp_ms": timestamp_of(headers),
            }
        except ValueError as error:
            raise self._unsent(error) from error

    async def stop(self) -> None:
        """Close the producer; sends that take longer than `close-timeout` fail. A second call does nothing."""
        await self._sender.close()
        if self._under_way:
            await asyncio.wait(self._under_way)

    def __repr__(self) -> str:
        return f"<KafkaProducerBinding {self._binding!r} to {self._topic!r}>"
