"""Compression of message bodies; the message's system flag names the algorithm (see `sys_flag`).

Apache's Java client before 4.9.3 knows only zlib and leaves the type bits 0. A body of a few kilobytes can become any
size when decompressed, so every decompression here has a limit.
"""

import zlib
from enum import IntEnum

from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.sys_flag import COMPRESSED, COMPRESSION_TYPE_MASK

DEFAULT_LEVEL = 5
DEFAULT_LIMIT = 64 * 1024 * 1024
"""Bytes that a body may have when it is decompressed, unless a caller says otherwise: 16 times the largest body that
Apache's producers send by default, which they check before they compress it, and four times the largest frame."""

_LEAST_ZSTD_STEP = 512
_ZSTD_RATIO = 32 * 1024
"""A block of zstd takes four bytes at least and becomes 128 KiB at most. A stream that does not state its size is
decompressed step by step, each step as large as the limit allows, or 512 bytes, which become 16 MiB at most."""


class CompressionType(IntEnum):
    """The algorithms, by their numbers in the system flag."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @property
    def sys_flag(self) -> int:
        """The type bits of a message's system flag, without `sys_flag.COMPRESSED`."""
        return self << 8


class BodyTooLargeError(RemoteProtocolError):
    """A body is larger than allowed when it is decompressed.

    Attributes:
        limit: Maximum number of bytes of the decompressed body.
    """

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"a body of {size} bytes exceeds {limit} bytes when decompressed")
        self.limit = limit


def compress(body: bytes, type_: CompressionType = CompressionType.ZLIB, level: int = DEFAULT_LEVEL) -> bytes:
    """Return the body compressed; put ``COMPRESSED | type_.sys_flag`` into the message's system flag."""
    if type_ is CompressionType.ZLIB:
        return zlib.compress(body, level)
    if type_ is CompressionType.LZ4:
        import lz4.frame

        packed: bytes = lz4.frame.compress(body, compression_level=level if level > 3 else 0)
        return packed
    import zstandard

    return zstandard.ZstdCompressor(level=level).compress(body)


def compression_flags(sys_flag: int) -> int:
    """Return the bits of a message's system flag that say how its body is compressed; 0 if it is not."""
    return sys_flag & (COMPRESSED | COMPRESSION_TYPE_MASK) if sys_flag & COMPRESSED else 0


def decompress(body: bytes | memoryview, sys_flag: int, limit: int = DEFAULT_LIMIT) -> bytes:
    """Return the decompressed body.

    Args:
        body: The compressed bytes.
        sys_flag: The message's system flag, whose type bits name the algorithm.
        limit: Bytes that the body may have when it is decompressed.

    Raises:
        BodyTooLargeError: The body has more bytes.
        RemoteProtocolError: The body is damaged, or the flag names an unknown algorithm.
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
        raise BodyTooLargeError(len(body), limit)
    return unpacked


def _unzlib(body: bytes | memoryview, limit: int) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        # One byte more than allowed shows that the body is too large, without decompressing the rest of it.
        unpacked = unpacker.decompress(body, limit + 1)
    except zlib.error as error:
        raise RemoteProtocolError(f"damaged zlib body of {len(body)} bytes: {error}") from error
    # Not at the end although there was room: the input ended too early. With no room left the body is too
    # large, which `decompress` reports.
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
        if size < 0:  # Java's stream writer does not state the size
            return _unzstd_stream(body, limit)
        if size > limit:
            raise BodyTooLargeError(len(body), limit)
        return zstandard.ZstdDecompressor().decompress(body)
    except zstandard.ZstdError as error:
        raise RemoteProtocolError(f"damaged zstd body of {len(body)} bytes: {error}") from error


def _unzstd_stream(body: bytes | memoryview, limit: int) -> bytes:
    """Return the bytes of a stream; more than `limit` if it has more."""
    import zstandard

    unpacker = zstandard.ZstdDecompressor().decompressobj()
    parts: list[bytes] = []
    size, at, view = 0, 0, memoryview(body)
    while not unpacker.eof and size <= limit:
        if at >= len(view):
            raise RemoteProtocolError(f"truncated zstd body of {len(body)} bytes")
        step = max(_LEAST_ZSTD_STEP, (limit - size) // _ZSTD_RATIO)
        part = unpacker.decompress(view[at : at + step])
        at += step
        parts.append(part)
        size += len(part)
    return b"".join(parts)
