"""Avro schemas of Python types: dataclasses, structs, TypedDicts, pydantic models.

::

    bool int float str bytes            boolean long double string bytes
    datetime  date  time  UUID          long timestamp-micros, int date, long time-micros, string uuid
    list set tuple[T, ...]  dict        array, map
    X | None, X | Y                     union
    Enum of Avro names                  enum of its values
    a class with annotated fields       record

A class may have an attribute ``__avro_schema__`` instead: a schema as Python data.
"""

import datetime as dt
import enum
import re
import uuid
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import NoneType, UnionType
from typing import Annotated, Any, Final, NewType, TypeAlias, Union, get_args, get_origin, get_type_hints

__all__ = ["Schema", "schema_of"]

Schema: TypeAlias = str | dict[str, Any] | list[Any]

_PRIMITIVES: Final[Mapping[object, Schema]] = {
    NoneType: "null",
    None: "null",
    bool: "boolean",
    int: "long",
    float: "double",
    str: "string",
    bytes: "bytes",
    dt.datetime: {"type": "long", "logicalType": "timestamp-micros"},
    dt.date: {"type": "int", "logicalType": "date"},
    dt.time: {"type": "long", "logicalType": "time-micros"},
    uuid.UUID: {"type": "string", "logicalType": "uuid"},
}
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def schema_of(type_: object) -> Schema:
    """Return the schema of a type.

    Raises:
        TypeError: Avro has no equivalent of the type.
    """
    return _Schemas().of(type_)


class _Schemas:
    """One schema under construction: a class is defined once, then referred to by its name."""

    def __init__(self) -> None:
        self._named: dict[type, str] = {}

    def of(self, type_: object) -> Schema:
        while isinstance(type_, NewType):
            type_ = type_.__supertype__
        primitive = _PRIMITIVES.get(type_) if _is_hashable(type_) else None
        if primitive is not None:
            return primitive
        origin, arguments = get_origin(type_), get_args(type_)
        if origin is Annotated:
            return self.of(arguments[0])
        if origin in (Union, UnionType):
            return [self.of(argument) for argument in arguments]
        if isinstance(origin, type):
            return self._collection(type_, origin, arguments)
        if isinstance(type_, type):
            return self._class(type_)
        raise TypeError(f"Avro has no equivalent of {type_}")

    def _collection(self, type_: object, origin: type, arguments: tuple[Any, ...]) -> Schema:
        if issubclass(origin, Mapping) and arguments[0] is str:
            return {"type": "map", "values": self.of(arguments[1])}
        is_variadic = origin is not tuple or arguments[1:] == (Ellipsis,)
        if issubclass(origin, Sequence | AbstractSet) and is_variadic:
            return {"type": "array", "items": self.of(arguments[0])}
        raise TypeError(f"Avro has no equivalent of {type_}")

    def _class(self, type_: type) -> Schema:
        known = self._named.get(type_)
        if known is not None:
            return known
        given: Schema | None = getattr(type_, "__avro_schema__", None)
        if given is not None:
            return given
        self._named[type_] = type_.__name__
        if issubclass(type_, enum.Enum):
            return self._enum(type_)
        fields = get_type_hints(type_, include_extras=True)
        if not fields or type_.__module__ == "builtins":
            raise TypeError(f"Avro has no equivalent of {type_.__qualname__}: it has no annotated fields")
        return {
            "type": "record",
            "name": type_.__name__,
            "fields": [{"name": name, "type": self.of(hint)} for name, hint in fields.items()],
        }

    @staticmethod
    def _enum(type_: type[enum.Enum]) -> Schema:
        symbols = [member.value for member in type_]
        if not all(isinstance(symbol, str) and _NAME.fullmatch(symbol) for symbol in symbols):
            raise TypeError(
                f"the values of {type_.__qualname__} are not Avro names, as the symbols of an Avro enum must be"
            )
        return {"type": "enum", "name": type_.__name__, "symbols": symbols}


def _is_hashable(type_: object) -> bool:
    try:
        hash(type_)
    except TypeError:
        return False
    return True
