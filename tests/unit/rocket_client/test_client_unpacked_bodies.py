"""Bodies are decompressed just before consumption, a bounded amount at a time."""

import asyncio
import random
from collections.abc import Sequence

import pytest

from rocket_client import ClientSettings, PullStatus, UnreadableBodyError
from rocket_client.blocking import PullRequest, PullResult
from rocket_client.core.unpacked_bodies import SMALL_SIZE, UnpackedBodies, is_compressed
from rocket_remoting import MessageExt, MessageQueue
from rocket_remoting.wire.compression import CompressionType, compress
from rocket_remoting.wire.record import encode_record
from rocket_remoting.wire.sys_flag import COMPRESSED
from streamkit.testing.virtual_time import VirtualTime
from tests.traced_memory import memory_below

LIMIT = 1 << 20


def message(body: bytes, type_: CompressionType | None = CompressionType.ZLIB, offset: int = 0) -> MessageExt:
    """Return a message as a broker stores it."""
    if type_ is None:
        return MessageExt("orders", body, queue_offset=offset)
    flag = COMPRESSED | type_.sys_flag
    return MessageExt("orders", compress(body, type_), queue_offset=offset, sys_flag=flag)


def bodies(limit: int = LIMIT, room: int = 2 * LIMIT) -> UnpackedBodies:
    """A limit of two of the largest bodies."""
    return UnpackedBodies(
        ClientSettings(name_servers="a:1", max_decompressed_body_size=limit, max_decompressed_size=room)
    )


@pytest.mark.parametrize("type_", list(CompressionType))
def test_small_bodies_are_decompressed_on_the_loop(type_: CompressionType) -> None:
    """They take no capacity; uncompressed bodies are returned as they are."""
    plain, packed = message(b"plain", None), message(b"x" * 10_000, type_)
    unpacked = bodies().unpack_small([plain, packed])
    assert unpacked.messages[0] is plain
    assert (unpacked.messages[1].body, unpacked.messages[1].sys_flag & COMPRESSED) == (b"x" * 10_000, 0)
    assert (unpacked.reserved, unpacked.growth) == (0, 10_000 - len(packed.body))
    assert is_compressed([packed])
    assert packed.body == compress(b"x" * 10_000, type_)


@pytest.mark.parametrize("type_", list(CompressionType))
def test_large_bodies_are_decompressed_in_a_thread(virtual: VirtualTime, type_: CompressionType) -> None:
    """At most 256 KiB per call are decompressed on the loop."""
    large = message(bytes(LIMIT), type_)
    many = [message(bytes(100_000), type_, offset) for offset in range(5)]
    assert bodies().unpack_small([large]).messages == []
    assert len(bodies().unpack_small(many).messages) == SMALL_SIZE // 100_000

    async def main() -> None:
        unpacked = await bodies().unpack([large])
        assert (unpacked.messages[0].body, unpacked.reserved) == (bytes(LIMIT), LIMIT)
        unpacked = await bodies().unpack(many)
        assert [one.queue_offset for one in unpacked.messages] == [0, 1, 2, 3, 4]

    virtual.run(main())


@pytest.mark.parametrize("type_", list(CompressionType))
@pytest.mark.parametrize("size", [LIMIT + 1, 60 * LIMIT])
def test_body_beyond_the_limit_is_reported(virtual: VirtualTime, type_: CompressionType, size: int) -> None:
    """Those before it are returned; memory stays within the limit."""
    bomb, small = message(bytes(size), type_, offset=1), message(b"x" * 5000, type_)

    async def main() -> None:
        kept = bodies()
        with memory_below(3 * LIMIT):
            unpacked = await kept.unpack([small, bomb, small])
        assert len(unpacked.messages) == 1
        assert isinstance(unpacked.error, UnreadableBodyError)
        assert unpacked.error.message is bomb
        assert "queue 0 at offset 1, cannot be decompressed" in str(unpacked.error)
        assert f"exceeds {LIMIT} bytes" in str(unpacked.error)
        kept.release(unpacked.reserved)
        assert repr(kept) == f"<UnpackedBodies: 0 bytes of {2 * LIMIT}, 0 wait>"

    virtual.run(main())


def test_damaged_body_is_reported(virtual: VirtualTime) -> None:
    """Small or large."""
    damaged = MessageExt("orders", b"8", sys_flag=COMPRESSED)
    assert "truncated zlib body of 1 bytes" in str(bodies().unpack_small([damaged]).error)
    large = message(random.Random(5).randbytes(LIMIT))
    large.body = large.body[:-100]

    async def main() -> None:
        assert "truncated zlib body" in str((await bodies().unpack([large])).error)

    virtual.run(main())


def test_call_gets_as_many_bodies_as_fit(virtual: VirtualTime) -> None:
    """It does not wait for more capacity while it holds some."""
    large = [message(bytes(400_000), offset=offset) for offset in range(5)]

    async def main() -> None:
        kept = bodies(limit=1_000_000, room=1_500_000)
        first = await kept.unpack(large)
        assert [one.queue_offset for one in first.messages] == [0, 1]
        waiting = asyncio.ensure_future(kept.unpack(large[2:]))
        await asyncio.sleep(1)
        assert not waiting.done()
        kept.release(first.reserved)
        assert len((await waiting).messages) == 2

    virtual.run(main())


def test_capacity_is_given_in_order_and_never_twice(virtual: VirtualTime) -> None:
    """Also when waiters are cancelled before or after their turn."""
    random_ = random.Random(7)
    held = most = 0

    async def call(kept: UnpackedBodies, messages: Sequence[MessageExt]) -> None:
        nonlocal held, most
        unpacked = await kept.unpack(messages)
        held += unpacked.reserved
        most = max(most, held)
        try:
            await asyncio.sleep(random_.random())
        finally:
            held -= unpacked.reserved
            kept.release(unpacked.reserved)

    async def main() -> None:
        kept = bodies()
        calls = [
            asyncio.ensure_future(call(kept, [message(bytes(random_.randrange(300_000, LIMIT)))])) for _ in range(40)
        ]
        for _ in range(200):
            random_.choice(calls).cancel() if random_.random() < 0.1 else None
            await asyncio.sleep(0.01)
        await asyncio.gather(*calls, return_exceptions=True)
        assert 0 < most <= 2 * LIMIT
        assert repr(kept) == f"<UnpackedBodies: 0 bytes of {2 * LIMIT}, 0 wait>"

    virtual.run(main())


def test_decompression_limits_are_consistent() -> None:
    """The total limit allows at least one of the largest bodies."""
    with pytest.raises(ValueError, match="max_decompressed_size must be at least 5"):
        ClientSettings(name_servers="a:1", max_decompressed_body_size=5, max_decompressed_size=4)
    with pytest.raises(ValueError, match="max_decompressed_body_size must be at least 1"):
        ClientSettings(name_servers="a:1", max_decompressed_body_size=0)


def pulled(*sizes: int) -> PullResult:
    """Return a blocking client's pull result whose bodies have these decompressed sizes."""
    records = b"".join(
        encode_record(
            "orders",
            compress(bytes(size)),
            b"",
            queue_id=0,
            queue_offset=offset,
            commit_log_offset=0,
            sys_flag=COMPRESSED,
            flag=0,
            born_timestamp=1,
            born_host=("127.0.0.1", 1),
            store_timestamp=2,
            store_host=("127.0.0.1", 2),
        )
        for offset, size in enumerate(sizes)
    )
    asked = PullRequest(MessageQueue("orders", "broker-a", 0), 0)
    return PullResult(asked, PullStatus.FOUND, len(sizes), 0, len(sizes), records)


def test_blocking_client_decompresses_one_body_at_a_time() -> None:
    """When its message is read; it stays in memory while it is used."""
    result = pulled(*[LIMIT] * 30)
    with memory_below(4 * LIMIT):
        count = 0
        for message in result.messages():
            assert (len(message.body), message.queue_offset) == (LIMIT, count)
            count += 1
    assert count == 30


def test_blocking_client_reports_a_body_beyond_the_limit() -> None:
    """With its message, so that reading may continue behind its offset."""
    messages = pulled(5000, LIMIT + 1, 5000).messages(max_body_size=LIMIT)
    assert len(next(messages).body) == 5000
    with pytest.raises(UnreadableBodyError, match=f"exceeds {LIMIT} bytes") as caught:
        next(messages)
    assert caught.value.message.queue_offset == 1
