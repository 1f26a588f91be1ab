"""The headers that a receiver sees: values as JSON carries them, without the headers that control a send."""

from typing import Final
from uuid import UUID

import msgspec

from streamkit.messaging import headers as portable
from streamkit.messaging.headers import MessageHeaders
from streamkit.messaging.java_headers import require_utf8, to_json

_SPELLINGS: Final = {"TAGS": portable.TAGS, "KEYS": portable.KEY}
_AS_THEY_ARE: Final = frozenset((int, float, bool, bytes, UUID))


def received_headers(headers: MessageHeaders) -> dict[str, object]:
    """Return the headers that a receiver sees of a sender's headers, in a new dictionary.

    Raises:
        ValueError: A header cannot be encoded in JSON or UTF-8, so a real broker could not carry it.
    """
    values: dict[str, object] = {}
    steering, spellings = portable.STEERING, _SPELLINGS
    for name, value in headers.items():
        if value is None or name in steering:
            continue
        known = spellings.get(name, name)
        if isinstance(value, str):
            require_utf8(name, value)
            values[known] = value
        else:
            require_utf8(name, "")
            values[known] = value if type(value) in _AS_THEY_ARE else _copied(name, value)
    return values


def _copied(name: str, value: object) -> object:
    if isinstance(value, (int, float, bytes, UUID)):  # a subclass
        return value
    return msgspec.json.decode(to_json(name, value))
