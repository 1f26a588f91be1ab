"""A test's binder in memory keeps the terms of the binder that it replaces."""

import logging
import struct
from collections.abc import Callable

import pytest

from streamkit import Message, StreamApplication, TransactionState
from streamkit.errors import MessageHandlingError, UnsupportedCapability
from streamkit.messaging.headers import KEY, PARTITION, SEQUENCE

STREAM = "spring.cloud.stream"
KAFKA_IN = "kafka.bindings.in.consumer"
KAFKA_OUT = "kafka.bindings.out.producer"
ROCKET_IN = "rocketmq.bindings.in.consumer"


def application(
    type_: str, settings: dict[str, str], listener: Callable[..., object] | None = None
) -> StreamApplication:
    """An application with an input `in` of topic `t` and group `g`, and an output `out` to `u`; all calls fail."""
    table = {
        "default-binder": type_,
        "bindings.in.destination": "t",
        "bindings.in.group": "g",
        "bindings.in.consumer.max-attempts": "1",
        "bindings.out.destination": "u",
        "output-bindings": "out",
        "rocketmq.default.consumer.push.max-reconsume-times": "0",
        **settings,
    }
    if type_ == "kafka":
        del table["rocketmq.default.consumer.push.max-reconsume-times"]
    app = StreamApplication(
        config_location="optional:/none", properties={f"{STREAM}.{key}": value for key, value in table.items()}
    )
    app.stream_listener("in")(listener or fail)
    return app


async def fail(text: str) -> None:
    """Fail."""
    raise ValueError(text)


@pytest.mark.parametrize(
    ("settings", "letters"),
    [({}, "error.t.g"), ({f"{KAFKA_IN}.dlq-name": "lost"}, "lost"), ({f"{KAFKA_IN}.enable-dlq": "true"}, "error.t.g")],
)
def test_dead_letters_of_kafka_have_kafkas_names(settings: dict[str, str], letters: str) -> None:
    """A listener on them receives them, as it will on Kafka."""
    seen: list[str] = []
    app = application("kafka", settings | {"bindings.dead.destination": letters, "bindings.dead.group": "h"})

    @app.stream_listener("dead")
    async def note(text: str) -> None:
        seen.append(text)

    with app.test() as test:
        test.input("in").send("bad")
        assert seen == ["bad"]
        assert test.dead_letters("in").receive(str).payload == "bad"


def test_letters_of_kafka_tell_their_origin_as_on_kafka() -> None:
    """In Spring's headers, as bytes; a redelivery changes no place, and a later letter replaces earlier headers."""
    seen: list[Message[str]] = []
    again = {f"{KAFKA_IN}.max-reconsume-times": "1", f"{KAFKA_IN}.suspend": "10"}
    app = application("kafka", again | {"bindings.dead.destination": "error.t.g", "bindings.dead.group": "h"})

    @app.stream_listener("dead")
    async def note(message: Message[str]) -> None:
        seen.append(message)

    with app.test() as test:
        for text in ("good", "bad"):
            test.input("in").send(text, {PARTITION: 3, "kafka_timestamp": 1700000000000, "x-original-topic": b"early"})
        test.advance(seconds=1)
    headers = seen[1].headers
    assert headers["x-original-topic"] == b"t"
    assert headers["x-original-partition"] == struct.pack(">i", 3)
    assert headers["x-original-offset"] == struct.pack(">q", 1)
    assert headers["x-original-timestamp"] == struct.pack(">q", 1700000000000)
    assert headers["x-original-timestamp-type"] == b"CreateTime"
    assert (headers["x-exception-fqcn"], headers["x-exception-message"]) == (b"builtins.ValueError", b"bad")
    assert headers["x-exception-stacktrace"].startswith(b"Traceback")
    assert headers["FAILURE_MESSAGE"] == "bad"


def test_letters_of_rocketmq_have_no_headers_of_kafka() -> None:
    """Only those of all binders."""
    with application("rocketmq", {}).test() as test:
        test.input("in").send("bad")
        headers = test.dead_letters("in").receive().headers
    assert headers["FAILURE_MESSAGE"] == "bad"
    assert not [name for name in headers if name.startswith("x-")]


def test_without_a_dead_letter_topic_rejected_messages_are_dropped(caplog: pytest.LogCaptureFixture) -> None:
    """As on Kafka, with an error in the log; a test that asks for them is told so."""
    with application("kafka", {f"{KAFKA_IN}.enable-dlq": "false"}).test() as test:
        test.input("in").send("bad")
        with pytest.raises(ValueError, match="'in' has no dead letters, rejected messages are dropped"):
            test.dead_letters("in")
    assert any("It is lost: the binding has no dead letters" in text for text in caplog.messages)


def test_a_letter_keeps_its_partition_as_settings_say() -> None:
    """Kafka's dead-letter topics have the partitions of the destination or those of the settings, RocketMQ's one."""
    for type_, settings, partition in (
        ("kafka", {}, 3),
        ("kafka", {f"{KAFKA_IN}.dlq-partitions": "2"}, 1),
        ("rocketmq", {}, 0),
    ):
        with application(type_, settings).test() as test:
            test.input("in").send("bad", {PARTITION: 3})
            assert test.dead_letters("in").receive().headers[PARTITION] == partition


def test_headers_that_kafkas_patterns_exclude_do_not_arrive() -> None:
    """The content type follows the patterns as well; id, timestamp and key are fields of a record."""
    with application("kafka", {f"{KAFKA_OUT}.header-patterns": "!secret*,s*,x"}).test() as test:
        headers = {"secretCode": "1", "size": 2, "x": "3", "y": "4", KEY: "k"}
        test.app.channel("out").send(Message("a", headers))
        received = test.output("out").receive()
    assert set(received.headers) == {"id", "timestamp", "size", "x", KEY, PARTITION, SEQUENCE}


def test_kafkas_own_headers_steer_a_send_and_do_not_travel() -> None:
    """The key, the partition and, with `use-topic-header`, the topic."""
    with application("kafka", {f"{KAFKA_OUT}.use-topic-header": "true"}).test() as test:
        own = {"kafka_topic": "other", "kafka_messageKey": "k", "kafka_partitionId": 2, "kafka_offset": 7}
        test.app.channel("out").send(Message("a", own))
        assert test.output("out").is_empty
        received = test.output("other").receive()
    assert received.headers[KEY] == "k"
    assert received.headers[PARTITION] == 2
    assert not [name for name in received.headers if name.startswith("kafka_")]


def test_headers_with_rocketmqs_names_do_not_travel() -> None:
    """RocketMQ would take them for facts of its own; tags and keys have spellings of RocketMQ."""
    with application("rocketmq", {}).test() as test:
        test.app.channel("out").send(Message("a", {"rocketmq_TOPIC": "x", "UNIQ_KEY": "x", "TAGS": "paid", "y": "z"}))
        received = test.output("out").receive()
    assert {"rocketmq_TOPIC", "UNIQ_KEY", "TAGS"}.isdisjoint(received.headers)
    assert (received.headers["streamkit_tags"], received.headers["y"]) == ("paid", "z")


@pytest.mark.parametrize(
    ("type_", "setting"),
    [
        ("rocketmq", "rocketmq.bindings.out.producer.max-message-size"),
        ("kafka", f"{KAFKA_OUT}.configuration.max.request.size"),
    ],
)
def test_a_message_that_is_too_large_fails_at_the_sender(type_: str, setting: str) -> None:
    """The limit is that of the replaced binder."""
    with application(type_, {setting: "1000"}).test() as test:
        test.app.channel("out").send(Message(b"x" * 1000))
        with pytest.raises(MessageHandlingError, match="1001 bytes, more than the largest message, 1000"):
            test.app.channel("out").send(Message(b"x" * 1001))


def test_what_the_replaced_binder_cannot_do_is_refused_in_its_test() -> None:
    """At the start, or when a message asks for it."""
    with application("kafka", {}).test() as test, pytest.raises(MessageHandlingError, match="delay-level"):
        test.app.channel("out").send(Message("a", {"DELAY": 1}))
    tagged = application("kafka", {f"{KAFKA_IN}.tags": "paid"})
    with pytest.raises(UnsupportedCapability, match="tags=paid asks for tag"), tagged.test():
        pass


def test_a_pattern_of_destinations_is_refused_in_memory() -> None:
    """A test that passes because nothing matches would deceive."""
    app = application("kafka", {f"{KAFKA_IN}.destination-is-pattern": "true"})
    with pytest.raises(UnsupportedCapability, match="destination-is-pattern=true asks for pattern"), app.test():
        pass


def test_a_setting_that_memory_does_not_imitate_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """Of bindings and of the binder, with the reason."""
    caplog.set_level(logging.WARNING)
    settings = {f"{KAFKA_IN}.reset-offsets": "true", "kafka.binder.transaction.transaction-id-prefix": "tx-"}
    with application("kafka", settings).test():
        pass
    told = " ".join(caplog.messages)
    assert f"{STREAM}.{KAFKA_IN}.reset-offsets has no effect: a group continues where it was (in memory)" in told
    assert "transaction-id-prefix has no effect: what a failed listener has sent is delivered (in memory)" in told


def test_delay_levels_and_pauses_are_those_of_the_replaced_binder() -> None:
    """RocketMQ's table is a setting of its binder, Kafka's one of the binding."""
    with application("rocketmq", {"rocketmq.binder.message-delay-level": "7s 9s"}).test() as test:
        test.app.channel("out").send(Message("a", {"DELAY": 2}))
        test.advance(seconds=8.9)
        assert test.output("out").is_empty
        test.advance(seconds=0.2)
        assert not test.output("out").is_empty
    own = {"ordered": "false", "max-reconsume-times": "1", "redelivery-level": "1", "redelivery-delays": "40s"}
    with application("kafka", {f"{KAFKA_IN}.{key}": value for key, value in own.items()}).test() as test:
        test.input("in").send("bad")
        test.advance(seconds=39)
        assert test.dead_letters("in").is_empty
        test.advance(seconds=2)
        assert not test.dead_letters("in").is_empty


def test_a_poll_waits_as_long_as_the_settings_say() -> None:
    """In virtual time; so other tasks run while a loop polls."""
    for type_, setting in (
        ("rocketmq", f"{ROCKET_IN}.pull.poll-timeout-millis"),
        ("kafka", f"{KAFKA_IN}.poll-timeout"),
    ):
        app = polled(type_, setting)
        source = app.pollable_source("in")
        with app.test() as test:
            before = test.time.loop.time()
            assert not test.run(source.poll(fail))
            assert test.time.loop.time() - before == pytest.approx(0.3)


def polled(type_: str, setting: str) -> StreamApplication:
    """An application that polls `in`, with 300 ms for each poll."""
    table = {"default-binder": type_, "bindings.in.group": "g", setting: "300"}
    return StreamApplication(
        config_location="optional:/none", properties={f"{STREAM}.{key}": value for key, value in table.items()}
    )


@pytest.mark.parametrize(
    ("type_", "own", "group", "received"),
    [
        ("rocketmq", {}, "g", ["early", "late"]),
        ("rocketmq", {}, "", ["late"]),
        ("rocketmq", {f"{ROCKET_IN}.consume-from-where": "CONSUME_FROM_TIMESTAMP"}, "g", ["early", "late"]),
        ("kafka", {}, "g", ["early", "late"]),
        ("kafka", {}, "", ["late"]),
        ("kafka", {f"{KAFKA_IN}.start-offset": "latest"}, "g", ["late"]),
        ("kafka", {f"{KAFKA_IN}.start-offset": "earliest"}, "", ["early", "late"]),
    ],
)
def test_where_a_group_begins(type_: str, own: dict[str, str], group: str, received: list[str]) -> None:
    """A new named group on a young topic gets what was sent before, and an anonymous one does not."""
    seen: list[str] = []

    async def note(text: str) -> None:
        seen.append(text)

    own = own | {"bindings.in.group": group, "bindings.in.consumer.auto-startup": "false"}
    app = application(type_, own, note)
    with app.test() as test:
        test.input("in").send("early")
        test.run(app.binding("in").start())
        test.input("in").send("late")
    assert seen == received


def test_the_position_by_time_of_a_broadcasting_member() -> None:
    """It has no offset at the broker, so its queue is searched by time."""
    seen: list[str] = []

    async def note(text: str) -> None:
        seen.append(text)

    own = {f"{ROCKET_IN}.broadcasting": "true", f"{ROCKET_IN}.consume-from-where": "CONSUME_FROM_TIMESTAMP"}
    app = application("rocketmq", own | {"bindings.in.consumer.auto-startup": "false"}, note)
    with app.test() as test:
        test.input("in").send("too early")
        test.advance(minutes=31)
        test.input("in").send("early")
        test.advance(minutes=29)
        test.run(app.binding("in").start())
        test.settle()
    assert seen == ["early"]


def test_the_producer_group_of_the_binder_counts() -> None:
    """A transaction listener is registered for the group of the replaced binder's settings."""
    app = application(
        "rocketmq", {"rocketmq.binder.group": "shop", "rocketmq.bindings.out.producer.transactional": "true"}
    )

    @app.transaction_listener("shop")
    def check(message: Message[bytes]) -> TransactionState:
        return TransactionState.COMMIT

    with app.test():
        pass
