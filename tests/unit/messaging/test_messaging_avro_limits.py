"""Avro data that claims excessive sizes fails as a conversion before it is built."""

import io
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.errors import MessageConversionError
from streamkit.messaging import CompositeMessageConverter, Message
from streamkit.messaging.avro_converter import AvroConverter
from streamkit.messaging.avro_limits import MAX_DEPTH, AvroLimits
from streamkit.messaging.document_limits import MAX_DOCUMENT_SIZE
from tests.traced_memory import memory_below

AVRO = "application/avro"
MIB = 1 << 20


def number(value: int) -> bytes:
    """Return Avro's form of a long."""
    raw, found = (value << 1) ^ (value >> 63), b""
    while raw > 0x7F:
        found += bytes([raw & 0x7F | 0x80])
        raw >>= 7
    return found + bytes([raw])


@dataclass
class Empty:
    """A type without bytes in Avro."""

    nothing: None = None


@dataclass
class Lists:
    """Lists of items with and without bytes."""

    nothings: list[None] = field(default_factory=list)
    empties: list[Empty] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    names: dict[str, None] = field(default_factory=dict)


@dataclass
class Node:
    """A type that contains itself."""

    child: "Node | None" = None


@dataclass
class Tree:
    """A type that contains many of itself."""

    children: "list[Tree]" = field(default_factory=list)
    named: "dict[str, Tree]" = field(default_factory=dict)


@dataclass
class Text:
    """Bytes and text."""

    text: str = ""
    data: bytes = b""


def read(type_: object, data: bytes, *converters: AvroConverter) -> object:
    """Read the payload as Avro."""
    return CompositeMessageConverter(converters).payload_reader(type_, AVRO)(Message(data))


def refused(type_: object, data: bytes, *converters: AvroConverter) -> str:
    """Return why the payload is refused, within bounded memory."""
    with memory_below(MIB), pytest.raises(MessageConversionError) as caught:
        read(type_, data, *converters)
    return str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        number(1 << 60) + b"\0",
        number(-(1 << 60)) + b"\0\0",
        number(10_000_000) + b"\0",
        b"\0" + number(1 << 60) + b"\0",
        b"\0\0" + number(1 << 60) + b"\1\1",
        b"\0\0\0" + number(1 << 60) + b"\0",
    ],
)
def test_more_items_than_bytes_are_refused(data: bytes) -> None:
    """Whether an item takes bytes or not."""
    assert "items follow in" in refused(Lists, data)


@pytest.mark.parametrize(
    ("type_", "data"),
    [
        (Node, b"\0" * 100_000),
        (Tree, b"\2" * 100_000),
        (Tree, b"\0\2\0" * 100_000),
    ],
)
def test_endless_nesting_does_not_end_the_process(type_: object, data: bytes) -> None:
    """Each level would use the C stack."""
    assert f"nested in more than {MAX_DEPTH} levels" in refused(type_, data)


def test_recursive_data_is_read() -> None:
    """Up to a nesting limit."""
    converter = CompositeMessageConverter()
    tree = Tree([Tree([], {"a": Tree()}), Tree()])
    node = None
    for _ in range(MAX_DEPTH - 1):
        node = Node(node)
    for value in (tree, Node(node)):
        written = converter.payload_writer(AVRO)(Message(value))
        assert read(type(value), written.payload) == value


@pytest.mark.parametrize(
    "data",
    [number(1 << 40) + b"a", number(-5) + b"a", b"\0" + number(1 << 62), b"\xff" * 30, b"\x80" * 100_000],
)
def test_length_beyond_the_data_is_refused(data: bytes) -> None:
    """No buffer of that length is allocated."""
    refused(Text, data)


def test_skipped_fields_are_bounded_too() -> None:
    """Fields of the writer's schema that the reader's lacks."""
    schema = {
        "type": "record",
        "name": "Wide",
        "fields": [
            {"name": "unknown", "type": {"type": "array", "items": "null"}},
            {"name": "text", "type": "string"},
        ],
    }
    assert "items follow in" in refused(Text, number(1 << 60), AvroConverter({AVRO: schema}))


def test_decimal_of_a_million_digits_is_refused() -> None:
    """Python takes quadratic time for it."""
    schema = {
        "type": "record",
        "name": "Price",
        "fields": [{"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9}}],
    }
    converter = AvroConverter({AVRO: schema})
    assert "a decimal has 500000 bytes" in refused(dict, number(500_000) + b"\x7f" * 500_000, converter)
    assert read(dict, b"\2\x05", converter) == {"price": 5}


def test_millions_of_records_are_refused() -> None:
    """A record of one byte becomes a dictionary and an object."""
    schema: dict[str, Any] = {"type": "record", "name": "One", "fields": [{"name": "n", "type": "int"}]}
    wide = {
        "type": "record",
        "name": "Wide",
        "fields": [{"name": "all", "type": {"type": "array", "items": schema}}],
    }
    count = 2 * MIB
    data = number(count) + b"\2" * count + b"\0"
    assert "values" in refused(dict, data, AvroConverter({AVRO: wide}))


def test_payload_is_refused_only_beyond_the_limit() -> None:
    """The limit is a converter argument."""
    data = number(MAX_DOCUMENT_SIZE) + b"x" * MAX_DOCUMENT_SIZE + b"\0"
    assert f"more than the limit of {MAX_DOCUMENT_SIZE}" in refused(Text, data)
    found = read(Text, data, AvroConverter(max_size=2 * MAX_DOCUMENT_SIZE))
    assert isinstance(found, Text)
    assert len(found.text) == MAX_DOCUMENT_SIZE


NAMED = {
    "type": "record",
    "name": "All",
    "namespace": "shop",
    "fields": [
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "again", "type": "Kind"},
        {"name": "id", "type": {"type": "fixed", "name": "Id", "size": 3}},
        {"name": "ids", "type": {"type": "array", "items": "Id"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "counts", "type": {"type": "map", "values": ["null", "double", "All"]}},
        {"name": "rows", "type": {"type": "array", "items": {"type": "array", "items": "float"}}},
        {"name": "flag", "type": "boolean"},
        {"name": "raw", "type": "bytes"},
    ],
}


def values() -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for values of that schema."""
    plain = {
        "kind": st.sampled_from("AB"),
        "again": st.sampled_from("AB"),
        "id": st.binary(min_size=3, max_size=3),
        "ids": st.lists(st.binary(min_size=3, max_size=3), max_size=3),
        "at": st.integers(0, 1 << 50),
        "rows": st.lists(st.lists(st.just(0.5), max_size=3), max_size=3),
        "flag": st.booleans(),
        "raw": st.binary(max_size=200),
    }
    counts = st.dictionaries(st.text(max_size=3), st.none() | st.just(1.5), max_size=3)
    leaf = st.fixed_dictionaries({**plain, "counts": counts})
    return st.recursive(
        leaf,
        lambda child: st.fixed_dictionaries(
            {**plain, "counts": st.dictionaries(st.text(max_size=3), st.none() | child, max_size=2)}
        ),
        max_leaves=4,
    )


@given(values())
def test_written_data_is_within_the_limits(value: dict[str, Any]) -> None:
    """The check follows the data as fastavro does."""
    schema = fastavro.parse_schema(NAMED)
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, schema, value)
    AvroLimits(schema).check(buffer.getvalue())


@given(st.binary(max_size=200))
def test_arbitrary_data_is_read_or_refused(data: bytes) -> None:
    """The only error is a conversion error."""
    converter = CompositeMessageConverter([AvroConverter({AVRO: NAMED})])
    with suppress(MessageConversionError):
        converter.payload_reader(dict, AVRO)(Message(data))
