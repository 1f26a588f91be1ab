"""Compression of message bodies."""

import zlib

import lz4.frame
import pytest
import zstandard

from rocket_remoting.wire.compression import BodyTooLargeError, CompressionType, compress, decompress
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.sys_flag import COMPRESSED, COMPRESSION_LZ4, COMPRESSION_ZLIB, COMPRESSION_ZSTD
from tests.traced_memory import memory_below

TYPES = list(CompressionType)
BODY = b"one flight, two flights, " * 400


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("level", [1, 5, 9])
def test_compression_round_trip(type_: CompressionType, level: int) -> None:
    """Each algorithm shrinks a repetitive body and restores it."""
    packed = compress(BODY, type_, level)
    assert len(packed) < len(BODY) / 10
    assert decompress(memoryview(packed), COMPRESSED | type_.sys_flag) == BODY


def test_type_bits_are_those_of_the_system_flag() -> None:
    """As messages declare them."""
    flags = [COMPRESSION_LZ4, COMPRESSION_ZSTD, COMPRESSION_ZLIB]
    assert [type_.sys_flag for type_ in (CompressionType.LZ4, CompressionType.ZSTD, CompressionType.ZLIB)] == flags


def test_missing_type_bits_mean_zlib() -> None:
    """Clients before 4.9.3 compress with zlib and set no type."""
    assert decompress(zlib.compress(BODY), COMPRESSED) == BODY


@pytest.mark.parametrize("type_", TYPES)
def test_decompression_bombs_are_refused(type_: CompressionType) -> None:
    """A body beyond the limit is refused without using more memory than the limit."""
    bomb = compress(bytes(10_000_000), type_)
    with (
        memory_below(5_000_000),
        pytest.raises(RemoteProtocolError, match="exceeds 1000000 bytes when decompressed"),
    ):
        decompress(bomb, COMPRESSED | type_.sys_flag, limit=1_000_000)


def test_bomb_without_a_stated_size_is_refused() -> None:
    """Memory is bounded for a zstd stream without a size too, as Java writes it."""
    writer = zstandard.ZstdCompressor().compressobj()
    bomb = writer.compress(bytes(10_000_000)) + writer.flush()
    with pytest.raises(RemoteProtocolError, match="exceeds 1000000 bytes when decompressed"):
        decompress(bomb, COMPRESSED | COMPRESSION_ZSTD, limit=1_000_000)


def zstd_stream(data: bytes) -> bytes:
    """Return a zstd stream that does not state its size."""
    writer = zstandard.ZstdCompressor().compressobj()
    return writer.compress(data) + writer.flush()


@pytest.mark.parametrize("stated", [1000, 1 << 31, (1 << 32) - 1])
def test_wrong_stated_size_of_zstd_takes_no_memory(stated: int) -> None:
    """Neither the stated nor the actual size may exceed the limit."""
    bomb = bytearray(compress(bytes(10_000_000), CompressionType.ZSTD))
    bomb[6:10] = stated.to_bytes(4, "little")
    assert zstandard.frame_content_size(bytes(bomb)) == stated
    with memory_below(2_000_000), pytest.raises(RemoteProtocolError):
        decompress(bytes(bomb), COMPRESSED | COMPRESSION_ZSTD, limit=1_000_000)


def test_zstd_stream_is_decompressed_in_steps() -> None:
    """Of half a gigabyte in 16 kilobytes, little more than the limit is ever in memory."""
    bomb = zstd_stream(bytes(500 << 20))
    with memory_below(20 << 20), pytest.raises(BodyTooLargeError) as caught:
        decompress(bomb, COMPRESSED | COMPRESSION_ZSTD, limit=1_000_000)
    assert caught.value.limit == 1_000_000


def test_body_of_the_limits_size_is_accepted() -> None:
    """The limit is inclusive."""
    for type_ in TYPES:
        assert len(decompress(compress(bytes(1000), type_), COMPRESSED | type_.sys_flag, limit=1000)) == 1000


def test_streams_without_a_stated_size_are_read() -> None:
    """As Java's stream writers produce them."""
    writer = zstandard.ZstdCompressor().compressobj()
    assert decompress(writer.compress(BODY) + writer.flush(), COMPRESSION_ZSTD) == BODY
    packer = lz4.frame.LZ4FrameCompressor()
    stream = packer.begin() + packer.compress(BODY) + packer.flush()
    assert decompress(stream, COMPRESSION_LZ4) == BODY


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("damage", ["garbage", "truncated", "empty"])
def test_damaged_body_is_a_protocol_error(type_: CompressionType, damage: str) -> None:
    """A body in another format than its flag says is the peer's error."""
    packed = {"garbage": b"\x00" + BODY, "truncated": compress(BODY, type_)[:-9], "empty": b""}[damage]
    with pytest.raises(RemoteProtocolError, match=type_.name.lower()):
        decompress(packed, COMPRESSED | type_.sys_flag)


def test_unknown_compression_type_is_refused() -> None:
    """Type bits without a defined meaning."""
    with pytest.raises(RemoteProtocolError, match="compression type 5"):
        decompress(BODY, COMPRESSED | 5 << 8)
