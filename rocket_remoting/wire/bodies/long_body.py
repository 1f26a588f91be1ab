"""Bodies that are encoded piece by piece, because encoding them at once would block the event loop.

::

    pairs = ((queue, TopicOffset(…)) for queue in …)          made while they are encoded
    body = LongBody(TopicStatsTable(offset_table={}), offset_table=Entries(pairs))
    for piece in encode_in_pieces(body): …

The bytes are those of `encode_body`. An iterable of entries may yield None; then an empty piece is yielded, at which
the caller may pause. This module does no I/O.
"""

from collections.abc import Callable, Iterable, Iterator

import msgspec
from msgspec.structs import replace

from rocket_remoting.wire import fastjson
from rocket_remoting.wire.bodies.json_body import Body, KeyedBody, encode_body

_PIECE_BYTES = 4096
"""Bytes after which a piece ends: some tenths of a millisecond of work. One large entry makes a larger piece."""
_GAP = b"\0"
"""A placeholder for a field's value that is written later; this byte does not occur in JSON."""

_encode = msgspec.json.Encoder().encode


class Entries:
    """The entries of a map, made while they are encoded.

    Args:
        pairs: Keys with their values; or bytes: entries that are encoded already, separated by commas; or None for a
            pause.
    """

    __slots__ = ("pairs",)

    def __init__(self, pairs: Iterable[tuple[object, object] | bytes | None]) -> None:
        self.pairs = pairs


class Items:
    """The items of a list or set, made while they are encoded.

    Args:
        values: The items, or None for a pause.
    """

    __slots__ = ("values",)

    def __init__(self, values: Iterable[object]) -> None:
        self.values = values


class Later:
    """A value that is known only when the fields before it have been encoded.

    Args:
        value: Returns the value.
    """

    __slots__ = ("value",)

    def __init__(self, value: Callable[[], object]) -> None:
        self.value = value


class LongBody:
    """A body with fields that are made while they are encoded.

    Args:
        body: The body, with any values in these fields.
        fields: The values of the fields by attribute name. They are written even if they are empty.
    """

    __slots__ = ("body", "fields")

    def __init__(self, body: Body, **fields: "LongBody | Entries | Items | Later") -> None:
        gaps = dict.fromkeys(fields, msgspec.Raw(_GAP))
        self.body = replace(body, **gaps)
        names = (name for name in body.__struct_fields__ if name in fields)
        self.fields = [fields[name] for name in names]


def encode_in_pieces(body: LongBody, *, standard_json: bool = False) -> Iterator[bytes]:
    """Yield the JSON of `encode_body` in pieces; an empty piece is a pause."""
    dump = _Dump(keyed=isinstance(body.body, KeyedBody), standard=standard_json)
    pieces: list[bytes] = []
    size = 0
    for piece in dump.pieces(body):
        pieces.append(piece)
        size += len(piece)
        if size >= _PIECE_BYTES:
            yield b"".join(pieces)
            pieces.clear()
            size = 0
        elif not piece:
            yield b""
    yield b"".join(pieces)


class _Dump:
    """Encodes the values of one body, all by the rules of `encode_body` for the outermost body."""

    def __init__(self, *, keyed: bool, standard: bool) -> None:
        self._keyed = keyed
        self._standard = standard

    def pieces(self, value: LongBody | Entries | Items | Later) -> Iterator[bytes]:
        if isinstance(value, LongBody):
            head, *tails = self._encode_whole(value.body).split(_GAP)
            yield head
            for field, tail in zip(value.fields, tails, strict=True):
                yield from self.pieces(field)
                yield tail
        elif isinstance(value, Entries):
            yield from self._entries(value)
        elif isinstance(value, Items):
            yield from self._items(value)
        else:
            yield self._encode_whole(value.value())

    def _entries(self, value: Entries) -> Iterator[bytes]:
        before = b"{"
        for pair in value.pairs:
            if not pair:
                yield b""
                continue
            if isinstance(pair, bytes):
                yield before + pair
                before = b","
                continue
            key, item = pair
            yield from self._after(before + self._key(key) + b":", item)
            before = b","
        yield b"{}" if before == b"{" else b"}"

    def _items(self, value: Items) -> Iterator[bytes]:
        before = b"["
        for item in value.values:
            if item is None:
                yield b""
                continue
            yield from self._after(before, item)
            before = b","
        yield b"[]" if before == b"[" else b"]"

    def _after(self, head: bytes, item: object) -> Iterator[bytes]:
        """Yield the bytes before an item, then the item."""
        if isinstance(item, LongBody | Entries | Items):
            yield head
            yield from self.pieces(item)
        else:
            yield head + self._encode_whole(item)

    def _key(self, key: object) -> bytes:
        quoted = isinstance(key, int) and (self._standard or not self._keyed)
        return _encode(str(key) if quoted else key)

    def _encode_whole(self, value: object) -> bytes:
        if self._keyed:
            return fastjson.dumps(value, standard=self._standard)
        return encode_body(value) if isinstance(value, Body) else _encode(value)
