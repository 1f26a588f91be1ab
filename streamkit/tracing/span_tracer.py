"""The spans of one binding, by OpenTelemetry's semantic conventions for messaging.

::

    send orders        PRODUCER   one message; its context is in the headers `traceparent` and `tracestate`
      store orders     CONSUMER   from the message's timestamp until its first attempt: the time in the messaging system
        process orders CONSUMER   one call of a listener; each attempt has a span of its own
          send receipts           what the listener sends

    send orders        CLIENT     several messages in one request, linked to a span `create orders` for each
    process orders     CONSUMER   a batch, linked to the contexts of its messages

The messaging system has no part in it, so all systems are traced alike. The span `store` is made by the consumer; the
clocks of the machines decide about its length.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.propagate import extract, inject
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode

from streamkit.binder.attempts import unwrapped
from streamkit.binder.batch import Batch
from streamkit.binder.tracing import TracedBinding, TracedSend
from streamkit.clock import current_clock
from streamkit.messaging.cause import kind_and_text
from streamkit.messaging.headers import CORRELATION_ID, DELIVERY_ATTEMPT, PARTITION, TIMESTAMP, MessageHeaders
from streamkit.messaging.message import Message
from streamkit.settlement import Reject, Requeue

__all__ = ["SpanTracer"]

_MS: Final = 1_000_000
"""Nanoseconds of a millisecond."""

Attributes = dict[str, str | int]


class SpanTracer:
    """Makes the spans of one binding.

    Args:
        binding: The binding.
        provider: Makes the tracer.
    """

    def __init__(self, binding: TracedBinding, provider: trace.TracerProvider) -> None:
        self._tracer = provider.get_tracer("streamkit")
        self._destination = binding.destination
        self._attributes: Attributes = {
            "messaging.system": binding.system,
            "messaging.destination.name": binding.destination,
            "messaging.streamkit.binding": binding.binding,
        }
        if binding.group is not None:
            self._attributes["messaging.consumer.group.name"] = binding.group

    @contextmanager
    def sending(self, messages: Sequence[Message[bytes]]) -> Iterator[TracedSend]:
        """Make the span of a send, and put its context into the messages."""
        if len(messages) == 1:
            attributes = self._of_operation("send") | _of_message(messages[0])
            with self._span("send", SpanKind.PRODUCER, attributes) as span:
                yield TracedSend([_with_context(messages[0])], lambda error: _failed(span, error))
            return
        created = [self._created(message) for message in messages]
        attributes = self._of_operation("send") | {"messaging.batch.message_count": len(messages)}
        links = [Link(span.get_span_context()) for span, _ in created]
        with self._span("send", SpanKind.CLIENT, attributes, links=links) as span:
            yield TracedSend([message for _, message in created], lambda error: _failed(span, error))

    @contextmanager
    def calling(self, message: Message[object]) -> Iterator[None]:
        """Make the span of a call of a listener."""
        payload = message.payload
        attributes = self._of_operation("process")
        if isinstance(payload, Batch):
            attributes["messaging.batch.message_count"] = len(payload)
            links = [Link(found) for each in payload if (found := _span_context(_extracted(each.headers))).is_valid]
            opened = self._span("process", SpanKind.CONSUMER, attributes, Context(), links)
        else:
            parent = self._stored(message, _extracted(message.headers))
            opened = self._span("process", SpanKind.CONSUMER, attributes | _of_message(message), parent)
        with opened as span:
            try:
                yield
            except (Requeue, Reject) as decision:
                span.set_attribute("messaging.streamkit.settlement", type(decision).__name__)
                raise
            except Exception as error:
                _failed(span, error)
                raise

    @contextmanager
    def _span(
        self,
        operation: str,
        kind: SpanKind,
        attributes: Attributes,
        context: Context | None = None,
        links: Sequence[Link] = (),
    ) -> Iterator[Span]:
        """Make the current span of a block; an exception of the block is not recorded as an unhandled one."""
        with self._tracer.start_as_current_span(
            f"{operation} {self._destination}",
            context,
            kind,
            attributes,
            links,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            if kind is SpanKind.CONSUMER:
                yield span
                return
            try:
                yield span
            except Exception as error:
                _failed(span, error)
                raise

    def _created(self, message: Message[bytes]) -> tuple[Span, Message[bytes]]:
        """Return the span of a message that is sent with others, and the message with its context."""
        attributes = self._of_operation("create") | _of_message(message)
        with self._tracer.start_as_current_span(
            f"create {self._destination}", None, SpanKind.PRODUCER, attributes
        ) as span:
            return span, _with_context(message)

    def _stored(self, message: Message[object], parent: Context) -> Context:
        """Make the span of the time before the first attempt; return the context of the call."""
        sent_ms = message.headers.get(TIMESTAMP)
        is_first = message.headers.get(DELIVERY_ATTEMPT) == 1
        if not isinstance(sent_ms, int) or not is_first or not _span_context(parent).is_valid:
            return parent
        span = self._tracer.start_span(
            f"store {self._destination}",
            parent,
            SpanKind.CONSUMER,
            self._of_operation("receive", "store") | _of_message(message),
            start_time=sent_ms * _MS,
        )
        span.end(max(sent_ms, current_clock().now_ms()) * _MS)
        return trace.set_span_in_context(span, parent)

    def _of_operation(self, operation: str, name: str | None = None) -> Attributes:
        return self._attributes | {
            "messaging.operation.type": operation,
            "messaging.operation.name": name or operation,
        }


def _of_message(message: Message[object]) -> Attributes:
    headers, payload = message.headers, message.payload
    attributes: Attributes = {"messaging.message.id": headers.id}
    if isinstance(payload, bytes):
        attributes["messaging.message.body.size"] = len(payload)
    correlation, partition, attempt = headers.get(CORRELATION_ID), headers.get(PARTITION), headers.get(DELIVERY_ATTEMPT)
    if isinstance(correlation, str):
        attributes["messaging.message.conversation_id"] = correlation
    if isinstance(partition, int):
        attributes["messaging.destination.partition.id"] = str(partition)
    if isinstance(attempt, int):
        attributes["messaging.streamkit.delivery_attempt"] = attempt
    return attributes


def _with_context(message: Message[bytes]) -> Message[bytes]:
    """Return the message with the context of the current span in its headers."""
    carrier: dict[str, str] = {}
    inject(carrier)
    headers = message.headers
    for name, value in carrier.items():
        headers = headers.annotated(name, value)
    return Message(message.payload, headers)


def _extracted(headers: MessageHeaders) -> Context:
    """Return the context that the sender has put into the headers."""
    texts: Mapping[str, str] = {name: value for name, value in headers.items() if isinstance(value, str)}
    return extract(texts, Context())


def _span_context(context: Context) -> trace.SpanContext:
    return trace.get_current_span(context).get_span_context()


def _failed(span: Span, error: Exception) -> None:
    cause = unwrapped(error)
    span.set_attribute("error.type", type(cause).__qualname__)
    span.record_exception(cause)
    span.set_status(Status(StatusCode.ERROR, kind_and_text(cause)))
