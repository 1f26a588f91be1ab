"""Message headers and RocketMQ's properties."""

from collections.abc import Callable
from functools import partial
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from binders.inmemory.headers import received_headers, sent_names
from binders.rocket.headers import from_message, to_properties
from rocket_remoting import MessageExt
from rocket_remoting.wire.properties import decode_properties, encode_properties
from streamkit.messaging import headers as portable
from streamkit.messaging.headers import MessageHeaders

TEXT = st.text(st.characters(blacklist_characters="\x01\x02", blacklist_categories=("Cs",)))
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = TEXT | NUMBERS | st.booleans() | st.uuids() | st.binary() | st.lists(TEXT) | st.dictionaries(TEXT, NUMBERS)
NAMES = st.from_regex(r"x-[a-z]{1,8}", fullmatch=True)


def received(properties: dict[str, str]) -> MessageExt:
    """Return a message as a consumer gets it, after its properties were encoded and decoded."""
    return MessageExt("orders", b"", properties=decode_properties(encode_properties(properties)))


@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_headers_keep_their_types(headers: dict[str, object]) -> None:
    """Every value arrives with its type."""
    arrived = from_message(received(to_properties(MessageHeaders(headers))))
    assert {name: arrived[name] for name in headers} == headers
    assert {name: type(arrived[name]) for name in headers} == {name: type(v) for name, v in headers.items()}


def test_java_header_types_are_declared() -> None:
    """Headers other than text are JSON, and `spring_json_header_types` names their Java classes."""
    properties = to_properties(
        MessageHeaders({"count": 3, "big": 2**40, "ratio": 0.5, "paid": True, "id2": UUID(int=1), "name": "x"})
    )
    assert properties["count"] == "3"
    assert properties["id2"] == '"00000000-0000-0000-0000-000000000001"'
    assert properties["name"] == "x"
    assert msgspec.json.decode(properties[portable.JSON_HEADER_TYPES]) == {
        "count": "java.lang.Integer",
        "big": "java.lang.Long",
        "ratio": "java.lang.Double",
        "paid": "java.lang.Boolean",
        "id2": "java.util.UUID",
    }


def test_id_timestamp_and_content_type_are_plain_text() -> None:
    """As in Spring's binder: without JSON, under their own names."""
    headers = MessageHeaders({"contentType": "application/json"})
    assert to_properties(headers) == {
        "id": str(headers.id),
        "timestamp": str(headers.timestamp),
        "contentType": "application/json",
    }


def test_control_headers_are_not_sent() -> None:
    """Such as partition, delay, attempt, and the broker's facts about another message."""
    local = {
        portable.PARTITION: 3,
        portable.DELAY: 5,
        portable.DELIVERY_ATTEMPT: 2,
        "rocketmq_TOPIC": "other",
        "TAGS": "a",
    }
    assert set(to_properties(MessageHeaders(local))) == {"id", "timestamp"}


@pytest.mark.parametrize("text", ["a\x01b", "a\x02b"])
def test_separator_in_a_header_is_refused(text: str) -> None:
    """It would split the message's properties."""
    with pytest.raises(ValueError, match="header 'note' contains the control character"):
        to_properties(MessageHeaders({"note": text}))


@pytest.mark.parametrize("headers", [{"a": "\ud800"}, {"\ud800": "x"}, {"a": ["\ud800"]}, {"\ud800": 1}])
@pytest.mark.parametrize("write", [to_properties, partial(received_headers, is_sent=sent_names())])
def test_lone_surrogate_in_a_header_is_refused(
    write: Callable[[MessageHeaders], object], headers: dict[str, object]
) -> None:
    """JSON may contain it, UTF-8 cannot; the error names the header. In memory too."""
    with pytest.raises(ValueError, match=r"header .* contains half of a surrogate pair"):
        write(MessageHeaders(headers))


def test_header_without_json_form_is_refused() -> None:
    """The error names the header and its type."""
    with pytest.raises(ValueError, match="header 'file' is a object"):
        to_properties(MessageHeaders({"file": object()}))


@pytest.mark.parametrize("types", ["not json", '{"n": 3}', '{"n": "java.util.UUID"}', '{"missing": "java.lang.Long"}'])
def test_wrong_type_declaration_leaves_the_text(types: str) -> None:
    """The message is delivered."""
    assert from_message(received({"n": "abc", portable.JSON_HEADER_TYPES: types}))["n"] == "abc"


@pytest.mark.parametrize("text", ["yesterday", "9" * 5000])
def test_invalid_timestamp_leaves_the_brokers(text: str) -> None:
    """A message whose headers fail could not be settled, and would block its queue in ordered mode."""
    message = received({portable.TIMESTAMP: text})
    message.born_timestamp = 5
    assert from_message(message)[portable.TIMESTAMP] == 5


def test_message_of_another_client_has_its_unique_key_as_id() -> None:
    """Redeliveries and dead letters keep both."""
    assert from_message(received({"UNIQ_KEY": "0A"}))[portable.ID] == "0A"
    assert from_message(received({"UNIQ_KEY": "0A", portable.ID: "7"}))[portable.ID] == "7"


def test_broker_facts_are_headers() -> None:
    """Under the names of Spring's first generation, and the portable ones."""
    message = received({"TAGS": "paid", "KEYS": "o-1", "UNIQ_KEY": "0A"})
    message.queue_id, message.reconsume_times = 3, 1
    message.born_host, message.born_timestamp, message.queue_offset = ("10.0.0.7", 4711), 5, 6
    message.flag, message.sys_flag = 7, 8
    headers = from_message(message)
    facts = {"BORN_HOST": "10.0.0.7", "BORN_TIMESTAMP": 5, "QUEUE_OFFSET": 6, "FLAG": 7, "SYS_FLAG": 8}
    assert {name: headers[f"rocketmq_{name}"] for name in facts} == facts
    assert (headers["rocketmq_TOPIC"], headers["rocketmq_MESSAGE_ID"]) == ("orders", "0A")
    assert headers["rocketmq_TAGS"] == headers[portable.TAGS] == "paid"
    assert headers["rocketmq_KEYS"] == headers[portable.KEY] == "o-1"
    assert headers["rocketmq_QUEUE_ID"] == headers[portable.PARTITION] == 3
    assert headers["rocketmq_RECONSUME_TIMES"] == 1
    assert headers["rocketmq_TRANSACTION_ID"] == "0A"
