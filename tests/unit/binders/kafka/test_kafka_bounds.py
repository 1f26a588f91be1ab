"""Limits on the memory that a partition can use: decompressed batches, record headers and windows of large messages."""

import asyncio
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition, codec
from kafka.future import Future
from kafka.record import MemoryRecords
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from binders.kafka.fetching import WINDOW_SIZE, ConsumerClient, FetchThread, Subscription
from binders.kafka.partition import AssignedPartition
from binders.kafka.record_size import PollBudget, record_size
from binders.kafka.repairs.batches import LEGACY_LIMIT, LIMIT, MAX_HEADERS
from binders.kafka.repairs.partition_records import read_all
from binders.kafka.repairs.poll_budget import bound_polls
from binders.kafka.unreadable import Unreadable
from tests.peer.raw_kafka import RawRecord, batch, records
from tests.traced_memory import memory_below

ORDERS = TopicPartition("orders", 0)
MIB = 1 << 20
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4


def _gzip(data: bytes) -> bytes:
    packer = zlib.compressobj(1, wbits=31)
    return packer.compress(data) + packer.flush()


PACK: dict[int, Callable[[bytes], bytes]] = {
    GZIP: _gzip,
    SNAPPY: codec.snappy_encode,
    LZ4: codec.lz4_encode,
    ZSTD: codec.zstd_encode,
}


def fetched(data: bytes, end: int, budget: PollBudget | None = None) -> Any:
    """Return what a fetch from the beginning yields."""
    fetcher = SimpleNamespace()
    read_all(fetcher, lambda key: end, budget)
    return fetcher.PartitionRecords(0, ORDERS, MemoryRecords(data))


def values(data: bytes, end: int) -> list[bytes]:
    """Return the values of the records."""
    found = fetched(data, end)
    taken: list[bytes] = []
    while found:
        taken += [record.value for record in found.take(500)]
    return taken


def why(value: bytes) -> str:
    """Return why the data is no record."""
    assert isinstance(value, Unreadable)
    return str(value.error)


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(PACK))
def test_batch_is_decompressed_up_to_a_limit(kind: int) -> None:
    """With any compression; the next batch is read."""
    bomb = batch(PACK[kind](bytes(LIMIT + MIB)), 1, attributes=kind)
    log = bomb + batch(records(RawRecord(b"good")), 1, offset=1)
    del bomb
    with memory_below(3 * LIMIT):
        bad, good = values(log, 2)
        assert good == b"good"
    assert f"exceeds {LIMIT} bytes when decompressed" in why(bad)


@pytest.mark.parametrize(("magic", "kind"), [(0, GZIP), (0, SNAPPY), (1, GZIP), (1, SNAPPY), (1, LZ4)])
def test_batch_of_an_old_format_is_decompressed_up_to_a_limit(magic: int, kind: int) -> None:
    """Formats before Kafka 0.11."""
    builder = LegacyRecordBatchBuilder(magic, 0, 1 << 30)
    builder.append(0, timestamp=1, key=None, value=PACK[kind](bytes(LEGACY_LIMIT + MIB)))
    bomb = _with_attributes(bytes(builder.build()), magic, kind)
    with memory_below(4 * LEGACY_LIMIT):
        (bad,) = values(bomb, 1)
    assert f"exceeds {LEGACY_LIMIT} bytes when decompressed" in why(bad)


@pytest.mark.parametrize("kind", [GZIP, SNAPPY, LZ4])
def test_batch_of_an_old_format_is_read(kind: int) -> None:
    """With all of its records."""
    builder = LegacyRecordBatchBuilder(1, kind, 1 << 30)
    for number in range(3):
        builder.append(number, timestamp=1, key=b"k", value=b"%d" % number * 1000)
    assert values(bytes(builder.build()), 3) == [b"%d" % number * 1000 for number in range(3)]


def _with_attributes(data: bytes, magic: int, attributes: int) -> bytes:
    """Return a message of an old format with other attributes than it was built with."""
    changed = data[:17] + bytes([attributes]) + data[18:]
    return changed[:12] + struct.pack(">I", zlib.crc32(changed[16:])) + changed[16:]


@pytest.mark.parametrize("length", [-12, -1, 0, 5])
def test_record_of_an_old_format_without_progress_is_refused(length: int) -> None:
    """Reading it would loop for ever."""
    inner = struct.pack(">qi", 0, length) + bytes(100)
    builder = LegacyRecordBatchBuilder(1, 0, 1 << 20)
    builder.append(0, timestamp=1, key=None, value=_gzip(inner))
    (bad,) = values(_with_attributes(bytes(builder.build()), 1, GZIP), 1)
    assert f"a length of {length}" in why(bad)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff\x07" + bytes(100),
        codec.snappy_encode(b"x" * 100)[:20] + b"\xff\xff\xff\xff\x07" + bytes(100),
        codec.snappy_encode(b"x" * 100)[:16] + struct.pack(">i", -4) + bytes(100),
        codec.snappy_encode(b"x" * 100)[:16] + struct.pack(">i", 0) + bytes(100),
        codec.snappy_encode(b"x" * 100)[:16] + struct.pack(">i", 1 << 30) + bytes(100),
        codec.snappy_encode(b"x" * 100)[:18],
    ],
)
def test_wrong_snappy_lengths_take_no_memory(data: bytes) -> None:
    """Neither the stated decompressed size nor the stated block length is trusted."""
    log = batch(data, 1, attributes=SNAPPY) + batch(records(RawRecord(b"good")), 1, offset=1)
    with memory_below(MIB):
        bad, good = values(log, 2)
    assert isinstance(bad, Unreadable)
    assert good == b"good"


def test_record_with_too_many_headers_is_refused_before_reading_them() -> None:
    """Each would use a hundred times its bytes."""
    many = RawRecord(b"x", headers=[(b"", b"")] * (MAX_HEADERS + 1))
    log = batch(records(many), 1) + batch(records(RawRecord(b"good", headers=[(b"", b"")] * MAX_HEADERS)), 1, offset=1)
    bad, good = values(log, 2)
    assert f"{MAX_HEADERS + 1} headers, more than {MAX_HEADERS}" in why(bad)
    assert good == b"good"


def test_poll_returns_as_many_records_as_its_budget_allows() -> None:
    """The next poll returns those behind them."""
    log = b"".join(
        batch(_gzip(records(RawRecord(b"%d" % number * MIB))), 1, offset=number, attributes=GZIP) for number in range(9)
    )
    budget = PollBudget(3 * MIB)
    found = fetched(log, 9, budget)
    taken: list[list[bytes]] = []
    while found:
        budget.begin()
        taken.append([record.value[:1] for record in found.take(500)])
    assert [len(each) for each in taken if each] == [3, 3, 3]
    assert [value for each in taken for value in each] == [b"%d" % number for number in range(9)]


def test_empty_headers_count_towards_the_budget() -> None:
    """They use memory."""
    many = records(*[RawRecord(b"x", headers=[(b"", b"")] * 4000)] * 100)
    found = fetched(batch(many, 100), 100, PollBudget(2 * MIB))
    assert len(found.take(500)) < 10


def test_poll_ends_when_its_budget_is_spent() -> None:
    """kafka-python would ask for records until it has the wanted number."""
    budget = PollBudget(MIB)
    fetcher = SimpleNamespace(_append=lambda drained, part, most, update: 1)
    bound_polls(fetcher, budget)
    assert fetcher._append({}, None, 500, True) == 1
    budget.left -= MIB
    assert fetcher._append({}, None, 500, True) == 500
    budget.begin()
    assert fetcher._append({}, None, 500, True) == 1


def test_record_size_includes_its_headers_memory() -> None:
    """Empty headers use memory too."""
    plain = SimpleNamespace(key=None, value=None, headers=[])
    assert record_size(plain) > 0
    many = SimpleNamespace(key=b"key", value=b"value", headers=[("", b"")] * 100, serialized_header_size=0)
    assert record_size(many) >= record_size(plain) + 100 * 100 + 8


class Consumer:
    """A consumer with one partition that yields a large message per poll unless it is paused."""

    def __init__(self, size: int) -> None:
        self.offset = 0
        self.timeouts: list[int] = []
        self._size = size
        self._paused: set[TopicPartition] = set()

    def poll(self, *, timeout_ms: int) -> dict[TopicPartition, list[SimpleNamespace]]:
        self.timeouts.append(timeout_ms)
        if self._paused:
            return {}
        self.offset += 1
        value = bytes(self._size)
        return {ORDERS: [SimpleNamespace(offset=self.offset - 1, key=None, value=value, headers=[])]}

    def assignment(self) -> set[TopicPartition]:
        return {ORDERS}

    def paused(self) -> set[TopicPartition]:
        return self._paused

    def pause(self, *keys: TopicPartition) -> None:
        self._paused = self._paused | set(keys)

    def resume(self, *keys: TopicPartition) -> None:
        self._paused = self._paused - set(keys)

    def begins_at(self, key: TopicPartition) -> int:
        return self.offset

    def commit_async(self, offsets: Mapping[TopicPartition, object]) -> Future:
        return Future().success(None)


def fetching(taken: list[AssignedPartition]) -> FetchThread:
    """Return a thread that is not started; the partition of each batch of records is added to `taken`."""

    def take(batches: Sequence[tuple[AssignedPartition, Sequence[SimpleNamespace]]]) -> None:
        for partition, found in batches:
            partition.take(found)
            taken.append(partition)

    return FetchThread(
        "in", ConsumerClient({}), Subscription("orders"), take, lambda partition: None, recall=lambda partition: None
    )


def test_full_partition_is_paused_until_half_is_settled() -> None:
    """It is not fetched while its messages exceed the window."""

    async def main() -> None:
        taken: list[AssignedPartition] = []
        thread = fetching(taken)
        consumer = Consumer(8 * MIB)
        thread.assigned(consumer, {ORDERS})
        for _ in range(20):
            thread.turn(consumer)
            await asyncio.sleep(0)
        partition = taken[0]
        assert consumer.offset == WINDOW_SIZE // (8 * MIB)
        assert partition.size_in_flight >= WINDOW_SIZE
        for offset in range(5):
            partition.settle(offset)
        thread.turn(consumer)
        thread.turn(consumer)
        assert consumer.offset > WINDOW_SIZE // (8 * MIB)
        await asyncio.sleep(0)
        for offset in range(consumer.offset):
            partition.settle(offset)
        assert (partition.in_flight, partition.size_in_flight) == (0, 0)

    asyncio.run(main())


class TwoPartitions(Consumer):
    """The same with a second partition that has no messages."""

    def assignment(self) -> set[TopicPartition]:
        return {ORDERS, TopicPartition("orders", 1)}


def test_poll_timeouts_grow_while_a_partition_is_full() -> None:
    """Until it is resumed; half of its window is left to handle then."""

    async def main() -> None:
        taken: list[AssignedPartition] = []
        thread = fetching(taken)
        consumer = TwoPartitions(WINDOW_SIZE)
        thread.assigned(consumer, consumer.assignment())

        async def polled(turns: int) -> list[int]:
            consumer.timeouts.clear()
            for _ in range(turns):
                thread.turn(consumer)
                await asyncio.sleep(0)
            return consumer.timeouts

        assert await polled(7) == [100, 10, 20, 40, 80, 100, 100]
        taken[0].settle(0)
        assert await polled(4) == [100, 10, 20, 40]

    asyncio.run(main())


class WithGap(Consumer):
    """A consumer with one message, followed by offsets without messages."""

    def poll(self, *, timeout_ms: int) -> dict[TopicPartition, list[SimpleNamespace]]:
        return {} if self.offset else super().poll(timeout_ms=timeout_ms)

    def begins_at(self, key: TopicPartition) -> int:
        return 9


def test_gap_is_skipped_once_the_records_before_it_are_settled() -> None:
    """An unsettled record is not committed, whatever follows it; a gap is not noticed too early and then forgotten."""

    async def main() -> None:
        taken: list[AssignedPartition] = []
        thread = fetching(taken)
        consumer = WithGap(1)
        thread.assigned(consumer, {ORDERS})

        async def position() -> int:
            thread.turn(consumer)
            await asyncio.sleep(0)
            return taken[0].position

        assert [await position(), await position()] == [0, 0]
        taken[0].settle(0)
        assert await position() == 9

    asyncio.run(main())
