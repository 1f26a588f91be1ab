"""Headers as they would look after a journey: JSON's types only, and none that steer a send."""

from typing import Final
from uuid import UUID

import msgspec

from streamkit.messaging import headers as portable
from streamkit.messaging.headers import MessageHeaders
from streamkit.messaging.java_headers import require_utf8, to_json

_SPELLINGS: Final = {"TAGS": portable.TAGS, "KEYS": portable.KEY}
_AS_THEY_ARE: Final = (str, int, float, bool, bytes, UUID)


def travelled(headers: MessageHeaders) -> dict[str, object]:
    """The headers a receiver sees of those a sender set, in a new dictionary.

    Raises:
        ValueError: One of them has no form in JSON or in UTF-8, so no broker could carry it.
    """
    values: dict[str, object] = {}
    for name, value in headers.items():
        if name in portable.STEERING or value is None:
            continue
        known = _SPELLINGS.get(name, name)
        require_utf8(name, value if isinstance(value, str) else "")
        values[known] = value if isinstance(value, _AS_THEY_ARE) else _copied(name, value)
    return values


def _copied(name: str, value: object) -> object:
    return msgspec.json.decode(to_json(name, value))
