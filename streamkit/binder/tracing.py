"""Tracing: a plugin's code around sends, and around calls of listeners.

::

    SendingHandler ─▶ TracedProducer ─▶ ProducerBinding         the plugin adds the trace's context to the headers
    receiver ─▶ traced target ─▶ input channel ─▶ listener      the plugin reads it from them

A plugin makes a tracer for each binding (the hook `streamkit_message_tracer`). Without a tracer the producer and the
target are not wrapped, so tracing costs nothing.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

import msgspec

from streamkit.binder.binder import ProducerBinding, TransactionalProducerBinding
from streamkit.messaging.message import Message
from streamkit.messaging.transaction import BrokerTransaction

__all__ = [
    "MakeTracer",
    "MessageTracer",
    "TracedBinding",
    "TracedProducer",
    "TracedSend",
    "traced_producer",
    "traced_target",
]

_Target: TypeAlias = Callable[[Message[object]], Awaitable[object]]


class TracedBinding(msgspec.Struct, frozen=True):
    """A binding, as a plugin sees it when the binding is made.

    Attributes:
        binding: The binding's name.
        destination: The destination.
        group: The group of an input; None for an anonymous one and for outputs.
        is_input: Whether the binding receives messages.
        system: The binder type, such as `rocketmq`.
    """

    binding: str
    destination: str
    group: str | None
    is_input: bool
    system: str


class TracedSend(msgspec.Struct, frozen=True):
    """A send under way.

    Attributes:
        messages: The messages to send in place of those that were passed to the tracer.
        failed: To be called with the error of a message that was not sent.
    """

    messages: Sequence[Message[bytes]]
    failed: Callable[[Exception], None]


class MessageTracer(Protocol):
    """Traces the messages of one binding."""

    def sending(self, messages: Sequence[Message[bytes]]) -> AbstractContextManager[TracedSend]:
        """Return a context manager to send messages in; an exception that leaves its block is the failure of all."""
        ...

    def calling(self, message: Message[object]) -> AbstractContextManager[object]:
        """Return a context manager to call a listener in; in batch mode the payload of `message` is a `Batch`."""
        ...


MakeTracer: TypeAlias = Callable[[object, TracedBinding], MessageTracer | None]
"""Returns the tracer of a binding of an application, or None."""


class TracedProducer(ProducerBinding):
    """Sends through another producer, within the blocks of a tracer."""

    def __init__(self, producer: ProducerBinding, tracer: MessageTracer) -> None:
        self._inner = producer
        self._tracer = tracer

    @property
    def partition_count(self) -> int | None:
        """The number of partitions of the destination, if the inner producer knows it."""
        return self._inner.partition_count

    async def send(self, message: Message[bytes]) -> None:
        """Send ``message``; errors are those of the inner producer."""
        with self._tracer.sending([message]) as sending:
            await self._inner.send(sending.messages[0])

    async def send_all(self, messages: Sequence[Message[bytes]]) -> "Sequence[Exception | None]":
        """Send messages in their order; return the error of each, or None."""
        if not messages:
            return []
        with self._tracer.sending(messages) as sending:
            outcomes = await self._inner.send_all(sending.messages)
            for error in {outcome for outcome in outcomes if outcome is not None}:
                sending.failed(error)
            return outcomes

    async def stop(self) -> None:
        """Stop the inner producer."""
        await self._inner.stop()


class _TracedTransactionalProducer(TracedProducer, TransactionalProducerBinding):
    """Begins transactions through another producer, within the blocks of a tracer."""

    def __init__(self, producer: TransactionalProducerBinding, tracer: MessageTracer) -> None:
        super().__init__(producer, tracer)
        self._transactional = producer

    async def begin(self, message: Message[bytes]) -> BrokerTransaction:
        """Store ``message`` invisibly; errors are those of the inner producer."""
        with self._tracer.sending([message]) as sending:
            return await self._transactional.begin(sending.messages[0])


def traced_producer(producer: ProducerBinding, tracer: MessageTracer | None) -> ProducerBinding:
    """Return a producer that traces what it sends; ``producer`` itself if there is no tracer."""
    if tracer is None:
        return producer
    if isinstance(producer, TransactionalProducerBinding):
        return _TracedTransactionalProducer(producer, tracer)
    return TracedProducer(producer, tracer)


def traced_target(target: _Target, tracer: MessageTracer | None) -> _Target:
    """Return a function that calls ``target`` within the blocks of a tracer; ``target`` itself without a tracer."""
    if tracer is None:
        return target

    async def call(message: Message[object]) -> object:
        with tracer.calling(message):
            return await target(message)

    return call
