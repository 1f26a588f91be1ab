"""Decode records, as a broker stores them, into Arrow record batches with the requested columns.

The columns of many records are read at once, by the native core or, where it is not installed, by numpy. Records with
something unusual in them are decoded by `rocket_remoting.wire.record`, one by one. All give the same. A compressed body
is decompressed when its row is made, within a limit, and a batch ends where its bodies become large. This module does
no I/O.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pyspark_rocketmq.columns import FIELDS, Columns, ReadColumns, Wanted
from pyspark_rocketmq.errors import UnreadableBodyError
from pyspark_rocketmq.numpy_columns import numpy_columns
from rocket_remoting.native import has_native_core
from rocket_remoting.wire.compression import DEFAULT_LIMIT, decompress
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.message import MessageExt
from rocket_remoting.wire.properties import PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_UNIQUE_KEY
from rocket_remoting.wire.record import decode_record, decode_records
from rocket_remoting.wire.sys_flag import COMPRESSED

logger = logging.getLogger(__name__)

BATCH_SIZE = 16 * 1024 * 1024
"""The bytes of bodies after which a batch ends when records are decoded one by one."""

_LOG_APPEND_TIME = 1
_FARTHEST = (2**63 - 1) // 1000
"""The largest timestamp in ms that a column can hold; a producer may send any, which must not end a query."""
_FROM_PROPERTIES = {
    "tags": PROPERTY_TAGS,
    "keys": PROPERTY_KEYS,
    "key": PROPERTY_KEYS,
    "msg_id": PROPERTY_UNIQUE_KEY,
}
_WHOLE = frozenset({"properties", "headers"})
_SAME_AS = {
    "value": "body",
    "partition": "queue_id",
    "offset": "queue_offset",
    "timestamp": "store_timestamp",
}


class Decoder:
    """Decodes records into the columns of one schema.

    Args:
        schema: The columns.
        tags: Only messages with one of these tags, which brokers compare by hash codes alone; empty: all.
        max_body_size: Bytes that a compressed body may have when it is decompressed.
        fails: Whether a body that cannot be decompressed is an error; otherwise its message is passed over.
        read_columns: The function that reads the columns of many records; None: that of `columns_reader`.
    """

    def __init__(
        self,
        schema: StructType,
        tags: frozenset[str] = frozenset(),
        *,
        max_body_size: int = DEFAULT_LIMIT,
        fails: bool = True,
        read_columns: ReadColumns | None = None,
    ) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._names = [(field.name, _SAME_AS.get(field.name, field.name)) for field in self._schema]
        self._tags = tags
        self._max_body_size = max_body_size
        self._fails = fails
        self._has_bodies = any(name == "body" for _, name in self._names)
        self._read_columns = read_columns or columns_reader()
        self._wanted = _wanted({name for _, name in self._names}, with_tags=bool(tags))

    def decode(
        self, records: bytes | memoryview, broker_name: str, before: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the messages, in order.

        Args:
            records: Whole records, one after the other.
            broker_name: The broker they are from.
            before: Only messages with a smaller queue offset; None: all.

        Raises:
            RemoteProtocolError: Something in it is not a whole, well-formed record.
            UnreadableBodyError: A body is damaged or too large.
        """
        found = self._read_columns(records, self._wanted)
        if found is None:
            yield from self._decode_one_by_one(records, broker_name, before)
        else:
            batch, kept = self._batch_of(_Block(found, records, broker_name)), self._kept(found, before)
            yield batch if kept is None else batch.filter(kept)

    def _decode_one_by_one(
        self, records: bytes | memoryview, broker_name: str, before: int | None
    ) -> Iterator[pa.RecordBatch]:
        part: list[MessageExt] = []
        size = 0
        waiting = deque(decode_records(records, decompress=False))
        while waiting:  # taken out one by one, so that no body outlives its batch
            message = waiting.popleft()
            if (before is not None and message.queue_offset >= before) or (
                self._tags and message.tags not in self._tags
            ):
                continue
            message.broker_name = broker_name
            if not self._is_readable(message):
                continue
            part.append(message)
            size += len(message.body)
            if size >= BATCH_SIZE:
                batch = self._batch(part)
                part, size = [], 0
                yield batch
        if part:
            yield self._batch(part)

    def _is_readable(self, message: MessageExt) -> bool:
        """Decompress the message's body, if it is compressed and wanted; False if the message is to be passed over.

        Raises:
            UnreadableBodyError: The body is damaged or too large.
        """
        if message.sys_flag & COMPRESSED:
            if self._has_bodies:
                try:
                    message.body = decompress(message.body, message.sys_flag, self._max_body_size)
                except RemoteProtocolError as error:
                    problem = f"message {message.queue_offset} of {message.queue} cannot be decompressed: {error}"
                    if self._fails:
                        raise UnreadableBodyError(
                            f"{problem}; set maxDecompressedBodySize higher, or failOnDataLoss=false to pass over it"
                        ) from error
                    logger.warning("%s; reading continues behind it", problem)
                    return False
            message.sys_flag &= ~COMPRESSED
        return True

    def _batch(self, messages: list[MessageExt]) -> pa.RecordBatch:
        columns = [[_VALUES[name](message) for message in messages] for _, name in self._names]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _batch_of(self, block: "_Block") -> pa.RecordBatch:
        arrays = [_ARRAYS[name](block) for _, name in self._names]
        fitted = [
            array if array.type == field.type else array.cast(field.type)
            for array, field in zip(arrays, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(fitted, schema=self._schema)

    def _kept(self, found: Columns, before: int | None) -> pa.Array | None:
        """Return whether each message has one of the tags and a smaller offset; None if all are kept."""
        kept: pa.Array | None = None
        if self._tags:
            kept = pc.is_in(found.properties[PROPERTY_TAGS], value_set=pa.array(sorted(self._tags), pa.string()))
        if before is not None:
            below = pc.less(found.fields["queue_offset"], before)
            kept = below if kept is None else pc.and_(kept, below)
        return None if kept is None or pc.all(kept).as_py() else kept


def columns_reader() -> ReadColumns:
    """Return the function that reads the columns of many records on this machine."""
    if not has_native_core():
        return numpy_columns
    from pyspark_rocketmq.native_columns import native_columns

    return native_columns


def _wanted(names: set[str], *, with_tags: bool) -> Wanted:
    """Return what has to be read for columns with these names."""
    fields = {"queue_offset", *(names & FIELDS.keys())} | ({"position"} if "msg_id" in names else set())
    properties = {_FROM_PROPERTIES[name] for name in names & _FROM_PROPERTIES.keys()}
    if with_tags:
        properties.add(PROPERTY_TAGS)
    return Wanted(tuple(sorted(fields)), tuple(sorted(properties)), with_map=not names.isdisjoint(_WHOLE))


@dataclass(frozen=True)
class _Block:
    """Records of one broker, and the columns that were read of them."""

    found: Columns
    records: bytes | memoryview
    broker_name: str

    def constant(self, value: object, kind: pa.DataType) -> pa.Array:
        """Return a column with the value in every row."""
        return pa.repeat(pa.scalar(value, kind), self.found.rows)

    def keys(self) -> pa.Array:
        """Return the keys as bytes, as Kafka has them."""
        return self.found.properties[PROPERTY_KEYS].cast(pa.binary())

    def message_ids(self) -> pa.Array:
        """Return the ids that producers gave the messages; without one, the broker's."""
        ids = self.found.properties[PROPERTY_UNIQUE_KEY]
        if not ids.null_count:
            return ids
        positions = self.found.fields["position"].to_pylist()
        return pa.array(
            [
                decode_record(self.records, position, decompress=False).msg_id if text is None else text
                for text, position in zip(ids.to_pylist(), positions, strict=True)
            ],
            pa.string(),
        )

    def properties(self) -> pa.MapArray:
        """Return all properties."""
        assert self.found.all_properties is not None, "_wanted asks for them"
        return self.found.all_properties

    def headers(self) -> pa.Array:
        """Return all properties, as Kafka's headers."""
        properties = self.properties()
        items = pa.StructArray.from_arrays(
            [properties.keys, properties.items.cast(pa.binary())], names=["key", "value"]
        )
        return pa.ListArray.from_arrays(properties.offsets, items)


def _microseconds(milliseconds: int) -> int:
    return max(-_FARTHEST, min(milliseconds, _FARTHEST)) * 1000


def _field(name: str) -> Callable[[_Block], pa.Array]:
    return lambda block: block.found.fields[name]


def _property(name: str) -> Callable[[_Block], pa.Array]:
    return lambda block: block.found.properties[name]


_ARRAYS: Mapping[str, Callable[[_Block], pa.Array]] = {
    **{name: _field(name) for name in FIELDS},
    "broker_name": lambda block: block.constant(block.broker_name, pa.string()),
    "tags": _property(PROPERTY_TAGS),
    "keys": _property(PROPERTY_KEYS),
    "key": _Block.keys,
    "msg_id": _Block.message_ids,
    "properties": _Block.properties,
    "timestampType": lambda block: block.constant(_LOG_APPEND_TIME, pa.int32()),
    "headers": _Block.headers,
}
"""Functions that return each column of many messages."""

_VALUES: Mapping[str, Callable[[MessageExt], Any]] = {
    "topic": lambda message: message.topic,
    "broker_name": lambda message: message.broker_name,
    "queue_id": lambda message: message.queue_id,
    "queue_offset": lambda message: message.queue_offset,
    "body": lambda message: message.body,
    "tags": lambda message: message.properties.get(PROPERTY_TAGS),
    "keys": lambda message: message.properties.get(PROPERTY_KEYS),
    "key": lambda message: message.properties.get(PROPERTY_KEYS, "").encode() or None,
    "msg_id": lambda message: message.msg_id,
    "born_timestamp": lambda message: _microseconds(message.born_timestamp),
    "store_timestamp": lambda message: _microseconds(message.store_timestamp),
    "reconsume_times": lambda message: message.reconsume_times,
    "sys_flag": lambda message: message.sys_flag,
    "flag": lambda message: message.flag,
    "properties": lambda message: message.properties,
    "timestampType": lambda message: _LOG_APPEND_TIME,
    "headers": lambda message: [{"key": name, "value": value.encode()} for name, value in message.properties.items()],
}
"""Functions that return each column's value of one message."""
