"""The headers of dead letters, as Spring's Kafka binder writes them."""

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
from binders.kafka.sending import Sender
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
    headers=[("colour", b"red"), ("raw", b"\xff"), (JSON_HEADER_TYPES, b'{"colour":"java.lang.String"}')],
)


def failed() -> ValueError:
    try:
        raise ValueError("no such customer")
    except ValueError as error:
        return error


def headers_of(rejected: Reject) -> dict[str, bytes]:
    return dict(Letter.of(RECORD, rejected).headers)


def test_a_letter_tells_where_its_message_was_and_why_it_failed() -> None:
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


def test_a_letter_tells_its_cause_as_on_every_binder() -> None:
    """The framework's own headers are text for whoever reads the letter; the record's declarations are kept."""
    headers = headers_of(Reject("given up", cause=failed()))
    assert headers["FAILURE_MESSAGE"] == b"no such customer"
    types = json.loads(headers[JSON_HEADER_TYPES])
    assert types["colour"] == types["FAILURE_MESSAGE"] == types["FAILURE_TYPE"] == "java.lang.String"
    assert "x-original-topic" not in types


def test_what_was_rejected_without_an_exception_tells_the_reason() -> None:
    """A listener may reject without anything having failed."""
    headers = headers_of(Reject("not for us"))
    assert headers["x-exception-message"] == headers["FAILURE_MESSAGE"] == b"not for us"
    assert "x-exception-fqcn" not in headers


class Producer:
    """Takes what is not too large, of keys and values as kafka-python does; fails once for each error given."""

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
    """The letter that a record becomes; an hour of trying takes no time."""

    async def provision(letters: str, origin: str) -> int:
        return 4

    async def main() -> None:
        letters = DeadLetterTopic("in", "error.orders.kitchen", Sender(lambda: producer, 1.0), provision)
        await letters.keep(record, rejected)
        await letters.close()

    with VirtualTime() as time:
        time.run(main())
    (letter,) = producer.taken
    return letter


def stored(**fields: object) -> SimpleNamespace:
    return SimpleNamespace(**vars(RECORD) | fields)


def test_a_letter_of_nothing_has_an_empty_value() -> None:
    """Java's clients may send neither key nor value, which kafka-python refuses."""
    letter = kept(Producer(), stored(key=None, value=None), Reject("not for us"))
    assert (letter["key"], letter["value"]) == (None, b"")


def test_a_letter_that_is_too_large_goes_without_its_stack_trace() -> None:
    """A message that fits, fits with what tells why it failed."""
    letter = kept(Producer(limit=3000), stored(), Reject("given up", cause=ValueError("x" * 5000)))
    headers = dict(letter["headers"])
    assert "x-exception-stacktrace" not in headers
    assert headers["x-exception-fqcn"] == b"builtins.ValueError"
    assert headers["x-exception-message"].startswith(b"xxx")


@pytest.mark.parametrize("fields", [{"value": b"x" * 5000}, {"headers": [("own", b"x" * 5000)]}, {"key": b"x" * 5000}])
def test_a_letter_that_is_too_large_still_goes_with_less(
    fields: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    """Where its message is, it tells whatever it leaves out: one too large message does not stop those behind it."""
    letter = kept(Producer(limit=3000), stored(**fields), Reject("given up", cause=ValueError("no")))
    headers = dict(letter["headers"])
    assert headers["x-original-offset"] == struct.pack(">q", 2**33)
    assert headers["x-exception-message"] == b"no"
    assert letter["value"] == b""
    assert "sending it without its value" in caplog.text


@pytest.mark.parametrize(("timestamp", "told"), [(1_000, 1_000), (None, -1), (-1, -1)])
def test_a_letter_has_the_time_of_now(timestamp: int | None, told: int) -> None:
    """With its record's it would be deleted, or refused, once that is older than its topic keeps anything."""
    letter = kept(Producer(), stored(timestamp=timestamp), Reject("not for us"))
    assert letter.get("timestamp_ms") is None
    assert dict(letter["headers"])["x-original-timestamp"] == struct.pack(">q", told)


def test_a_letter_may_tell_of_text_that_has_no_form_in_utf8() -> None:
    """An exception quotes what it was given, half of a surrogate pair for instance."""
    letter = kept(Producer(), stored(), Reject("given up", cause=ValueError("\ud800")))
    assert dict(letter["headers"])["x-exception-message"] == b"?"


class WithoutTextError(Exception):
    """Fails when it is asked what happened."""

    def __str__(self) -> str:
        raise RuntimeError("broken")


def test_a_letter_may_tell_of_an_exception_that_has_no_text() -> None:
    """By its class, and by where it was raised."""
    letter = kept(Producer(), stored(), Reject("given up", cause=WithoutTextError()))
    headers = dict(letter["headers"])
    assert headers["x-exception-fqcn"].endswith(b"WithoutTextError")
    assert headers["x-exception-message"] == headers["FAILURE_MESSAGE"] != b""


def test_a_letter_is_tried_again_whatever_failed(caplog: pytest.LogCaptureFixture) -> None:
    """Also what is no error of Kafka's: its partition must not stop."""
    kept(Producer([RuntimeError("odd"), KafkaTimeoutError("away")]), stored(), Reject("not for us"))
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]


def test_a_topic_that_is_gone_is_made_again() -> None:
    """Who deletes the topic to be rid of its letters does not stop the partitions whose letters come next."""
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
        letters = DeadLetterTopic("in", "error.orders.kitchen", Sender(lambda: brokers, 1.0), provision)
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


def test_a_letter_that_is_not_written_when_its_binding_stops_is_not_kept() -> None:
    """Its message stays unsettled, and no producer is connected again for it."""
    connected: list[Producer] = []

    def connect() -> Producer:
        connected.append(Producer([KafkaTimeoutError("away")] * 10))
        return connected[-1]

    async def provision(letters: str, origin: str) -> int:
        return 4

    async def main() -> None:
        letters = DeadLetterTopic("in", "error.orders.kitchen", Sender(connect, 1.0), provision)
        keeping = asyncio.create_task(letters.keep(stored(), Reject("not for us")))
        await asyncio.sleep(1.5)
        await letters.close()
        with pytest.raises(BinderError, match="closed"):
            await keeping

    with VirtualTime() as time:
        time.run(main())
    assert len(connected) == 1
