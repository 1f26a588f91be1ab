"""Decompresses batches up to a limit.

kafka-python decompresses a batch to whatever size it becomes: a few kilobytes can take all memory of the process (seen
in 3.0.10 to 3.0.12; the code is the same in the development version of 3.1, August 2026). Each function here stops when
the limit is exceeded.
"""

import struct
import zlib
from collections.abc import Callable
from typing import Final

from kafka import codec
from kafka.errors import CorruptRecordError, UnsupportedCodecError
from kafka.record.default_records import DefaultRecordBatch

__all__ = ["NOT_COMPRESSED", "decompressed", "library_of", "with_right_checksum"]

NOT_COMPRESSED: Final = 0

_PART: Final = 64 << 10
"""The size in bytes of the first part; each further part is twice as large."""
_GZIP: Final = b"\x1f\x8b"
_XERIAL: Final = b"\x82SNAPPY\0"
_XERIAL_HEADER: Final = 16
_SNAPPY_SIZE: Final = 5
"""The most bytes of the size in front of a Snappy block."""
_MORE: Final = 0x80
"""The bit that is set in all bytes of a varint but the last."""
_SIZE: Final = struct.Struct(">i")


def decompressed(kind: int, data: bytes, limit: int) -> bytearray:
    """Return decompressed data.

    Args:
        kind: The number of the compression, as Kafka has it in a batch's attributes.
        data: The compressed bytes.
        limit: How many bytes the result may have.

    Raises:
        CorruptRecordError: The result exceeds the limit.
        UnsupportedCodecError: Kafka has no such compression, or its library is not installed.
    """
    if kind not in _DECOMPRESSORS:
        raise UnsupportedCodecError(f"Kafka has no compression with the number {kind}")
    is_installed, library, decompress = _DECOMPRESSORS[kind]
    if not is_installed():
        raise UnsupportedCodecError(f"{library} is not installed")
    found = decompress(data, limit)
    if len(found) > limit:
        raise _too_large(limit)
    return found


def library_of(kind: int) -> str | None:
    """Return the name of the package that a compression needs; None if Python has the compression itself."""
    return _DECOMPRESSORS[kind][1] or None if kind in _DECOMPRESSORS else None


def with_right_checksum(data: bytes) -> bytes:
    """Return an LZ4 frame with the standard checksum: Kafka before 0.10 included the magic number in it.

    Raises:
        CorruptRecordError: The library that sums it up is missing.
    """
    if codec.xxhash is None:
        raise CorruptRecordError("LZ4 as Kafka before 0.10 wrote it needs xxhash, which is not installed")
    end = 6 + (8 if data[4] & 0x08 else 0)
    digest = codec.xxhash.xxh32(data[4:end]).digest()
    return b"".join((data[:end], digest[-2:-1], data[end + 1 :]))


def _too_large(limit: int) -> CorruptRecordError:
    return CorruptRecordError(f"it exceeds {limit} bytes when decompressed")


def _from_gzip(data: bytes, limit: int) -> bytearray:
    """Decompress all members of a gzip file; bytes behind the last member are ignored."""
    found = bytearray()
    while data.startswith(_GZIP) and len(found) <= limit:
        member = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        found += member.decompress(data, limit + 1 - len(found))
        data = member.unused_data
    return found


def _from_snappy(data: bytes, limit: int) -> bytearray:
    """Decompress a header and blocks, each preceded by its size, as Java writes them; or a single block."""
    if not data.startswith(_XERIAL) or len(data) <= _XERIAL_HEADER:
        return bytearray(_from_snappy_block(data, 0, limit))
    found = bytearray()
    at = _XERIAL_HEADER
    while at < len(data) and len(found) <= limit:
        (size,) = _SIZE.unpack_from(data, at)
        at += _SIZE.size
        if not 0 < size <= len(data) - at:
            raise CorruptRecordError(f"one of its blocks says that it has {size} bytes")
        found += _from_snappy_block(data[at : at + size], len(found), limit)
        at += size
    return found


def _from_snappy_block(data: bytes, before: int, limit: int) -> bytes:
    """Read a block that has `before` bytes in front of it.

    The library reserves as many bytes as the block says that it becomes, whatever it holds.
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


def _from_lz4(data: bytes, limit: int) -> bytearray:
    if codec.lz4 is None:
        # The other libraries that kafka-python takes have no limit.
        raise UnsupportedCodecError("lz4 is not installed")
    unpacker = codec.lz4.LZ4FrameDecompressor()
    rest = iter([data])
    return _joined(lambda size: b"" if unpacker.eof else unpacker.decompress(next(rest, b""), size), limit)


def _from_zstd(data: bytes, limit: int) -> bytearray:
    with codec.zstd.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
        return _joined(reader.read, limit)


def _joined(read: Callable[[int], bytes], limit: int) -> bytearray:
    """Read parts until one is empty, and return them joined; libraries allocate the size that is requested."""
    found = bytearray()
    size = _PART
    while len(found) <= limit and (part := read(min(size, limit + 1 - len(found)))):
        found += part
        size *= 2
    return found


_DECOMPRESSORS: Final[dict[int, tuple[Callable[[], bool], str, Callable[[bytes, int], bytearray]]]] = {
    DefaultRecordBatch.CODEC_GZIP: (codec.has_gzip, "", _from_gzip),
    DefaultRecordBatch.CODEC_SNAPPY: (codec.has_snappy, "python-snappy", _from_snappy),
    DefaultRecordBatch.CODEC_LZ4: (codec.has_lz4, "lz4", _from_lz4),
    DefaultRecordBatch.CODEC_ZSTD: (codec.has_zstd, "zstandard", _from_zstd),
}
