"""Spring Cloud Alibaba's applications and streamkit's exchange messages over our broker and Apache's."""

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from streamkit import Message
from streamkit.messaging.headers import CONTENT_TYPE, DELIVERY_ATTEMPT, KEY, PARTITION, TAGS
from tests.peer.spring_apps import SpringMessage
from tests.peer.spring_stage import STREAM, SpringStage

BOOK = Path(__file__).parent / "spring" / "book"

pytestmark = pytest.mark.peer


@dataclass
class Order:
    """The book's order."""

    id: str
    address: str


def payloads(messages: list[SpringMessage]) -> list[str]:
    """Return the received payloads, sorted."""
    return sorted(m.payload for m in messages)


class TestTheBook:
    """The book's properties files, unchanged except for the name server."""

    STEPS = ("创建", "支付", "退款")

    def test_books_producer_and_our_consumer(self, book: SpringStage) -> None:
        """Its producer, as printed, sends asynchronously by the VIP channel; ours runs by its consumer's file."""
        book.topic("TopicTest")
        inbox = book.listening(book.streamkit({}, BOOK / "consumer.properties"), str)
        sender = book.spring("SendingApplication", {}, BOOK / "producer.properties")

        sender.send("hello")
        sender.send("你好")

        assert sorted(m.payload for m in inbox.take(2)) == ["hello", "你好"]

    def test_our_producer_and_the_books_consumer(self, book: SpringStage) -> None:
        """Ours runs by its producer's file; its consumer, as printed, receives."""
        sending, receiving = self.names_of_its_own(book)
        receiver = book.spring("ReceivingApplication", receiving, BOOK / "consumer.properties")
        output = {f"{STREAM}.output-bindings": "output", **sending}

        with book.streamkit(output, BOOK / "producer.properties") as app:
            app.bridge.send("output", "hello")
            app.bridge.send("output", "你好")

        assert payloads(receiver.take(2)) == ["hello", "你好"]

    def test_books_orders_arrive_in_order(self, book: SpringStage) -> None:
        """创建, 支付, 退款, from its ordered producer to our ordered consumer."""
        sending, receiving = self.names_of_its_own(book)
        inbox = book.listening(book.streamkit(receiving, BOOK / "ordered-consumer.properties"), str)
        sender = book.spring("SendingApplication", sending, BOOK / "ordered-producer.properties")

        for step in self.STEPS:
            sender.send(step, **{PARTITION: 0})

        received = inbox.take(3)
        assert [m.payload for m in received] == list(self.STEPS)
        assert {m.headers[PARTITION] for m in received} == {0}

    def test_our_orders_arrive_in_order(self, book: SpringStage) -> None:
        """From our ordered producer to its ordered consumer."""
        sending, receiving = self.names_of_its_own(book)
        receiver = book.spring("ReceivingApplication", receiving, BOOK / "ordered-consumer.properties")
        output = {f"{STREAM}.output-bindings": "output", **sending}

        with book.streamkit(output, BOOK / "ordered-producer.properties") as app:
            for step in self.STEPS:
                app.bridge.send("output", Message(step, {PARTITION: 0}))

        received = receiver.take(3)
        assert [m.payload for m in received] == list(self.STEPS)
        assert {m.headers["rocketmq_QUEUE_ID"] for m in received} == {0}

    def names_of_its_own(self, book: SpringStage) -> tuple[dict[str, str], dict[str, str]]:
        """Return settings of a producer and a consumer that win over the pages' topic and group.

        Their names are the same on each page, and what a consumer had received but not settled when it stopped comes
        again to the next one of its group, which an exact list of messages can't allow for.
        """
        topic, group = book.topic(), book.name("group")
        sending = {f"{STREAM}.bindings.output.destination": topic}
        receiving = {f"{STREAM}.bindings.input.destination": topic, f"{STREAM}.bindings.input.group": group}
        return sending, receiving


def test_text_and_headers_from_spring(spring_stage: SpringStage) -> None:
    """Text, key, tag and text headers arrive; the first generation's other headers with their types too."""
    topic = spring_stage.topic()
    inbox = spring_stage.streamkit_receiver(topic, str)
    sent = {"n": 5, "big": 2**40, "half": 0.5, "yes": True, "items": [1, 2], "nested": {"a": 1}}
    spring_stage.sender(topic).send("hello", text="blue", TAGS="red", KEYS="k1", **sent)

    (message,) = inbox.take(1)

    headers = message.headers
    assert message.payload == spring_stage.text("hello")
    assert (headers["text"], headers[TAGS], headers[KEY]) == ("blue", "red", "k1")
    assert headers[CONTENT_TYPE] == "application/json"
    expected = sent if spring_stage.first else {name: java_text(value) for name, value in sent.items()}
    assert {name: headers[name] for name in sent} == expected


def java_text(value: object) -> str:
    """Return Java's String.valueOf, which is how the current generation writes headers."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={item}" for key, item in value.items()) + "}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_text_and_headers_from_streamkit(spring_stage: SpringStage) -> None:
    """Text, key, tag and headers arrive at Spring's listener; in the first generation as the declared classes."""
    topic = spring_stage.topic()
    receiver = spring_stage.receiver(topic)
    sent = {"n": 5, "big": 2**40, "half": 0.5, "yes": True, "items": [1, 2], "nested": {"a": 1}}
    headers = {**sent, "text": "blue", TAGS: "red", KEY: "k1", CONTENT_TYPE: "text/plain"}
    spring_stage.streamkit_sender(topic).bridge.send("output", Message(spring_stage.text("hello"), headers))

    (message,) = receiver.take(1)

    prefix = "rocketmq_" if spring_stage.first else "ROCKET_"
    assert message.payload == "hello"
    assert (message.headers["text"], message.headers[f"{prefix}TAGS"]) == ("blue", "red")
    assert message.headers[f"{prefix}KEYS"] == "k1"
    assert message.headers[CONTENT_TYPE] == "text/plain"
    if spring_stage.first:
        assert {name: message.headers[name] for name in sent} == sent
        assert [message.types[name] for name in sent] == [
            "Integer", "Long", "Double", "Boolean", "ArrayList", "LinkedHashMap",
        ]  # fmt: skip


def test_objects_from_spring(spring_stage: SpringStage) -> None:
    """A Java object arrives as the dataclass with the same fields."""
    topic = spring_stage.topic()
    inbox = spring_stage.streamkit_receiver(topic, Order)
    spring_stage.sender(topic).send({"id": "123", "address": "浙江杭州"})

    (message,) = inbox.take(1)

    assert message.payload == Order("123", "浙江杭州")


def test_objects_from_streamkit(spring_stage: SpringStage) -> None:
    """A dataclass arrives as the Java object with the same fields."""
    topic = spring_stage.topic()
    receiver = spring_stage.receiver(topic, orders=True)
    spring_stage.streamkit_sender(topic).bridge.send("output", Order("123", "浙江杭州"))

    (message,) = receiver.take(1)

    assert message.payload == "123 to 浙江杭州"
    assert message.headers[CONTENT_TYPE] == "application/json"


def test_partition_in_order_from_streamkit(spring_stage: SpringStage) -> None:
    """The partition header selects the queue, and an ordered Spring consumer gets our order."""
    topic = spring_stage.topic()
    orderly = "consumer.orderly" if spring_stage.first else "consumer.push.orderly"
    receiver = spring_stage.receiver(topic, **{orderly: "true"})
    app = spring_stage.streamkit_sender(topic)

    for number in range(10):
        app.bridge.send("output", Message(str(number), {PARTITION: 2}))
    received = receiver.take(10)

    queue = "rocketmq_QUEUE_ID" if spring_stage.first else "ROCKET_MQ_QUEUE_ID"
    assert [m.payload for m in received] == list("0123456789")
    assert {m.headers[queue] for m in received} == {2}


def test_partition_in_order_from_spring(spring_stage: SpringStage) -> None:
    """A partitioned Spring producer's messages of one key arrive in its order, from one partition."""
    topic = spring_stage.topic()
    inbox = spring_stage.streamkit_receiver(topic, str, **{"consumer.orderly": "true"})
    sender = spring_stage.sender(topic)

    for number in range(10):
        sender.send(f"step {number}", **({PARTITION: 0} if spring_stage.first else {}), KEYS="order-7")
    received = inbox.take(10)

    assert {m.payload for m in received} == {spring_stage.text(f"step {number}") for number in range(10)}
    if spring_stage.first:
        assert [m.payload for m in received] == [f"step {number}" for number in range(10)]
        assert {m.headers[PARTITION] for m in received} == {0}


def test_delays_work_in_both_directions(spring_stage: SpringStage) -> None:
    """Header DELAY is a level (level 2 is 2 s here)."""
    to_us, to_spring = spring_stage.topic(), spring_stage.topic()
    inbox, receiver = spring_stage.streamkit_receiver(to_us, str), spring_stage.receiver(to_spring)
    sender, app = spring_stage.sender(to_us), spring_stage.streamkit_sender(to_spring)
    begun = time.monotonic()
    sender.send("from Spring", DELAY=2)
    app.bridge.send("output", Message(spring_stage.text("from streamkit"), {"DELAY": 2}))

    (late,) = inbox.take(1)
    assert time.monotonic() - begun > 1.9
    assert late.payload == spring_stage.text("from Spring")
    assert [m.payload for m in receiver.take(1)] == ["from streamkit"]


def test_tags_work_in_both_directions(spring_stage: SpringStage) -> None:
    """Each side's subscription selects by the other's tags."""
    to_us, to_spring = spring_stage.topic(), spring_stage.topic()
    filtering = "consumer.tags" if spring_stage.first else "consumer.subscription"
    receiver = spring_stage.receiver(to_spring, **{filtering: "red||blue"})
    inbox = spring_stage.streamkit_receiver(to_us, str, **{filtering: "red||blue"})
    sender, app = spring_stage.sender(to_us), spring_stage.streamkit_sender(to_spring)

    for tag in ("green", "red", "blue"):
        sender.send(tag, TAGS=tag)
        app.bridge.send("output", Message(spring_stage.text(tag), {TAGS: tag}))

    assert sorted(m.headers[TAGS] for m in inbox.take(2)) == ["blue", "red"]
    assert payloads(receiver.take(2)) == ["blue", "red"]


def test_failed_message_of_a_spring_listener_is_redelivered(spring_stage: SpringStage) -> None:
    """By the retry topic of the group, with its headers."""
    topic = spring_stage.topic()
    # The current generation does not redeliver by default.
    again = {} if spring_stage.first else {"consumer.push.max-reconsume-times": "16"}
    receiver = spring_stage.receiver(topic, fail_times=1, **again)
    app = spring_stage.streamkit_sender(topic)

    app.bridge.send("output", Message(spring_stage.text("bad"), {"text": "blue", TAGS: "red"}))

    first, second = receiver.take(2, timeout=60)
    assert (first.payload, second.payload) == ("bad", "bad")
    assert second.headers["text"] == "blue"
    if spring_stage.first:
        assert [m.headers["rocketmq_RECONSUME_TIMES"] for m in (first, second)] == ["0", "1"]


def test_failed_message_of_a_streamkit_listener_becomes_a_dead_letter(spring_stage: SpringStage) -> None:
    """Spring's message is redelivered, counted, then in the dead letter topic, where Spring reads it."""
    topic, group = spring_stage.topic(), spring_stage.name("group")
    limit = {"consumer.push.max-reconsume-times": "1"}
    inbox = spring_stage.streamkit_receiver(topic, str, group, fail_times=9, **limit)
    spring_stage.sender(topic).send("poison", text="blue")

    received = inbox.take(2)
    spring_stage.topic(f"%DLQ%{group}", queues=1)
    (letter,) = spring_stage.receiver(f"%DLQ%{group}").take(1)

    assert [m.headers[DELIVERY_ATTEMPT] for m in received] == [1, 2]
    assert (letter.payload, letter.headers["text"]) == ("poison", "blue")


def test_springs_dead_letters_are_read_by_streamkit(spring_stage: SpringStage) -> None:
    """From its dead letter topic."""
    topic, group = spring_stage.topic(), spring_stage.name("group")
    give_up = "consumer.delay-level-when-next-consume"
    name = give_up if spring_stage.first else "consumer.push.delay-level-when-next-consume"
    receiver = spring_stage.receiver(topic, group, fail_times=9, **{name: "-1"})
    spring_stage.streamkit_sender(topic).bridge.send("output", Message(spring_stage.text("poison"), {"n": 5}))
    receiver.take(1)

    spring_stage.topic(f"%DLQ%{group}", queues=1)
    (letter,) = spring_stage.streamkit_receiver(f"%DLQ%{group}", str).take(1)

    assert (letter.payload, letter.headers["n"]) == (spring_stage.text("poison"), 5)


def test_one_group_of_both_shares_the_queues(spring_stage: SpringStage) -> None:
    """Each message is delivered once."""
    topic, group = spring_stage.topic(), spring_stage.name("group")
    receiver = spring_stage.receiver(topic, group)
    inbox = spring_stage.streamkit_receiver(topic, str, group)
    app = spring_stage.streamkit_sender(topic)
    sent = [f"shared {number}" for number in range(20)]

    def received() -> list[str]:
        read_by_us = [m.payload for m in inbox.received]
        return [spring_stage.text(m.payload) for m in receiver.received] + read_by_us

    for text in sent:
        app.bridge.send("output", spring_stage.text(text))
    deadline = time.monotonic() + 60
    while len(received()) < len(sent) and time.monotonic() < deadline:
        try:
            inbox.take(len(inbox.received) + 1, timeout=0.2)
        except TimeoutError:
            continue

    assert set(received()) == set(map(spring_stage.text, sent))
    assert max(Counter(received()).values()) <= 2  # a queue that moves between members may repeat


def test_json_sent_as_text_by_spring_is_read(spring_stage: SpringStage) -> None:
    """A Java String that contains JSON, in both generations."""
    topic = spring_stage.topic()
    inbox = spring_stage.streamkit_receiver(topic, Order)

    spring_stage.sender(topic).send('{"id": "123", "address": "浙江杭州"}')

    assert [m.payload for m in inbox.take(1)] == [Order("123", "浙江杭州")]


def test_applications_share_a_namespace(spring_stage: SpringStage) -> None:
    """By the current generation's setting; with the first one by full names."""
    topic, group = spring_stage.name("topic"), spring_stage.name("group")
    spring_stage.topic(f"left%{topic}", queues=1)
    inside = {side: {f"{side}.namespace": "left"} for side in ("consumer", "producer")}
    theirs = {"consumer": {}, "producer": {}} if spring_stage.first else inside
    their_topic = f"left%{topic}" if spring_stage.first else topic
    inbox = spring_stage.streamkit_receiver(topic, str, group, fail_times=1, **inside["consumer"])
    receiver = spring_stage.receiver(their_topic, **theirs["consumer"])

    spring_stage.sender(their_topic, **theirs["producer"]).send("from spring")
    sent = Message(spring_stage.text("from streamkit"), {CONTENT_TYPE: "text/plain"})
    spring_stage.streamkit_sender(topic, **inside["producer"]).bridge.send("output", sent)

    assert payloads(receiver.take(2)) == ["from spring", "from streamkit"]
    received = inbox.take(4, timeout=60)
    assert {message.headers["rocketmq_TOPIC"] for message in received} == {topic}
    assert Counter(message.payload for message in received) == dict.fromkeys(
        [spring_stage.text("from spring"), spring_stage.text("from streamkit")], 2
    )
