"""Finds and unpacks the batches of a fetch, of which any bytes may be damaged.

::

    offset i64 · length i32 · leader epoch i32 · magic i8 · crc u32 │ bytes covered by the checksum ···

The checksum does not cover the bytes in front of it: a batch with a wrong length would hide all batches behind it. So
offset and length are used only if they agree with the batches before and behind. Otherwise reading continues at the
next place with a batch whose checksum is right.
"""

import struct
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, TypeAlias

from binders.kafka.repairs.decompression import NOT_COMPRESSED, decompressed, with_right_checksum
from kafka.errors import CorruptRecordError
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.legacy_records import LegacyRecordBatch
from kafka.record.util import calc_crc32c, decode_varint

__all__ = ["LEGACY_LIMIT", "LIMIT", "MAX_HEADERS", "Batch", "Batches", "RawRecord"]

LIMIT: Final = 64 << 20
"""The most bytes to which a batch may be decompressed: 64 times the largest batch that Kafka accepts by default."""

LEGACY_LIMIT: Final = 16 << 20
"""The same limit for formats before Kafka 0.11, whose records are all parsed before the first one is returned."""

MAX_HEADERS: Final = 4096
"""The most headers of a record. A header may have only two bytes in a batch, but takes a hundred in memory."""

RawRecord: TypeAlias = tuple[int, int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]], int]
"""Size in the batch in bytes, offset, timestamp in milliseconds since 1970, key, value, headers, and the size of the
headers in bytes, or -1 if there are none."""

_OFFSET: Final = struct.Struct(">q")
_START: Final = struct.Struct(">qi")
_MAGIC_AT: Final = 16
_MAGIC: Final = b"\x02"
_INT: Final = struct.Struct(">i")
_LAST_AT: Final = 23
_COUNT_AT: Final = 57
_HEADER: Final = DefaultRecordBatch.HEADER_STRUCT
_SIZES: Final = {
    0: LegacyRecordBatch.LOG_OVERHEAD + LegacyRecordBatch.RECORD_OVERHEAD_V0,
    1: LegacyRecordBatch.LOG_OVERHEAD + LegacyRecordBatch.RECORD_OVERHEAD_V1,
    2: _HEADER.size,
}
"""The size in bytes of an empty batch, by format."""


class Batch:
    """A batch in the current format, which Kafka has had since 0.11.

    Names of headers may have any bytes. Offsets must ascend within the batch. The decompressed size and the number of
    headers are limited.

    ::

        record   length · attributes i8 · time delta · offset delta · key · value · headers   (numbers are varints)

    Attributes:
        magic: The number of the format.
        base_offset: The offset at which the batch begins.
        leader_epoch: The epoch of the leader that stored the batch.
        producer_id: The number of an idempotent producer, or -1.
    """

    magic: Final = 2

    def __init__(self, data: memoryview) -> None:
        """Read the header.

        Args:
            data: The batch, from its offset to its end.
        """
        self._data = data
        (
            self.base_offset,
            _,
            self.leader_epoch,
            _,
            self._sum,
            self._attributes,
            delta,
            self._first_timestamp,
            self._max_timestamp,
            self.producer_id,
            _,
            _,
            self._count,
        ) = _HEADER.unpack_from(data)
        self.last_offset: int = self.base_offset + delta

    @property
    def next_offset(self) -> int:
        """The offset behind the batch, also if compaction has removed its last records."""
        return self.last_offset + 1

    @property
    def compression_type(self) -> int:
        """The number of the compression."""
        return int(self._attributes & DefaultRecordBatch.CODEC_MASK)

    @property
    def timestamp_type(self) -> int:
        """0 if producers set the timestamps of the records, 1 if the broker set one timestamp for all of them."""
        return int(bool(self._attributes & DefaultRecordBatch.TIMESTAMP_TYPE_MASK))

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is part of a transaction."""
        return bool(self._attributes & DefaultRecordBatch.TRANSACTIONAL_MASK)

    @property
    def is_control_batch(self) -> bool:
        """Whether the batch is the marker of a transaction's end."""
        return bool(self._attributes & DefaultRecordBatch.CONTROL_MASK)

    def validate_crc(self) -> bool:
        """Return whether the checksum is right."""
        return bool(self._sum == calc_crc32c(self._data[DefaultRecordBatch.ATTRIBUTES_OFFSET :]))

    def records(self) -> Iterator[RawRecord]:
        """Yield the records, one after the other.

        Raises:
            CorruptRecordError: The next bytes are not a record, or the batch exceeds a limit.
            UnsupportedCodecError: A library for its compression is missing.
        """
        buffer = self._content()
        end, least, behind = len(buffer), self.base_offset, self.next_offset
        first, latest, kind = self._first_timestamp, self._max_timestamp, self.timestamp_type
        at = 0
        for _ in range(self._count):
            try:
                size, at = decode_varint(buffer, at)
                record_end = at + size
                delta, at = decode_varint(buffer, at + 1)
                offset_delta, at = decode_varint(buffer, at)
                key, at = _sized(buffer, at)
                value, at = _sized(buffer, at)
                count, at = decode_varint(buffer, at)
                headers, header_size, at = _headers(buffer, at, count) if count else ([], -1, at)
            except (ValueError, IndexError) as error:
                raise CorruptRecordError(f"one of its records cannot be read: {error!r}") from error
            if at != record_end or at > end:
                raise CorruptRecordError(f"one of its records says that it has {size} bytes")
            offset = self.base_offset + offset_delta
            if not least <= offset < behind:
                raise CorruptRecordError(f"one of its records has the offset {offset}")
            least = offset + 1
            yield size, offset, latest if kind else first + delta, key, value, headers, header_size
        if at != end:
            raise CorruptRecordError(f"{end - at} bytes follow its last record")

    def _content(self) -> bytes | bytearray:
        data = bytes(self._data[_HEADER.size :])
        kind = self.compression_type
        return data if kind == NOT_COMPRESSED else decompressed(kind, data, LIMIT)


def _sized(buffer: bytes | bytearray, at: int) -> tuple[bytes | None, int]:
    """Return bytes that are preceded by their length, or None for length -1, and the position behind them."""
    size, at = decode_varint(buffer, at)
    if size < 0:
        return None, at
    return bytes(buffer[at : at + size]), at + size


def _headers(buffer: bytes | bytearray, at: int, count: int) -> tuple[list[tuple[str, bytes | None]], int, int]:
    """Return the headers of a record, their size in bytes, and the position behind them."""
    if count > MAX_HEADERS:
        raise CorruptRecordError(f"one of its records has {count} headers, more than {MAX_HEADERS}")
    if count < 0:
        raise CorruptRecordError(f"one of its records says that it has {count} headers")
    found: list[tuple[str, bytes | None]] = []
    total = 0
    for _ in range(count):
        size, at = decode_varint(buffer, at)
        if size < 0:
            raise CorruptRecordError("one of its records has a header without a name")
        # Java's clients write U+FFFD for bytes that are not UTF-8, too.
        name = str(buffer[at : at + size], "utf-8", "replace")
        value, at = _sized(buffer, at + size)
        found.append((name, value))
        total += size + len(value or b"")
    return found, total, at


class LegacyBatch(LegacyRecordBatch):  # type: ignore[misc]  # kafka-python has no annotations
    """A batch in one of the formats before Kafka 0.11, with a limit of its decompressed size.

    kafka-python stays in an endless loop at a record whose length is negative.
    """

    _buffer: memoryview
    _magic: int

    def _decompress(self, key_offset: int) -> bytearray:
        at = key_offset
        for field in ("key", "value"):
            (size,) = _INT.unpack_from(self._buffer, at)
            at += _INT.size
            if field == "key":
                at += max(size, 0)
        if size < 0:
            raise CorruptRecordError("it is compressed and has no value")
        data = bytes(self._buffer[at : at + size])
        kind = self.compression_type
        if kind == DefaultRecordBatch.CODEC_LZ4 and self._magic == 0:
            data = with_right_checksum(data)
        return decompressed(kind, data, LEGACY_LIMIT)

    def _read_all_headers(self) -> Any:
        at, end = 0, len(self._buffer)
        least = _SIZES[self._magic] - self.LOG_OVERHEAD
        found = []
        while at < end:
            header = self._read_header(at)
            if header[1] < least:
                raise CorruptRecordError(f"one of its records says that it has a length of {header[1]}")
            found.append((header, at))
            at += self.LOG_OVERHEAD + header[1]
        return found


class Batches:
    """The batches of a fetch, one after the other; replaces kafka-python's `MemoryRecords`.

    ::

        ··· │ the current batch │ the next batch ···
            ▲ _at               ▲ _behind

    Attributes:
        data: The bytes of the current batch, which `next_batch` returned last.
        batch: The current batch; None if the bytes are not a batch.
        begin: Its first offset; if unknown, the offset behind the records that were read.
        refused: The first offset in its header, if that offset is not credible; else None.
    """

    def __init__(
        self,
        records: MemoryRecords,
        position: Callable[[], int],
        highwater: Callable[[], int | None],
        *,
        refused: int | None,
    ) -> None:
        """Take over the bytes of a fetch.

        Args:
            records: The fetch. Its bytes are removed, because kafka-python raises at every fetch whose first batch
                seems to be cut off.
            position: Returns the offset behind the records that were read.
            highwater: Returns the offset behind the last record of the partition; None if it is not known.
            refused: An offset at which the first batch does not begin, as an earlier fetch has shown.
        """
        self._fetch: memoryview = memoryview(records._buffer)
        records._buffer = b""
        self._position = position
        self._highwater = highwater
        self._at = self._behind = 0
        self.data: memoryview = self._fetch
        self.batch: Any = None
        self.begin = 0
        self.refused = refused
        self._asked = 0
        self._is_placed = False

    def next_batch(self) -> Any:
        """Return the next batch, or None at the end; a batch that is cut off there is complete in the next fetch.

        Raises:
            CorruptRecordError: The bytes are not a batch.
        """
        self._at, self.batch = self._behind, None
        self.data = self._fetch[self._at :]
        self._asked = self._position()
        # Only the first batch may begin before the offset that was asked for.
        begin = self._begins_with(self._at, self._asked if self._at > 0 else 0)
        if self._at == 0 and begin == self.refused:
            begin = None
        self.refused = None
        self._is_placed = begin is not None
        self.begin = self._asked if begin is None else begin
        size = _size(self.data)
        if size is None:
            if self._at > 0 or not self.data:
                return None
            raise CorruptRecordError("it says that it is longer than what was fetched")
        self._behind = self._at + size
        self.data = self.data[:size]
        magic = self.data[_MAGIC_AT]
        if magic not in _FORMATS:
            raise CorruptRecordError(f"its format is {magic}; known are {', '.join(map(str, _FORMATS))}")
        self._check_offsets()
        self.batch = _FORMATS[magic](self.data)
        return self.batch

    def _check_offsets(self) -> None:
        """Refuse a batch whose offsets overlap those before or behind it."""
        if not self._is_placed:
            self.refused = _offset(self.data)
            raise CorruptRecordError(f"it says that it begins at offset {self.refused}")
        # Where it follows directly upon what was read, its end is covered by its checksum.
        if self.begin > self._asked:
            following = self._begins_with(self._behind, self._asked + 1)
            if self._own_end > (following or self._limit):
                self.refused = self.begin
                self.begin, self._is_placed = self._asked, False
                raise CorruptRecordError(
                    f"it says that it begins at offset {self.refused} and ends behind the next batch's offset"
                )

    @property
    def _limit(self) -> int:
        highwater = self._highwater()
        return sys.maxsize if highwater is None else highwater

    def _begins_with(self, at: int, least: int) -> int | None:
        """Return the offset of the batch at a position of the fetch; None if no batch can begin there."""
        start = self._fetch[at : at + _OFFSET.size]
        if len(start) < _OFFSET.size:
            return None
        offset = _offset(start)
        # A broker determines the partition's end before it reads; records that are appended meanwhile are behind it.
        return offset if least <= offset < max(self._limit, self._asked + 1) else None

    @property
    def _own_end(self) -> int:
        """The offset behind the batch according to its header."""
        return self.begin + max(self._number(_LAST_AT), 0) + 1

    @property
    def _claimed_end(self) -> int:
        """The offset behind the batch; a damaged batch has it twice: as a span, and as a number of records.

        The smaller one is used, so that no batch behind it is lost. After compaction the number is smaller than the
        span: then the rest of the span becomes a second batch that cannot be read.
        """
        if not self.is_damaged:
            return self._own_end
        return min(self._own_end, self.begin + max(self._number(_COUNT_AT), 1))

    def _number(self, at: int) -> int:
        """Return a number of the header, 0 if the batch is too short or of a legacy format."""
        is_there = len(self.data) >= at + _INT.size and self.data[_MAGIC_AT] > 1
        (number,) = _INT.unpack_from(self.data, at) if is_there else (0,)
        return int(number)

    @property
    def end(self) -> int:
        """The offset behind the batch: where the next batch begins, or what the header says if none follows."""
        end = self._begins_with(self._behind, self.begin + 1)
        if end is None:
            end = self._claimed_end if self._is_placed else self.begin + 1
        if self._at == 0:  # brokers begin with the batch that holds what was asked for
            end = max(end, self._asked + 1)
        return min(end, self._limit)

    @property
    def is_damaged(self) -> bool:
        """Whether the bytes are not a batch, or its checksum is wrong."""
        # A batch of a legacy format replaces its bytes when it is decompressed.
        return self.batch is None or not _FORMATS[self.batch.magic](self.data).validate_crc()

    def skip(self) -> None:
        """Move behind a batch that cannot be read.

        The length of a damaged batch is right only if another batch begins behind it.
        """
        if self.is_damaged and self._begins_with(self._behind, self.begin + 1) is None:
            found = self._next_whole_one()
            if found is not None:
                self._behind = found
            elif self._behind == self._at:
                self._behind = len(self._fetch)
        self.data = self._fetch[self._at : self._behind]

    def _next_whole_one(self) -> int | None:
        """Return the position of the next batch with a right checksum; None if there is none."""
        rest = bytes(self._fetch[self._at :])
        place = rest.find(_MAGIC, _MAGIC_AT + 1)
        while place >= 0:
            at = self._at + place - _MAGIC_AT
            if self._begins_with(at, self.begin + 1) is not None and _is_whole(self._fetch[at:]):
                return at
            place = rest.find(_MAGIC, place + 1)
        return None


def _size(data: memoryview) -> int | None:
    """Return the size of a batch in bytes according to its header; None if there are fewer bytes.

    Raises:
        CorruptRecordError: The size is smaller than that of an empty batch.
    """
    if len(data) < _START.size:
        return None
    _, length = _START.unpack_from(data)
    size = _START.size + int(length)
    magic = data[_MAGIC_AT] if len(data) > _MAGIC_AT else 0
    if size < _SIZES.get(magic, _SIZES[0]):
        raise CorruptRecordError(f"it says that it has {size} bytes")
    return size if size <= len(data) else None


def _is_whole(data: memoryview) -> bool:
    try:
        size = _size(data)
    except CorruptRecordError:
        return False
    return size is not None and bool(Batch(data[:size]).validate_crc())


def _offset(data: memoryview) -> int:
    (offset,) = _OFFSET.unpack_from(data)
    return int(offset)


_FORMATS: Final[dict[int | None, Callable[[memoryview], Any]]] = {
    0: partial(LegacyBatch, magic=0),
    1: partial(LegacyBatch, magic=1),
    2: Batch,
}
