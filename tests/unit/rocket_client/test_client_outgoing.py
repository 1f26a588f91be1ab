"""From message to request: validation, ids and compression."""

import random
import zlib
from collections.abc import Sequence

import pytest

from rocket_client.core.outgoing import OutgoingMessages
from rocket_client.errors import IllegalMessageError, MessageTooLargeError
from rocket_client.settings import ProducerSettings
from rocket_remoting.clock import SystemClock
from rocket_remoting.wire.batch import decode_batch
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.message import Message
from rocket_remoting.wire.message_id import UniqueIdGenerator
from rocket_remoting.wire.properties import decode_properties


def outgoing(**settings: int) -> OutgoingMessages:
    clock = SystemClock()
    return OutgoingMessages(
        "shop",
        ProducerSettings(name_servers="127.0.0.1:9876", **settings),  # type: ignore[arg-type]
        clock,
        UniqueIdGenerator("127.0.0.1", clock=clock),
    )


def test_message_keeps_its_first_unique_id() -> None:
    """A message that is sent again has the same id."""
    message = Message("orders", b"coffee")
    first = outgoing().message(message)
    assert first.msg_id == message.unique_key
    assert outgoing().message(message).msg_id == first.msg_id
    assert first.code == RequestCode.SEND_MESSAGE_V2


def test_request_has_group_default_topic_and_queue_count() -> None:
    """Brokers that create topics need the last two."""
    prepare = outgoing()
    header = prepare.header(prepare.message(Message("orders", b"x", tags="A", flag=7)), "broker-a", 3)
    assert (header.producer_group, header.default_topic, header.default_topic_queue_nums) == (
        "shop",
        "TBW102",
        4,
    )
    assert (header.topic, header.queue_id, header.broker_name, header.flag) == ("orders", 3, "broker-a", 7)
    assert decode_properties(header.properties or "")["TAGS"] == "A"
    assert not header.batch


@pytest.mark.parametrize(("size", "flag"), [(99, 0), (100, 0x301)])
def test_bodies_from_the_threshold_on_are_compressed(size: int, flag: int) -> None:
    """With zlib, marked in the system flag; the message itself keeps its body."""
    message = Message("orders", b"x" * size)
    made = outgoing(compress_body_threshold=100).message(message)
    assert made.sys_flag == flag
    assert (zlib.decompress(made.body) if flag else made.body) == message.body == b"x" * size


def test_a_body_that_compression_would_not_shrink_is_sent_as_it_is() -> None:
    """Brokers accept the largest body that producers accept, whatever it contains."""
    body = random.Random(1).randbytes(1000)
    made = outgoing(compress_body_threshold=100, max_message_size=1000).message(Message("orders", body))
    assert (made.body, made.sys_flag) == (body, 0)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Message("", b"x"), "blank"),
        (Message("or ders", b"x"), "character outside"),
        (Message("t" * 128, b"x"), "128 characters"),
        (Message("SCHEDULE_TOPIC_XXXX", b"x"), "only the broker"),
        (Message("orders", b""), "body is empty"),
        (Message("orders", b"x", properties={"a": "1\x02b"}), "0x01 or 0x02"),
    ],
)
def test_invalid_message_is_refused_before_it_is_sent(message: Message, reason: str) -> None:
    """The error names the topic and the reason."""
    with pytest.raises(IllegalMessageError, match=reason) as caught:
        outgoing().message(message)
    assert caught.value.topic == message.topic


def test_too_large_message_error_has_size_and_limit() -> None:
    """The body is measured before compression."""
    with pytest.raises(MessageTooLargeError, match="4194305 bytes") as caught:
        outgoing().message(Message("orders", b"x" * (4 * 1024 * 1024 + 1)))
    assert (caught.value.part, caught.value.limit) == ("a body", 4 * 1024 * 1024)


def test_properties_are_limited_in_bytes() -> None:
    """Twenty thousand characters of three bytes exceed the record's 32767 bytes."""
    with pytest.raises(IllegalMessageError, match="60"):
        outgoing().message(Message("orders", b"x", properties={"note": "咖" * 20_000}))


def test_batch_contains_every_message() -> None:
    """With body, flag and properties of each, and all ids."""
    batch = [Message("orders", b"a", keys="1", flag=1), Message("orders", b"b", keys="2")]
    made = outgoing().batch(batch)
    entries = decode_batch(made.body)
    assert [(entry.body, entry.flag) for entry in entries] == [(b"a", 1), (b"b", 0)]
    assert [decode_properties(entry.properties)["KEYS"] for entry in entries] == ["1", "2"]
    assert made.msg_id == f"{batch[0].unique_key},{batch[1].unique_key}"
    assert made.code == RequestCode.SEND_BATCH_MESSAGE


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        ([], "at least one"),
        ([Message("orders", b"a"), Message("bills", b"b")], "one topic"),
        ([Message("%RETRY%g", b"a")], "retry topic"),
        ([Message("orders", b"a", delay_level=3)], "cannot be delayed"),
        ([Message("orders", b"a", properties={"TIMER_DELIVER_MS": "9999999999999"})], "cannot be timed"),
        ([Message("orders", b"a", properties={"TIMER_DELAY_SEC": "60"})], "cannot be timed"),
        ([Message("orders", b"a"), Message("orders", b"b", wait_store_ok=False)], "wait_store_ok"),
        ([Message("orders", b"a"), Message("orders", b"")], "body is empty"),
    ],
)
def test_incompatible_messages_are_refused_as_a_batch(batch: Sequence[Message], reason: str) -> None:
    """Nothing of it is sent."""
    with pytest.raises(IllegalMessageError, match=reason):
        outgoing().batch(batch)


def test_batch_size_is_limited_as_a_whole() -> None:
    """Many small messages may exceed it."""
    with pytest.raises(MessageTooLargeError, match="a batch of"):
        outgoing(max_message_size=1000).batch([Message("orders", b"x" * 100)] * 8)


def test_batch_takes_the_wait_flag_of_its_messages() -> None:
    """If all of them agree on it."""
    made = outgoing().batch([Message("orders", b"a", wait_store_ok=False)])
    assert decode_properties(made.properties) == {"WAIT": "false"}


def test_the_names_of_topics_do_not_fill_the_memory() -> None:
    """Topics may come from messages, so there may be any number of them."""
    prepare = outgoing()
    for number in range(10_001):
        prepare.message(Message(f"orders-{number}", b"x"))
    assert len(prepare._topics) <= 10_000
