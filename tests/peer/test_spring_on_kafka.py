"""Spring Cloud Stream's Kafka binder and streamkit's exchange messages over a real Kafka."""

import struct
import time
from dataclasses import dataclass

import pytest

from streamkit import Message
from streamkit.messaging.headers import CONTENT_TYPE, KEY, PARTITION
from streamkit.messaging.message import NO_PAYLOAD
from tests.peer.spring_on_kafka import SpringOnKafka

pytestmark = pytest.mark.peer

PATIENCE = 60.0
SENT = {"n": 5, "big": 2**40, "half": 0.5, "yes": True, "items": [1, 2], "nested": {"a": 1}, "text": "blå"}
CLASSES = ["Integer", "Long", "Double", "Boolean", "ArrayList", "LinkedHashMap", "String"]


@dataclass
class Order:
    """Spring's applications have a class with this name and these fields."""

    id: str
    address: str


def test_text_and_headers_from_spring(spring_on_kafka: SpringOnKafka) -> None:
    """Text, the record's key, and headers with their types arrive."""
    topic = spring_on_kafka.topic()
    inbox = spring_on_kafka.streamkit_receiver(topic, str)
    spring_on_kafka.sender(topic).send("hello", key="k1", **SENT)

    (message,) = inbox.take(1)

    assert message.payload == "hello"
    assert {name: message.headers[name] for name in SENT} == SENT
    assert message.headers[KEY] == "k1"
    assert message.headers[CONTENT_TYPE] == "application/json"


def test_text_and_headers_from_streamkit(spring_on_kafka: SpringOnKafka) -> None:
    """Text, the record's key, and headers of their Java classes arrive at Spring's listener."""
    topic = spring_on_kafka.topic()
    receiver = spring_on_kafka.receiver(topic)
    headers = {**SENT, "raw": b"bytes", "quoted": '"q"', KEY: "k1", CONTENT_TYPE: "text/plain"}
    spring_on_kafka.streamkit_sender(topic).bridge.send("output", Message("hello", headers))

    (message,) = receiver.take(1)

    assert message.payload == "hello"
    assert {name: message.headers[name] for name in SENT} == SENT
    assert [message.types[name] for name in SENT] == CLASSES
    assert (message.headers["raw"], message.types["raw"]) == ("bytes", "byte[]")
    assert (message.headers["quoted"], message.types["quoted"]) == ('"q"', "String")
    assert message.headers["kafka_receivedMessageKey"] == "k1"
    assert message.headers[CONTENT_TYPE] == "text/plain"


def test_our_records_equal_springs(spring_on_kafka: SpringOnKafka) -> None:
    """Value, key and headers, byte for byte; ours have the message id besides."""
    ours, springs = spring_on_kafka.topic(), spring_on_kafka.topic()
    spring_on_kafka.sender(springs).send("hello", key="k1", **SENT)
    headers = {**SENT, "key": "k1", KEY: "k1"}
    spring_on_kafka.streamkit_sender(ours).bridge.send("output", Message("hello", headers))

    (spring,) = spring_on_kafka.records(springs, 1)
    (our,) = spring_on_kafka.records(ours, 1)

    assert (our.key, our.value, our.partition) == (spring.key, spring.value, spring.partition)
    written = dict(our.headers)
    types = written.pop("spring_json_header_types")
    springs_types = dict(spring.headers)["spring_json_header_types"]
    assert sorted(types.strip(b"{}").split(b",")) == sorted(springs_types.strip(b"{}").split(b","))
    assert written.pop("streamkit_id")
    assert written == {name: data for name, data in spring.headers if name != "spring_json_header_types"}


def test_objects_both_ways(spring_on_kafka: SpringOnKafka) -> None:
    """A Java object arrives as the dataclass with the same fields, and vice versa."""
    there, back = spring_on_kafka.topic(), spring_on_kafka.topic()
    inbox = spring_on_kafka.streamkit_receiver(there, Order)
    receiver = spring_on_kafka.receiver(back, orders=True)
    spring_on_kafka.sender(there).send({"id": "123", "address": "浙江杭州"}, key="k")
    spring_on_kafka.streamkit_sender(back).bridge.send("output", Order("123", "浙江杭州"))

    assert [message.payload for message in inbox.take(1)] == [Order("123", "浙江杭州")]
    assert [message.payload for message in receiver.take(1)] == ["123 to 浙江杭州"]


def test_tombstones_both_ways(spring_on_kafka: SpringOnKafka) -> None:
    """Spring's KafkaNull is None here, and a message without a payload is KafkaNull there."""
    there, back = spring_on_kafka.topic(), spring_on_kafka.topic()
    inbox = spring_on_kafka.streamkit_receiver(there, Order | None)
    receiver = spring_on_kafka.receiver(back)
    spring_on_kafka.sender(there).send(None, key="k1")
    spring_on_kafka.streamkit_sender(back).bridge.send("output", Message(NO_PAYLOAD, {KEY: "k1"}))

    (here,), (spring,) = inbox.take(1), receiver.take(1)

    assert (here.payload, here.headers[KEY]) == (None, "k1")
    assert "KafkaNull" in spring.payload
    assert spring.headers["kafka_receivedMessageKey"] == "k1"
    assert [record.value for record in spring_on_kafka.records(back, 1)] == [None]


def test_equal_keys_select_equal_partitions(spring_on_kafka: SpringOnKafka) -> None:
    """By the same key expression."""
    topic = spring_on_kafka.topic()
    spring = spring_on_kafka.sender(topic, partitioned=True)
    more = {"partition-key-expression": "headers['key']", "partition-count": "4"}
    streamkit = spring_on_kafka.streamkit_sender(topic, **more)
    keys = [f"key{number}" for number in range(6)]
    for key in keys:
        spring.send("from Spring", key=key)
        streamkit.bridge.send("output", Message("from us", {"key": key}))

    partitions: dict[str, set[int]] = {key: set() for key in keys}
    for record in spring_on_kafka.records(topic, 12):
        partitions[dict(record.headers)["key"].decode()].add(record.partition)

    assert [len(found) for found in partitions.values()] == [1] * 6
    assert len(set.union(*partitions.values())) > 1


def test_members_of_one_group_share_the_partitions(spring_on_kafka: SpringOnKafka) -> None:
    """A Spring and a streamkit application: each message is delivered to one of them."""
    topic, group = spring_on_kafka.topic(), spring_on_kafka.name("group")
    inbox = spring_on_kafka.streamkit_receiver(topic, str, group)
    receiver = spring_on_kafka.receiver(topic, group)
    sender = spring_on_kafka.streamkit_sender(topic)
    sent: set[str] = set()
    deadline = time.monotonic() + PATIENCE
    while not (inbox.received and receiver.received):
        assert time.monotonic() < deadline, "one of them has no partition"
        text = f"m{len(sent)}"
        sender.bridge.send("output", Message(text, {PARTITION: len(sent) % 4}))
        sent.add(text)
    # Each member has two partitions now, and receives the two end messages of these.
    for partition in range(4):
        sender.bridge.send("output", Message("end", {PARTITION: partition}))
    for member in (inbox, receiver):
        member.wait_for(lambda of=member: [m.payload for m in of.received].count("end") == 2)

    assert {message.payload for message in (*inbox.received, *receiver.received)} == {*sent, "end"}


def test_springs_dead_letters_are_read(spring_on_kafka: SpringOnKafka) -> None:
    """In error.<destination>.<group>, with origin and reason."""
    topic, group = spring_on_kafka.topic(partitions=1), spring_on_kafka.name("group")
    letters = spring_on_kafka.streamkit_receiver(f"error.{topic}.{group}", str)
    spring_on_kafka.receiver(topic, group, fail_times=9, **{"enable-dlq": "true"})
    spring_on_kafka.streamkit_sender(topic).bridge.send("output", Message("bad", {"n": 5, KEY: "k1"}))

    (letter,) = letters.take(1)

    assert (letter.payload, letter.headers["n"], letter.headers[KEY]) == ("bad", 5, "k1")
    assert text(letter.headers["x-original-topic"]) == topic
    assert "told to fail bad" in text(letter.headers["x-exception-message"])


def test_our_dead_letters_are_read_by_spring(spring_on_kafka: SpringOnKafka) -> None:
    """From the same topic, with the headers of Spring's binder."""
    topic, group = spring_on_kafka.topic(partitions=1), spring_on_kafka.name("group")
    spring_on_kafka.streamkit_receiver(topic, str, group, fail_times=9, **{"enable-dlq": "true"})
    reader = spring_on_kafka.receiver(f"error.{topic}.{group}")
    spring_on_kafka.sender(topic).send("bad", key="k1", n=5)

    (letter,) = reader.take(1)
    (record,) = spring_on_kafka.records(f"error.{topic}.{group}", 1)

    assert (letter.payload, letter.headers["n"]) == ("bad", 5)
    assert letter.headers["kafka_receivedMessageKey"] == "k1"
    assert letter.headers["x-original-topic"] == topic
    assert "told to fail 'bad'" in str(letter.headers["x-exception-message"])
    assert (letter.headers["FAILURE_MESSAGE"], letter.types["FAILURE_MESSAGE"]) == (
        "told to fail 'bad'",
        "String",
    )
    headers = dict(record.headers)
    assert struct.unpack(">iq", headers["x-original-partition"] + headers["x-original-offset"]) == (0, 0)
    assert headers["x-exception-fqcn"] == b"builtins.RuntimeError"
    assert b"Traceback" in headers["x-exception-stacktrace"]


def text(header: object) -> str:
    """Return the text of a header that Spring writes without its class."""
    assert isinstance(header, bytes)
    return header.decode()
