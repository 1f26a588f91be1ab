"""Encode rows as the body of a batch, without a loop; `rocket_remoting.wire.batch` draws it. This module does no
I/O."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_rocketmq.errors import UnsendableError
from rocket_remoting.wire.properties import (
    MAX_PROPERTIES_LENGTH,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQUE_KEY,
    RESERVED_PROPERTIES,
)

_NAME_END, _VALUE_END = "\x01", "\x02"
_FIXED = 20 + 2
_LEFT_OUT = pa.array(sorted(RESERVED_PROPERTIES | {"CLUSTER"}), pa.string())
_DIGITS = np.array([list(f"{number:02X}".encode()) for number in range(256)], dtype=np.uint8)


class Entries(NamedTuple):
    """Encoded messages, one after the other.

    Attributes:
        data: Their bytes.
        offsets: Where each begins, and the end.
    """

    data: memoryview
    offsets: npt.NDArray[np.int32]


def sequence_keys(prefix: str, first: int, count: int) -> pa.Array:
    """Return the unique keys of consecutive rows: the prefix, and each row's number in 8 hexadecimal digits."""
    numbers = np.arange(first, first + count, dtype=">u4")
    width = len(prefix) + 8
    texts = np.empty((count, width), dtype=np.uint8)
    texts[:, :-8] = np.frombuffer(prefix.encode(), np.uint8)
    texts[:, -8:] = _DIGITS[numbers.view(np.uint8).reshape(count, 4)].reshape(count, 8)
    return fixed_width(texts).cast(pa.string())


def own_properties(tags: pa.Array | None, keys: pa.Array | None, properties: pa.Array | None, rows: int) -> pa.Array:
    """Return the properties of the rows' own columns, in wire form; ``""`` for a row without any.

    Raises:
        UnsendableError: A name or value has a separator in it.
    """
    pieces = [
        _one_property(name, column)
        for name, column in ((PROPERTY_TAGS, tags), (PROPERTY_KEYS, keys))
        if column is not None
    ]
    if properties is not None:
        pieces.append(_user_properties(properties))
    if not pieces:
        return pa.repeat(pa.scalar("", pa.string()), rows)
    return pc.binary_join_element_wise(*pieces, "")


def with_keys(properties: pa.Array, keys: pa.Array) -> pa.Array:
    """Return the properties with each row's unique key at their end."""
    return pc.binary_join_element_wise(properties, PROPERTY_UNIQUE_KEY + _NAME_END, keys, _VALUE_END, "")


def encode(body: pa.Array, properties: pa.Array, flags: pa.Array | None) -> Entries:
    """Return the messages encoded for a batch.

    Raises:
        UnsendableError: A row's properties are too long.
    """
    count = len(body)
    properties = properties.cast(pa.binary())
    body_length = np.asarray(pc.binary_length(body)).astype(np.int64)
    properties_length = np.asarray(pc.binary_length(properties)).astype(np.int64)
    if count and properties_length.max() > MAX_PROPERTIES_LENGTH:
        raise UnsendableError(
            f"a row's properties have {properties_length.max()} bytes, at most {MAX_PROPERTIES_LENGTH} can be sent"
        )
    head = np.zeros((count, 5), dtype=">i4")
    head[:, 0] = _FIXED + body_length + properties_length
    if flags is not None:
        head[:, 3] = np.asarray(flags.fill_null(0))
    head[:, 4] = body_length
    joined = pc.binary_join_element_wise(
        fixed_width(head.view(np.uint8).reshape(count, 20)),
        body,
        fixed_width(properties_length.astype(">i2").reshape(count, 1).view(np.uint8)),
        properties,
        b"",
    )
    _, offsets, data = joined.buffers()
    return Entries(memoryview(data or b""), np.frombuffer(offsets, np.int32)[: count + 1])


def blocks(entries: Entries, most_rows: int, most_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows for one request: as many rows as allowed, at least one."""
    row, rows = 0, len(entries.offsets) - 1
    while row < rows:
        fitting = int(np.searchsorted(entries.offsets, entries.offsets[row] + most_bytes, "right")) - 1
        end = max(row + 1, min(fitting, row + most_rows, rows))
        yield row, end
        row = end


def fixed_width(rows: npt.NDArray[np.uint8]) -> pa.Array:
    """Return each row of bytes as one binary value."""
    count, width = rows.shape
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    data = np.ascontiguousarray(rows)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _one_property(name: str, column: pa.Array) -> pa.Array:
    text = _text(column, name)
    text = pc.if_else(pc.equal(pc.binary_length(text), 0), pa.scalar(None, pa.string()), text)
    _refuse_separators(text, name)
    return pc.binary_join_element_wise(name + _NAME_END, text, _VALUE_END, "").fill_null("")


def _user_properties(column: pa.Array) -> pa.Array:
    """Return maps, or lists of keys and values, as properties, without empty names and those of RocketMQ."""
    column = column.take(pa.array(np.arange(len(column)))) if column.offset else column
    if pa.types.is_map(column.type):
        names, values = column.keys, column.items
    else:
        names, values = column.values.field("key"), column.values.field("value")
    names, values = _text(names, "properties"), _text(values, "properties")
    _refuse_separators(names, "properties")
    _refuse_separators(values, "properties")
    is_sent = pc.and_(
        pc.invert(pc.is_in(names, value_set=_LEFT_OUT)),
        pc.and_(pc.greater(pc.binary_length(names), 0), pc.greater(pc.binary_length(values).fill_null(0), 0)),
    )
    pairs = pc.binary_join_element_wise(names, _NAME_END, values, _VALUE_END, "")
    pairs = pc.if_else(is_sent, pairs, "").fill_null("")
    lists = pa.ListArray.from_arrays(column.offsets, pairs)
    return pc.if_else(column.is_null(), "", pc.binary_join(lists, ""))


def _text(column: pa.Array, name: str) -> pa.Array:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        raise UnsendableError(
            f"column {name!r}: the bytes of a value are not UTF-8 text, which properties must be"
        ) from None


def _refuse_separators(column: pa.Array, name: str) -> None:
    if pc.any(pc.match_substring_regex(column, "[\x00-\x02]")).as_py():
        raise UnsendableError(
            f"column {name!r}: a value has a character 0x00, 0x01 or 0x02 in it, which properties cannot hold"
        )
