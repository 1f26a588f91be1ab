"""Record batches written byte by byte, as no client of good manners writes them, and the request that stores them.

::

    offset i64 · length i32 · leader epoch i32 · magic i8 · crc u32 ┐ the sum is of all that follows
    attributes i16 · last offset delta i32 · first and last time i64 · producer i64, epoch i16, sequence i32 · count i32
    records   length · attributes i8 · time delta · offset delta · key · value · headers         (lengths are varints)
"""

import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

from crc32c import crc32c

TIMESTAMP = 1_700_000_000_000
_BEFORE_SUM = struct.Struct(">qiib")
_AFTER_SUM = struct.Struct(">hiqqqhii")
HEADER = _BEFORE_SUM.size + 4 + _AFTER_SUM.size
"""The size of a batch without its records."""
_PRODUCE = 0
_VERSION = 8
_ALL = -1
# Errors of a new topic: clients know of it before its broker knows that it is the leader.
_NOT_YET = frozenset({3, 5, 6})
_ATTEMPTS = 400
_PAUSE = 0.05


def varint(number: int) -> bytes:
    """A number as Kafka writes it: zigzag, seven bits a byte."""
    rest = (number << 1) ^ (number >> 63)
    found = bytearray()
    while rest > 0x7F:
        found.append(0x80 | rest & 0x7F)
        rest >>= 7
    return bytes([*found, rest])


def sized(data: bytes | None) -> bytes:
    """Bytes behind their length; none at all is -1."""
    return varint(-1) if data is None else varint(len(data)) + data


@dataclass(frozen=True, slots=True)
class RawRecord:
    """A record of any bytes."""

    value: bytes | None = b""
    key: bytes | None = None
    headers: Sequence[tuple[bytes, bytes | None]] = ()
    tail: bytes = b""
    """What follows its headers, which nothing should."""

    def written(self, number: int) -> bytes:
        """The record, the `number`th of its batch."""
        headers = b"".join(sized(name) + sized(value) for name, value in self.headers)
        body = b"\0" + varint(0) + varint(number) + sized(self.key) + sized(self.value)
        return sized(body + varint(len(self.headers)) + headers + self.tail)


def records(*found: RawRecord) -> bytes:
    """Records as they stand in a batch."""
    return b"".join(record.written(number) for number, record in enumerate(found))


def batch(
    body: bytes,
    count: int,
    *,
    offset: int = 0,
    attributes: int = 0,
    magic: int = 2,
    last: int | None = None,
    producer: int = -1,
) -> bytes:
    """A batch of so many records with a right checksum; `last` is its last record's offset within it."""
    delta = count - 1 if last is None else last
    sequence = -1 if producer < 0 else 0
    head = (attributes, delta, TIMESTAMP, TIMESTAMP, producer, sequence, sequence, count)
    summed = _AFTER_SUM.pack(*head) + body
    rest = struct.pack(">I", crc32c(summed)) + summed
    return _BEFORE_SUM.pack(offset, 5 + len(rest), 0, magic) + rest


def with_sum(written: bytes) -> bytes:
    """A batch with a checksum that is right for what it has become."""
    return written[:17] + struct.pack(">I", crc32c(written[21:])) + written[21:]


def of(*found: RawRecord) -> bytes:
    """A batch of these records."""
    return batch(records(*found), len(found))


def store(address: str, topic: str, *batches: bytes, partition: int = 0) -> None:
    """Have the broker at `address` append the batches to a partition, one request each.

    Raises:
        ValueError: It refuses one, with Kafka's number of the error.
    """
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), timeout=60) as connection,
        connection.makefile("rb") as answers,
    ):
        for written in batches:
            request = _produce(topic, partition, written)
            for _ in range(_ATTEMPTS):
                connection.sendall(struct.pack(">i", len(request)) + request)
                (length,) = struct.unpack(">i", answers.read(4))
                # correlation i32 · one topic i32, its name · one partition i32, its number i32 · error i16
                (error,) = struct.unpack_from(">h", answers.read(length), 4 + 4 + 2 + len(topic) + 4 + 4)
                if error not in _NOT_YET:
                    break
                time.sleep(_PAUSE)
            if error:
                raise ValueError(f"Kafka refuses the batch with error {error}")


def _produce(topic: str, partition: int, written: bytes) -> bytes:
    head = struct.pack(">hhih", _PRODUCE, _VERSION, 1, -1) + struct.pack(">hhi", -1, _ALL, 30_000)
    place = struct.pack(">ih", 1, len(topic)) + topic.encode() + struct.pack(">ii", 1, partition)
    return head + place + struct.pack(">i", len(written)) + written
