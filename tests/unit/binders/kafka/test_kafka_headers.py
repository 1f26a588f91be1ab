"""Headers of messages as headers of Kafka's records, as Spring's Kafka binder writes and reads them."""

import json
from types import SimpleNamespace
from uuid import UUID

import pytest

from binders.kafka.headers import (
    MESSAGE_KEY,
    RECEIVED_KEY,
    HeaderPatterns,
    from_record,
    key_of,
    sent_headers,
    to_record,
)
from streamkit.messaging.headers import (
    CONTENT_TYPE,
    DELAY,
    ID,
    JSON_HEADER_TYPES,
    KEY,
    PARTITION,
    TAGS,
    TIMESTAMP,
    MessageHeaders,
)

ALL = HeaderPatterns(())


def written(headers: dict[str, object], travels: HeaderPatterns = ALL) -> dict[str, bytes]:
    return dict(to_record(MessageHeaders(headers), travels))


def record(**fields: object) -> SimpleNamespace:
    known = {"topic": "orders", "partition": 2, "offset": 7, "timestamp": 1700000000000, "timestamp_type": 0}
    return SimpleNamespace(**known | {"key": None, "value": b"x", "headers": []} | fields)


@pytest.mark.parametrize(
    ("value", "data", "java_type"),
    [
        ("red", b"red", "java.lang.String"),
        ("", b"", "java.lang.String"),
        ('"quoted"', b'"\\"quoted\\""', "java.lang.String"),
        (7, b"7", "java.lang.Integer"),
        (2**40, b"1099511627776", "java.lang.Long"),
        (1.5, b"1.5", "java.lang.Double"),
        (True, b"true", "java.lang.Boolean"),
        ([1, "two", None], b'[1,"two",null]', "java.util.ArrayList"),
        ({"a": 1}, b'{"a":1}', "java.util.LinkedHashMap"),
        (UUID(int=1), b'"00000000-0000-0000-0000-000000000001"', "java.util.UUID"),
    ],
)
def test_values_travel_with_their_java_classes(value: object, data: bytes, java_type: str) -> None:
    """What Java would read of it, and what comes back of it here."""
    sent = written({"h": value})
    assert sent["h"] == data
    assert json.loads(sent[JSON_HEADER_TYPES]) == {"h": java_type}
    back = sent_headers(sent.items())["h"]
    assert (back, type(back)) == (value, type(value))


def test_bytes_travel_raw_and_without_a_class() -> None:
    """As in Java: bytes that nobody declared are bytes."""
    assert written({"h": b"\x00\xff"})["h"] == b"\x00\xff"
    assert JSON_HEADER_TYPES not in written({"h": b"x"})
    assert sent_headers([("h", b"\x00\xff")]) == {"h": b"\x00\xff"}


def test_what_steers_a_send_does_not_travel() -> None:
    """Key and timestamp are the record's; Spring's own names are its own business; the id has a name of ours."""
    headers = MessageHeaders({KEY: "k", DELAY: 3, PARTITION: 1, "kafka_offset": 9, "none": None, TAGS: "t"})
    sent = dict(to_record(headers, ALL))
    assert sent.keys() == {"streamkit_id", TAGS, JSON_HEADER_TYPES}
    assert sent["streamkit_id"] == headers.id.encode()


@pytest.mark.parametrize(
    "name",
    ["kafka_correlationId", "kafka_replyTopic", "kafka_dlt-original-topic", "kafka_dlt-exception-fqcn"],
)
def test_what_springs_mapper_carries_of_its_own_headers_travels(name: str) -> None:
    """Those of its request and reply, and of its dead letters: who sends one on sends on why it is one."""
    assert written({name: b"\x01"})[name] == b"\x01"


@pytest.mark.parametrize("name", ["traceparent", "b3", "X-B3-TraceId"])
def test_what_spring_writes_as_undeclared_text_is_text(name: str) -> None:
    """A trace that goes through Kafka is text on both sides."""
    assert sent_headers([(name, b"00-4bf9-00f0-01")]) == {name: "00-4bf9-00f0-01"}


def test_header_patterns_decide_in_their_order() -> None:
    """The first that matches a name decides, `!` says no; without a match nothing travels."""
    sent = written({"ash": "1", "ask": "2", "other": "3"}, HeaderPatterns(("!ask", "as*")))
    assert sent.keys() >= {"ash"}
    assert not sent.keys() & {"ask", "other"}


@pytest.mark.parametrize("name", ["X-Secret", "x-secret", "X-SECRET-TOKEN"])
def test_header_patterns_match_in_any_case(name: str) -> None:
    """As Spring's do: what one keeps to itself, the other does not give away."""
    assert name not in written({name: "1"}, HeaderPatterns(("!x-secret*", "*")))


def test_a_star_is_the_only_wildcard_of_a_header_pattern() -> None:
    """Names may hold what is one elsewhere."""
    travels = HeaderPatterns(("a[b]?", "*-x-*"))
    assert travels("a[b]?")
    assert travels("1-x-2")
    assert not travels("ab1")


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("a*a", "a", False),
        ("a*a", "aa", True),
        ("*b*b*", "ab", False),
        ("*b*b*", "abcb", True),
        ("a*b*c", "a-c-b-c", True),
        ("a*b*c", "a-c-b", False),
        ("*ab*b", "xab", False),
        ("*", "", True),
        ("**", "a", True),
        ("", "a", False),
        ("a*a*a*a*a*a*b", "a" * 2000, False),
    ],
)
def test_the_parts_of_a_header_pattern_follow_each_other(pattern: str, name: str, expected: bool) -> None:
    """Each is looked for once: the last name takes a backtracking engine 2000^6 steps."""
    assert HeaderPatterns((pattern,))(name) is expected


def test_a_header_without_a_form_in_json_is_named() -> None:
    """The sender learns which one it is."""
    with pytest.raises(ValueError, match="header 'h' is a object"):
        written({"h": object()})


@pytest.mark.parametrize(
    ("headers", "key"),
    [
        ({}, None),
        ({KEY: "k"}, b"k"),
        ({KEY: ["a", "b"]}, b"a b"),
        ({KEY: b"\xff"}, b"\xff"),
        ({KEY: "k", MESSAGE_KEY: 7}, b"7"),
    ],
)
def test_the_key_is_the_records(headers: dict[str, object], key: bytes | None) -> None:
    """Spring's header wins over the portable one; text and numbers are UTF-8."""
    assert key_of(MessageHeaders(headers)) == key


def test_a_received_record_tells_where_it_was() -> None:
    """By Spring's names, and by the portable ones."""
    headers = from_record(record(key=b"k"), "group")
    assert headers == {
        PARTITION: 2,
        TIMESTAMP: 1700000000000,
        KEY: "k",
        RECEIVED_KEY: b"k",
        "kafka_receivedTopic": "orders",
        "kafka_receivedPartitionId": 2,
        "kafka_receivedTimestamp": 1700000000000,
        "kafka_timestampType": "CREATE_TIME",
        "kafka_offset": 7,
        "kafka_groupId": "group",
    }


def test_a_message_keeps_its_id() -> None:
    """It travels by a name of its own, since Java's MessageHeaders take no text for an id."""
    headers = MessageHeaders({})
    assert from_record(record(headers=to_record(headers, ALL)), None)[ID] == headers.id


@pytest.mark.parametrize(
    ("data", "types"),
    [
        (b"text/plain", None),
        (b"text/plain", "java.lang.String"),
        (b'"text/plain"', "java.lang.String"),
        (
            b'{"type":"text","subtype":"plain","parameters":{}}',
            "org.springframework.util.MimeType",
        ),
    ],
)
def test_content_types_of_every_generation_are_read(data: bytes, types: str | None) -> None:
    """Raw from other clients, text or JSON from Spring, an object from its oldest applications."""
    headers = [(CONTENT_TYPE, data)]
    if types:
        headers.append((JSON_HEADER_TYPES, json.dumps({CONTENT_TYPE: types}).encode()))
    assert sent_headers(headers)[CONTENT_TYPE] == "text/plain"


@pytest.mark.parametrize("data", [b"{", b"\xff", b""])
def test_what_cannot_be_read_as_declared_stays_bytes(data: bytes) -> None:
    """A broken header harms nobody."""
    headers = [("h", data), (JSON_HEADER_TYPES, b'{"h":"java.util.LinkedHashMap"}')]
    assert sent_headers(headers) == {"h": data}


@pytest.mark.parametrize("types", [b"{", b"[]", b'{"h":1}'])
def test_broken_declarations_declare_nothing(types: bytes) -> None:
    """All headers are bytes then."""
    assert sent_headers([("h", b"7"), (JSON_HEADER_TYPES, types)]) == {"h": b"7"}


@pytest.mark.parametrize(
    ("declared", "data"),
    [
        ("java.util.ArrayList", b"[" * 100_000),
        ("java.lang.Double", b"1" * 400),
        ("java.util.UUID", b"{}"),
        ("[B", b'"\xc3\xa4"'),
        ("org.springframework.util.MimeType", b'{"type":"a","subtype":"b","parameters":[1]}'),
        ("java.lang.String", b'"\xff"'),
    ],
)
def test_a_header_that_is_not_what_it_is_declared_to_be_stays_bytes(declared: str, data: bytes) -> None:
    """Whatever is wrong with it, the message is delivered."""
    types = json.dumps({"odd": declared}).encode()
    assert sent_headers([("odd", data), (JSON_HEADER_TYPES, types)]) == {"odd": data}


@pytest.mark.parametrize("types", [b"[1]", b'{"odd":"\xff"}', b'{"odd":' * 100_000, b"", b"nothing"])
def test_declarations_nobody_can_read_declare_nothing(types: bytes) -> None:
    """The headers stay bytes."""
    assert sent_headers([("odd", b"1"), (JSON_HEADER_TYPES, types)]) == {"odd": b"1"}


def test_a_sender_cannot_say_where_its_message_was_received() -> None:
    """What the broker says wins over headers of the same names."""
    types = json.dumps({"kafka_offset": "java.lang.Integer", "scst_partition": "java.lang.Integer"}).encode()
    forged = [("kafka_offset", b"1"), ("scst_partition", b"9"), (JSON_HEADER_TYPES, types)]
    headers = from_record(record(headers=forged), "kitchen")
    assert (headers["kafka_offset"], headers[PARTITION]) == (7, 2)
