"""What the operators of an expression do, as Spring's expression language has it.

Every function that can fail takes the source and the position to blame.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from numbers import Number
from operator import ge, gt, le, lt
from typing import Any, Final

import msgspec

from streamkit.errors import ExpressionError
from streamkit.messaging.message import Message

COMPARISONS: Final = {"<": lt, "<=": le, ">": gt, ">=": ge}


def as_boolean(value: object, source: str, position: int) -> bool:
    """True or false, which the texts `true` and `false` are too."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise ExpressionError(f"expected true or false, found {shown(value)}", source, position)


def equal(left: object, right: object) -> bool:
    """Equality without Python's kinship of true and 1; an enum's member equals its name and its value."""
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    if isinstance(left, Enum) and not isinstance(right, Enum):
        return right in (left.name, left.value)
    if isinstance(right, Enum) and not isinstance(left, Enum):
        return left in (right.name, right.value)
    return bool(left == right)


def compare(operator: str, left: object, right: object, source: str, position: int) -> bool:
    """An ordering; null comes before everything."""
    if left is None or right is None:
        return bool(COMPARISONS[operator](left is not None, right is not None))
    first: Any = left
    second: Any = right
    try:
        if isinstance(left, bool) == isinstance(right, bool):
            return bool(COMPARISONS[operator](first, second))
    except TypeError:
        pass  # said below
    raise ExpressionError(f"{shown(left)} and {shown(right)} have no order", source, position)


def add(left: object, right: object, source: str, position: int) -> object:
    """A sum, or, where one side is text, both texts joined."""
    if isinstance(left, str) or isinstance(right, str):
        return as_text(left) + as_text(right)
    return calculate("+", left, right, source, position)


def calculate(operator: str, left: object, right: object, source: str, position: int) -> object:
    """Arithmetic; whole numbers divide as in Java, towards zero."""
    if not (_is_number(left) and _is_number(right)):
        reason = f"{shown(left)} {operator} {shown(right)} cannot be calculated"
        raise ExpressionError(reason, source, position)
    first: Any = left
    second: Any = right
    try:
        return _calculated(operator, first, second)
    except (ArithmeticError, TypeError) as error:
        raise ExpressionError(f"{left} {operator} {right}: {error}", source, position) from None


def _calculated(operator: str, left: Any, right: Any) -> object:
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "^":
            if abs(right) > 1000:
                raise OverflowError("the exponent is too large")
            return left**right
    if not (isinstance(left, int) and isinstance(right, int)):
        return left / right if operator == "/" else left - right * int(left / right)
    quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    return quotient if operator == "/" else left - right * quotient


def property_of(value: object, name: str, source: str, position: int) -> object:
    """A message's payload or headers, a mapping's value or null, or an object's public attribute."""
    if isinstance(value, Message):
        if name == "payload":
            return value.payload
        if name == "headers":
            return value.headers
        raise ExpressionError(f"a message has payload and headers, no {name!r}", source, position)
    if isinstance(value, bytes | bytearray | memoryview):
        value = _parsed(value, source, position)
    if isinstance(value, Mapping):
        return value.get(name)
    if value is None:
        raise ExpressionError(f"null has no {name!r}; write ?.{name} where it may be null", source, position)
    if not name.startswith("_"):
        found = getattr(value, name, _MISSING)
        if found is not _MISSING and not callable(found):
            return found
    raise ExpressionError(f"{shown(value)} has no property {name!r}", source, position)


def item_of(value: object, key: object, source: str, position: int) -> object:
    """The item: a mapping's value or null, the one at an index of a list or text, else a property."""
    if isinstance(value, bytes | bytearray | memoryview):
        value = _parsed(value, source, position)
    if isinstance(value, Mapping):
        return value.get(key)
    if isinstance(value, Sequence) and isinstance(key, int):
        if 0 <= key < len(value):
            return value[key]
        raise ExpressionError(f"there is no index {key}: it has {len(value)} items", source, position)
    if isinstance(key, str):
        return property_of(value, key, source, position)
    raise ExpressionError(f"{shown(value)} has no item {shown(key)}", source, position)


def as_text(value: object) -> str:
    """The value as Java prints it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)


def shown(value: object) -> str:
    """How errors call a value; payloads are not printed, they may be large and secret."""
    if value is None:
        return "null"
    if isinstance(value, bool | int | float):
        return as_text(value)
    if isinstance(value, str) and len(value) <= 40:
        return repr(value)
    return f"a {type(value).__name__}"


_MISSING: Final = object()


def _is_number(value: object) -> bool:
    return isinstance(value, Number) and not isinstance(value, bool)


def _parsed(value: bytes | bytearray | memoryview, source: str, position: int) -> object:
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError as error:
        raise ExpressionError(f"the payload is no JSON: {error}", source, position) from None
