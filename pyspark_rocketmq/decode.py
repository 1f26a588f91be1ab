"""Decode records, as a broker stores them, into Arrow record batches with the requested columns.

Many records at once are decoded by numpy and Arrow without a loop; few of them, and those with something odd in
them (a compressed body, a property twice, no separator), by the decoder of `rocket_remoting.wire.record`, one by one.
Both give the same. A compressed body is decompressed when its row is made, within a limit, and a batch ends where its
bodies become large. This module does no I/O.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pyspark_rocketmq.errors import UnreadableBodyError
from pyspark_rocketmq.properties import Pairs, cut, pairs
from pyspark_rocketmq.records import Ints, Layout, UnusualRecordsError, layout, matches
from rocket_remoting.wire.compression import DEFAULT_LIMIT, decompress
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.message import MessageExt
from rocket_remoting.wire.properties import PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_UNIQUE_KEY
from rocket_remoting.wire.record import decode_record, decode_records
from rocket_remoting.wire.sys_flag import COMPRESSED

logger = logging.getLogger(__name__)

FEW_BYTES = 48 * 1024
"""The bytes of records below which decoding one by one is faster: about 200 small messages."""

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
    """

    def __init__(
        self,
        schema: StructType,
        tags: frozenset[str] = frozenset(),
        *,
        max_body_size: int = DEFAULT_LIMIT,
        fails: bool = True,
    ) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._names = [(field.name, _SAME_AS.get(field.name, field.name)) for field in self._schema]
        self._tags = tags
        self._max_body_size = max_body_size
        self._fails = fails
        self._has_bodies = any(name == "body" for _, name in self._names)

    def decode(
        self, records: bytes | memoryview, broker_name: str, before: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the messages, in order.

        Args:
            records: Whole records, one after the other.
            broker_name: The broker they are from.
            before: Only messages with a smaller queue offset; None: all.

        Raises:
            RemoteProtocolError: Something in it is no whole, well-formed record.
            UnreadableBodyError: A body is damaged or too large.
        """
        if len(records) >= FEW_BYTES:
            try:
                batch = self._decode_at_once(records, broker_name, before)
            except (UnusualRecordsError, pa.ArrowInvalid):  # the latter: text that is not UTF-8
                pass
            else:
                yield batch
                return
        yield from self._decode_one_by_one(records, broker_name, before)

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

    def _decode_at_once(self, records: bytes | memoryview, broker_name: str, before: int | None) -> pa.RecordBatch:
        found = layout(records)
        columns = _Columns(records, found, broker_name)
        arrays = [columns.column(name) for _, name in self._names]
        fitted = [
            array if array.type == field.type else array.cast(field.type)
            for array, field in zip(arrays, self._schema, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(fitted, schema=self._schema)
        kept = self._kept(columns, found, before)
        return batch if kept is None else batch.filter(kept)

    def _kept(self, columns: "_Columns", found: Layout, before: int | None) -> pa.Array | None:
        kept: pa.Array | None = None
        if self._tags:
            kept = pc.is_in(columns.column("tags"), value_set=pa.array(sorted(self._tags), pa.string()))
        if before is not None and bool(np.any(found.queue_offset >= before)):
            below = pa.array(found.queue_offset < before)
            kept = below if kept is None else pc.and_(kept, below)
        return kept


class _Columns:
    """The columns of many records, each made on demand."""

    def __init__(self, records: bytes | memoryview, found: Layout, broker_name: str) -> None:
        self._records = records
        self._raw = np.frombuffer(records, np.uint8)
        self._found = found
        self._broker_name = broker_name
        self._parsed: Pairs | None = None

    def column(self, name: str) -> pa.Array:
        """Return the column, in the type of the schema or a type that is cast to it without loss."""
        if name in _NUMBERS:
            return pa.array(getattr(self._found, name))
        if name in _FROM_PROPERTIES:
            return self._property(name)
        return _MAKERS[name](self)

    def topic(self) -> pa.Array:
        """Return the topics; nearly always there is only one, which is decoded once."""
        start, length = self._found.topic
        first = self._raw[start[0] : start[0] + length[0]].tobytes()
        if np.all(length == length[0]) and np.all(matches(self._raw, start, first)):
            return self.constant(first.decode(), pa.string())
        return cut(self._raw, start, length).cast(pa.string())

    def broker_name(self) -> pa.Array:
        """Return the broker's name in every row."""
        return self.constant(self._broker_name, pa.string())

    def timestamp_type(self) -> pa.Array:
        """Return Kafka's number for a timestamp of the broker, LogAppendTime."""
        return self.constant(_LOG_APPEND_TIME, pa.int32())

    def body(self) -> pa.Array:
        """Return the bodies."""
        return cut(self._raw, *self._found.body)

    def born_timestamp(self) -> pa.Array:
        """Return the times at which producers made the messages."""
        return _timestamps(self._found.born_timestamp)

    def store_timestamp(self) -> pa.Array:
        """Return the store timestamps."""
        return _timestamps(self._found.store_timestamp)

    def properties(self) -> pa.Array:
        """Return all properties."""
        return self._pairs().map_column()

    def headers(self) -> pa.Array:
        """Return all properties, as Kafka's headers."""
        properties = self.properties()
        items = pa.StructArray.from_arrays(
            [properties.keys, properties.items.cast(pa.binary())], names=["key", "value"]
        )
        return pa.ListArray.from_arrays(properties.offsets, items)

    def constant(self, value: object, kind: pa.DataType) -> pa.Array:
        """Return a column with the value in every row."""
        return pa.repeat(pa.scalar(value, kind), len(self._found.position))

    def _property(self, name: str) -> pa.Array:
        array = self._pairs().column(_FROM_PROPERTIES[name])
        if name == "msg_id" and array.null_count:
            texts = array.to_pylist()
            for row in np.flatnonzero(np.asarray(array.is_null())):
                position = int(self._found.position[row])
                texts[row] = decode_record(self._records, position, decompress=False).offset_message_id
            return pa.array(texts, pa.string())
        return array

    def _pairs(self) -> Pairs:
        if self._parsed is None:
            self._parsed = pairs(cut(self._raw, *self._found.properties))
        return self._parsed


def _microseconds(milliseconds: int) -> int:
    return max(-_FARTHEST, min(milliseconds, _FARTHEST)) * 1000


def _timestamps(milliseconds: Ints) -> pa.Array:
    return (
        pa.array(np.clip(milliseconds, -_FARTHEST, _FARTHEST) * 1000)
        .cast(pa.timestamp("us"))
        .cast(pa.timestamp("us", "UTC"))
    )


_NUMBERS = frozenset({"queue_id", "queue_offset", "flag", "sys_flag", "reconsume_times"})
_MAKERS: Mapping[str, Callable[[_Columns], pa.Array]] = {
    "topic": _Columns.topic,
    "broker_name": _Columns.broker_name,
    "body": _Columns.body,
    "born_timestamp": _Columns.born_timestamp,
    "store_timestamp": _Columns.store_timestamp,
    "properties": _Columns.properties,
    "timestampType": _Columns.timestamp_type,
    "headers": _Columns.headers,
}

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
