"""CloudEvents in each of their encodings."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import pytest

from streamkit import Header, Message, StreamApplication
from streamkit.cloud_events import CloudEvents, cloud_event
from streamkit.errors import MessageConversionError
from streamkit.messaging import DirectChannel
from tests.traced_memory import memory_below

STRUCTURED = "application/cloudevents+json; charset=utf-8"


@dataclass
class Order:
    """The data of an event."""

    number: int


def application(**settings: str) -> StreamApplication:
    """Return an application with an input `orders` whose channel reads events."""
    table = {"spring.cloud.stream.bindings.orders.destination": "orders", **settings}
    app = StreamApplication(config_location="optional:/none", properties=table)
    app.add_interceptor(CloudEvents(), "orders")
    return app


def attributes(prefix: str) -> dict[str, object]:
    """Return the attributes of an event."""
    return {
        f"{prefix}specversion": "1.0",
        f"{prefix}id": "1",
        f"{prefix}source": "/till",
        f"{prefix}type": "paid",
    }


ENVELOPE = '"specversion": "1.0", "id": "1", "source": "/till", "type": "paid"'


@pytest.mark.parametrize(
    ("payload", "headers"),
    [
        (b'{"number": 5}', attributes("ce-")),
        (b'{"number": 5}', attributes("ce_")),
        (b'{"number": 5}', attributes("cloudEvents:")),
        (b'{"number": 5}', {**attributes("CE_"), "CE_contenttype": "application/json"}),
        (f'{{{ENVELOPE}, "data": {{"number": 5}}}}'.encode(), {"contentType": STRUCTURED}),
        (f'{{{ENVELOPE}, "data_base64": "eyJudW1iZXIiOiA1fQ=="}}'.encode(), {"CE_contenttype": STRUCTURED}),
    ],
)
def test_listeners_get_events_of_every_encoding_alike(payload: bytes, headers: dict[str, object]) -> None:
    """The data is the payload; attributes are headers for conditions and listeners."""
    app = application()
    seen: list[tuple[Order, str]] = []

    @app.stream_listener("orders", condition="headers['ce-type'] == 'paid'")
    async def paid(order: Order, source: Annotated[str, Header("ce-source")]) -> None:
        seen.append((order, source))

    with app.test() as test:
        test.input("orders").send(payload, headers=headers)
    assert seen == [(Order(5), "/till")]


def test_other_content_types_and_attributes_are_kept() -> None:
    """Text stays text; an attribute that is null is missing."""
    app = application()
    seen: list[Message[str]] = []

    @app.stream_listener("orders")
    async def take(message: Message[str]) -> None:
        seen.append(message)

    with app.test() as test:
        event = f'{{{ENVELOPE}, "datacontenttype": "text/plain", "subject": null, "trace": "t", "data": "hello"}}'
        test.input("orders").send(event.encode(), headers={"contentType": STRUCTURED})
        test.input("orders").send("bare")
    event_seen, bare = seen
    assert (event_seen.payload, event_seen.headers.content_type) == ("hello", "text/plain")
    assert event_seen.headers["ce-trace"] == "t"
    assert "ce-subject" not in event_seen.headers
    assert bare.payload == "bare"


@pytest.mark.parametrize(
    ("payload", "content_type", "reason"),
    [
        (b"[]", STRUCTURED, "this is not a CloudEvent in JSON: Expected `object`, got `array`"),
        (b'{"specversion": "1.0"}', STRUCTURED, "missing required field `id`"),
        (f'{{{ENVELOPE}, "data_base64": "?"}}'.encode(), STRUCTURED, "this is not a CloudEvent in JSON"),
        (b"[]", "application/cloudevents-batch+json", "a batch of CloudEvents"),
    ],
)
def test_invalid_event_fails_its_message(payload: bytes, content_type: str, reason: str) -> None:
    """As a conversion error does."""
    app = application()

    @app.stream_listener("orders")
    async def take(order: Order) -> None: ...

    with app.test() as test:
        test.input("orders").send(payload, headers={"contentType": content_type})
        test.advance(seconds=5)
        assert reason in str(test.errors[0].payload)


def test_each_event_of_a_batch_is_read() -> None:
    """In batch mode."""
    app = application(**{"spring.cloud.stream.bindings.orders.consumer.batch-mode": "true"})
    seen: list[object] = []

    @app.stream_listener("orders")
    async def take(orders: list[Message[Order]]) -> None:
        seen.extend((order.payload, order.headers["ce-id"]) for order in orders)

    with app.test() as test:
        test.input("orders").send(b'{"number": 5}', headers=attributes("ce_"))
    assert seen == [(Order(5), "1")]


def test_event_is_sent_with_its_attributes() -> None:
    """With a generated id if none is given; attributes that are not given are omitted."""
    app = application()
    with app.test() as test:
        noon = datetime(2026, 1, 2, 12, tzinfo=UTC)
        app.bridge.send("out", cloud_event(Order(5), type="paid", source="/till", time=noon, trace="t"))
        message = test.output("out").receive(Order)
    reported = {name: value for name, value in message.headers.items() if name.startswith("ce-")}
    assert len(str(reported.pop("ce-id"))) == 36
    assert reported == {
        "ce-specversion": "1.0",
        "ce-type": "paid",
        "ce-source": "/till",
        "ce-time": "2026-01-02T12:00:00+00:00",
        "ce-trace": "t",
    }
    assert message.payload == Order(5)
    with pytest.raises(ValueError, match="needs a zone"):
        cloud_event("x", type="paid", source="/till", time=noon.replace(tzinfo=None))


def structured(**members: str) -> Message[bytes]:
    """Return a structured event with further members, each as JSON."""
    more = "".join(f', "{name}": {value}' for name, value in members.items())
    return Message(f"{{{ENVELOPE}{more}}}".encode(), {"contentType": STRUCTURED})


def opened(message: Message[bytes]) -> Message[object]:
    """Return what the interceptor makes of the event."""
    return CloudEvents().pre_send(message, DirectChannel("orders"))


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"trace": "[" * 100_000}, "recursion depth"),
        ({"data": "[" * 100_000 + "]" * 100_000}, "recursion depth"),
        ({"trace": '["x"]'}, "got `array`"),
        ({"trace": '{"a": 1}'}, "got `object`"),
        ({"number": "9" * 100_000}, "out of range"),
        ({"number": "1e999999999"}, "out of range"),
        ({f"a{number}": "1" for number in range(300)}, "304 attributes, more than the limit of 255"),
        ({"data": "[" + "[]," * (4 << 20) + "1]"}, "values"),
        ({"data": '"x"', "datacontenttype": '"text/plain;charset=bz2"'}, "unknown charset 'bz2'"),
        ({"data": '"x"', "datacontenttype": '"nonsense"'}, "is not a content type"),
    ],
)
def test_event_beyond_the_limits_is_a_conversion_error(members: dict[str, str], reason: str) -> None:
    """Too deep, too wide, or with attributes that CloudEvents does not allow."""
    message = structured(**members)
    with memory_below(1 << 20), pytest.raises(MessageConversionError, match=reason) as caught:
        opened(message)
    assert len(str(caught.value)) < 500


def test_binary_data_is_not_parsed() -> None:
    """It is forwarded as the same bytes."""
    message = structured(data="[" + "[]," * 500_000 + "1]")
    with memory_below(4 << 20):
        event = opened(message)
    assert len(event.payload) == 1_500_003  # type: ignore[arg-type]


def test_text_is_encoded_in_the_events_charset() -> None:
    """So that readers of that content type get the same text."""
    event = opened(structured(data='"中文"', datacontenttype='"text/plain;charset=GBK"'))
    assert event.payload == "中文".encode("gbk")
    assert event.headers.content_type == "text/plain;charset=GBK"
