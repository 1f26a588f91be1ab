"""Messages and queues as clients see them."""

import pytest

from rocket_remoting.wire.message import Message, MessageExt, MessageQueue


def test_attributes_are_properties() -> None:
    """Tags, keys, delay level and the wait flag have RocketMQ's property names."""
    message = Message("orders", b"x", tags="new", keys=["1", "2"], delay_level=3, wait_store_ok=False)
    assert message.properties == {"TAGS": "new", "KEYS": "1 2", "DELAY": "3", "WAIT": "false"}
    assert (message.tags, message.keys, message.delay_level, message.wait_store_ok) == (
        "new",
        "1 2",
        3,
        False,
    )


def test_attributes_can_be_removed() -> None:
    """Setting an attribute to None removes its property."""
    message = Message("orders", b"x", tags="new", keys="1", delay_level=3, wait_store_ok=False)
    message.unique_key = "0" * 32
    message.tags = message.keys = message.unique_key = None
    message.delay_level = 0
    message.wait_store_ok = True
    assert message.properties == {}


def test_plain_message_has_no_properties() -> None:
    """Defaults are not written."""
    message = Message("orders", b"x")
    assert message.properties == {}
    assert (message.tags, message.delay_level, message.wait_store_ok) == (None, 0, True)


def test_invalid_delay_level_reads_as_none() -> None:
    """Whoever wrote the property."""
    assert Message("orders", b"x", properties={"DELAY": "soon"}).delay_level == 0


@pytest.mark.parametrize(("name", "value"), [("TAGS", "x"), ("UNIQ_KEY", "x"), (" ", "x"), ("a", " ")])
def test_user_properties_are_validated(name: str, value: str) -> None:
    """Reserved names and blank texts are refused, as by Apache's client."""
    with pytest.raises(ValueError, match="property"):
        Message("orders", b"x").set_user_property(name, value)


def test_user_property_is_kept() -> None:
    """Beside the other properties."""
    message = Message("orders", b"x")
    message.set_user_property("colour", "red")
    assert message.properties == {"colour": "red"}


def test_message_id_is_the_unique_key_or_the_offset_id() -> None:
    """The producer's unique key takes precedence."""
    message = MessageExt("orders", b"x", store_host=("10.0.0.1", 10911), commit_log_offset=3)
    assert message.msg_id == message.offset_message_id == "0A00000100002A9F0000000000000003"
    message.unique_key = "F" * 32
    assert message.msg_id == "F" * 32


def test_messages_compare_by_content() -> None:
    """Messages of different classes are never equal."""
    assert Message("a", b"x", tags="t") == Message("a", b"x", tags="t")
    assert Message("a", b"x") != Message("a", b"y")
    assert MessageExt("a", b"x", queue_id=1) != MessageExt("a", b"x", queue_id=2)
    assert Message("a", b"x") != MessageExt("a", b"x")


def test_queues_sort_as_in_java() -> None:
    """By topic, broker and number; rebalancing relies on it."""
    queues = [
        MessageQueue("b", "x", 0),
        MessageQueue("a", "y", 0),
        MessageQueue("a", "x", 10),
        MessageQueue("a", "x", 2),
    ]
    assert sorted(queues) == [queues[3], queues[2], queues[1], queues[0]]
    assert len({MessageQueue("a", "x", 1), MessageQueue("a", "x", 1)}) == 1
