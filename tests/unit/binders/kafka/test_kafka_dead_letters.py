"""Headers of dead letters, as Spring's Kafka binder writes them."""

import asyncio
import json
import struct
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError, MessageSizeTooLargeError
from kafka.future import Future

from binders.kafka.dead_letter import DeadLetterTopic, Letter
from binders.kafka.headers import ID, sent_headers
from binders.kafka.properties import KafkaConsumerProperties
from binders.kafka.sending import Sender
from streamkit.binder.dead_letter import Origin
from streamkit.errors import BinderError
from streamkit.messaging.headers import JSON_HEADER_TYPES
from streamkit.settlement import Reject
from streamkit.testing.virtual_time import VirtualTime

RECORD = SimpleNamespace(
    topic="orders",
    partition=3,
    offset=2**33,
    timestamp=1700000000000,
    timestamp_type=0,
    key=b"k",
    value=b"v",
    headers=[
        ("colour", b"red"),
        (ID, b"4711"),
        ("raw", b"\xff"),
        (JSON_HEADER_TYPES, b'{"colour":"java.lang.String"}'),
    ],
)


def failed() -> ValueError:
    try:
        raise ValueError("no such customer")
    except ValueError as error:
        return error


def headers_of(rejected: Reject) -> dict[str, bytes]:
    return dict(Letter.of(RECORD, rejected, "kitchen").headers)


def test_dead_letter_has_origin_and_failure_headers() -> None:
    """Numbers are big-endian, texts UTF-8; the record's own headers stay."""
    headers = headers_of(Reject("given up", cause=failed()))
    assert headers["colour"] == b"red"
    assert headers["raw"] == b"\xff"
    assert headers["x-original-topic"] == b"orders"
    assert struct.unpack(">i", headers["x-original-partition"]) == (3,)
    assert struct.unpack(">q", headers["x-original-offset"]) == (2**33,)
    assert struct.unpack(">q", headers["x-original-timestamp"]) == (1700000000000,)
    assert headers["x-original-timestamp-type"] == b"CreateTime"
    assert headers["x-exception-fqcn"] == b"builtins.ValueError"
    assert headers["x-exception-message"] == b"no such customer"
    assert headers["x-exception-stacktrace"].startswith(b"Traceback")
    assert b"ValueError: no such customer" in headers["x-exception-stacktrace"]


def test_dead_letter_has_the_frameworks_failure_headers() -> None:
    """They are text as on every binder; the record's header declarations are kept."""
    headers = headers_of(Reject("given up", cause=failed()))
    assert headers["FAILURE_MESSAGE"] == b"no such customer"
    types = json.loads(headers[JSON_HEADER_TYPES])
    assert types["colour"] == types["FAILURE_MESSAGE"] == types["FAILURE_TYPE"] == "java.lang.String"
    assert types["ORIGIN_PARTITION"] == "java.lang.Integer"
    assert "x-original-topic" not in types


@pytest.mark.parametrize("rejected", [Reject("given up", cause=failed()), Reject("not for us")])
def test_listener_sees_the_same_headers_as_in_memory(rejected: Reject) -> None:
    """Names, values and types: the binder in memory asks the binding's settings for them."""
    origin = Origin(RECORD.topic, RECORD.partition, RECORD.offset, RECORD.timestamp, "kitchen", "4711")
    seen = sent_headers(Letter.of(RECORD, rejected, "kitchen").headers)
    assert seen == {
        "colour": "red",
        "raw": b"\xff",
        "id": "4711",
        **KafkaConsumerProperties().dead_letter_headers(origin, rejected),
    }


def test_dead_letter_of_a_rejection_without_an_exception_has_the_reason() -> None:
    """A listener may reject without an error."""
    headers = headers_of(Reject("not for us"))
    assert headers["x-exception-message"] == headers["FAILURE_MESSAGE"] == b"not for us"
    assert "x-exception-fqcn" not in headers


class Producer:
    """A producer that accepts records up to a size, validates keys and values as kafka-python does, and fails
    once for each given error."""

    def __init__(self, errors: Sequence[Exception] = (), limit: int = 10_000) -> None:
        self.taken: list[Mapping[str, Any]] = []
        self._errors = list(errors)
        self._limit = limit

    def knows(self, topic: str) -> bool:
        return True

    def partition_count(self, topic: str) -> int:
        return 4

    def send(self, topic: str, **record: Any) -> Future:
        if record["key"] is None and record["value"] is None:
            raise ValueError("Need at least one: key or value")
        if self._errors:
            raise self._errors.pop()
        data = [record["key"] or b"", record["value"] or b"", *(data for _, data in record["headers"])]
        if sum(map(len, data)) > self._limit:
            raise MessageSizeTooLargeError
        self.taken.append(record)
        return Future().success("stored")

    def lend(self) -> None:
        pass

    take_back = lend

    def close(self, timeout: float) -> None:
        pass


def kept(producer: Producer, record: SimpleNamespace, rejected: Reject) -> Mapping[str, Any]:
    """Return the dead letter of a record, in virtual time."""

    async def provision(letters: str, origin: str) -> int:
        return 4

    async def main() -> None:
        letters = DeadLetterTopic("in", "error.orders.kitchen", "kitchen", Sender(lambda: producer, 1.0), provision)
        await letters.keep(record, rejected)
        await letters.close()

    with VirtualTime() as time:
        time.run(main())
    (letter,) = producer.taken
    return letter


def stored(**fields: object) -> SimpleNamespace:
    return SimpleNamespace(**vars(RECORD) | fields)


def test_dead_letter_of_a_record_without_key_and_value_has_an_empty_value() -> None:
    """Java's clients may send neither, which kafka-python refuses."""
    letter = kept(Producer(), stored(key=None, value=None), Reject("not for us"))
    assert (letter["key"], letter["value"]) == (None, b"")


def test_too_large_dead_letter_omits_its_stack_trace() -> None:
    """Any message that fits also fits with its failure headers."""
    letter = kept(Producer(limit=3000), stored(), Reject("given up", cause=ValueError("x" * 5000)))
    headers = dict(letter["headers"])
    assert "x-exception-stacktrace" not in headers
    assert headers["x-exception-fqcn"] == b"builtins.ValueError"
    assert headers["x-exception-message"].startswith(b"xxx")


@pytest.mark.parametrize("fields", [{"value": b"x" * 5000}, {"headers": [("own", b"x" * 5000)]}, {"key": b"x" * 5000}])
def test_dead_letter_that_is_still_too_large_omits_more(
    fields: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    """It always has its origin, so that one large message does not block the partition."""
    letter = kept(Producer(limit=3000), stored(**fields), Reject("given up", cause=ValueError("no")))
    headers = dict(letter["headers"])
    assert headers["x-original-offset"] == struct.pack(">q", 2**33)
    assert headers["x-exception-message"] == b"no"
    assert letter["value"] == b""
    assert "sending it without its value" in caplog.text


@pytest.mark.parametrize(("partition", "of_letter"), [(3, 3), (4, 0), (6, 2)])
def test_letters_are_spread_over_a_topic_with_fewer_partitions(partition: int, of_letter: int) -> None:
    """Letters of one partition stay together."""
    assert kept(Producer(), stored(partition=partition), Reject("not for us"))["partition"] == of_letter


@pytest.mark.parametrize(("timestamp", "message"), [(1_000, 1_000), (None, -1), (-1, -1)])
def test_dead_letter_has_the_present_time(timestamp: int | None, message: int) -> None:
    """With its record's timestamp, the topic's retention might delete or refuse it."""
    letter = kept(Producer(), stored(timestamp=timestamp), Reject("not for us"))
    assert letter.get("timestamp_ms") is None
    assert dict(letter["headers"])["x-original-timestamp"] == struct.pack(">q", message)


def test_dead_letter_replaces_text_without_utf8_form() -> None:
    """An exception may quote a lone surrogate."""
    letter = kept(Producer(), stored(), Reject("given up", cause=ValueError("\ud800")))
    assert dict(letter["headers"])["x-exception-message"] == b"?"


class WithoutTextError(Exception):
    """An error whose `str` raises."""

    def __str__(self) -> str:
        raise RuntimeError("broken")


def test_dead_letter_of_an_exception_without_text_has_its_class() -> None:
    """And the place where it was raised."""
    letter = kept(Producer(), stored(), Reject("given up", cause=WithoutTextError()))
    headers = dict(letter["headers"])
    assert headers["x-exception-fqcn"].endswith(b"WithoutTextError")
    assert headers["x-exception-message"] == headers["FAILURE_MESSAGE"] != b""


def test_dead_letter_is_retried_after_any_error(caplog: pytest.LogCaptureFixture) -> None:
    """Also after errors outside Kafka, since its partition must continue."""
    kept(Producer([RuntimeError("odd"), KafkaTimeoutError("away")]), stored(), Reject("not for us"))
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]


def test_deleted_dead_letter_topic_is_created_again() -> None:
    """Deleting the topic to drop its messages must not block the partitions."""
    made: list[str] = []

    class Brokers(Producer):
        def send(self, topic: str, **record: Any) -> Future:
            if topic not in made:
                raise KafkaTimeoutError("Failed to update metadata")
            return super().send(topic, **record)

    async def provision(letters: str, origin: str) -> int:
        made.append(letters)
        return 4

    async def main() -> None:
        brokers = Brokers()
        letters = DeadLetterTopic("in", "error.orders.kitchen", "kitchen", Sender(lambda: brokers, 1.0), provision)
        for _ in range(2):
            await letters.keep(stored(), Reject("not for us"))
        made.clear()
        async with asyncio.timeout(60):
            await letters.keep(stored(), Reject("not for us"))
        assert len(brokers.taken) == 3
        await letters.close()

    with VirtualTime() as time:
        time.run(main())
    assert made == ["error.orders.kitchen"]


def test_pending_dead_letter_is_abandoned_when_its_binding_stops() -> None:
    """Its message stays unsettled, and no new producer is connected."""
    connected: list[Producer] = []

    def connect() -> Producer:
        connected.append(Producer([KafkaTimeoutError("away")] * 10))
        return connected[-1]

    async def provision(letters: str, origin: str) -> int:
        return 4

    async def main() -> None:
        letters = DeadLetterTopic("in", "error.orders.kitchen", "kitchen", Sender(connect, 1.0), provision)
        keeping = asyncio.create_task(letters.keep(stored(), Reject("not for us")))
        await asyncio.sleep(1.5)
        await letters.close()
        with pytest.raises(BinderError, match="closed"):
            await keeping

    with VirtualTime() as time:
        time.run(main())
    assert len(connected) == 1
