"""Avro payloads, by the schemas of their types or given schemas of a content type."""

import dataclasses
import datetime as dt
import enum
import io
import sys
import uuid
from typing import Any, ClassVar, NamedTuple, TypedDict

import fastavro
import msgspec
import pydantic
import pytest

from streamkit.errors import MessageConversionError
from streamkit.messaging import CompositeMessageConverter, Message
from streamkit.messaging.avro_converter import AvroConverter
from streamkit.messaging.avro_schema import schema_of
from streamkit.messaging.mime import MimeType

AVRO = "application/vnd.order.v1+avro"


class Colour(enum.Enum):
    RED = "RED"
    GREEN = "GREEN"


@dataclasses.dataclass
class Item:
    name: str
    price: float


@dataclasses.dataclass
class Order:
    id: uuid.UUID
    items: list[Item]
    at: dt.datetime
    colour: Colour
    tags: dict[str, str]
    note: str | None = None
    best: Item | None = None
    raw: bytes = b""
    on: dt.date = dt.date(2024, 2, 3)


class Struct(msgspec.Struct):
    n: int
    s: str


class Typed(TypedDict):
    n: int
    s: str


class Model(pydantic.BaseModel):
    n: int
    s: str


class Tuple(NamedTuple):
    n: int


class Given:
    """A class with its own schema."""

    __avro_schema__: ClassVar = {"type": "record", "name": "Given", "fields": [{"name": "n", "type": "int"}]}


ORDER = Order(
    uuid.UUID(int=7),
    [Item("a", 1.5), Item("b", 2.0)],
    dt.datetime(2024, 1, 2, 3, 4, 5, 678, tzinfo=dt.UTC),
    Colour.GREEN,
    {"x": "y"},
    best=Item("a", 1.5),
    raw=b"\x00\xff",
)


def both_ways(type_: object, payload: object, content_type: str = AVRO) -> object:
    """Return what a reader makes of a writer's output."""
    converter = CompositeMessageConverter()
    wire = converter.payload_writer(content_type)(Message(payload))
    assert wire.headers.content_type == content_type
    return converter.payload_reader(type_)(wire)


@pytest.mark.parametrize("content_type", ["application/avro", AVRO, "avro/binary"])
def test_dataclass_round_trip(content_type: str) -> None:
    """Enums, dates, UUIDs, lists, maps, unions and nested records keep their types."""
    assert both_ways(Order, ORDER, content_type) == ORDER


@pytest.mark.parametrize(
    ("type_", "payload"),
    [(Struct, Struct(1, "x")), (Model, Model(n=1, s="x")), (Struct | None, Struct(1, "x"))],
)
def test_struct_and_model_round_trip(type_: object, payload: object) -> None:
    """As dataclasses."""
    assert both_ways(type_, payload) == payload


def test_output_is_standard_avro() -> None:
    """One record in binary form, by the derived schema."""
    wire = CompositeMessageConverter().payload_writer(AVRO)(Message(Struct(-3, "x")))
    assert wire.payload == b"\x05\x02x"
    schema: Any = fastavro.parse_schema(
        {
            "type": "record",
            "name": "Struct",
            "fields": [{"name": "n", "type": "long"}, {"name": "s", "type": "string"}],
        }
    )
    assert fastavro.schemaless_reader(io.BytesIO(wire.payload), schema, None) == {"n": -3, "s": "x"}


def test_given_schema_is_the_writers_and_fields_match_by_name() -> None:
    """Data of an older schema is read as the present type with another field."""
    old: dict[str, Any] = {
        "type": "record",
        "name": "Struct",
        "fields": [
            {"name": "s", "type": "string"},
            {"name": "gone", "type": "boolean"},
            {"name": "n", "type": "int"},
        ],
    }
    converter = CompositeMessageConverter([AvroConverter({AVRO: old})])
    wire = converter.payload_writer(AVRO)(Message({"s": "x", "gone": True, "n": 4}))
    assert converter.payload_reader(Struct)(wire) == Struct(4, "x")
    assert converter.payload_reader(dict[str, object])(wire) == {"s": "x", "gone": True, "n": 4}


def test_schemas_of_types() -> None:
    """A class is defined once and then referred to by name; classes may provide their own schema."""
    assert schema_of(Typed) == {
        "type": "record",
        "name": "Typed",
        "fields": [{"name": "n", "type": "long"}, {"name": "s", "type": "string"}],
    }
    best = next(f for f in schema_of(Order)["fields"] if f["name"] == "best")  # type: ignore[call-overload,index]
    assert best["type"] == ["Item", "null"]
    assert schema_of(Given) is Given.__avro_schema__


@pytest.mark.parametrize("type_", [int | complex, dict[int, str], tuple[int, str], enum.Enum("E", {"A": 1}), object])
def test_unsupported_type_is_refused_when_the_reader_is_created(type_: object) -> None:
    """With what to do instead."""
    with pytest.raises(TypeError):
        schema_of(type_)
    if type_ is not object:
        with pytest.raises(MessageConversionError, match=r"cannot carry .*__avro_schema__"):
            AvroConverter().reader(type_, MimeType("application", "avro"))


def test_conversion_error_names_the_field() -> None:
    """For unwritable records; for invalid bytes it has the decoder's error."""
    converter = CompositeMessageConverter()
    with pytest.raises(MessageConversionError, match=r"Cannot write Struct as .*Struct\.n is <x>"):
        converter.payload_writer(AVRO)(Message(Struct("x", "y")))  # type: ignore[arg-type]
    for data, reason in (
        (b"\x05", "not a record of the schema"),
        (b"\x05\x02xy", "more bytes after the record"),
    ):
        with pytest.raises(MessageConversionError, match=reason):
            converter.payload_reader(Struct, AVRO)(Message(data))


def test_missing_avro_extra_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the reader is created, at the application's start."""
    monkeypatch.setitem(sys.modules, "fastavro", None)  # what the import system takes for a missing module
    with pytest.raises(MessageConversionError, match=r"pip install 'streamkit-messaging\[avro\]'"):
        CompositeMessageConverter().payload_reader(Struct, AVRO)
