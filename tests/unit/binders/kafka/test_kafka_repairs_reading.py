"""What kafka-python does wrong with what a fetch brings; that the repairs do better: `test_kafka_records`, `_bounds`.

A test fails when a version of kafka-python no longer needs the repair: then delete the repair.
"""

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
    """A batch of records with these values that begins at an offset."""
    return batch(records(*map(RawRecord, values)), len(values), offset=offset, **more)


def fetched(*batches: bytes) -> Any:
    """What a fetch from the beginning brings, in kafka-python's own class."""
    return Fetcher.PartitionRecords(0, ORDERS, MemoryRecords(b"".join(batches)))


def test_without_the_repair_the_name_of_a_header_stops_a_partition() -> None:
    """One that is not UTF-8; the record behind it never comes."""
    found = fetched(batch(records(RawRecord(b"a", headers=[(b"\xff", b"")])), 1), of(1, b"b"))
    with pytest.raises(CorruptRecordError, match="utf-8"):
        found.take()
    assert found.next_fetch_offset == 0


def test_without_the_repair_a_damaged_batch_stops_a_partition() -> None:
    """The next fetch begins with the same batch."""
    damaged = of(1, b"b")
    damaged = damaged[:CRC_AT] + b"\0\0\0\0" + damaged[CRC_AT + 4 :]
    found = fetched(of(0, b"a"), damaged, of(2, b"c"))
    assert [record.value for record in found.take()] == [b"a"]
    with pytest.raises(CorruptRecordError, match="failed crc check"):
        found.take()
    assert found.next_fetch_offset == 1


def test_without_the_repair_an_emptied_marker_stops_a_reader_of_committed_messages() -> None:
    """Compaction leaves the batch of a transaction's marker without the marker."""
    marker = batch(b"", 0, last=0, attributes=0x10 | 0x20, producer=7)
    found = Fetcher.PartitionRecords(0, ORDERS, MemoryRecords(marker), isolation_level=1, aborted_transactions=[])
    with pytest.raises(RuntimeError, match="StopIteration"):
        found.take()


@pytest.mark.slow
def test_without_the_repair_a_small_batch_takes_any_memory() -> None:
    """A few kilobytes become more than the limit."""
    large = RawRecord(bytes(LIMIT + MIB))
    (record,) = fetched(batch(gzip.compress(records(large), 1), 1, attributes=GZIP)).take()
    assert len(record.value) > LIMIT


def test_without_the_repair_a_record_has_any_number_of_headers() -> None:
    """Two bytes in a batch become a hundred."""
    many = RawRecord(b"x", headers=[(b"", b"")] * (MAX_HEADERS + 1))
    (record,) = fetched(batch(records(many), 1)).take()
    assert len(record.headers) > MAX_HEADERS


class Counting(LegacyRecordBatch):  # type: ignore[misc]  # kafka-python has no annotations
    """kafka-python's batch of an old format, which gives up at its thousandth record."""

    found = 0

    def _read_header(self, at: int) -> Any:
        self.found += 1
        if self.found > 1000:
            raise TimeoutError
        return super()._read_header(at)


def test_without_the_repair_a_record_of_an_old_format_is_read_for_ever() -> None:
    """One that says that its length is -12: the next record would begin where it begins."""
    inner = struct.pack(">qi", 0, -12) + bytes(100)
    builder = LegacyRecordBatchBuilder(1, 0, 1 << 20)
    builder.append(0, timestamp=1, key=None, value=gzip.compress(inner))
    data = bytearray(builder.build())
    data[CRC_AT] = GZIP  # where a batch of an old format has its attributes
    with pytest.raises(TimeoutError):
        list(Counting(data, 1))


@contextmanager
def consuming(kind: type[KafkaConsumer], **batches: bytes) -> Iterator[KafkaConsumer]:
    """A consumer that has fetched a batch of each of these topics, in this order, and reaches no broker."""
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
def test_without_the_repair_a_partition_that_was_paused_is_not_delivered_again(
    kind: type[KafkaConsumer], expected: list[dict[str, list[bytes]]]
) -> None:
    """While the records of another one, which are used up, are kept in hand."""
    with consuming(kind, orders=of(0, b"a", b"b"), bills=of(0, b"c")) as consumer:
        consumer.config["max_poll_records"] = consumer._fetcher.config["max_poll_records"] = 1
        assert values(consumer.poll()) == {"orders": [b"a"]}
        consumer.pause(ORDERS)
        assert values(consumer.poll()) == {"bills": [b"c"]}
        consumer.resume(ORDERS)
        assert [found for _ in range(5) if (found := values(consumer.poll()))] == expected


@pytest.mark.slow
@pytest.mark.parametrize("kind", [KafkaConsumer, RepairedConsumer])
def test_without_the_repair_a_poll_brings_any_number_of_bytes(kind: type[KafkaConsumer]) -> None:
    """With it, what comes on top of the limit is less than a record."""
    large = of(0, *[bytes(MIB)] * (POLL_SIZE // MIB + 4))
    with consuming(kind, orders=gzipped(large)) as consumer:
        polled = sum(len(record.value) for record in consumer.poll()[ORDERS])
        assert (polled > POLL_SIZE + MIB) is (kind is KafkaConsumer)


def gzipped(written: bytes) -> bytes:
    """The same batch, with its records compressed."""
    body = gzip.compress(written[61:], 1)
    (count,) = struct.unpack_from(">i", written, 57)
    return batch(body, count, attributes=GZIP)


def test_without_the_repair_a_partition_that_comes_back_keeps_its_position() -> None:
    """Though another member may have committed another one in between; with it the position is asked for."""
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
