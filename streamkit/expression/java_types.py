"""The types that `instanceof` asks about: Java's for values of Python, and the classes of payloads by their names."""

from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from decimal import Decimal
from typing import Final
from uuid import UUID

__all__ = ["is_instance"]


def _is(*types: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, types) and not isinstance(value, bool)


_WHOLE: Final = _is(int)
_TYPES: Final[Mapping[str, Callable[[object], bool]]] = {
    "BigDecimal": _is(Decimal),
    "BigInteger": _WHOLE,
    "Boolean": lambda value: isinstance(value, bool),
    "Byte": _WHOLE,
    "CharSequence": _is(str),
    "Collection": lambda value: isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping),
    "Double": _is(float),
    "Float": _is(float),
    "Integer": _WHOLE,
    "Iterable": lambda value: isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping),
    "List": lambda value: isinstance(value, Sequence) and not isinstance(value, str | bytes),
    "Long": _WHOLE,
    "Map": _is(Mapping),
    "Number": _is(int, float, Decimal),
    "Object": lambda value: value is not None,
    "Set": _is(AbstractSet),
    "Short": _WHOLE,
    "String": _is(str),
    "UUID": _is(UUID),
    "byte[]": _is(bytes, bytearray, memoryview),
}


def is_instance(value: object, type_: str) -> bool:
    """Return whether a value is of a type; null is of none.

    Java's types of whole numbers are all Python's `int`. A type that is not listed above is a class of Python, by its
    name: that of the value, or one from which it is derived.

    Args:
        value: The value.
        type_: The type, with or without its package: `java.lang.String`, `Map`, `com.acme.Order`.
    """
    name = type_.rpartition(".")[2]
    known = _TYPES.get(name)
    if known is not None:
        return known(value)
    return any(each.__name__ == name for each in type(value).__mro__)
