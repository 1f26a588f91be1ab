"""Header values as JSON with their Java classes, as Spring's header mappers write and read them.

A header that is not text is sent as JSON, and `spring_json_header_types` has the Java class of each::

    attempt                     3
    spring_json_header_types    {"attempt": "java.lang.Integer"}

A value without a known Java class is read as plain JSON.
"""

import base64
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import Enum
from typing import Final
from uuid import UUID

import msgspec

from streamkit.messaging.document_limits import UNCOUNTED_SIZE, require_readable_json

__all__ = ["STRING", "declared_types", "from_json", "java_type", "require_utf8", "to_json"]

STRING: Final = "java.lang.String"

_SHOWN: Final = 100
"""The number of characters of a wrong header that an error shows."""
_INT32: Final = range(-(2**31), 2**31)
_OBJECT: Final = "java.util.LinkedHashMap"
_TYPES: Final[Mapping[type, str]] = {
    bool: "java.lang.Boolean",
    float: "java.lang.Double",
    dict: _OBJECT,
    list: "java.util.ArrayList",
    tuple: "java.util.ArrayList",
    set: "java.util.LinkedHashSet",
    frozenset: "java.util.LinkedHashSet",
    UUID: "java.util.UUID",
    bytes: "[B",
}


def to_json(name: str, value: object) -> bytes:
    """Return a header's value as JSON.

    Raises:
        ValueError: JSON cannot represent the value.
    """
    try:
        return msgspec.json.encode(value)
    except TypeError as error:
        raise ValueError(
            f"header {name!r} is a {type(value).__name__}, which JSON cannot represent: send text, a number, "
            "a list or a dict"
        ) from error
    except UnicodeEncodeError as error:
        raise _unwritable(name) from error


def require_utf8(name: str, text: str) -> None:
    """Check that a header with that name and text can be encoded.

    Raises:
        ValueError: The name or the text contains a lone surrogate, as text from JSON may.
    """
    if not (name.isascii() and text.isascii()):
        try:
            name.encode()
            text.encode()
        except UnicodeEncodeError as error:
            raise _unwritable(name) from error


def _unwritable(name: str) -> ValueError:
    return ValueError(f"header {name!r} contains half of a surrogate pair, which UTF-8 cannot encode")


def java_type(value: object) -> str:
    """Return the Java class that Spring makes of the value's JSON."""
    if isinstance(value, (str, datetime, Enum)):
        return STRING
    if type(value) is int:
        return "java.lang.Integer" if value in _INT32 else "java.lang.Long"
    return _TYPES.get(type(value), _OBJECT)


def declared_types(data: str | bytes) -> dict[str, str]:
    """Return the Java class of each header, as the sender declared them; an unreadable declaration is ignored."""
    try:
        _require_readable(data)
        return msgspec.json.decode(data, type=dict[str, str])
    except (ValueError, RecursionError):
        return {}


def from_json(data: str | bytes, declared: str) -> object:
    """Return the value of a header that was sent as JSON with this Java class.

    Raises:
        ValueError: The data is not JSON, not of that class, or larger than `document_limits` allow.
    """
    try:
        _require_readable(data)
        value = msgspec.json.decode(data)
        restore = _FROM_JAVA.get(declared)
        return value if restore is None else restore(value)
    except (TypeError, LookupError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"{data[:_SHOWN]!r} is not a {declared}") from error


def _require_readable(data: str | bytes) -> None:
    if len(data) > UNCOUNTED_SIZE:
        require_readable_json(data.encode() if isinstance(data, str) else data)


def _uuid(value: object) -> object:
    return UUID(str(value))


def _bytes(value: object) -> object:
    return base64.b64decode(str(value), validate=True)


def _double(value: object) -> object:
    return float(value) if isinstance(value, int) else value


def _mime_type(value: object) -> object:
    """Return a content type that applications before Spring Cloud Stream 3 wrote as an object of its parts."""
    if not isinstance(value, dict):
        return value
    parameters = value.get("parameters") or {}
    return f"{value['type']}/{value['subtype']}" + "".join(f";{name}={each}" for name, each in parameters.items())


_FROM_JAVA: Final[Mapping[str, Callable[[object], object]]] = {
    "java.util.UUID": _uuid,
    "[B": _bytes,
    "java.lang.Double": _double,
    "java.lang.Float": _double,
    "org.springframework.util.MimeType": _mime_type,
    "org.springframework.http.MediaType": _mime_type,
}
