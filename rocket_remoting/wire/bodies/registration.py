"""Decodes the body of REGISTER_BROKER (103) topic by topic: a broker may have tens of thousands of topics.

`routing.encode_register_broker_body` documents the two formats of the body.
"""

import struct
import zlib
from collections.abc import Iterator

import msgspec

from rocket_remoting.wire.bodies.json_body import decode_body
from rocket_remoting.wire.bodies.routing import DataVersion, TopicConfig, TopicFilterType
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.json_walk import JsonWalk

MAX_UNPACKED = 64 * 1024 * 1024
"""Maximum number of bytes of a decompressed body: some 600,000 topics."""

_UNPACKED_AT_ONCE = 64 * 1024
_LONGEST_BLOCK = 64 * 1024
_INT = struct.Struct(">i")
_attributes = msgspec.json.Decoder(dict[str, str]).decode

Registered = DataVersion | TopicConfig | None
"""An item of a decoded registration: the version of the broker's topics, then each topic; None for a pause."""


def read_registration(data: bytes, *, compressed: bool) -> Iterator[Registered]:
    """Yield the version and the topics in the body of REGISTER_BROKER.

    Raises:
        RemoteProtocolError: The body cannot be decoded. The items yielded before are correct.
    """
    return _read_compressed(data) if compressed else _read_plain(data)


def _read_plain(data: bytes) -> Iterator[Registered]:
    walk = JsonWalk(data)
    for name in walk.names():
        if name == b'"topicConfigSerializeWrapper"':
            yield from _read_wrapper(walk)
        else:
            yield from walk.skip()
    walk.end()


def _read_wrapper(walk: JsonWalk) -> Iterator[Registered]:
    """Yield the version before the topics, whichever of them comes first in the body."""
    table: JsonWalk | None = None
    version: DataVersion | None = None
    for name in walk.names():
        if name == b'"dataVersion"':
            yield (version := decode_body(walk.value(), DataVersion))
        elif name == b'"topicConfigTable"' and version is not None:
            yield from _read_table(walk)
        elif name == b'"topicConfigTable"':
            table = walk.copy()
            yield from walk.skip()
        else:
            yield from walk.skip()
    if table is not None and version is not None:
        yield from _read_table(table)


def _read_table(walk: JsonWalk) -> Iterator[Registered]:
    for _ in walk.names():
        yield decode_body(walk.value(), TopicConfig)


def _read_compressed(data: bytes) -> Iterator[Registered]:
    blocks = _Blocks(data)
    try:
        yield decode_body(blocks.block(), DataVersion)
        for _ in range(blocks.number()):
            yield _topic_config(blocks.block().decode())
        blocks.block()  # the filter servers, of which there are none any more
    except (zlib.error, struct.error, msgspec.MsgspecError, ValueError, RemoteProtocolError) as error:
        raise RemoteProtocolError(f"a compressed RegisterBrokerBody of {len(data)} bytes: {error}") from None


class _Blocks:
    """Decompresses a body block by block, so that only a few blocks are in memory."""

    def __init__(self, data: bytes) -> None:
        self._unpacker = zlib.decompressobj()
        self._packed = data
        self._rest = b""
        self._position = 0
        self._unpacked = 0

    def number(self) -> int:
        """Return the next four bytes as a number."""
        value: int = _INT.unpack(self._take(_INT.size))[0]
        return value

    def block(self) -> bytes:
        """Return the next block: a length and as many bytes."""
        length = self.number()
        if not 0 <= length <= _LONGEST_BLOCK:
            raise ValueError(f"a block has {length} bytes, at most {_LONGEST_BLOCK} are allowed")
        return self._take(length)

    def _take(self, length: int) -> bytes:
        while len(self._rest) - self._position < length:
            more = self._unpacker.decompress(self._packed, _UNPACKED_AT_ONCE)
            self._packed = self._unpacker.unconsumed_tail
            if not more:
                raise ValueError(f"the data ends inside a block, after {self._unpacked} decompressed bytes")
            self._unpacked += len(more)
            if self._unpacked > MAX_UNPACKED:
                raise ValueError(f"it has more than {MAX_UNPACKED} bytes when decompressed")
            self._rest = self._rest[self._position :] + more
            self._position = 0
        taken = self._rest[self._position : self._position + length]
        self._position += length
        return taken


def _topic_config(text: str) -> TopicConfig:
    fields = text.split(" ", 5)
    if len(fields) < 5:
        raise ValueError(f"the settings of a topic have {len(fields)} of 5 fields: {text[:80]!r}")
    return TopicConfig(
        topic_name=fields[0],
        read_queue_nums=int(fields[1]),
        write_queue_nums=int(fields[2]),
        perm=int(fields[3]),
        topic_filter_type=TopicFilterType(fields[4]),
        attributes=_attributes(fields[5]) if len(fields) > 5 and fields[5] else {},
    )
