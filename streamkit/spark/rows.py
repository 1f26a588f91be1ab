"""Rows of a DataFrame as messages: converted here for any binder, and by Spark for a binder's own format.

::

    column             becomes
    key                the message's key; rows of one key go to one partition, in their order
    tags               its tags
    headers            a map of string to string: headers
    body, or value     as the only other column: the payload as it is, text or bytes
    all others         the payload, an object with these fields, by the binding's content type
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final
from uuid import NAMESPACE_OID, uuid5

from streamkit.errors import ConfigurationError, MessageConversionError
from streamkit.expression.java_hash import java_hash
from streamkit.messaging import headers
from streamkit.messaging.message import Message
from streamkit.messaging.mime import MimeType

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

__all__ = [
    "EPOCH_PROPERTY",
    "QUERY_PROPERTY",
    "Columns",
    "messages_of",
    "moments",
    "sink_columns",
    "with_partition",
]

KEY, TAGS, HEADERS = "key", "tags", "headers"
_HEADERS_TYPE: Final = "map<string,string>"
WHOLE_PAYLOAD = ("body", "value")
QUERY, EPOCH, ROW = "streamkit_spark_query", "streamkit_spark_epoch", "streamkit_spark_row"
"""Headers of a message that a query sent: the query, its batch, the row of the batch."""

QUERY_PROPERTY: Final = "sql.streaming.queryId"
EPOCH_PROPERTY: Final = "streaming.sql.batchId"
"""Local properties in which Spark stores query and batch, for tasks of a streaming query and the driver's thread."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The meaning of a DataFrame's columns.

    Attributes:
        payload: The columns of the payload.
        is_whole: Whether the one payload column is the payload itself, not a field of it.
        has_key: Whether there is a column `key`.
        has_tags: Whether there is a column `tags`.
        has_headers: Whether there is a column `headers`.
    """

    payload: tuple[str, ...]
    is_whole: bool
    has_key: bool
    has_tags: bool
    has_headers: bool

    @classmethod
    def of_schema(cls, schema: "StructType") -> "Columns":
        """Return the meaning of a schema's columns.

        Raises:
            ConfigurationError: No column is left for the payload, two have the same name, or the headers are not a map
                of strings.
        """
        columns = cls.of(schema.fieldNames())
        if columns.has_headers and (kind := schema[HEADERS].dataType.simpleString()) != _HEADERS_TYPE:
            raise ConfigurationError(f"column {HEADERS!r} is {kind}, headers must be {_HEADERS_TYPE}")
        return columns

    @classmethod
    def of(cls, names: Sequence[str]) -> "Columns":
        """Return the meaning of the columns of these names.

        Raises:
            ConfigurationError: No column is left for the payload, or two have the same name.
        """
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigurationError(
                f"the rows have several columns {twice[0]!r}, as after a join, of which one could be sent: drop or "
                "rename the others"
            )
        payload = tuple(name for name in names if name not in (KEY, TAGS, HEADERS))
        if not payload:
            raise ConfigurationError(
                f"the rows have no payload: beside {', '.join(names) or 'no column at all'} there must be a column "
                "body, or columns with the payload's fields"
            )
        is_whole = len(payload) == 1 and payload[0] in WHOLE_PAYLOAD
        return cls(payload, is_whole, KEY in names, TAGS in names, HEADERS in names)


def moments(schema: "StructType") -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """Return a function that adds the time zone UTC to the timestamps of a row.

    Spark passes them to Python as the local time of this process, without a zone; consumers may be in another zone.
    """
    converted = _moments_in(schema)
    return converted if converted is not None else lambda row: row


def _moments_in(kind: "DataType") -> Callable[[Any], Any] | None:
    """Return a function that converts the timestamps in a value, null included; None if the type has none."""
    from pyspark.sql.types import ArrayType, MapType, StructType, TimestampType

    if isinstance(kind, TimestampType):
        return lambda moment: moment and moment.astimezone(UTC)
    if isinstance(kind, ArrayType) and (element := _moments_in(kind.elementType)):
        return lambda values: values and [element(value) for value in values]
    if isinstance(kind, MapType):
        name, value = _moments_in(kind.keyType), _moments_in(kind.valueType)
        if name or value:
            name, value = name or _same, value or _same
            return lambda values: values and {name(each): value(values[each]) for each in values}
    if isinstance(kind, StructType):
        fields = {field.name: found for field in kind if (found := _moments_in(field.dataType))}
        if fields:
            return lambda row: row and {**row, **{each: fields[each](row[each]) for each in fields}}
    return None


def _same(value: object) -> object:
    return value


def messages_of(
    rows: Iterator[Mapping[str, Any]], columns: Columns, query: str, epoch: int
) -> Iterator[Message[object]]:
    """Yield a message for each row of a batch; a repeated batch gives the same messages, ids included."""
    for number, row in enumerate(rows):
        yield Message(_payload(row, columns), _headers(row, columns, query, epoch, number))


def with_partition(message: Message[object]) -> Message[object]:
    """Return the message with the partition of its key, unless it names a partition; a number beyond the last wraps
    round.

    It is the partition that a binder's own Spark format chooses for the column ``order_key``.
    """
    key = message.headers.get(headers.KEY)
    if key is None or message.headers.get(headers.PARTITION) is not None:
        return message
    return Message(message.payload, message.headers.annotated(headers.PARTITION, abs(java_hash(key))))


def _payload(row: Mapping[str, Any], columns: Columns) -> object:
    if columns.is_whole:
        value = row[columns.payload[0]]
        return bytes(value) if isinstance(value, bytearray) else value
    return {name: row[name] for name in columns.payload}


def _headers(row: Mapping[str, Any], columns: Columns, query: str, epoch: int, number: int) -> dict[str, object]:
    values: dict[str, object] = dict((row[HEADERS] or {}) if columns.has_headers else {})
    values |= {
        headers.ID: str(uuid5(NAMESPACE_OID, f"{query}/{epoch}/{number}")),
        QUERY: query,
        EPOCH: epoch,
        ROW: number,
    }
    if columns.has_key and row[KEY] is not None:
        values[headers.KEY] = _text(row[KEY], KEY)
    if columns.has_tags and row[TAGS] is not None:
        values[headers.TAGS] = _text(row[TAGS], TAGS)
    return values


def _text(value: object, column: str) -> str:
    if not isinstance(value, bytes | bytearray):
        return str(value)
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise MessageConversionError(
            f"column {column!r}: the bytes of a row are not UTF-8 text: {bytes(value)!r}; encode them in the query, "
            f"by base64({column})"
        ) from error


def sink_columns(frame: "DataFrame", binding: str, content_type: str) -> "DataFrame":
    """Return the rows with the columns of a binder's own sink; Spark converts the payload.

    Raises:
        ConfigurationError: Spark cannot write this content type, or the column of the whole payload is not text.
    """
    from pyspark.sql import functions as f

    columns = Columns.of_schema(frame.schema)
    said = f.create_map(f.lit(headers.CONTENT_TYPE), f.lit(content_type))
    if columns.has_headers:
        # Headers of a received message include its content type; Spark cannot join maps that have a key in common.
        others = f.map_filter(f.col(HEADERS), lambda name, _: name != headers.CONTENT_TYPE)
        said = f.coalesce(f.map_concat(others, said), said)
    chosen: list[Column] = [
        _body(columns, frame.schema, binding, content_type).cast("binary").alias("body"),
        said.alias("properties"),
    ]
    if columns.has_key:
        chosen += [f.col(KEY).cast("string").alias("keys"), f.col(KEY).cast("string").alias("order_key")]
    if columns.has_tags:
        chosen.append(f.col(TAGS).cast("string").alias("tags"))
    return frame.select(*chosen)


def _body(columns: Columns, schema: "StructType", binding: str, content_type: str) -> "Column":
    from pyspark.sql import functions as f

    if columns.is_whole:
        (name,) = columns.payload
        kind = schema[name].dataType.simpleString()
        if kind not in {"string", "binary"}:
            raise ConfigurationError(
                f"binding {binding!r}: column {name!r}, alone, is the payload as it is, text or bytes, and not {kind}: "
                "cast it to string, give it another name to be a field, or leave delivery out, so that the application "
                "converts it"
            )
        return f.col(name)
    if MimeType.parse(content_type).is_json:
        fields = [
            f.col("`" + name.replace("`", "``") + "`") for name in columns.payload
        ]  # whole columns, not parts of them
        return f.to_json(f.struct(*fields), {"ignoreNullFields": "false"})
    raise ConfigurationError(
        f"binding {binding!r} has content type {content_type}, which Spark cannot write: give the rows one column "
        "body, or leave delivery out, so that the application converts them"
    )
