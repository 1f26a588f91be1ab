"""Sending: kafka-python's producer as something to await, with the batches it makes kept together.

::

    loop ── send appends to a batch ──▶ kafka-python's thread ── the batch is acknowledged ──┐
      ▲                                                                                      │ its records, one
      └── one call_soon_threadsafe for all that were acknowledged until it runs ◀────────────┘ after the other
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any, TypeAlias, TypeVar

from binders.kafka.clients import Producer
from kafka.errors import IllegalStateError

RecordMetadata: TypeAlias = Any
"""kafka-python's `RecordMetadata`."""

R = TypeVar("R")


class Sender:
    """A producer, connected when it is first needed."""

    def __init__(
        self, connect: Callable[[], Producer], close_timeout: float, threads: Executor | None = None
    ) -> None:
        """Make one that is not connected.

        Args:
            connect: Makes the producer; blocks while it connects.
            close_timeout: Seconds that closing waits for messages on their way.
            threads: Where the producer's blocking calls are made; by default the loop's own.
        """
        self._connect = connect
        self._close_timeout = close_timeout
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._producer: Producer | None = None
        self._connecting: asyncio.Task[Producer] | None = None
        self._is_closed = False
        # Filled by kafka-python's thread, emptied by the loop.
        self._answers: deque[tuple[asyncio.Future[RecordMetadata], RecordMetadata, Exception | None]] = (
            deque()
        )
        self._is_waking = False

    async def start(self) -> Producer:
        """Return the producer, connected.

        Raises:
            KafkaError: The brokers are away, or refuse; or it was closed.
        """
        if self._is_closed:
            raise IllegalStateError("the producer is closed")
        if self._producer is not None:
            return self._producer
        if self._connecting is None or self._connecting.done():
            self._connecting = self._loop.create_task(self._connected())
            self._connecting.add_done_callback(take_exception)
        # Whoever gives up does not end the thread that connects: what it makes is the next one's, or `close`'s.
        return await asyncio.shield(self._connecting)

    async def _connected(self) -> Producer:
        self._producer = await self.call(self._connect)
        return self._producer

    async def call(self, call: Callable[[], R]) -> R:
        """Make a call that blocks, on one of the threads."""
        return await self._loop.run_in_executor(self._threads, call)

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has, as far as the producer knows; 0 if it does not."""
        return 0 if self._producer is None else self._producer.partition_count(topic)

    async def send(self, topic: str, **record: Any) -> RecordMetadata:
        """Send a record, of kafka-python's `value`, `key`, `headers`…; returns when the broker has acknowledged it.

        Raises:
            KafkaError: It did not.
        """
        return await self.begin(await self.ready(topic), topic, **record)

    async def ready(self, topic: str) -> Producer:
        """Return the producer once it knows the topic's partitions, so that sending to it does not block."""
        producer = self._producer or await self.start()
        if not producer.knows(topic):
            await self.call(partial(producer.partitions_for, topic))
        return producer

    def begin(self, producer: Producer, topic: str, **record: Any) -> "asyncio.Future[RecordMetadata]":
        """Hand a record to the producer; the future tells what the broker answers.

        A partition's number beyond the topic's partitions wraps round, as on other binders.
        """
        if record.get("partition") is not None:
            record["partition"] %= producer.partition_count(topic) or 1
        answer: asyncio.Future[RecordMetadata] = self._loop.create_future()
        sent = producer.send(topic, **record)
        sent.add_callback(partial(self._answered, answer))
        sent.add_errback(partial(self._failed, answer))
        return answer

    async def close(self, timeout: float | None = None) -> None:
        """Wait for what is on its way, so many seconds or the `close_timeout`, and disconnect. Twice does nothing."""
        self._is_closed = True
        if self._connecting is not None:
            await asyncio.wait([self._connecting])
        producer, self._producer = self._producer, None
        if producer is not None:
            seconds = self._close_timeout if timeout is None else timeout
            await self.call(partial(producer.close, timeout=seconds))

    # kafka-python's thread

    def _answered(self, answer: "asyncio.Future[RecordMetadata]", metadata: RecordMetadata) -> None:
        self._answers.append((answer, metadata, None))
        self._wake()

    def _failed(self, answer: "asyncio.Future[RecordMetadata]", error: Exception) -> None:
        self._answers.append((answer, None, error))
        self._wake()

    def _wake(self) -> None:
        # The loop takes the flag back before it looks at the answers, so that none is left lying.
        if not self._is_waking:
            self._is_waking = True
            try:
                self._loop.call_soon_threadsafe(self._tell)
            except RuntimeError:  # the loop is closed: nobody waits any more
                self._answers.clear()

    # The loop's

    def _tell(self) -> None:
        self._is_waking = False
        answers = self._answers
        while answers:
            answer, metadata, error = answers.popleft()
            if answer.done():
                continue
            if error is None:
                answer.set_result(metadata)
            else:
                answer.set_exception(error)


def take_exception(task: asyncio.Task[Any]) -> None:
    """Whoever waited may have given up: asyncio would log the failure as one that nobody heard of."""
    if not task.cancelled():
        task.exception()
