"""Reads and writes the JSON of fastjson, Apache's JSON library, in which keys of maps need not be strings.

::

    {0:"10.0.0.1:10911"}                                         a number as a key
    {{"brokerName":"b","queueId":0,"topic":"t"}:{"maxOffset":7}} a message queue as a key

All other values are standard JSON, which msgspec reads and writes. This module does no I/O.
"""

import re
from collections.abc import Generator, Iterable

import msgspec

from rocket_remoting.steps import run_all
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.message import MessageQueue

MAX_DEPTH = 64
_VALUES_A_STEP = 256

_TOKEN = r'\s*(?:([{}\[\],:])|("(?:[^"\\]|\\.)*")|([^\s{}\[\],:"]+))'
_scalar = msgspec.json.Decoder().decode
_dump = msgspec.json.Encoder().encode

Json = None | bool | int | float | str | list["Json"] | dict["str | int | MessageQueue", "Json"]


def loads(data: bytes | memoryview) -> Json:
    """Return the value of a JSON text, without the entries of maps whose value is null.

    Raises:
        RemoteProtocolError: The text is neither standard JSON nor fastjson's.
    """
    return run_all(read_steps(data))


def read_steps(data: bytes | memoryview) -> Generator[None, None, Json]:
    """Read as `loads` does, in steps: yield about twice a millisecond.

    Raises:
        RemoteProtocolError: As for `loads`.
    """
    try:
        reader = _Reader(str(data, "utf-8"))
        value = yield from reader.read()
        reader.expect_end()
    except (msgspec.MsgspecError, ValueError) as error:
        raise RemoteProtocolError(f"a body of {len(data)} bytes is not JSON: {error}") from None
    return value


def dumps(value: object, *, standard: bool = False) -> bytes:
    """Return the JSON of a value, without the fields of structs that are None.

    Args:
        value: A struct, or any value that msgspec can encode.
        standard: Whether to quote numbers that are keys, as in standard JSON.
    """
    out: list[bytes] = []
    _write(value, out, standard)
    return b"".join(out)


class _Open:
    """A map or list whose end has not been read yet."""

    __slots__ = ("_entries", "_has_key", "_items", "_key", "end")

    def __init__(self, token: str) -> None:
        self.end = "}" if token == "{" else "]"
        self._entries: dict[str | int | MessageQueue, Json] = {}
        self._items: list[Json] = []
        self._key: str | int | MessageQueue = ""
        self._has_key = False

    def add(self, value: Json) -> bool:
        """Add a value; return whether it is a key, so that its value comes next."""
        if self.end == "]":
            self._items.append(value)
        elif not self._has_key:
            self._key = _as_key(value)
            self._has_key = True
            return True
        else:
            self._has_key = False
            if value is not None:
                self._entries[self._key] = value
        return False

    @property
    def value(self) -> Json:
        """The entries or items read so far."""
        return self._items if self.end == "]" else self._entries


class _Reader:
    __slots__ = ("_match_token", "_open", "_position", "_text")

    def __init__(self, text: str) -> None:
        # Most programs read standard JSON only, so the pattern is compiled for the first reader.
        self._match_token = re.compile(_TOKEN, re.DOTALL).match
        self._text = text
        self._position = 0
        self._open: list[_Open] = []

    def read(self) -> Generator[None, None, Json]:
        """Read one value in steps. A key of a map is read like a value, because it may be a map itself."""
        token, values = self._next(), 0
        while True:
            if token in ("{", "["):
                self._enter(token)
                token = self._next()
                if token != self._open[-1].end:
                    continue
                value = self._open.pop().value
            else:
                value = _scalar(token)
            # One value may end several maps and lists at once: each of them is then a value of the one around it.
            while self._add_and_check_end(value):
                value = self._open.pop().value
            if not self._open:
                return value
            token = self._next()
            values += 1
            if not values % _VALUES_A_STEP:
                yield

    def expect_end(self) -> None:
        """Raise a ValueError unless only spaces follow."""
        if self._text[self._position :].strip():
            raise ValueError(f"more text after the value, at {self._position}")

    def _enter(self, token: str) -> None:
        self._open.append(_Open(token))
        if len(self._open) > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH}")

    def _add_and_check_end(self, value: Json) -> bool:
        """Add a value to its map or list; return whether the map or list ends behind the value."""
        if not self._open:
            return False
        inner = self._open[-1]
        is_key, token = inner.add(value), self._next()
        wanted = ":" if is_key else ","
        if not is_key and token == inner.end:
            return True
        if token != wanted:
            raise ValueError(f"expected {wanted} or {inner.end} before {self._position}, found {token[:40]}")
        return False

    def _next(self) -> str:
        match = self._match_token(self._text, self._position)
        if match is None:
            raise ValueError(f"unexpected end or character at {self._position}")
        self._position = match.end()
        return match[match.lastindex or 0]


def _as_key(value: Json) -> str | int | MessageQueue:
    if isinstance(value, dict):
        return msgspec.convert(value, MessageQueue, strict=False)
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ValueError(f"{str(value)[:40]} cannot be a key")


def _write(value: object, out: list[bytes], standard: bool) -> None:
    if isinstance(value, msgspec.Struct):
        names = value.__struct_encode_fields__
        fields = zip(names, msgspec.structs.astuple(value), strict=True)
        _write_map(((name, field) for name, field in fields if field is not None), out, standard)
    elif isinstance(value, dict):
        _write_map(value.items(), out, standard)
    elif isinstance(value, list | tuple | set | frozenset):
        out.append(b"[")
        for index, item in enumerate(value):
            if index:
                out.append(b",")
            _write(item, out, standard)
        out.append(b"]")
    else:
        out.append(_dump(value))


def _write_map(entries: Iterable[tuple[object, object]], out: list[bytes], standard: bool) -> None:
    out.append(b"{")
    first = True
    for key, value in entries:
        if not first:
            out.append(b",")
        first = False
        quoted = standard and isinstance(key, int)
        out.append(_dump(str(key) if quoted else key))
        out.append(b":")
        _write(value, out, standard)
    out.append(b"}")
