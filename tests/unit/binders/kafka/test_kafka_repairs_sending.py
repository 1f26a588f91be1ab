"""What kafka-python's producer does wrong, and repaired does not; on a real Kafka: `test_kafka_repairs`.

A test named "without_the_repair" fails when a version of kafka-python no longer needs it: then delete the repair.
"""

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
    """A producer at a broker that acknowledges nothing, with a message that waits."""
    with silent_broker("orders") as address:
        producer = kind(bootstrap_servers=address, **settings)
        sender = producer._sender
        try:
            producer.send("orders", b"a")
            yield producer
        finally:
            sender.force_close()
            sender.join()


def test_without_the_repair_a_producer_does_not_close_with_messages_that_are_left() -> None:
    """It raises, and its thread goes on."""
    with producing(KafkaProducer) as producer:
        with pytest.raises(KafkaTimeoutError):
            producer.close(timeout=0.1)
        assert producer._sender.is_alive()
        assert not producer._closed


def test_a_producer_closes_with_messages_that_are_left() -> None:
    """Its thread ends, and the messages fail."""
    with producing(RepairedProducer) as producer:
        producer.close(timeout=0.1)
        producer._sender.join()


@pytest.mark.parametrize(("kind", "is_its_end"), [(KafkaProducer, True), (RepairedProducer, False)])
def test_without_the_repair_a_message_that_brokers_refuse_is_the_end_of_its_producer(
    kind: type[KafkaProducer], is_its_end: bool
) -> None:
    """What is fatal to the producer itself stays so."""
    with producing(kind) as producer:
        state = producer._transaction_manager
        outcome = state.classify_batch_error(MessageSizeTooLargeError(), None)
        assert (outcome == state.ERROR_CLASS_FATAL) is is_its_end
        assert (outcome == state.ERROR_CLASS_NEEDS_EPOCH_BUMP) is not is_its_end
        assert state.classify_batch_error(ClusterAuthorizationFailedError(), None) == state.ERROR_CLASS_FATAL


def test_what_is_known_of_a_topic_is_told_without_asking() -> None:
    """Nothing of a topic that nobody has asked for."""
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
def test_records_are_appended_to_the_batches_that_kafka_python_makes(settings: dict[str, object]) -> None:
    """Byte for byte, and each has a future with its place in the batch."""
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
def test_what_kafka_python_refuses_is_refused(
    kind: type[KafkaProducer], record: dict[str, object], error: type[Exception]
) -> None:
    """With the same errors."""
    with producing(kind) as producer, pytest.raises(error):
        producer.send("orders", **record)


@pytest.mark.parametrize("kind", [KafkaProducer, RepairedProducer])
def test_a_producer_that_is_closed_refuses_records(kind: type[KafkaProducer]) -> None:
    """With kafka-python's error."""
    with producing(kind) as producer:
        producer._closed = True
        with pytest.raises(IllegalStateError):
            producer.send("orders", b"x")


class Upper(Serializer):
    """Writes text in capitals."""

    @classmethod
    def serialize(cls, topic: str, headers: object, data: bytes) -> bytes:
        return data.upper()


class Last(DefaultPartitioner):
    """Notes that it was asked."""

    asked = 0

    def partition(self, *details: object, **more: object) -> int:
        type(self).asked += 1
        return 0


def test_a_customized_producer_uses_what_it_was_given() -> None:
    """Serializers and partitioners."""
    with producing(RepairedProducer, value_serializer=Upper(), linger_ms=60_000) as producer:
        producer.send("orders", b"bill")
        ((batch,),) = producer._accumulator._batches.values()
        batch.records.close()
        assert b"BILL" in batch.records.buffer()
    asked = Last.asked
    with producing(RepairedProducer, partitioner=Last()) as producer:
        producer.send("orders", b"bill")
        assert Last.asked >= asked + 2
