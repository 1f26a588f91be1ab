"""Spans of OpenTelemetry: from the sender over the listener to what the listener sends, collected in memory."""

from collections.abc import Iterator, Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from binders.kafka.headers import to_record
from binders.rocket.headers import to_properties
from streamkit import send_to
from streamkit.application import StreamApplication
from streamkit.binder.tracing import TracedBinding
from streamkit.messaging.headers import MessageHeaders
from streamkit.messaging.message import Message
from streamkit.plugins import hookimpl
from streamkit.settlement import Reject
from streamkit.tracing.span_tracer import SpanTracer

STREAM = "spring.cloud.stream"
SETTINGS = {
    f"{STREAM}.default-binder": "inmemory",
    f"{STREAM}.bindings.orders.group": "kitchen",
    f"{STREAM}.bindings.batches.group": "kitchen",
    f"{STREAM}.bindings.batches.consumer.batch-mode": "true",
    f"{STREAM}.output-bindings": "first;third",
    f"{STREAM}.bindings.first.destination": "orders",
    f"{STREAM}.bindings.receipts.destination": "paid",
    f"{STREAM}.bindings.third.destination": "batches",
}


class Collector:
    """A plugin that traces into memory."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    @hookimpl
    def streamkit_message_tracer(self, binding: TracedBinding) -> list[SpanTracer]:
        return [SpanTracer(binding, self.provider)]

    def spans(self, name: str) -> list[ReadableSpan]:
        """Return the finished spans of this name, in their order."""
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def span(self, name: str) -> ReadableSpan:
        """Return the only span of this name."""
        (found,) = self.spans(name)
        return found


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()
    yield found
    found.provider.shutdown()


def shop(collector: Collector) -> StreamApplication:
    app = StreamApplication(config_location="optional:/none", properties=SETTINGS, args=(), plugins=[collector])

    @app.stream_listener("orders")
    @send_to("receipts")
    async def charge(text: str) -> str | list[Message[str]]:
        if text == "broken":
            raise ValueError("no money")
        if text == "spoilt":
            raise Reject("spoilt")
        return [Message(each) for each in text.split()] if " " in text else text

    @app.stream_listener("batches")
    async def count(texts: list[str]) -> None:
        """A listener of batches."""

    return app


def parent_of(span: ReadableSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    return span.get_span_context().span_id


def test_a_message_is_one_trace_from_its_sender_to_what_the_listener_sends(collector: Collector) -> None:
    """Send, the time in the messaging system, the call, the send of the result."""
    app = shop(collector)
    with app.test() as test:
        app.channel("first").send(Message("tea"))
        test.settle()
        receipt = test.output("receipts").receive()
    send, store, process, result = map(collector.span, ("send orders", "store orders", "process orders", "send paid"))
    assert (parent_of(store), parent_of(process), parent_of(result)) == (id_of(send), id_of(store), id_of(process))
    assert {span.get_span_context().trace_id for span in (store, process, result)} == {send.get_span_context().trace_id}
    assert [span.kind for span in (send, store, process)] == [SpanKind.PRODUCER, SpanKind.CONSUMER, SpanKind.CONSUMER]
    context = result.get_span_context()
    traceparent = str(receipt.headers["traceparent"])
    assert traceparent.startswith(f"00-{context.trace_id:032x}-{context.span_id:016x}-")
    assert process.attributes is not None
    expected = {
        "messaging.system": "inmemory",
        "messaging.destination.name": "orders",
        "messaging.consumer.group.name": "kitchen",
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.message.body.size": 3,
        "messaging.streamkit.binding": "orders",
        "messaging.streamkit.delivery_attempt": 1,
    }
    assert expected.items() <= dict(process.attributes).items()


def test_each_attempt_has_a_span_and_the_first_the_time_before(collector: Collector) -> None:
    """A failed call is an error with its exception; a decision of the listener is none."""
    app = shop(collector)
    with app.test() as test:
        test.input("orders").send("broken")
        test.advance(seconds=5)
        test.input("orders").send("spoilt")
        test.settle()
    failed = collector.spans("process orders")
    assert [span.status.status_code for span in failed] == [StatusCode.ERROR] * 3 + [StatusCode.UNSET]
    assert [event.name for event in failed[0].events] == ["exception"]
    assert failed[0].status.description == "ValueError: no money"
    assert failed[-1].attributes is not None
    assert failed[-1].attributes["messaging.streamkit.settlement"] == "Reject"
    assert collector.spans("store orders") == []  # these messages came without a context


def test_messages_of_a_list_have_contexts_of_their_own(collector: Collector) -> None:
    """The span of their common send is linked to them."""
    app = shop(collector)
    with app.test() as test:
        app.channel("first").send(Message("tea cake"))
        test.settle()
        contexts = [test.output("receipts").receive().headers["traceparent"] for _ in range(2)]
    created = collector.spans("create paid")
    assert [str(context).split("-")[2] for context in contexts] == [f"{id_of(span):016x}" for span in created]
    assert [link.context.span_id for link in collector.span("send paid").links] == [id_of(span) for span in created]


def test_a_batch_is_linked_to_its_messages(collector: Collector) -> None:
    """Its call belongs to none of their traces alone."""
    app = shop(collector)
    with app.test() as test:
        for text in ("tea", "cake"):
            app.channel("third").send(Message(text))
        test.settle()
    linked = [link.context.span_id for span in collector.spans("process batches") for link in span.links]
    assert linked == [id_of(span) for span in collector.spans("send batches")]
    assert {span.parent for span in collector.spans("process batches")} == {None}


def test_without_a_provider_nothing_is_traced(collector: Collector) -> None:
    """The installed plugin has no tracer then, and messages get no headers."""
    settings = {**SETTINGS}
    app = StreamApplication(config_location="optional:/none", properties=settings, args=())
    with app.test() as test:
        app.channel("first").send(Message("tea"))
        received: Sequence[Message[object]] = [test.output("first").receive()]
    assert "traceparent" not in received[0].headers


def test_context_travels_as_plain_text_on_every_system() -> None:
    """A property on RocketMQ, the header's bytes on Kafka: other languages read it as it is."""
    context = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    headers = MessageHeaders({"traceparent": context})
    assert to_properties(headers)["traceparent"] == context
    assert ("traceparent", context.encode()) in to_record(headers, lambda name: True)
