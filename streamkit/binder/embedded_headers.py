"""Headers in front of the payload, as Spring Cloud Stream embeds them for systems that have no headers.

::

    +------+-------+----------------------------------------------------- - - +-----------+
    | 0xFF | count | length | name     | length  | value as JSON | next one    | payload   |
    |      |   1   |   1    | length   |    4    | length        |             | the rest  |
    +------+-------+----------------------------------------------------- - - +-----------+

Numbers are big-endian, texts UTF-8.
"""

import struct
from collections.abc import Mapping
from typing import Final

import msgspec

from streamkit.messaging.document_limits import UNCOUNTED_SIZE

__all__ = ["embed_headers", "extract_headers"]

_MARK: Final = 0xFF
_VALUE_LENGTH: Final = struct.Struct(">I")
# Bytes of a mark, a count and the shortest header; Spring does not search shorter payloads for headers either.
_SHORTEST: Final = 9

MAX_SIZE: Final = UNCOUNTED_SIZE
"""The largest size in bytes of the headers in front of a payload; by default no whole message is larger."""


def embed_headers(payload: bytes, headers: Mapping[str, object]) -> bytes:
    """Return the payload with the headers in front of it.

    Raises:
        ValueError: There are more than 255, a name is longer than 255 bytes, or a value has no form in JSON.
    """
    if len(headers) > 255:
        raise ValueError(f"{len(headers)} headers cannot be embedded: the limit is 255")
    parts = [bytes((_MARK, len(headers)))]
    for name, value in headers.items():
        encoded = name.encode()
        if len(encoded) > 255:
            raise ValueError(f"header {name[:40]!r}… cannot be embedded: its name has {len(encoded)} bytes")
        try:
            json = msgspec.json.encode(value)
        except TypeError as error:
            raise ValueError(f"header {name!r} cannot be embedded: {error}") from error
        parts += (bytes((len(encoded),)), encoded, _VALUE_LENGTH.pack(len(json)), json)
    return b"".join((*parts, payload))


def extract_headers(data: bytes) -> tuple[bytes, dict[str, object]]:
    """Return the payload and the headers that were in front of it.

    If ``data`` has no headers, or headers that cannot be read or end beyond `MAX_SIZE`, all of ``data`` is the payload.
    """
    if len(data) < _SHORTEST or data[0] != _MARK:
        return data, {}
    headers: dict[str, object] = {}
    at = 2
    try:
        for _ in range(data[1]):
            name_end = at + 1 + data[at]
            value_at = name_end + _VALUE_LENGTH.size
            value_end = value_at + _VALUE_LENGTH.unpack_from(data, name_end)[0]
            if value_end > len(data):
                return data, {}
            if value_end > MAX_SIZE:
                return data, {}
            headers[data[at + 1 : name_end].decode()] = msgspec.json.decode(data[value_at:value_end])
            at = value_end
    except (IndexError, ValueError, RecursionError, struct.error):
        return data, {}  # a payload that only begins like headers
    return data[at:], headers
