"""Cases: payloads of all supported types, from a sender to a listener."""

import dataclasses
import datetime as dt
import enum
import uuid
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest

from streamkit.errors import MessageConversionError
from streamkit.messaging.message import ErrorMessage
from streamkit.testing.contract.scenario import Recorder, Scenario, case


class Colour(enum.Enum):
    """An enumeration."""

    RED = "RED"


@dataclasses.dataclass
class Item:
    """A part of other payloads."""

    name: str
    price: float


@dataclasses.dataclass
class Order:
    """A dataclass with fields of many types."""

    number: uuid.UUID
    items: list[Item]
    at: dt.datetime
    colour: Colour = Colour.RED
    note: str | None = None


class Struct(msgspec.Struct):
    """A msgspec struct."""

    item: Item


class Model(pydantic.BaseModel):
    """A pydantic model."""

    items: list[Item]


class Typed(TypedDict):
    """A typed dictionary."""

    n: int


class Point(NamedTuple):
    """A named tuple."""

    x: int
    y: int


ORDER = Order(uuid.UUID(int=1), [Item("a", 1.5)], dt.datetime(2024, 1, 2, tzinfo=dt.UTC))
PAYLOADS: dict[object, object] = {
    Order: ORDER,
    Struct: Struct(Item("b", 2)),
    Model: Model(items=[Item("c", 3)]),
    Typed: {"n": 1},
    Point: Point(1, 2),
    list[Item]: [Item("d", 4)],
    Item | Model: Model(items=[]),
    Colour: Colour.RED,
    int: 5,
}


class TypeCases:
    """Types of payloads."""

    @case
    async def test_payloads_of_all_supported_types_arrive_equal(self, s: Scenario) -> None:
        """A listener receives a payload as the type of its annotation: dataclass, struct, model, union and others."""
        for number, (type_, payload) in enumerate(PAYLOADS.items()):
            topic = await s.topic(f"type{number}")
            received = s.recorder(str(type_))
            await s.consume(topic, s.name(f"group{number}"), noting(type_, received))
            await s.send(topic, payload)
            assert await received.wait(1) == [payload]

    @case
    async def test_avro_records_arrive_equal(self, s: Scenario) -> None:
        """The content type `application/*+avro` of the output makes the payload an Avro record."""
        pytest.importorskip("fastavro", reason="needs the extra avro")
        topic, group = await s.topic(), s.name("group")
        received = s.recorder("orders")
        avro = "application/vnd.order.v1+avro"
        await s.consume(topic, group, noting(Order, received))
        app = await s.start(s.producer(topic, {"content-type": avro}))
        await app.bridge.asend("output", ORDER)
        assert await received.settled(1) == [ORDER]

    @case
    async def test_a_conversion_error_has_the_path_of_the_wrong_field(self, s: Scenario) -> None:
        """The error channel receives the path within the payload; the listener is not called."""
        topic, group = await s.topic(), s.name("group")
        received, errors = s.recorder("orders"), s.recorder("errors")
        app = s.consumer(topic, group, noting(list[Item], received))

        @app.error_listener(f"{topic}.{group}.errors")
        async def note(error: ErrorMessage) -> None:
            errors.add(error.payload)

        await s.start(app)
        await s.send(topic, '[{"name":"a","price":1},{"name":"b","price":"dear"}]')
        (error,) = await errors.settled(1)
        assert isinstance(error, MessageConversionError)
        assert error.path == "$[1].price"
        assert received.items == []


def noting(type_: object, received: "Recorder[Any]") -> Callable[[object], Coroutine[Any, Any, None]]:
    """Return a listener that records payloads and is annotated with that type."""

    async def note(payload: object) -> None:
        received.add(payload)

    note.__annotations__["payload"] = type_
    return note
