"""The batches of a fetch, found and unpacked without believing what may have gone bad.

::

    offset i64 · length i32 · leader epoch i32 · magic i8 · crc u32 │ what the sum is of ···

What stands before the sum is not in it: a batch whose length is wrong hides all that follow. So offset and length are
believed as far as what surrounds them bears them out. Where they are not, the next batch is looked for whose sum is
right.
"""

import struct
import sys
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from kafka import codec
from kafka.errors import CorruptRecordError, UnsupportedCodecError
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.legacy_records import LegacyRecordBatch
from kafka.record.util import decode_varint

__all__ = ["LEGACY_LIMIT", "LIMIT", "MAX_HEADERS", "Batch", "Batches"]

LIMIT: Final = 64 << 20
"""Bytes of the largest batch that is read, when it is decompressed: a small one may become any size. It is 64 times
Kafka's largest batch by default."""

LEGACY_LIMIT: Final = 16 << 20
"""The same of a batch in the formats before Kafka 0.11: all of its records are looked at before the first is read."""

MAX_HEADERS: Final = 4096
"""Headers of a record that is read. A header may take two bytes, and kafka-python reads all of a record's at once. A
record of less than 8 KiB has no room for more, so only those of larger ones are counted before."""

_OFFSET: Final = struct.Struct(">q")
_START: Final = struct.Struct(">qi")
_MAGIC_AT: Final = 16
_MAGIC: Final = b"\x02"
_INT: Final = struct.Struct(">i")
_LAST_AT: Final = 23
_COUNT_AT: Final = 57
_HEADERS: Final = {
    0: LegacyRecordBatch.LOG_OVERHEAD + LegacyRecordBatch.RECORD_OVERHEAD_V0,
    1: LegacyRecordBatch.LOG_OVERHEAD + LegacyRecordBatch.RECORD_OVERHEAD_V1,
    2: DefaultRecordBatch.HEADER_STRUCT.size,
}
"""The sizes of batches that hold nothing, by their formats."""
_PART: Final = 64 << 10
"""What is decompressed first; then twice as much each time, so that a large batch takes few turns."""
_GZIP: Final = b"\x1f\x8b"
_XERIAL: Final = b"\x82SNAPPY\0"
_XERIAL_HEADER: Final = 16
_SNAPPY_SIZE: Final = 5
"""Bytes of the size that a block of Snappy begins with, at most."""
_MORE: Final = 0x80
"""The bit of a varint's byte that says that another one follows."""
_FIELDS_BEFORE_KEY: Final = 4
"""Length, attributes, time and offset."""
_KEY_AND_VALUE: Final = 2


class _AnyText(bytearray):
    """Bytes whose parts are text, whatever they are."""

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        return _AnyText(found) if isinstance(found, bytearray) else found

    def decode(self, encoding: str = "utf-8", errors: str = "replace") -> str:
        return super().decode(encoding, errors)


class Batch(DefaultRecordBatch):  # type: ignore[misc]  # kafka-python has no annotations
    """A batch whose headers may have any names, whose offsets ascend, and that does not grow beyond all bounds."""

    _buffer: bytearray
    _pos: int
    _decompressed: bool
    _next_record_index: int

    def __init__(self, data: memoryview) -> None:
        super().__init__(data)
        self._least: int = self.base_offset
        self._end: int = self.next_offset

    def __next__(self) -> Any:
        if self._next_record_index >= self._num_records:
            return super().__next__()  # raises: it has ended, or something is behind its records
        buffer, at = self._buffer, self._pos
        try:
            # Its length takes three bytes, so it has 8 KiB or more.
            if buffer[at] & _MORE and buffer[at + 1] & _MORE:
                self._require_few_headers()
            record = self._read_msg()
        except (ValueError, IndexError):
            if isinstance(self._buffer, _AnyText):
                raise
            self._buffer = _AnyText(self._buffer)
            record = self._read_msg()
        offset = record._offset
        if not self._least <= offset < self._end:
            raise CorruptRecordError(f"one of its records has the offset {offset}")
        self._least = offset + 1
        self._next_record_index += 1
        return record

    def _require_few_headers(self) -> None:
        """Refuse a large record that has too many headers, before they are read.

        Raises:
            CorruptRecordError: It has more than `MAX_HEADERS`.
        """
        buffer = self._buffer
        try:
            at = self._pos
            for _ in range(_FIELDS_BEFORE_KEY):
                _, at = decode_varint(buffer, at)
            for _ in range(_KEY_AND_VALUE):
                size, at = decode_varint(buffer, at)
                at += max(size, 0)
            count, _ = decode_varint(buffer, at)
        except (ValueError, IndexError):
            return  # no record, which whoever reads it tells
        if count > MAX_HEADERS:
            raise CorruptRecordError(f"one of its records has {count} headers, more than {MAX_HEADERS}")

    def _maybe_uncompress(self) -> None:
        kind = self.compression_type
        if not self._decompressed and kind in _DECOMPRESSORS:
            self._assert_has_codec(kind)
            found = _decompressed(kind, bytes(memoryview(self._buffer)[self._pos :]), LIMIT)
            self._buffer, self._pos, self._decompressed = found, 0, True
        super()._maybe_uncompress()


class LegacyBatch(LegacyRecordBatch):  # type: ignore[misc]  # as above
    """A batch in one of the formats before Kafka 0.11 that does not grow beyond all bounds."""

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
        kind = self.compression_type
        self._assert_has_codec(kind)
        data = bytes(self._buffer[at : at + size])
        if kind == self.CODEC_LZ4 and self._magic == 0:
            data = _with_right_checksum(data)
        return _decompressed(kind, data, LEGACY_LIMIT)

    def _read_all_headers(self) -> Any:
        at, end = 0, len(self._buffer)
        least = _HEADERS[self._magic] - self.LOG_OVERHEAD
        found = []
        while at < end:
            header = self._read_header(at)
            if header[1] < least:
                raise CorruptRecordError(f"one of its records has a length of {header[1]}, as it says")
            found.append((header, at))
            at += self.LOG_OVERHEAD + header[1]
        return found


def _with_right_checksum(data: bytes) -> bytes:
    """Return an LZ4 frame as the standard has it: Kafka before 0.10 summed its header up with the magic in front.

    Raises:
        CorruptRecordError: The library that sums it up is missing.
    """
    if codec.xxhash is None:
        raise CorruptRecordError("LZ4 as Kafka before 0.10 wrote it needs xxhash, which is not installed")
    end = 6 + (8 if data[4] & 0x08 else 0)
    digest = codec.xxhash.xxh32(data[4:end]).digest()
    return b"".join((data[:end], digest[-2:-1], data[end + 1 :]))


def _decompressed(kind: int, data: bytes, limit: int) -> bytearray:
    """Return what was compressed.

    Raises:
        CorruptRecordError: It is larger than the limit.
    """
    found = _DECOMPRESSORS[kind](data, limit)
    if len(found) > limit:
        raise _too_large(limit)
    return found


def _too_large(limit: int) -> CorruptRecordError:
    return CorruptRecordError(f"it exceeds {limit} bytes when decompressed")


def _gunzipped(data: bytes, limit: int) -> bytearray:
    """All members: who compresses piece by piece may write several. What follows them and is none is passed over."""
    found = bytearray()
    while data.startswith(_GZIP) and len(found) <= limit:
        member = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        found += member.decompress(data, limit + 1 - len(found))
        data = member.unused_data
    return found


def _of_snappy(data: bytes, limit: int) -> bytearray:
    """Blocks behind a header and their sizes, as Java writes them; or a single block."""
    if not data.startswith(_XERIAL) or len(data) <= _XERIAL_HEADER:
        return bytearray(_of_snappy_block(data, 0, limit))
    found = bytearray()
    at = _XERIAL_HEADER
    while at < len(data) and len(found) <= limit:
        (size,) = _INT.unpack_from(data, at)
        at += _INT.size
        if not 0 < size <= len(data) - at:
            raise CorruptRecordError(f"one of its blocks has {size} bytes, as it says")
        found += _of_snappy_block(data[at : at + size], len(found), limit)
        at += size
    return found


def _of_snappy_block(data: bytes, before: int, limit: int) -> bytes:
    """Return a block that has so many bytes before it.

    The library would make room for as much as the block says, whatever it holds.
    """
    size = shift = 0
    for byte in data[:_SNAPPY_SIZE]:
        size |= (byte & ~_MORE) << shift
        shift += 7
        if not byte & _MORE:
            break
    if before + size > limit:
        raise _too_large(limit)
    found: bytes = codec.snappy.decompress(data)
    return found


def _of_lz4(data: bytes, limit: int) -> bytearray:
    if codec.lz4 is None:
        # Other libraries that kafka-python takes decompress whatever it becomes.
        raise UnsupportedCodecError("libraries for lz4 compression codec not found")
    unpacker = codec.lz4.LZ4FrameDecompressor()
    rest = iter([data])
    return _joined(lambda size: b"" if unpacker.eof else unpacker.decompress(next(rest, b""), size), limit)


def _of_zstd(data: bytes, limit: int) -> bytearray:
    with codec.zstd.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
        return _joined(reader.read, limit)


def _joined(read: Callable[[int], bytes], limit: int) -> bytearray:
    """What `read` gives, part by part until it is empty; libraries get room for all that they may give at once."""
    found = bytearray()
    size = _PART
    while len(found) <= limit and (part := read(min(size, limit + 1 - len(found)))):
        found += part
        size *= 2
    return found


_DECOMPRESSORS: Final[dict[int, Callable[[bytes, int], bytearray]]] = {
    DefaultRecordBatch.CODEC_GZIP: _gunzipped,
    DefaultRecordBatch.CODEC_SNAPPY: _of_snappy,
    DefaultRecordBatch.CODEC_LZ4: _of_lz4,
    DefaultRecordBatch.CODEC_ZSTD: _of_zstd,
}


class Batches:
    """The batches of a fetch, one after the other, in the place of kafka-python's `MemoryRecords`.

    ::

        ··· │ the batch that was asked for last │ the next one ···
            ▲ _at                               ▲ _behind

    Attributes:
        data: The bytes of the one that was asked for last.
        batch: That one; None, if it is no batch.
        begin: Its first offset; if that is not known, the one behind what was read.
        refused: The offset that it says it begins at, where that is not believed.
    """

    def __init__(
        self,
        records: MemoryRecords,
        position: Callable[[], int],
        highwater: Callable[[], int | None],
        *,
        refused: int | None,
    ) -> None:
        """Make them.

        Args:
            records: The fetch; its bytes are taken from it, since kafka-python fails if the first batch seems to be
                cut, with each fetch anew.
            position: Tells the offset behind what was read.
            highwater: Tells where the partition ends.
            refused: The offset that the first batch is known not to begin at: it was found behind others before.
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
        """The next batch; None at the end. One that is cut there comes whole with the next fetch.

        Raises:
            CorruptRecordError: There is something else.
        """
        self._at, self.batch = self._behind, None
        self.data = self._fetch[self._at :]
        self._asked = self._position()
        # Only the first one may begin before the offset that was asked for.
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
            raise CorruptRecordError("it is longer than what was fetched, as it says")
        self._behind = self._at + size
        self.data = self.data[:size]
        magic = self.data[_MAGIC_AT]
        if magic not in _FORMATS:
            raise CorruptRecordError(
                f"its format is {magic}, which is none of {', '.join(map(str, _FORMATS))}"
            )
        self._check_offsets()
        self.batch = _FORMATS[magic](self.data)
        return self.batch

    def _check_offsets(self) -> None:
        """Refuse a batch that does not lie between what was read and what follows."""
        if not self._is_placed:
            self.refused = _offset(self.data)
            raise CorruptRecordError(f"it begins at offset {self.refused}, as it says")
        # Where it follows directly upon what was read, what it says of its end is in its sum.
        if self.begin > self._asked:
            following = self._begins_with(self._behind, self._asked + 1)
            if self._own_end > (following or self._limit):
                self.refused = self.begin
                self.begin, self._is_placed = self._asked, False
                raise CorruptRecordError(
                    f"it begins at offset {self.refused} and ends behind the next one's, as it says"
                )

    @property
    def _limit(self) -> int:
        highwater = self._highwater()
        return sys.maxsize if highwater is None else highwater

    def _begins_with(self, at: int, least: int) -> int | None:
        """The offset of the batch that begins at a place of the fetch; None, if none can begin there."""
        start = self._fetch[at : at + _OFFSET.size]
        if len(start) < _OFFSET.size:
            return None
        offset = _offset(start)
        # A broker looks for the partition's end before it reads: what follows directly may be behind that.
        return offset if least <= offset < max(self._limit, self._asked + 1) else None

    @property
    def _own_end(self) -> int:
        """The offset behind the batch, as it says itself."""
        return self.begin + max(self._number(_LAST_AT), 0) + 1

    @property
    def _claimed_end(self) -> int:
        """The same; of one that is damaged not behind as many as it has records, as it says at another place.

        Compaction leaves fewer than it spans: what remains is another that cannot be read, and none behind it is lost.
        """
        if not self.is_damaged:
            return self._own_end
        return min(self._own_end, self.begin + max(self._number(_COUNT_AT), 1))

    def _number(self, at: int) -> int:
        """A number of the batch's header; 0 if it has none there."""
        is_there = len(self.data) >= at + _INT.size and self.data[_MAGIC_AT] > 1
        (number,) = _INT.unpack_from(self.data, at) if is_there else (0,)
        return int(number)

    @property
    def end(self) -> int:
        """The offset behind it: where the next one begins; without a next one, what it says itself."""
        end = self._begins_with(self._behind, self.begin + 1)
        if end is None:
            end = self._claimed_end if self._is_placed else self.begin + 1
        if self._at == 0:  # brokers begin with the batch that holds what was asked for
            end = max(end, self._asked + 1)
        return min(end, self._limit)

    @property
    def is_damaged(self) -> bool:
        """Whether it is none, or its checksum is wrong."""
        batch = self.batch
        return batch is None or not (batch._decompressed or batch.validate_crc())

    def pass_over(self) -> None:
        """Go on behind a batch that cannot be read; if it is damaged, its length is right only if one follows there."""
        if self.is_damaged and self._begins_with(self._behind, self.begin + 1) is None:
            found = self._next_whole_one()
            if found is not None:
                self._behind = found
            elif self._behind == self._at:
                self._behind = len(self._fetch)
        self.data = self._fetch[self._at : self._behind]

    def _next_whole_one(self) -> int | None:
        """Where the next batch begins whose sum is right."""
        rest = bytes(self._fetch[self._at :])
        place = rest.find(_MAGIC, _MAGIC_AT + 1)
        while place >= 0:
            at = self._at + place - _MAGIC_AT
            if self._begins_with(at, self.begin + 1) is not None and _is_whole(self._fetch[at:]):
                return at
            place = rest.find(_MAGIC, place + 1)
        return None


def _size(data: memoryview) -> int | None:
    """The size of the batch that begins there, as it says; None, if it is more than there is.

    Raises:
        CorruptRecordError: No batch is so small.
    """
    if len(data) < _START.size:
        return None
    _, length = _START.unpack_from(data)
    size = _START.size + int(length)
    magic = data[_MAGIC_AT] if len(data) > _MAGIC_AT else 0
    if size < _HEADERS.get(magic, _HEADERS[0]):
        raise CorruptRecordError(f"it has {size} bytes, as it says")
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
