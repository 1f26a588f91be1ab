"""The positions of the fields of many records, found by numpy; `rocket_remoting.wire.record` draws a record.

All positions are indexes into one buffer of records, one after the other. This module does no I/O.
"""

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rocket_remoting.wire.record import MAGIC_V1, MAGIC_V2
from rocket_remoting.wire.sys_flag import BORN_HOST_V6, COMPRESSED, STORE_HOST_V6

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_SIZE = struct.Struct(">i").unpack_from
_SHORTEST = 91
_MAGIC_AT = 4
_MAGIC_BYTES = struct.pack(">i", MAGIC_V1)[:3]
"""The bytes that the magic numbers of both versions begin with."""


class UnusualRecordsError(Exception):
    """The records have unusual fields and must be read one by one."""


@dataclass(frozen=True)
class Layout:
    """The fields of each record: numbers as they are, the rest by position and length."""

    position: Ints
    queue_id: Ints
    flag: Ints
    queue_offset: Ints
    sys_flag: Ints
    born_timestamp: Ints
    store_timestamp: Ints
    reconsume_times: Ints
    body: tuple[Ints, Ints]
    topic: tuple[Ints, Ints]
    properties: tuple[Ints, Ints]


def layout(buffer: bytes | memoryview) -> Layout:
    """Return the positions of the fields.

    Raises:
        UnusualRecordsError: A record is not whole or not well-formed, or its body is compressed.
    """
    starts = boundaries(buffer)
    raw = np.frombuffer(buffer, np.uint8)
    ends = np.append(starts[1:], len(raw))
    magic = _field(raw, starts + 4, ">i4")
    is_v2 = magic == MAGIC_V2
    sys_flag = _field(raw, starts + 36, ">i4")
    _require(is_v2 | (magic == MAGIC_V1))
    _require(sys_flag & COMPRESSED == 0)

    store_at = starts + 48 + np.where(sys_flag & BORN_HOST_V6, 20, 8)
    after_hosts = store_at + 8 + np.where(sys_flag & STORE_HOST_V6, 20, 8)
    body_at = after_hosts + 16
    _require(body_at <= ends)
    body_length = _field(raw, after_hosts + 12, ">i4")

    topic_at = body_at + body_length
    _require((body_length >= 0) & (topic_at + 4 <= ends))
    topic_length = raw[topic_at].astype(np.int64)
    if np.any(is_v2):
        topic_length = np.where(is_v2, _field(raw, topic_at, ">i2"), topic_length)
    topic_at = topic_at + 1 + is_v2

    properties_at = topic_at + topic_length
    _require((topic_length >= 0) & (properties_at + 2 <= ends))
    properties_length = np.maximum(_field(raw, properties_at, ">i2"), 0)
    _require(properties_at + 2 + properties_length == ends)
    return Layout(
        position=starts,
        queue_id=_field(raw, starts + 12, ">i4"),
        flag=_field(raw, starts + 16, ">i4"),
        queue_offset=_field(raw, starts + 20, ">i8"),
        sys_flag=sys_flag,
        born_timestamp=_field(raw, starts + 40, ">i8"),
        store_timestamp=_field(raw, store_at, ">i8"),
        reconsume_times=_field(raw, after_hosts, ">i4"),
        body=(body_at, body_length),
        topic=(topic_at, topic_length),
        properties=(properties_at + 2, properties_length),
    )


def _require(holds: npt.NDArray[np.bool_]) -> None:
    if not np.all(holds):
        raise UnusualRecordsError


def boundaries(buffer: bytes | memoryview) -> Ints:
    """Return where each record begins.

    Raises:
        UnusualRecordsError: The sizes in them do not add up.
    """
    found = _boundaries_by_magic(buffer)
    if found is not None:
        return found
    starts: list[int] = []
    position, end = 0, len(buffer)
    while position + 4 <= end:
        starts.append(position)
        size = _SIZE(buffer, position)[0]
        if size < _SHORTEST:
            raise UnusualRecordsError
        position += size
    if position != end:
        raise UnusualRecordsError
    return np.array(starts, dtype=np.int64)


def _boundaries_by_magic(buffer: bytes | memoryview) -> Ints | None:
    """Return where each record begins, found in half the time that a loop over the sizes takes.

    Returns:
        None if a body has the bytes of a magic number, or the sizes do not add up.
    """
    raw = np.frombuffer(buffer, np.uint8)
    starts = np.flatnonzero(raw[_MAGIC_AT : len(raw) - _SHORTEST + _MAGIC_AT] == _MAGIC_BYTES[0])
    starts = starts[matches(raw, starts + _MAGIC_AT, _MAGIC_BYTES)]
    if not len(starts):
        return None
    sizes = _field(raw, starts, ">i4")
    follow = np.append(starts[1:], len(raw))
    if starts[0] != 0 or sizes.min() < _SHORTEST or not np.array_equal(starts + sizes, follow):
        return None
    return starts


def matches(data: Bytes, position: Ints, wanted: bytes) -> npt.NDArray[np.bool_]:
    """Return whether the data has the wanted bytes at each position. They must not reach beyond its end."""
    if not len(position) or not wanted:
        return np.ones(len(position), dtype=bool)
    found: npt.NDArray[np.bool_] = _at_any_position(data, f"S{len(wanted)}")[position] == wanted
    return found


def _field(raw: Bytes, position: Ints, kind: str) -> Ints:
    """Return the big-endian number at each position."""
    return _at_any_position(raw, kind)[position].astype(np.int64)


def _at_any_position(data: Bytes, kind: str) -> npt.NDArray[Any]:
    """Return a view whose element n is what the data has from its byte n on; elements overlap."""
    dtype = np.dtype(kind)
    return np.ndarray((len(data) - dtype.itemsize + 1,), dtype, data, strides=(1,))
