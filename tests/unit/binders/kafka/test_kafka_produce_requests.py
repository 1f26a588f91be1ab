"""Produce requests and answers equal kafka-python's, byte for byte."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import TopicPartition
from kafka.protocol.frame import KafkaBytes
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from binders.kafka.repairs.produce_requests import VERSION, Answer, SentBatches

RESPONSE = ProduceResponse[VERSION]
TOPIC = RESPONSE.TopicProduceResponse
PARTITION = TOPIC.PartitionProduceResponse

NAMES = st.one_of(st.sampled_from(["orders", "b" * 150]), st.text(min_size=1, max_size=5))


class ClosedBatch:
    """The parts of kafka-python's batch that a request needs."""

    def __init__(self, place: TopicPartition, data: bytes) -> None:
        self.topic_partition = place
        self.records = self
        self._data = bytearray(data)

    def buffer(self) -> bytearray:
        return self._data


def of_kafka_python(transactional: str | None, batches: Sequence[ClosedBatch], client: str) -> bytes:
    """Return the request as kafka-python encodes it."""
    kind = ProduceRequest.TopicProduceData
    topics: dict[str, list[object]] = {}
    for batch in batches:
        part = kind.PartitionProduceData(index=batch.topic_partition.partition, records=batch.buffer())
        topics.setdefault(batch.topic_partition.topic, []).append(part)
    request = ProduceRequest(
        transactional_id=transactional,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[kind(name=name, partition_data=parts) for name, parts in topics.items()],
    )
    request.API_VERSION = VERSION
    request.with_header(correlation_id=77, client_id=client)
    return bytes(request.encode(framed=True, header=True))


@given(
    transactional=st.one_of(st.none(), st.text(max_size=3), st.just("x" * 200)),
    places=st.lists(st.tuples(NAMES, st.integers(0, 300)), min_size=1, max_size=5, unique=True),
    sizes=st.lists(st.sampled_from([1, 100, 126, 127, 128, 20_000]), min_size=5, max_size=5),
    client=st.sampled_from(["shop", "gr\u00f6\u00dfe"]),
)
def test_request_bytes_equal_kafka_pythons(
    transactional: str | None, places: list[tuple[str, int]], sizes: list[int], client: str
) -> None:
    """For names and batches of any length."""
    batches = [ClosedBatch(TopicPartition(*place), b"x" * size) for place, size in zip(places, sizes, strict=False)]
    request = SentBatches(transactional, -1, 30_000, batches)
    request.with_header(correlation_id=77, client_id=client)
    assert request.encode() == of_kafka_python(transactional, batches, client)


def test_request_with_many_partitions_equals_kafka_pythons() -> None:
    """Their count takes two bytes."""
    batches = [ClosedBatch(TopicPartition("orders", number), b"x") for number in range(200)]
    request = SentBatches(None, -1, 30_000, batches)
    request.with_header(correlation_id=77, client_id="shop")
    assert request.encode() == of_kafka_python(None, batches, "shop")


def answer(*topics: tuple[str, Sequence[dict[str, object]]], throttled: int = 0) -> KafkaBytes:
    """Return an answer after its header, in kafka-python's buffer."""
    found = [
        TOPIC(name=name, partition_responses=[PARTITION(version=VERSION, **part) for part in parts])
        for name, parts in topics
    ]
    data = RESPONSE(responses=found, throttle_time_ms=throttled).encode(version=VERSION)
    buffer = KafkaBytes(len(data))
    buffer[:] = data
    return buffer


def producer_view(response: object) -> list[object]:
    """Return the fields of the answer that the producer uses."""
    return [
        (topic.name, part.index, part.error_code, part.base_offset, part.log_append_time_ms)
        for topic in response.responses  # type: ignore[attr-defined]
        for part in topic.partition_responses
    ]


def stored(index: int, offset: int = 5, appended: int = -1, error: int = 0) -> dict[str, object]:
    return {
        "index": index,
        "error_code": error,
        "base_offset": offset,
        "log_append_time_ms": appended,
        "log_start_offset": 0,
        "record_errors": [],
        "error_message": None,
    }


def test_answer_without_errors_is_read_here() -> None:
    """With all fields that the producer uses."""
    found = Answer.decode(
        answer(("orders", [stored(0), stored(3, 2**40, 1_700_000_000_000)]), ("b", [stored(1)]), throttled=7)
    )
    assert isinstance(found, Answer)
    assert found.throttle_time_ms == 7
    assert producer_view(found) == [
        ("orders", 0, 0, 5, -1),
        ("orders", 3, 0, 2**40, 1_700_000_000_000),
        ("b", 1, 0, 5, -1),
    ]


@pytest.mark.parametrize(
    "parts",
    [
        [stored(0, error=3)],
        [stored(0) | {"error_message": "full"}],
        [stored(number) for number in range(200)],
    ],
    ids=["an error", "a text", "many partitions"],
)
def test_other_answers_are_read_by_kafka_python(parts: Sequence[dict[str, object]]) -> None:
    """With all their fields."""
    found = Answer.decode(answer(("orders", parts)))
    assert isinstance(found, ProduceResponse)
    assert producer_view(found) == producer_view(RESPONSE.decode(answer(("orders", parts))))


@pytest.mark.parametrize("size", [0, 1, 10, 30, 45])
def test_truncated_answer_is_an_error(size: int) -> None:
    """The same as kafka-python's."""
    whole = answer(("orders", [stored(0)]))
    assert size < len(whole)
    short = KafkaBytes(size)
    short[:] = whole[:size]
    with pytest.raises(Exception):  # noqa: B017, PT011  # kafka-python raises several kinds
        Answer.decode(short)
