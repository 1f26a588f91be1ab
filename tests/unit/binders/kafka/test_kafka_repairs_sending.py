"""Faults of kafka-python's producer and their repairs; on a real Kafka: `test_kafka_repairs`."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kafka import KafkaProducer
from kafka.errors import (
    ClusterAuthorizationFailedError,
    IllegalStateError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
)
from kafka.partitioner import DefaultPartitioner
from kafka.serializer import Serializer

from binders.kafka.clients import RepairedProducer
from tests.unit.binders.kafka.silent_broker import silent_broker


@contextmanager
def producing(kind: type[KafkaProducer], **settings: object) -> Iterator[KafkaProducer]:
    """Yield a producer whose broker acknowledges nothing, with a pending message."""
    with silent_broker("orders") as address:
        producer = kind(bootstrap_servers=address, **settings)
        sender = producer._sender
        try:
            producer.send("orders", b"a")
            yield producer
        finally:
            sender.force_close()
            sender.join()


def test_without_the_repair_a_producer_with_pending_messages_does_not_close() -> None:
    """It raises, and its thread continues."""
    with producing(KafkaProducer) as producer:
        with pytest.raises(KafkaTimeoutError):
            producer.close(timeout=0.1)
        assert producer._sender.is_alive()
        assert not producer._closed


def test_producer_closes_with_pending_messages() -> None:
    """Its thread ends, and the messages fail."""
    with producing(RepairedProducer) as producer:
        producer.close(timeout=0.1)
        producer._sender.join()


@pytest.mark.parametrize(("kind", "is_its_end"), [(KafkaProducer, True), (RepairedProducer, False)])
def test_without_the_repair_a_refused_message_ends_its_producer(kind: type[KafkaProducer], is_its_end: bool) -> None:
    """With the repair only fatal errors of the producer do."""
    with producing(kind) as producer:
        state = producer._transaction_manager
        outcome = state.classify_batch_error(MessageSizeTooLargeError(), None)
        assert (outcome == state.ERROR_CLASS_FATAL) is is_its_end
        assert (outcome == state.ERROR_CLASS_NEEDS_EPOCH_BUMP) is not is_its_end
        assert state.classify_batch_error(ClusterAuthorizationFailedError(), None) == state.ERROR_CLASS_FATAL


def test_cached_topic_metadata_is_returned_without_a_request() -> None:
    """For topics that were not requested it is empty."""
    with producing(RepairedProducer) as producer:
        assert (producer.knows("orders"), producer.partition_count("orders")) == (True, 1)
        assert (producer.knows("bills"), producer.partition_count("bills")) == (False, 0)


RECORDS = (
    {"value": b"order", "timestamp_ms": 1000},
    {
        "value": b"order",
        "key": b"Ann",
        "headers": [("contentType", b"text/plain"), ("\u00e9", b"")],
        "timestamp_ms": 999,
    },
    {"key": b"tombstone", "timestamp_ms": 1001},
    {"value": b"x" * 5000, "partition": 0, "timestamp_ms": 1002},
)


@pytest.mark.parametrize("settings", [{}, {"acks": 1}, {"compression_type": "lz4"}])
def test_records_are_appended_as_by_kafka_python(settings: dict[str, object]) -> None:
    """Byte for byte, each with a future for its position in the batch."""
    batches, futures = [], []
    for kind in (KafkaProducer, RepairedProducer):
        # A batch that waits for long is not sent before the bytes are looked at.
        with producing(kind, linger_ms=60_000, **settings) as producer:
            producer._accumulator._batches.clear()
            futures.append([producer.send("orders", **record).args for record in RECORDS])
            (waiting,) = producer._accumulator._batches.values()
            (batch,) = waiting
            batch.records.close()
            batches.append(bytes(batch.records.buffer()))
    assert batches[0] == batches[1]
    assert futures[0] == futures[1]


@pytest.mark.parametrize("kind", [KafkaProducer, RepairedProducer])
@pytest.mark.parametrize(
    ("record", "error"),
    [
        ({}, ValueError),
        ({"value": b"x", "partition": 1}, ValueError),
        ({"value": b"x", "partition": -1}, ValueError),
        ({"value": b"x" * 2_000_000}, MessageSizeTooLargeError),
        ({"value": b"x", "headers": [("name", b"x" * 2_000_000)]}, MessageSizeTooLargeError),
        ({"value": "text"}, TypeError),
        ({"value": b"x", "headers": [("name", None)]}, TypeError),
        ({"value": b"x", "headers": [(b"name", b"value")]}, TypeError),
    ],
)
def test_invalid_records_are_refused_as_by_kafka_python(
    kind: type[KafkaProducer], record: dict[str, object], error: type[Exception]
) -> None:
    """With the same errors."""
    with producing(kind) as producer, pytest.raises(error):
        producer.send("orders", **record)


@pytest.mark.parametrize("kind", [KafkaProducer, RepairedProducer])
def test_closed_producer_refuses_records(kind: type[KafkaProducer]) -> None:
    """With kafka-python's error."""
    with producing(kind) as producer:
        producer._closed = True
        with pytest.raises(IllegalStateError):
            producer.send("orders", b"x")


class Upper(Serializer):
    """A serializer to upper case."""

    @classmethod
    def serialize(cls, topic: str, headers: object, data: bytes) -> bytes:
        return data.upper()


class Last(DefaultPartitioner):
    """A partitioner that records its calls."""

    asked = 0

    def partition(self, *details: object, **more: object) -> int:
        type(self).asked += 1
        return 0


def test_customized_producer_uses_its_serializers_and_partitioner() -> None:
    """As configured."""
    with producing(RepairedProducer, value_serializer=Upper(), linger_ms=60_000) as producer:
        producer.send("orders", b"bill")
        ((batch,),) = producer._accumulator._batches.values()
        batch.records.close()
        assert b"BILL" in batch.records.buffer()
    asked = Last.asked
    with producing(RepairedProducer, partitioner=Last()) as producer:
        producer.send("orders", b"bill")
        assert Last.asked >= asked + 2
