"""Limits of Avro data: the data is walked through by its schema before objects are made.

fastavro trusts the counts in the data. Items of an array may take no bytes, so seven bytes can announce 2^60 items.
Each level of a recursive schema takes a part of the C stack, so some thousand bytes can end the process.

::

    always walked through        a schema that is recursive, or has decimals, or items without bytes
    walked through if large      any other schema: a value takes at least one byte
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from streamkit.messaging.avro_schema import Schema
from streamkit.messaging.document_limits import MAX_DOCUMENT_SIZE, MAX_VALUES, require_size

__all__ = ["MAX_DEPTH", "UNCOUNTED_SIZE", "AvroLimits"]

MAX_DEPTH: Final = 100
"""Levels of nested records. The walk takes up to five Python calls for each, and Python allows 1000 in all."""

_RECORD: Final = 3
"""Values that a record counts as, beside its fields: a dictionary and an object are made for it."""

MAX_DECIMAL_SIZE: Final = 1 << 10
"""Bytes of a decimal, some 2,400 digits: Python takes quadratic time to make one of its bytes."""

UNCOUNTED_SIZE: Final = 64 << 10
"""Largest size in bytes of data that is not walked through if its schema allows that: its values take a few MB."""

_FIXED_SIZES: Final[Mapping[str, int]] = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_NUMBERS: Final = frozenset({"int", "long", "enum"})

_Step: TypeAlias = Callable[["_Walk", int, int], int]
"""Walks through one value: takes the walk, the value's position and its depth, and returns the position behind it."""


class AvroLimits:
    """The limits of the data of one schema."""

    def __init__(self, schema: Schema, *, max_size: int = MAX_DOCUMENT_SIZE) -> None:
        """Prepare the walk.

        Args:
            schema: The schema that the data was written with, as `fastavro.parse_schema` returns it.
            max_size: Bytes that the data may have.
        """
        named = schema.get("__named_schemas", {}) if isinstance(schema, dict) else {}
        compiled = _Compilation(named)
        self._step = compiled.step(schema)
        self._max_size = max_size
        self._unwalked = 0 if compiled.is_always_walked else UNCOUNTED_SIZE

    def check(self, data: bytes) -> None:
        """Refuse data that is too large, nested too deeply, or holds too many values.

        Truncated or invalid data is not refused here: fastavro raises its own error.

        Raises:
            ValueError: The data is beyond a limit.
        """
        require_size(data, self._max_size)
        if len(data) > self._unwalked:
            try:
                self._step(_Walk(data), 0, 0)
            except (IndexError, _NoSuchDataError):
                return
            except RecursionError:
                raise _too_deep() from None


def _too_deep() -> ValueError:
    return ValueError(f"the data is nested in more than {MAX_DEPTH} levels")


class _NoSuchDataError(Exception):
    """The data is not a value of the schema."""


class _Walk:
    """A walk through data.

    Attributes:
        data: The data.
        values: The number of values that the data has announced so far.
    """

    __slots__ = ("data", "values")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.values = 0

    def count(self, values: int) -> None:
        """Count values that follow.

        Raises:
            ValueError: There are too many values.
        """
        self.values += values
        if self.values > MAX_VALUES:
            raise ValueError(f"the data holds more than {MAX_VALUES} values")

    def number(self, at: int) -> tuple[int, int]:
        """Return the number at a position, and the position behind it."""
        # | 1 bits 0 to 6 | 1 bits 7 to 13 | ... | 0 highest bits |     a leading 1: another byte follows
        data = self.data
        byte = data[at]
        at += 1
        raw = byte & 0x7F
        shift = 7
        while byte & 0x80:
            # Ten bytes hold 64 bits. Without this limit, a long row of bytes above 127 would make an integer of any
            # size.
            if shift > 63:
                raise _NoSuchDataError
            byte = data[at]
            at += 1
            raw |= (byte & 0x7F) << shift
            shift += 7
        # Zigzag: the numbers 0, -1, 1, -2 are written as 0, 1, 2, 3.
        return (raw >> 1) ^ -(raw & 1), at

    def behind(self, at: int, size: int) -> int:
        """Return the position behind `size` bytes.

        Raises:
            _NoSuchDataError: The data ends before.
        """
        end = at + size
        if size < 0 or end > len(self.data):
            raise _NoSuchDataError
        return end


class _Compilation:
    """Makes the steps of a schema.

    Attributes:
        is_always_walked: Whether a record contains itself, or there are decimals, or items that may take no bytes.
    """

    def __init__(self, named: Mapping[str, Any]) -> None:
        """Prepare the steps of a schema.

        Args:
            named: Types that the schema may use without defining them.
        """
        self.is_always_walked = False
        self._named_elsewhere = named
        self._steps: dict[str, _Step] = {}
        self._least: dict[str, int] = {}
        self._open: set[str] = set()

    def step(self, schema: Any) -> _Step:
        """Return the step for values of a schema."""
        if isinstance(schema, str):
            return self._named(schema)
        if isinstance(schema, list):
            return _union([self.step(branch) for branch in schema])
        compile_ = self._KINDS.get(schema["type"]) if isinstance(schema["type"], str) else None
        return self.step(schema["type"]) if compile_ is None else compile_(self, schema)

    def _named(self, name: str) -> _Step:
        if name in _FIXED_SIZES:
            return _bytes_of(_FIXED_SIZES[name])
        if name in _NUMBERS:
            return _number
        if name in ("bytes", "string"):
            return _sized
        if name in self._open:
            self.is_always_walked = True
        elif name not in self._steps:
            self.step(self._named_elsewhere[name])
        return self._steps.get(name) or self._later(name)

    def _later(self, name: str) -> _Step:
        """Return the step of a record that is not complete yet."""
        steps = self._steps

        def walk_named(walk: _Walk, at: int, depth: int) -> int:
            return steps[name](walk, at, depth)

        return walk_named

    def _record(self, schema: Mapping[str, Any]) -> _Step:
        name = schema["name"]
        # While the name is open, a field that uses it is a recursion.
        self._open.add(name)
        # Until the record is complete: a record can contain itself only in a union, an array or a map, each of which
        # takes at least one byte.
        self._least[name] = 1
        steps = [self.step(field["type"]) for field in schema["fields"]]
        self._open.discard(name)
        return self._keep(name, _sequence(steps), sum(self._size(field["type"]) for field in schema["fields"]))

    def _array(self, schema: Mapping[str, Any]) -> _Step:
        items = schema["items"]
        step = self.step(items)
        if self._size(items) == 0:
            self.is_always_walked = True
        return _blocks(step, _FIXED_SIZES.get(items if isinstance(items, str) else ""))

    def _map(self, schema: Mapping[str, Any]) -> _Step:
        return _blocks(_entry(self.step(schema["values"])), None)

    def _fixed(self, schema: Mapping[str, Any]) -> _Step:
        return self._keep(schema["name"], _bytes_of(schema["size"]), schema["size"])

    def _enum(self, schema: Mapping[str, Any]) -> _Step:
        return self._keep(schema["name"], _number, 1)

    def _bytes(self, schema: Mapping[str, Any]) -> _Step:
        if schema.get("logicalType") != "decimal":
            return _sized
        self.is_always_walked = True
        return _decimal

    _KINDS: Final = {
        "record": _record,
        "error": _record,
        "array": _array,
        "map": _map,
        "fixed": _fixed,
        "enum": _enum,
        "bytes": _bytes,
    }

    def _keep(self, name: str, step: _Step, least: int) -> _Step:
        self._steps[name], self._least[name] = step, least
        return step

    def _size(self, schema: Any) -> int:
        """Return the smallest size of a value in bytes; a number above 0 need not be exact."""
        if isinstance(schema, list):
            return 1
        if isinstance(schema, str):
            return self._least.get(schema, _FIXED_SIZES.get(schema, 1))
        kind = schema["type"]
        if kind in ("record", "error", "fixed", "enum"):
            return self._least[schema["name"]]
        return 1 if kind in ("array", "map") else self._size(kind)


def _number(walk: _Walk, at: int, depth: int) -> int:
    return walk.number(at)[1]


def _sized(walk: _Walk, at: int, depth: int) -> int:
    size, at = walk.number(at)
    return walk.behind(at, size)


def _decimal(walk: _Walk, at: int, depth: int) -> int:
    size, at = walk.number(at)
    if size > MAX_DECIMAL_SIZE:
        raise ValueError(f"a decimal has {size} bytes, more than the limit of {MAX_DECIMAL_SIZE}")
    return walk.behind(at, size)


def _bytes_of(size: int) -> _Step:
    return lambda walk, at, depth: walk.behind(at, size)


def _sequence(steps: list[_Step]) -> _Step:
    values = len(steps) + _RECORD

    def walk_record(walk: _Walk, at: int, depth: int) -> int:
        # Only records count as levels: a schema can contain itself only through a type with a name, and arrays, maps
        # and unions have none.
        if depth >= MAX_DEPTH:
            raise _too_deep()
        walk.count(values)
        for step in steps:
            at = step(walk, at, depth + 1)
        return at

    return walk_record


def _union(steps: list[_Step]) -> _Step:
    def walk_union(walk: _Walk, at: int, depth: int) -> int:
        branch, at = walk.number(at)
        if not 0 <= branch < len(steps):
            raise _NoSuchDataError
        return steps[branch](walk, at, depth)

    return walk_union


def _entry(value: _Step) -> _Step:
    return lambda walk, at, depth: value(walk, _sized(walk, at, depth), depth)


def _blocks(item: _Step, size: int | None) -> _Step:
    """Return the step for the items of an array or a map: counted blocks up to one that is empty.

    Args:
        item: The step for an item.
        size: The size of an item in bytes, if all items have the same size.
    """

    # | count | items | count | items | 0 |          or, with a negative count, the block's size in bytes:
    # | -count | size | items | ... | 0 |
    def walk_blocks(walk: _Walk, at: int, depth: int) -> int:
        while True:
            count, at = walk.number(at)
            if count == 0:
                return at
            if count < 0:
                count = -count
                # The block's size in bytes is for readers that skip the block. It is not trusted: the items are
                # walked through.
                _, at = walk.number(at)
            # Checked before anything is done `count` times. This also refuses items that take no bytes if there are
            # more of them than bytes that follow.
            if count > len(walk.data) - at:
                raise ValueError(f"the data declares that {count} items follow in {len(walk.data) - at} bytes")
            walk.count(count)
            if size is not None:
                at = walk.behind(at, count * size)
                continue
            for _ in range(count):
                at = item(walk, at, depth)

    return walk_blocks
