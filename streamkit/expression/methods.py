"""The methods expressions may call: Java's names, for texts, lists, maps and numbers.

texts     length isEmpty startsWith endsWith contains indexOf substring trim toUpperCase toLowerCase
          replace equals equalsIgnoreCase matches toString
lists     size isEmpty contains get indexOf
maps      size isEmpty get containsKey getOrDefault
numbers   intValue longValue doubleValue toString
anything  equals toString
"""

import re
from collections.abc import Callable, Mapping, Sequence
from numbers import Number
from typing import Any, Final, TypeAlias

from streamkit.errors import ExpressionError
from streamkit.expression.evaluation import as_text, equal, shown

Method: TypeAlias = Callable[..., object]

_ANYTHING: Final[Mapping[str, Method]] = {"equals": equal, "toString": as_text}
_TEXT: Final[Mapping[str, Method]] = {
    "length": len,
    "isEmpty": lambda text: not text,
    "startsWith": lambda text, prefix: text.startswith(prefix),
    "endsWith": lambda text, suffix: text.endswith(suffix),
    "contains": lambda text, part: part in text,
    "indexOf": lambda text, part: text.find(part),
    "substring": lambda text, start, end=None: text[start:end],
    "trim": lambda text: text.strip(),
    "toUpperCase": lambda text: text.upper(),
    "toLowerCase": lambda text: text.lower(),
    "replace": lambda text, old, new: text.replace(old, new),
    "equalsIgnoreCase": lambda text, other: text.casefold() == other.casefold(),
    "matches": lambda text, pattern: re.fullmatch(pattern, text) is not None,
}
_LIST: Final[Mapping[str, Method]] = {
    "size": len,
    "isEmpty": lambda items: not items,
    "contains": lambda items, item: any(equal(each, item) for each in items),
    "get": lambda items, index: items[index],
    "indexOf": lambda items, item: next((i for i, each in enumerate(items) if equal(each, item)), -1),
}
_MAP: Final[Mapping[str, Method]] = {
    "size": len,
    "isEmpty": lambda mapping: not mapping,
    "get": lambda mapping, key: mapping.get(key),
    "containsKey": lambda mapping, key: key in mapping,
    "getOrDefault": lambda mapping, key, default: mapping.get(key, default),
}
_NUMBER: Final[Mapping[str, Method]] = {"intValue": int, "longValue": int, "doubleValue": float}
_NAMES: Final = frozenset().union(_ANYTHING, _TEXT, _LIST, _MAP, _NUMBER)


def is_method(name: str) -> bool:
    """True when some value has a method of that name."""
    return name in _NAMES


def call(value: object, name: str, arguments: Sequence[object], source: str, position: int) -> object:
    """What the method returns.

    Raises:
        ExpressionError: The value has no such method, or not with such arguments.
    """
    method = _methods_of(value).get(name) or _ANYTHING.get(name)
    if value is None or method is None:
        raise ExpressionError(f"{shown(value)} has no method {name}()", source, position)
    target: Any = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    try:
        return method(target, *arguments)
    except (TypeError, AttributeError, IndexError, ValueError, re.error) as error:
        given = ", ".join(map(shown, arguments))
        raise ExpressionError(f"{name}({given}) of {shown(value)}: {error}", source, position) from None


def _methods_of(value: object) -> Mapping[str, Method]:
    match value:
        case str() | bytes():
            return _TEXT
        case Mapping():
            return _MAP
        case Sequence():
            return _LIST
        case Number():
            return _NUMBER
    return _ANYTHING
