"""Faults of kafka-python in reading fetches; the repaired behaviour: `test_kafka_records`, `_bounds`."""

import gzip
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import CompletedFetch, Fetcher
from kafka.errors import CorruptRecordError
from kafka.record import MemoryRecords
from kafka.record.legacy_records import LegacyRecordBatch, LegacyRecordBatchBuilder

from binders.kafka.clients import RepairedConsumer
from binders.kafka.record_size import POLL_SIZE
from binders.kafka.repairs.batches import LIMIT, MAX_HEADERS
from tests.peer.raw_kafka import RawRecord, batch, records

ORDERS, BILLS = TopicPartition("orders", 0), TopicPartition("bills", 0)
GZIP, CRC_AT = 1, 17
MIB = 1 << 20


def of(offset: int, *values: bytes, **more: int) -> bytes:
    """Return a batch of records with these values that begins at an offset."""
    return batch(records(*map(RawRecord, values)), len(values), offset=offset, **more)


def fetched(*batches: bytes) -> Any:
    """Return a fetch from the beginning, in kafka-python's own class."""
    return Fetcher.PartitionRecords(0, ORDERS, MemoryRecords(b"".join(batches)))


def test_without_the_repair_an_undecodable_header_name_blocks_a_partition() -> None:
    """The record behind the one whose header name is not UTF-8 is never returned."""
    found = fetched(batch(records(RawRecord(b"a", headers=[(b"\xff", b"")])), 1), of(1, b"b"))
    with pytest.raises(CorruptRecordError, match="utf-8"):
        found.take()
    assert found.next_fetch_offset == 0


def test_without_the_repair_a_damaged_batch_blocks_a_partition() -> None:
    """The next fetch begins with the same batch."""
    damaged = of(1, b"b")
    damaged = damaged[:CRC_AT] + b"\0\0\0\0" + damaged[CRC_AT + 4 :]
    found = fetched(of(0, b"a"), damaged, of(2, b"c"))
    assert [record.value for record in found.take()] == [b"a"]
    with pytest.raises(CorruptRecordError, match="failed crc check"):
        found.take()
    assert found.next_fetch_offset == 1


def test_without_the_repair_an_empty_marker_batch_blocks_committed_readers() -> None:
    """Compaction leaves a transaction marker's batch without the marker."""
    marker = batch(b"", 0, last=0, attributes=0x10 | 0x20, producer=7)
    found = Fetcher.PartitionRecords(0, ORDERS, MemoryRecords(marker), isolation_level=1, aborted_transactions=[])
    with pytest.raises(RuntimeError, match="StopIteration"):
        found.take()


@pytest.mark.slow
def test_without_the_repair_a_small_batch_takes_unlimited_memory() -> None:
    """A few kilobytes exceed the limit."""
    large = RawRecord(bytes(LIMIT + MIB))
    (record,) = fetched(batch(gzip.compress(records(large), 1), 1, attributes=GZIP)).take()
    assert len(record.value) > LIMIT


def test_without_the_repair_record_headers_are_unlimited() -> None:
    """Two bytes in a batch become a hundred in memory."""
    many = RawRecord(b"x", headers=[(b"", b"")] * (MAX_HEADERS + 1))
    (record,) = fetched(batch(records(many), 1)).take()
    assert len(record.headers) > MAX_HEADERS


class Counting(LegacyRecordBatch):  # type: ignore[misc]  # kafka-python has no annotations
    """kafka-python's batch of an old format, which stops at its thousandth record."""

    found = 0

    def _read_header(self, at: int) -> Any:
        self.found += 1
        if self.found > 1000:
            raise TimeoutError
        return super()._read_header(at)


def test_without_the_repair_a_record_of_an_old_format_loops_for_ever() -> None:
    """With a length of -12 the next record begins where it began."""
    inner = struct.pack(">qi", 0, -12) + bytes(100)
    builder = LegacyRecordBatchBuilder(1, 0, 1 << 20)
    builder.append(0, timestamp=1, key=None, value=gzip.compress(inner))
    data = bytearray(builder.build())
    data[CRC_AT] = GZIP  # where a batch of an old format has its attributes
    with pytest.raises(TimeoutError):
        list(Counting(data, 1))


@contextmanager
def consuming(kind: type[KafkaConsumer], **batches: bytes) -> Iterator[KafkaConsumer]:
    """Yield a consumer without a broker that has fetched a batch of each topic, in this order."""
    consumer = kind(bootstrap_servers="127.0.0.1:1", api_version=(2, 6), max_poll_records=500)
    try:
        keys = [TopicPartition(topic, 0) for topic in batches]
        consumer.assign(keys)
        for key in keys:
            consumer.seek(key, 0)
            data = SimpleNamespace(
                error_code=0,
                high_watermark=1000,
                last_stable_offset=1000,
                log_start_offset=0,
                preferred_read_replica=-1,
                diverging_epoch=None,
                current_leader=None,
                aborted_transactions=None,
                records=batches[key.topic],
            )
            consumer._fetcher._completed_fetches.append(CompletedFetch(key, 0, 12, data, None))
        yield consumer
    finally:
        consumer.close(autocommit=False)
        consumer._net.stop()


def values(polled: dict[TopicPartition, list[Any]]) -> dict[str, list[bytes]]:
    return {key.topic: [record.value for record in found] for key, found in polled.items()}


@pytest.mark.parametrize(("kind", "expected"), [(KafkaConsumer, []), (RepairedConsumer, [{"orders": [b"b"]}])])
def test_without_the_repair_a_resumed_partition_loses_records(
    kind: type[KafkaConsumer], expected: list[dict[str, list[bytes]]]
) -> None:
    """While consumed records of another partition are buffered."""
    with consuming(kind, orders=of(0, b"a", b"b"), bills=of(0, b"c")) as consumer:
        consumer.config["max_poll_records"] = consumer._fetcher.config["max_poll_records"] = 1
        assert values(consumer.poll()) == {"orders": [b"a"]}
        consumer.pause(ORDERS)
        assert values(consumer.poll()) == {"bills": [b"c"]}
        consumer.resume(ORDERS)
        assert [found for _ in range(5) if (found := values(consumer.poll()))] == expected


@pytest.mark.slow
@pytest.mark.parametrize("kind", [KafkaConsumer, RepairedConsumer])
def test_without_the_repair_a_poll_returns_unlimited_bytes(kind: type[KafkaConsumer]) -> None:
    """With it, the excess over the limit is less than a record."""
    large = of(0, *[bytes(MIB)] * (POLL_SIZE // MIB + 4))
    with consuming(kind, orders=gzipped(large)) as consumer:
        polled = sum(len(record.value) for record in consumer.poll()[ORDERS])
        assert (polled > POLL_SIZE + MIB) is (kind is KafkaConsumer)


def gzipped(written: bytes) -> bytes:
    """Return the same batch with compressed records."""
    body = gzip.compress(written[61:], 1)
    (count,) = struct.unpack_from(">i", written, 57)
    return batch(body, count, attributes=GZIP)


def test_without_the_repair_a_returning_partition_keeps_its_old_position() -> None:
    """Another member may have committed in between; with the repair the position is fetched."""
    consumer = RepairedConsumer(bootstrap_servers="127.0.0.1:1", api_version=(2, 6), group_id="kitchen")
    try:
        state = consumer._subscription
        consumer.subscribe(["orders"])
        state.assign_from_subscribed([ORDERS])
        consumer.seek(ORDERS, 7)
        state.assign_from_subscribed([ORDERS])
        assert consumer.begins_at(ORDERS) == 7
        consumer.reset_positions()
        assert consumer.begins_at(ORDERS) is None
    finally:
        consumer.close(autocommit=False, timeout_ms=0)
        consumer._net.stop()
