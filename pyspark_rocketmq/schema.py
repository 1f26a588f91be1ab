"""The columns of a message: those of a source, with its own names or Kafka's, and those of a sink."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_rocketmq.errors import SchemaError, suggestion

_PROPERTIES = MapType(StringType(), StringType())
_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

COLUMNS: Mapping[str, DataType] = {
    "topic": StringType(),
    "broker_name": StringType(),
    "queue_id": IntegerType(),
    "queue_offset": LongType(),
    "body": BinaryType(),
    "tags": StringType(),
    "keys": StringType(),
    "msg_id": StringType(),
    "born_timestamp": TimestampType(),
    "store_timestamp": TimestampType(),
    "reconsume_times": IntegerType(),
    "sys_flag": IntegerType(),
    "flag": IntegerType(),
    "properties": _PROPERTIES,
}
"""The columns of a source; ``properties`` only if requested, because it is half of the cost of decoding."""

KAFKA_COLUMNS: Mapping[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": _HEADERS,
}
"""The names of Spark's Kafka source, for a schema that uses them; ``timestamp`` is the store timestamp."""


def source_schema(include_headers: bool) -> StructType:
    """Return the columns of a source without a schema."""
    return StructType(
        [StructField(name, kind) for name, kind in COLUMNS.items() if include_headers or name != "properties"]
    )


def check_source_schema(schema: StructType) -> None:
    """Check that a source has these columns, in any order.

    Raises:
        SchemaError: It can't.
    """
    known = {**COLUMNS, **KAFKA_COLUMNS}
    for field in schema.fields:
        kind = known.get(field.name)
        if kind is None:
            raise SchemaError(
                f"column {field.name!r} is not a column of format 'rocketmq'{suggestion(field.name, known)};"
                f" it has {', '.join(known)}"
            )
        if not _same(field.dataType, kind):
            raise SchemaError(
                f"column {field.name!r} is asked for as {field.dataType.simpleString()}, it is"
                f" {kind.simpleString()}: ask for that, and cast it in the query"
            )


_SINK_TYPES: Mapping[str, tuple[str, ...]] = {
    "body": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "tags": ("string",),
    "keys": ("string",),
    "key": ("string", "binary"),
    "properties": ("map<string,string>",),
    "headers": (
        "array<struct<key:string,value:binary>>",
        "array<struct<key:string,value:string>>",
        "map<string,string>",
    ),
    "queue_id": ("int",),
    "partition": ("int",),
    "order_key": ("string", "binary", "int", "bigint"),
    "delay_level": ("int",),
    "deliver_at": ("timestamp",),
    "flag": ("int",),
}
_KAFKA_NAMES = {"value": "body", "key": "keys", "headers": "properties", "partition": "queue_id"}


@dataclass(frozen=True)
class SinkColumns:
    """The columns of the rows by their meaning; None: no column has it."""

    body: str
    topic: str | None
    tags: str | None
    keys: str | None
    properties: str | None
    queue_id: str | None
    order_key: str | None
    delay_level: str | None
    deliver_at: str | None
    flag: str | None
    id_column: str | None


def sink_columns(schema: StructType, *, topic: str | None, order_key: str | None, id_column: str | None) -> SinkColumns:
    """Return the columns of the rows by their meaning.

    Args:
        schema: The rows'.
        topic: The option ``topic``, which counts more than the column.
        order_key: The option ``orderKey``: a column of any name.
        id_column: The option ``idColumn``: likewise.

    Raises:
        SchemaError: A column is missing, unknown, there twice or of a type that does not fit.
    """
    found: dict[str, str] = {}
    chosen = {"order_key": order_key, "id_column": id_column}
    for role, name in chosen.items():
        if name is not None:
            if name not in schema.fieldNames():
                option = "orderKey" if role == "order_key" else "idColumn"
                raise SchemaError(
                    f"option {option!r} names column {name!r}, which does not exist"
                    f"{suggestion(name, schema.fieldNames())}"
                )
            _check_type("order_key", schema[name])
            found[role] = name
    for field in schema.fields:
        kinds = _SINK_TYPES.get(field.name)
        if kinds is None:
            if field.name in chosen.values():
                continue
            raise SchemaError(
                f"column {field.name!r} is not a column that format 'rocketmq' writes"
                f"{suggestion(field.name, _SINK_TYPES)}; drop it, or put it into 'body'"
            )
        _check_type(field.name, field)
        role = _KAFKA_NAMES.get(field.name, field.name)
        if role in found and role != "order_key":
            raise SchemaError(f"columns {found[role]!r} and {field.name!r} have the same meaning: keep one")
        found.setdefault(role, field.name)
    if "body" not in found:
        raise SchemaError("there is no column 'body' (or 'value') with the bodies of messages, as string or binary")
    if "topic" not in found and topic is None:
        raise SchemaError("there is neither an option 'topic' nor a column 'topic'")
    roles = {role: found.get(role) for role in SinkColumns.__dataclass_fields__}
    if topic is not None:
        roles["topic"] = None
    return SinkColumns(**roles)  # type: ignore[arg-type]  # the body's is there


def _check_type(role: str, field: StructField) -> None:
    kinds = _SINK_TYPES[role]
    if field.dataType.simpleString() not in kinds:
        raise SchemaError(f"column {field.name!r} is {field.dataType.simpleString()}, it must be {' or '.join(kinds)}")


def _same(one: DataType, other: DataType) -> bool:
    return one.simpleString() == other.simpleString()
