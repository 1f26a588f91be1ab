"""The headers that a receiver sees: values as JSON carries them, without the headers that control a send."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final
from uuid import UUID

import msgspec

from streamkit.messaging import headers as portable
from streamkit.messaging.headers import MessageHeaders
from streamkit.messaging.java_headers import require_utf8, to_json

_FIELDS: Final = frozenset((portable.ID, portable.TIMESTAMP, portable.KEY))
_AS_THEY_ARE: Final = frozenset((int, float, bool, bytes, UUID))


def spelt(headers: MessageHeaders, spellings: Mapping[str, str]) -> MessageHeaders:
    """Return headers in which the portable names stand for a messaging system's own, such as `TAGS` of RocketMQ.

    Args:
        headers: The headers of an outgoing message.
        spellings: The portable name of each of the system's own names.
    """
    if spellings.keys().isdisjoint(headers):  # nearly always
        return headers
    own = {known: headers[name] for name, known in spellings.items() if headers.get(name) is not None}
    if not own:
        return headers
    return MessageHeaders({name: value for name, value in headers.items() if name not in spellings} | own)


def sent_names(sends: Callable[[str], bool] | None = None) -> Callable[[str], bool]:
    """Return a function that returns whether a receiver sees a header, by its name; it remembers 256 names.

    The function raises a ValueError for a name that cannot be encoded in UTF-8.

    Args:
        sends: Returns whether a header is sent, by its name; None if all are. Id, timestamp and key always are.
    """

    @lru_cache(maxsize=256)
    def is_sent(name: str) -> bool:
        if name in portable.STEERING or (sends is not None and name not in _FIELDS and not sends(name)):
            return False
        require_utf8(name, "")
        return True

    return is_sent


def received_headers(headers: MessageHeaders, is_sent: Callable[[str], bool]) -> dict[str, object]:
    """Return the headers that a receiver sees of a sender's headers, in a new dictionary.

    `id` and `timestamp` are included only if they were made already, because most are never read. The receiver's
    headers share them (:meth:`MessageHeaders.sharing`).

    Args:
        headers: The headers of the outgoing message.
        is_sent: Returns whether a receiver sees a header, by its name (:func:`sent_names`).

    Raises:
        ValueError: A header cannot be encoded in JSON or UTF-8, so a real broker could not carry it.
    """
    values: dict[str, object] = {}
    for name, value in headers._present.items():
        if value is None or not is_sent(name):
            continue
        if isinstance(value, str):
            if not value.isascii():
                require_utf8(name, value)
            values[name] = value
        else:
            values[name] = value if type(value) in _AS_THEY_ARE else _copied(name, value)
    return values


def _copied(name: str, value: object) -> object:
    if isinstance(value, (int, float, bytes, UUID)):  # a subclass
        return value
    return msgspec.json.decode(to_json(name, value))
