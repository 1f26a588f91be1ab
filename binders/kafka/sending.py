"""Makes kafka-python's producer awaitable. Its thread lends its work to the loop.

::

    loop   send appends to a batch ──▶ the records of one turn are one request ──▶ acknowledged: the records' futures
             the thread has the work: while it connects, tries again, or the loop is busy with something else
    thread   a batch is acknowledged ──▶ one call_soon_threadsafe for all that were acknowledged until it runs
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from threading import get_ident
from typing import Any, TypeAlias, TypeVar

from binders.kafka.clients import Producer
from kafka.errors import IllegalStateError

RecordMetadata: TypeAlias = Any
"""kafka-python's `RecordMetadata`."""

R = TypeVar("R")


class Sender:
    """A producer that connects when it is first needed."""

    def __init__(self, connect: Callable[[], Producer], close_timeout: float, threads: Executor | None = None) -> None:
        """Prepare a producer; it is not connected yet.

        Args:
            connect: Returns a connected producer; blocks while it connects.
            close_timeout: How long closing waits for messages that are not acknowledged, in seconds.
            threads: The threads of the producer's blocking calls; by default those of the loop.
        """
        self._connect = connect
        self._close_timeout = close_timeout
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._loop_thread = get_ident()
        self._producer: Producer | None = None
        self._connecting: asyncio.Task[Producer] | None = None
        self._is_closed = False
        # Filled by kafka-python's thread, emptied by the loop.
        self._answers: deque[tuple[asyncio.Future[RecordMetadata], RecordMetadata, Exception | None]] = deque()
        self._is_waking = False

    async def start(self) -> Producer:
        """Return the connected producer; connect it first if it is not connected.

        Raises:
            KafkaError: The brokers are away, or refuse; or the producer was closed.
        """
        if self._is_closed:
            raise IllegalStateError("the producer is closed")
        if self._producer is not None:
            return self._producer
        if self._connecting is None or self._connecting.done():
            self._connecting = self._loop.create_task(self._connected())
            self._connecting.add_done_callback(take_exception)
        # Cancelling a caller does not end the thread that connects: the next caller uses the producer, or `close`.
        return await asyncio.shield(self._connecting)

    async def _connected(self) -> Producer:
        producer = await self.call(self._connect)
        producer.lend()
        self._producer = producer
        return producer

    async def call(self, call: Callable[[], R]) -> R:
        """Make a blocking call on one of the threads, and return its result."""
        return await self._loop.run_in_executor(self._threads, call)

    def partition_count(self, topic: str) -> int:
        """Return the number of a topic's partitions that the producer knows; 0 if it does not know the topic."""
        return 0 if self._producer is None else self._producer.partition_count(topic)

    async def send(self, topic: str, **record: Any) -> RecordMetadata:
        """Send a record, and return the metadata of the broker's acknowledgment.

        Args:
            topic: The topic.
            record: `value`, `key`, `headers` and so on, as kafka-python's `send` takes them.

        Raises:
            KafkaError: The broker did not acknowledge the record.
        """
        return await self.begin(await self.ready(topic), topic, **record)

    async def ready(self, topic: str) -> Producer:
        """Return the producer when it knows the topic's partitions, so that `begin` does not block.

        Raises:
            KafkaError: The brokers are away, or refuse; or the producer was closed.
        """
        producer = self._producer or await self.start()
        if not producer.knows(topic):
            await self.call(partial(producer.partitions_for, topic))
        return producer

    def begin(self, producer: Producer, topic: str, **record: Any) -> "asyncio.Future[RecordMetadata]":
        """Pass a record to the producer, and return a future of the broker's acknowledgment.

        The partition is taken modulo the number of the topic's partitions, as on other binders.

        Args:
            producer: The producer that `ready` has returned.
            topic: The topic.
            record: `value`, `key`, `headers` and so on, as kafka-python's `send` takes them.
        """
        if record.get("partition") is not None:
            record["partition"] %= producer.partition_count(topic) or 1
        answer: asyncio.Future[RecordMetadata] = self._loop.create_future()
        sent = producer.send(topic, **record)
        sent.add_callback(partial(self._answered, answer))
        sent.add_errback(partial(self._failed, answer))
        return answer

    async def close(self, timeout: float | None = None) -> None:
        """Wait for messages that are not acknowledged, and disconnect. A second call does nothing.

        Args:
            timeout: How long to wait, in seconds; None: the `close_timeout`.
        """
        self._is_closed = True
        if self._connecting is not None:
            await asyncio.wait([self._connecting])
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.take_back()
            seconds = self._close_timeout if timeout is None else timeout
            await self.call(partial(producer.close, timeout=seconds))

    # Called by the loop or by kafka-python's thread

    def _answered(self, answer: "asyncio.Future[RecordMetadata]", metadata: RecordMetadata) -> None:
        self._finished(answer, metadata, None)

    def _failed(self, answer: "asyncio.Future[RecordMetadata]", error: Exception) -> None:
        self._finished(answer, None, error)

    def _finished(
        self, answer: "asyncio.Future[RecordMetadata]", metadata: RecordMetadata, error: Exception | None
    ) -> None:
        if get_ident() == self._loop_thread:
            _finish(answer, metadata, error)
        else:
            self._answers.append((answer, metadata, error))
            self._wake()

    def _wake(self) -> None:
        # The loop clears the flag before it looks at the answers, so that no answer is missed.
        if not self._is_waking:
            self._is_waking = True
            try:
                self._loop.call_soon_threadsafe(self._tell)
            except RuntimeError:  # the loop is closed, so nothing waits for the answers
                self._answers.clear()

    # Called by the loop

    def _tell(self) -> None:
        self._is_waking = False
        answers = self._answers
        while answers:
            _finish(*answers.popleft())


def _finish(answer: "asyncio.Future[RecordMetadata]", metadata: RecordMetadata, error: Exception | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(metadata)
    else:
        answer.set_exception(error)


def take_exception(task: asyncio.Task[Any]) -> None:
    """Retrieve a failed task's exception: asyncio would log it if no caller awaits the task any more."""
    if not task.cancelled():
        task.exception()
