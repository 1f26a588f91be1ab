"""Headers as they would look after a journey: JSON's types only, and none that steer a send."""

from typing import Final
from uuid import UUID

import msgspec

from streamkit.messaging import headers as portable
from streamkit.messaging.headers import MessageHeaders

_STEERING: Final = frozenset(
    {
        portable.DELAY,
        portable.DELIVER_AT,
        portable.DELAY_LEVEL,
        portable.PARTITION,
        portable.PARTITION_OVERRIDE,
        portable.DELIVERY_ATTEMPT,
        portable.SEQUENCE,
        portable.ERROR_CHANNEL,
        portable.REPLY_CHANNEL,
        portable.SEND_TO_DESTINATION,
        portable.JSON_HEADER_TYPES,
    }
)
_SPELLINGS: Final = {"TAGS": portable.TAGS, "KEYS": portable.KEY}
_AS_THEY_ARE: Final = (str, int, float, bool, bytes, UUID)


def travelled(headers: MessageHeaders) -> dict[str, object]:
    """The headers a receiver sees of those a sender set, in a new dictionary.

    Raises:
        ValueError: One of them has no form in JSON, so no broker could carry it.
    """
    values: dict[str, object] = {}
    for name, value in headers.items():
        if name in _STEERING or value is None:
            continue
        known = _SPELLINGS.get(name, name)
        values[known] = value if isinstance(value, _AS_THEY_ARE) else _copied(name, value)
    return values


def _copied(name: str, value: object) -> object:
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except TypeError as error:
        raise ValueError(
            f"header {name!r} is a {type(value).__name__}, which JSON has no form for: send text, a number, "
            "a list or a dict"
        ) from error
