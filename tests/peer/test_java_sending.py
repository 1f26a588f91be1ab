"""Apache's Java producers on Apache's broker, which proves the expectations, then on ours."""

import time
from functools import partial

import pytest

from tests.peer.java_client import SendMode
from tests.peer.json_peer import PeerError
from tests.peer.stage import LATEST, Stage, eventually


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_send_results_have_the_messages_position(stage: Stage, mode: SendMode) -> None:
    """Each has queue and offset, and the listener gets the whole message from there."""
    topic = stage.topic()
    bodies = [f"m{i}" for i in range(8)]
    properties = {"colour": "crimson"}
    producer = stage.producer()
    sent = producer.send(topic, *bodies, mode=mode, tags="red", keys="k1 k2", flag=7, properties=properties)

    received = stage.consumer(topic).take(8)

    assert {answer["status"] for answer in sent} == {"SEND_OK"}
    assert {(m.queue, m.offset): m.id for m in received} == {(s["queue"], s["offset"]): s["id"] for s in sent}
    assert sorted(m.text for m in received) == bodies
    one = received[0]
    assert (one.topic, one.tags, one.keys, one.flag) == (topic, "red", "k1 k2", 7)
    assert one.properties["colour"] == "crimson"
    assert one.properties["CLUSTER"] == "DefaultCluster"
    assert one.broker == "broker-a"


def test_messages_are_distributed_over_all_queues(stage: Stage) -> None:
    """Round robin uses each queue of the route."""
    sent = stage.producer().send(stage.topic(queues=4), *("x" * 8))

    assert {answer["queue"] for answer in sent} == {0, 1, 2, 3}
    assert sorted(answer["offset"] for answer in sent) == [0, 0, 0, 0, 1, 1, 1, 1]


def test_one_way_messages_are_stored(stage: Stage) -> None:
    """Without an answer."""
    topic = stage.topic()
    answers = stage.producer().send(topic, "a", "b", "c", mode="oneway")

    assert answers == []
    assert sorted(m.text for m in stage.consumer(topic).take(3)) == ["a", "b", "c"]


def test_batch_is_stored_as_its_messages(stage: Stage) -> None:
    """One result has their offsets; they are consecutive in one queue."""
    topic = stage.topic()
    (sent,) = stage.producer().send(topic, "a", "b", "c", mode="batch", tags="t", keys="k")

    received = stage.consumer(topic).take(3)

    assert sent["status"] == "SEND_OK"
    assert {m.queue for m in received} == {sent["queue"]}
    ordered = sorted(received, key=lambda m: m.offset)
    assert [m.text for m in ordered] == ["a", "b", "c"]
    assert [m.offset_id for m in ordered] == sent["offsetId"].split(",")
    assert {m.tags for m in received} == {"t"}


def test_large_body_is_sent_compressed_and_received_whole(stage: Stage) -> None:
    """Clients compress: the broker stores what it gets, with the flags."""
    topic = stage.topic()
    body = bytes(range(256)) * 400
    stage.producer().send(topic, body)

    (message,) = stage.consumer(topic).take(1)

    assert message.body == body
    assert message.raw["storeSize"] < len(body)


def test_messages_of_one_key_stay_in_order(stage: Stage) -> None:
    """A selector sends them to one queue; an orderly listener gets them in that order."""
    topic = stage.topic()
    pairs = [(f"key-{i % 3}", f"{i % 3}:{i // 3}") for i in range(15)]
    sent = stage.producer().send_by_key(topic, pairs)

    received = stage.consumer(topic, mode="orderly").take(15)

    for key in "012":
        assert len({s["queue"] for s, (_, body) in zip(sent, pairs, strict=True) if body[0] == key}) == 1
        assert [m.text for m in received if m.text[0] == key] == [f"{key}:{i}" for i in range(5)]


def test_delay_level_delays_a_message(stage: Stage) -> None:
    """Level 2 (2 s here) is not early, in its topic, with the properties of a delayed message."""
    topic = stage.topic()
    consumer = stage.consumer(topic)
    producer = stage.producer()
    begun = time.monotonic()
    producer.send(topic, "later", delayLevel=2)

    (message,) = consumer.take(1)

    assert 1.9 < time.monotonic() - begun < 2 + LATEST
    assert (message.topic, message.text) == (topic, "later")
    assert message.properties["DELAY"] == "2"
    assert message.properties["REAL_TOPIC"] == topic
    assert message.properties["REAL_QID"] == str(message.queue)


def test_first_send_creates_the_topic(stage: Stage) -> None:
    """With auto-creation it gets the default topic's queues."""
    topic = stage.name("made-by-send")
    (sent,) = stage.producer().send(topic, "first")

    assert (sent["status"], sent["offset"]) == ("SEND_OK", 0)
    assert [m.text for m in stage.consumer(topic).take(1)] == ["first"]


def test_too_large_message_is_refused(stage: Stage) -> None:
    """A body over the broker's maxMessageSize, from a client that allows it, is MESSAGE_ILLEGAL (13)."""
    producer = stage.producer(maxMessageSize=16 << 20, compressOver=16 << 20)
    topic = stage.topic()

    with pytest.raises(PeerError) as refused:
        producer.send(topic, bytes(5 << 20))

    assert refused.value.code == 13
    assert producer.send(topic, "small")[0]["status"] == "SEND_OK"


def test_offsets_of_a_queue_are_queried(stage: Stage) -> None:
    """Minimum, maximum, earliest store time, and the offset of a time before it."""
    topic = stage.topic(queues=1)
    producer = stage.producer()
    sent = producer.send(topic, "a", "b", "c")
    first = producer.view(topic, sent[0]["offsetId"]).raw["storeTimestamp"]

    offsets = eventually(lambda: producer.offsets(topic, timestamp=first - 1000), lambda o: o["max"] == 3)

    assert offsets == {"min": 0, "max": 3, "earliestStoreTime": first, "search": 0}


def test_vip_channel_serves_old_clients(stage: Stage) -> None:
    """Clients of RocketMQ 4.4 send and query offsets two ports below the broker's."""
    topic = stage.topic()
    (sent,) = stage.producer(vip=True).send(topic, "important")

    assert sent["status"] == "SEND_OK"
    assert [m.text for m in stage.consumer(topic, vip=True).take(1)] == ["important"]


def test_messages_are_found_by_key_and_by_id(stage: Stage) -> None:
    """The index finds keys and unique ids; an offset id leads straight to the record."""
    topic = stage.topic()
    producer = stage.producer()
    producer.send(topic, "other", keys="another")
    (sent,) = producer.send(topic, "wanted", keys="order-7 customer-3")

    for key in ("order-7", "customer-3"):
        found = eventually(partial(producer.query, topic, key), bool)
        assert [m.text for m in found] == ["wanted"]
    assert producer.query(topic, "no such key") == []
    for message_id in (sent["id"], sent["offsetId"]):
        assert producer.view(topic, message_id).text == "wanted"
