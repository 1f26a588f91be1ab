"""Compression of message bodies; the algorithm stands in the message's system flag (see `sys_flag`).

Apache's Java client before 4.9.3 knows only zlib and leaves the type bits 0.
"""

import zlib
from enum import IntEnum

from rocket_remoting.errors import RemoteProtocolError
from rocket_remoting.sys_flag import COMPRESSION_TYPE_MASK

DEFAULT_LEVEL = 5
# A compressed body may not unfold to more: four times the largest frame.
DEFAULT_LIMIT = 64 * 1024 * 1024


class CompressionType(IntEnum):
    """Algorithms, by their number in the system flag."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @property
    def sys_flag(self) -> int:
        """The type bits for a message's system flag (`sys_flag.COMPRESSED` comes beside them)."""
        return self << 8


def compress(body: bytes, type_: CompressionType = CompressionType.ZLIB, level: int = DEFAULT_LEVEL) -> bytes:
    """The body packed; put ``COMPRESSED | type_.sys_flag`` into the message's system flag."""
    if type_ is CompressionType.ZLIB:
        return zlib.compress(body, level)
    if type_ is CompressionType.LZ4:
        import lz4.frame

        packed: bytes = lz4.frame.compress(body, compression_level=level if level > 3 else 0)
        return packed
    import zstandard

    return zstandard.ZstdCompressor(level=level).compress(body)


def decompress(body: bytes | memoryview, sys_flag: int, limit: int = DEFAULT_LIMIT) -> bytes:
    """The body as it was before `compress`.

    Args:
        body: The packed bytes.
        sys_flag: The message's system flag, whose type bits name the algorithm.
        limit: Most bytes the body may unfold to.

    Raises:
        RemoteProtocolError: The body is damaged, unfolds beyond `limit`, or names an unknown algorithm.
    """
    number = (sys_flag & COMPRESSION_TYPE_MASK) >> 8
    if number in (0, CompressionType.ZLIB):
        unpacked = _unzlib(body, limit)
    elif number == CompressionType.LZ4:
        unpacked = _unlz4(body, limit)
    elif number == CompressionType.ZSTD:
        unpacked = _unzstd(body, limit)
    else:
        raise RemoteProtocolError(f"unknown compression type {number} in system flag {sys_flag:#x}")
    if len(unpacked) > limit:
        raise RemoteProtocolError(f"a body of {len(body)} bytes unfolds to more than {limit}")
    return unpacked


def _unzlib(body: bytes | memoryview, limit: int) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        unpacked = unpacker.decompress(body, limit + 1)
    except zlib.error as error:
        raise RemoteProtocolError(f"damaged zlib body of {len(body)} bytes: {error}") from error
    if not unpacker.eof and len(unpacked) <= limit:
        raise RemoteProtocolError(f"truncated zlib body of {len(body)} bytes")
    return unpacked


def _unlz4(body: bytes | memoryview, limit: int) -> bytes:
    import lz4.frame

    unpacker = lz4.frame.LZ4FrameDecompressor()
    try:
        unpacked: bytes = unpacker.decompress(body, max_length=limit + 1)
    except (RuntimeError, EOFError) as error:
        raise RemoteProtocolError(f"damaged lz4 body of {len(body)} bytes: {error}") from error
    if not unpacker.eof and len(unpacked) <= limit:
        raise RemoteProtocolError(f"truncated lz4 body of {len(body)} bytes")
    return unpacked


def _unzstd(body: bytes | memoryview, limit: int) -> bytes:
    import zstandard

    try:
        size = zstandard.frame_content_size(body)
        if size < 0:  # Java's stream writer does not state it
            with zstandard.ZstdDecompressor().stream_reader(body) as reader:
                size = len(reader.read(limit + 1))
        if size > limit:
            raise RemoteProtocolError(f"a body of {len(body)} bytes unfolds to more than {limit}")
        unpacker = zstandard.ZstdDecompressor().decompressobj()
        unpacked = unpacker.decompress(body)
    except zstandard.ZstdError as error:
        raise RemoteProtocolError(f"damaged zstd body of {len(body)} bytes: {error}") from error
    if not unpacker.eof:
        raise RemoteProtocolError(f"truncated zstd body of {len(body)} bytes")
    return unpacked
