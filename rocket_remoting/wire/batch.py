"""The body of a batch: several messages of one topic in one request.

::

    for each message     total size 4 | magic 4 (0) | CRC 4 (0) | flag 4 | body length 4 | body
                         | properties length 2 | properties

All numbers are signed and big-endian. The broker stores one record for each message. This module does no I/O.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from rocket_remoting.wire.errors import LocalProtocolError, RemoteProtocolError
from rocket_remoting.wire.message import Message
from rocket_remoting.wire.properties import MAX_PROPERTIES_LENGTH, encode_properties

_HEAD = struct.Struct(">iiiii")
_SHORT = struct.Struct(">h")


class BatchEntry(NamedTuple):
    """One message of a batch, with encoded properties."""

    flag: int
    body: bytes
    properties: bytes


def encode_batch(messages: Iterable[Message]) -> bytes:
    """Return the body of a batch request.

    Raises:
        LocalProtocolError: A message's properties are too long, or contain a separator or characters outside UTF-8.
    """
    return encode_entries([(message.flag, message.body, encode_properties(message.properties)) for message in messages])


def encode_entries(entries: Iterable[tuple[int, bytes, bytes]]) -> bytes:
    """Return the body of a batch request.

    Args:
        entries: Flag, body and encoded properties of each message, as a `BatchEntry` has them.

    Raises:
        LocalProtocolError: A message's properties are too long.
    """
    parts: list[bytes] = []
    for flag, body, properties in entries:
        if len(properties) > MAX_PROPERTIES_LENGTH:
            raise LocalProtocolError(
                f"properties of {len(properties)} bytes, at most {MAX_PROPERTIES_LENGTH} can be sent"
            )
        size = _HEAD.size + len(body) + _SHORT.size + len(properties)
        parts += (_HEAD.pack(size, 0, 0, flag, len(body)), body, _SHORT.pack(len(properties)), properties)
    return b"".join(parts)


def decode_batch(data: bytes | memoryview) -> list[BatchEntry]:
    """Return the messages of a batch request's body, in order.

    Raises:
        RemoteProtocolError: The lengths of an entry do not agree.
    """
    entries: list[BatchEntry] = []
    offset, end = 0, len(data)
    while offset < end:
        try:
            size, _magic, _crc, flag, body_length = _HEAD.unpack_from(data, offset)
            body_start = offset + _HEAD.size
            body_end = body_start + body_length
            (properties_length,) = _SHORT.unpack_from(data, body_end)
        except struct.error:
            raise RemoteProtocolError(f"batch entry {len(entries)} at {offset} is cut off at {end}") from None
        entry_end = body_end + _SHORT.size + properties_length
        # Negative lengths could lead backwards and make this loop endless, so they are refused even if the sizes agree.
        if body_length < 0 or properties_length < 0 or entry_end > end or entry_end - offset != size:
            raise RemoteProtocolError(
                f"batch entry {len(entries)} at {offset}: size {size} of {end - offset} bytes does not agree"
                f" with body {body_length}, properties {properties_length}"
            )
        entries.append(
            BatchEntry(flag, bytes(data[body_start:body_end]), bytes(data[body_end + _SHORT.size : entry_end]))
        )
        offset = entry_end
    return entries
