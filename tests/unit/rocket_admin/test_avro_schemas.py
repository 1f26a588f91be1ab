"""Bodies that are Avro: as records on a page, and as documents for conditions."""

import json
from collections.abc import Callable
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest

from rocket_admin.avro_schemas import AvroSchemas, SchemaError
from rocket_admin.conditions import conditions_of, matches_all
from rocket_console.pages.message_body import body_views
from rocket_remoting import Message

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "seal", "type": "bytes"},
        {"name": "paid", "type": {"type": "int", "logicalType": "date"}},
    ],
}
PLACED = {"id": 7, "customer": "Ann <b>", "seal": b"\x00\xff", "paid": 20_000}
SHOWN = {"id": 7, "customer": "Ann <b>", "seal": "00 ff", "paid": "2024-10-04"}
AVRO = "application/vnd.order.v1+avro"

Write = Callable[..., Path]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with the schema of version 1, and one that contains itself."""
    write(tmp_path, "order.v1", ORDER)
    node = {
        "type": "record",
        "name": "Node",
        "fields": [
            {"name": "next", "type": ["null", "Node"]},
            {"name": "all", "type": {"type": "array", "items": "null"}},
        ],
    }
    write(tmp_path, "nodes", node)
    return tmp_path


def write(directory: Path, name: str, schema: object) -> Path:
    """Write a file with a schema, and return it."""
    file = directory / f"{name}.avsc"
    file.write_text(json.dumps(schema))
    return file


def record_bytes(value: dict[str, Any] = PLACED, schema: dict[str, Any] = ORDER) -> bytes:
    """Return an order as Avro writes it, without a header."""
    buffer = BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), value)
    return buffer.getvalue()


def shown(schemas: AvroSchemas, body: bytes, content_type: str | None, topic: str = "t") -> Any:
    """Return a body as a record, the text of the problem if it cannot be read, or None without a schema."""
    found = schemas.record_of(body, content_type, topic)
    if found is None:
        return None
    return found.problem if found.text is None else json.loads(found.text)


def test_the_content_type_or_the_topic_names_the_schema(directory: Path) -> None:
    """Other content types are not read as Avro; a topic with a schema needs none."""
    schemas = AvroSchemas.read(directory)
    assert shown(schemas, record_bytes(), AVRO) == SHOWN
    assert shown(schemas, record_bytes(), f'"{AVRO};charset=x"') == SHOWN
    assert shown(schemas, record_bytes(), "application/avro", "order.v1") == SHOWN
    assert shown(schemas, record_bytes(), None, "order.v1") == SHOWN
    assert shown(schemas, record_bytes(), "avro/binary") is None
    assert shown(schemas, record_bytes(), None) is None
    assert shown(schemas, record_bytes(), "application/json", "order.v1") is None


def test_one_file_is_the_schema_of_all_avro_bodies(directory: Path) -> None:
    schemas = AvroSchemas.read(directory / "order.v1.avsc")
    assert shown(schemas, record_bytes(), "avro/binary") == SHOWN
    assert shown(schemas, record_bytes(), None) is None


def test_a_header_names_the_schema(directory: Path) -> None:
    """By its fingerprint, whatever the content type is. The header is one of Avro's specification."""
    schemas = AvroSchemas.read(directory)
    form = fastavro.schema.to_parsing_canonical_form(fastavro.parse_schema(ORDER))
    fingerprint = bytes.fromhex(fastavro.schema.fingerprint(form, "CRC-64-AVRO"))
    assert shown(schemas, b"\xc3\x01" + fingerprint + record_bytes(), None) == SHOWN
    assert shown(schemas, b"\xc3\x01" + bytes(8) + record_bytes(), None) is None
    assert shown(schemas, b"\xc3\x01", None) is None


@pytest.mark.parametrize(
    ("condition", "matches"),
    [
        ("$.customer=Ann <b>", True),
        ("$.customer~Bob", False),
        ("$.id=7", True),
        ("$.id>7", False),
        ("$.paid=2024-10-04", True),
        ("$.seal=00 ff", True),
        ("$.price>9.9", True),
        ("$.price=10.50", True),
        ("$.absent!=1", True),
    ],
)
def test_a_path_leads_into_a_record(tmp_path: Path, condition: str, matches: bool) -> None:
    """Values are compared as a page shows them, decimals as numbers."""
    price = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
    schema = {**ORDER, "fields": [*ORDER["fields"], {"name": "price", "type": price}]}
    write(tmp_path, "orders", schema)
    documents = AvroSchemas.read(tmp_path).document_of
    body = record_bytes({**PLACED, "price": Decimal("10.50")}, schema)
    letter = Message("%DLQ%shop", body, properties={"RETRY_TOPIC": "orders", "contentType": "application/avro"})
    for message in (Message("orders", body), letter):
        assert matches_all(conditions_of([condition], documents), message) is matches
    assert not matches_all(conditions_of([condition.replace("!", "")]), Message("orders", body))


def test_a_path_leads_into_other_bodies_as_without_schemas(directory: Path) -> None:
    """Into JSON, also where a schema has the topic's name; nowhere in a body that is neither."""
    conditions = conditions_of(["$.id=7"], AvroSchemas.read(directory).document_of)
    assert matches_all(conditions, Message("order.v1", b'{"id": 7}'))
    assert matches_all(conditions, Message("orders", b'{"id": 7}'))
    assert not matches_all(conditions, Message("order.v1", b"\x02" * 100_000))
    assert not matches_all(conditions, Message("order.v1", record_bytes() + bytes(2 << 20)))


@pytest.mark.parametrize(
    ("body", "topic", "problem"),
    [
        (b"", "order.v1", "EOF"),
        (record_bytes() + b"x", "order.v1", "there are more bytes after the record"),
        (b"\x02" * 100_000, "nodes", "nested in more than 100 levels"),
        (b"\x00" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f" + b"\x00", "nodes", "items follow in 1 bytes"),
        (bytes(2 << 20), "order.v1", "more than the limit of 1048576"),
    ],
)
def test_a_body_that_is_no_record_costs_little(directory: Path, body: bytes, topic: str, problem: str) -> None:
    """Nothing is raised, and no value is made of what the body announces."""
    found = shown(AvroSchemas.read(directory), body, "application/avro", topic)
    assert isinstance(found, str)
    assert problem in found or problem == "EOF"


def test_a_record_is_the_first_view(directory: Path) -> None:
    """Without a schema, or if the body is no record, a view says so, and the bytes are there."""
    schemas = AvroSchemas.read(directory)
    body = record_bytes()
    views = body_views(body, AVRO, schemas.record_of(body, AVRO, "t"))
    assert [view.title for view in views] == ["Avro, with the schema order.v1.avsc", "Bytes"]
    assert [view.is_open for view in views] == [True, False]
    views = body_views(b"\x01", AVRO, schemas.record_of(b"\x01", AVRO, "t"))
    assert [view.title for view in views] == ["Avro", "Bytes"]
    assert views[0].text.startswith("This is not a record of the schema order.v1.avsc: ")
    assert "--schemas DIRECTORY" in body_views(body, "application/avro")[0].text
    assert [view.title for view in body_views(b"{}", None, schemas.record_of(b"{}", None, "order.v1"))] == [
        "JSON",
        "Bytes",
    ]


def test_a_schema_may_use_types_of_other_files(tmp_path: Path) -> None:
    write(tmp_path, "shop.Order", ORDER)
    cart = {"type": "record", "name": "Cart", "namespace": "shop", "fields": [{"name": "first", "type": "shop.Order"}]}
    write(tmp_path, "shop.Cart", cart)
    assert shown(AvroSchemas.read(tmp_path), record_bytes(), "application/avro", "shop.Cart") == {"first": SHOWN}


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("a.avsc", "{", "a.avsc is not an Avro schema"),
        ("a.avsc", '{"type": "record", "name": "A", "fields": [{"name": "b", "type": "B"}]}', "is not an Avro schema"),
        ("a.avsc", " " * (1 << 20) + "1", "more than 1,048,576 bytes"),
        ("a.json", '"int"', r"there is no file \*.avsc"),
    ],
)
def test_wrong_schemas_are_refused(tmp_path: Path, name: str, text: str, error: str) -> None:
    """With the name of the file."""
    (tmp_path / name).write_text(text)
    with pytest.raises(SchemaError, match=error):
        AvroSchemas.read(tmp_path)
