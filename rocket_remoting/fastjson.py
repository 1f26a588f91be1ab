"""JSON the way fastjson, Apache's JSON library, writes it where keys of a map are not texts.

::

    {0:"10.0.0.1:10911"}                                         a number as a key
    {{"brokerName":"b","queueId":0,"topic":"t"}:{"maxOffset":7}} a message queue as a key

Everything else is standard JSON, and is left to msgspec. This module does no I/O.
"""

import re
from collections.abc import Iterable

import msgspec

from rocket_remoting.errors import RemoteProtocolError
from rocket_remoting.message import MessageQueue

MAX_DEPTH = 64

_TOKEN = re.compile(r'\s*(?:([{}\[\],:])|("(?:[^"\\]|\\.)*")|([^\s{}\[\],:"]+))', re.DOTALL)
_scalar = msgspec.json.Decoder().decode
_dump = msgspec.json.Encoder().encode

Json = None | bool | int | float | str | list["Json"] | dict["str | int | MessageQueue", "Json"]


def loads(data: bytes | memoryview) -> Json:
    """The value that the text holds; entries of a map whose value is null are left out.

    Raises:
        RemoteProtocolError: It is no JSON, not even fastjson's.
    """
    try:
        text = str(data, "utf-8")
        reader = _Reader(text)
        value = reader.value(reader.next(), 0)
        reader.expect_end()
    except (msgspec.MsgspecError, ValueError) as error:
        raise RemoteProtocolError(f"a body of {len(data)} bytes is no JSON: {error}") from None
    return value


def dumps(value: object, *, standard: bool = False) -> bytes:
    """The text of a struct, its fields that are ``None`` left out.

    Args:
        value: A struct, or anything msgspec can write.
        standard: Put numbers that are keys between quotes, as standard JSON wants it.
    """
    out: list[bytes] = []
    _write(value, out, standard)
    return b"".join(out)


class _Reader:
    __slots__ = ("_position", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def next(self) -> str:
        match = _TOKEN.match(self._text, self._position)
        if match is None:
            raise ValueError(f"unexpected end or character at {self._position}")
        self._position = match.end()
        return match[match.lastindex or 0]

    def expect(self, token: str) -> None:
        found = self.next()
        if found != token:
            raise ValueError(f"{token} wanted before {self._position}, found {found[:40]}")

    def expect_end(self) -> None:
        if self._text[self._position :].strip():
            raise ValueError(f"more text after the value, at {self._position}")

    def value(self, token: str, depth: int) -> Json:
        if depth > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH}")
        if token == "{":
            return self._map(depth)
        if token == "[":
            return self._list(depth)
        scalar: Json = _scalar(token)
        return scalar

    def _map(self, depth: int) -> Json:
        entries: dict[str | int | MessageQueue, Json] = {}
        token = self.next()
        while token != "}":
            key = self._key(token, depth)
            self.expect(":")
            value = self.value(self.next(), depth + 1)
            if value is not None:
                entries[key] = value
            token = self._after_entry("}")
        return entries

    def _list(self, depth: int) -> Json:
        items: list[Json] = []
        token = self.next()
        while token != "]":
            items.append(self.value(token, depth + 1))
            token = self._after_entry("]")
        return items

    def _after_entry(self, end: str) -> str:
        token = self.next()
        if token == end:
            return token
        if token != ",":
            raise ValueError(f", or {end} wanted before {self._position}, found {token[:40]}")
        return self.next()

    def _key(self, token: str, depth: int) -> str | int | MessageQueue:
        key = self.value(token, depth + 1)
        if isinstance(key, dict):
            return msgspec.convert(key, MessageQueue, strict=False)
        if isinstance(key, str) or (isinstance(key, int) and not isinstance(key, bool)):
            return key
        raise ValueError(f"{token[:40]} as a key before {self._position}")


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
