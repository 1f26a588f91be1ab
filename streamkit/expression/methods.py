"""The methods that expressions may call, with Java's names, for texts, lists, maps and numbers.

texts     length isEmpty startsWith endsWith contains indexOf substring trim toUpperCase toLowerCase
          replace equals equalsIgnoreCase getBytes matches hashCode toString
lists     size isEmpty contains get indexOf
maps      size isEmpty get containsKey getOrDefault
numbers   intValue longValue doubleValue hashCode toString
anything  equals toString
"""

import re
from collections.abc import Callable, Mapping, Sequence
from numbers import Number
from typing import Any, Final, NamedTuple, TypeAlias

from streamkit.expression.evaluation import Evaluation, comparison_work
from streamkit.expression.java_hash import java_hash
from streamkit.expression.limits import ITEM_WORK
from streamkit.expression.operators import as_text, equal, shown, truncated
from streamkit.expression.patterns import compile_pattern

Cost: TypeAlias = Callable[..., int] | None


class Method(NamedTuple):
    """A method of a kind of values.

    Attributes:
        function: Returns the result for the value and the arguments.
        cost: The units of work for the same arguments: characters and items that are read and made. None for methods
            that take the same time whatever the value.
    """

    function: Callable[..., object]
    cost: Cost = None


def _texts(text: str, other: str = "") -> int:
    return len(text) + len(other)


def _twice(text: str, other: str = "") -> int:
    """Return the cost of reading texts and of making texts of the same length."""
    return 2 * (len(text) + len(other))


def _slice(text: str, start: int, end: int | None = None) -> int:
    return len(range(*slice(start, end).indices(len(text))))


def _replacement(text: str, old: str, new: str) -> int:
    """Return the cost of the text with ``old`` replaced, which may be much longer than the text."""
    return 2 * len(text) + text.count(old) * len(new)


def _pattern(text: str, pattern: str) -> int:
    return compile_pattern(pattern).cost(text)


def _items(items: Sequence[object], item: object) -> int:
    return ITEM_WORK * len(items) + comparison_work(items, item)


def _hash_cost(text: str) -> int:
    """Return the cost of Java's hash code, which Python code computes character by character."""
    return ITEM_WORK * len(text)


def _number_hash(number: object) -> int:
    """Return the hash code of a whole number or boolean.

    Raises:
        TypeError: It is another number, whose type in Java is not known.
    """
    if not isinstance(number, int):
        raise TypeError("only texts, whole numbers and booleans have a hash code here")
    return java_hash(number)


_ANYTHING: Final[Mapping[str, Method]] = {"equals": Method(equal, comparison_work)}
_TEXT: Final[Mapping[str, Method]] = {
    "length": Method(len),
    "isEmpty": Method(lambda text: not text),
    "startsWith": Method(lambda text, prefix: text.startswith(prefix)),
    "endsWith": Method(lambda text, suffix: text.endswith(suffix)),
    "contains": Method(lambda text, part: part in text, _texts),
    "indexOf": Method(lambda text, part: text.find(part), _texts),
    "substring": Method(lambda text, start, end=None: text[start:end], _slice),
    "trim": Method(lambda text: text.strip(), _texts),
    "toUpperCase": Method(lambda text: text.upper(), _twice),
    "toLowerCase": Method(lambda text: text.lower(), _twice),
    "replace": Method(lambda text, old, new: text.replace(old, new), _replacement),
    "equalsIgnoreCase": Method(lambda text, other: text.casefold() == other.casefold(), _twice),
    "getBytes": Method(lambda text: text.encode("utf-8", "replace"), _twice),
    "hashCode": Method(java_hash, _hash_cost),
    "matches": Method(lambda text, pattern: compile_pattern(pattern).matches(text), _pattern),
}
_LIST: Final[Mapping[str, Method]] = {
    "size": Method(len),
    "isEmpty": Method(lambda items: not items),
    "contains": Method(lambda items, item: any(equal(each, item) for each in items), _items),
    "get": Method(lambda items, index: items[index]),
    "indexOf": Method(lambda items, item: next((i for i, each in enumerate(items) if equal(each, item)), -1), _items),
}
_MAP: Final[Mapping[str, Method]] = {
    "size": Method(len),
    "isEmpty": Method(lambda mapping: not mapping),
    "get": Method(lambda mapping, key: mapping.get(key)),
    "containsKey": Method(lambda mapping, key: key in mapping),
    "getOrDefault": Method(lambda mapping, key, default: mapping.get(key, default)),
}
_NUMBER: Final[Mapping[str, Method]] = {
    "intValue": Method(truncated),
    "longValue": Method(truncated),
    "doubleValue": Method(float),
    "hashCode": Method(_number_hash),
}
_GETTER: Final = re.compile(r"(?:get|is)([A-Z]\w*)")
_NAMES: Final = frozenset(("toString",)).union(_ANYTHING, _TEXT, _LIST, _MAP, _NUMBER)
_OF_TYPE: Final[Mapping[type, Mapping[str, Method]]] = {
    str: _TEXT,
    bytes: _TEXT,
    dict: _MAP,
    list: _LIST,
    tuple: _LIST,
    int: _NUMBER,
    float: _NUMBER,
}


def is_method(name: str) -> bool:
    """Return whether any value has a method of that name."""
    return name in _NAMES


def property_read_by(method: str) -> str | None:
    """Return the property that a method of a Java bean reads, `name` for `getName`; None for other methods."""
    found = _GETTER.fullmatch(method)
    if found is None:
        return None
    name = found[1]
    # As Java does: getURL reads the property URL.
    return name if name[:2].isupper() and len(name) > 1 else name[0].lower() + name[1:]


def call(value: object, name: str, arguments: Sequence[object], run: Evaluation, position: int) -> object:
    """Call a method and return its result.

    Raises:
        ExpressionError: The value has no such method, or not with such arguments.
        ExpressionLimitExceeded: The method reads or makes more than the evaluation has work left.
    """
    if name == "toString" and value is not None and not arguments:
        return as_text(value, run, position)
    method = _methods_of(value).get(name) or _ANYTHING.get(name)
    if value is None or method is None:
        raise run.error(f"{shown(value)} has no method {name}()", position)
    function, cost = method
    target: Any = _decoded(value, run, position) if isinstance(value, bytes) else value
    try:
        if cost is not None:
            run.charge(cost(target, *arguments), position)
        return function(target, *arguments)
    except (TypeError, AttributeError, IndexError, ValueError, OverflowError) as error:
        given = ", ".join(map(shown, arguments))
        raise run.error(f"{name}({given}) of {shown(value)}: {error}", position) from None


def _decoded(data: bytes, run: Evaluation, position: int) -> str:
    run.charge(len(data), position)
    return data.decode("utf-8", "replace")


def _methods_of(value: object) -> Mapping[str, Method]:
    found = _OF_TYPE.get(type(value))
    if found is not None:
        return found
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
