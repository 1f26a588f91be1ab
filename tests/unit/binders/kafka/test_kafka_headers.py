"""Message headers and Kafka record headers, as Spring's Kafka binder maps them."""

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
from streamkit.binder.dead_letter import ORIGIN_DESTINATION, ORIGIN_OFFSET, ORIGIN_PARTITION
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
def test_header_types_are_declared_with_java_classes(value: object, data: bytes, java_type: str) -> None:
    """Each value returns with its type."""
    sent = written({"h": value})
    assert sent["h"] == data
    assert json.loads(sent[JSON_HEADER_TYPES]) == {"h": java_type}
    back = sent_headers(sent.items())["h"]
    assert (back, type(back)) == (value, type(value))


def test_bytes_are_written_raw_without_a_declaration() -> None:
    """As in Java, undeclared headers are bytes."""
    assert written({"h": b"\x00\xff"})["h"] == b"\x00\xff"
    assert JSON_HEADER_TYPES not in written({"h": b"x"})
    assert sent_headers([("h", b"\x00\xff")]) == {"h": b"\x00\xff"}


def test_control_headers_are_not_sent() -> None:
    """Key and timestamp are fields of the record, Spring's internal names stay local, and the id has our own name."""
    headers = MessageHeaders({KEY: "k", DELAY: 3, PARTITION: 1, "kafka_offset": 9, "none": None, TAGS: "t"})
    sent = dict(to_record(headers, ALL))
    assert sent.keys() == {"streamkit_id", TAGS, JSON_HEADER_TYPES}
    assert sent["streamkit_id"] == headers.id.encode()


@pytest.mark.parametrize(
    "name",
    ["kafka_correlationId", "kafka_replyTopic", "kafka_dlt-original-topic", "kafka_dlt-exception-fqcn"],
)
def test_springs_kafka_headers_for_replies_and_dead_letters_are_sent(name: str) -> None:
    """A dead letter that is forwarded keeps its failure headers."""
    assert written({name: b"\x01"})[name] == b"\x01"


@pytest.mark.parametrize("name", ["traceparent", "b3", "X-B3-TraceId"])
def test_undeclared_text_headers_of_spring_are_text(name: str) -> None:
    """Tracing headers stay text on both sides."""
    assert sent_headers([(name, b"00-4bf9-00f0-01")]) == {name: "00-4bf9-00f0-01"}


def test_first_matching_header_pattern_decides() -> None:
    """`!` excludes; a header without a match is not sent."""
    sent = written({"ash": "1", "ask": "2", "other": "3"}, HeaderPatterns(("!ask", "as*")))
    assert sent.keys() >= {"ash"}
    assert not sent.keys() & {"ask", "other"}


@pytest.mark.parametrize("name", ["X-Secret", "x-secret", "X-SECRET-TOKEN"])
def test_header_patterns_ignore_case(name: str) -> None:
    """As in Spring, so that a header excluded there is excluded here."""
    assert name not in written({name: "1"}, HeaderPatterns(("!x-secret*", "*")))


def test_star_is_the_only_wildcard_of_a_header_pattern() -> None:
    """Names may contain the wildcard characters of other syntaxes."""
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
def test_header_pattern_matching_is_linear(pattern: str, name: str, expected: bool) -> None:
    """A backtracking engine would take 2000^6 steps for the last name."""
    assert HeaderPatterns((pattern,))(name) is expected


def test_header_without_json_form_is_named_in_the_error() -> None:
    """The send fails."""
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
def test_key_header_sets_the_records_key(headers: dict[str, object], key: bytes | None) -> None:
    """Spring's header precedes the portable one; text and numbers are encoded as UTF-8."""
    assert key_of(MessageHeaders(headers)) == key


def test_received_message_has_origin_headers() -> None:
    """By Spring's names and by the portable ones."""
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
        ID: "orders-2-7",
    }


def test_dead_letter_without_id_has_the_first_place_as_id() -> None:
    """A record that its sender gave no id is known by its place, which its dead letter names."""
    origin: dict[str, object] = {ORIGIN_DESTINATION: "orders", ORIGIN_PARTITION: 2, ORIGIN_OFFSET: 7}
    letter = record(topic="orders.dlq", offset=1, headers=to_record(MessageHeaders(origin), ALL)[1:])
    assert from_record(letter, None)[ID] == from_record(record(), None)[ID]


def test_message_id_is_kept() -> None:
    """Under our own header name, since Java's MessageHeaders accept no text as id."""
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
def test_header_that_does_not_match_its_declaration_stays_bytes(data: bytes) -> None:
    """The message is delivered."""
    headers = [("h", data), (JSON_HEADER_TYPES, b'{"h":"java.util.LinkedHashMap"}')]
    assert sent_headers(headers) == {"h": data}


@pytest.mark.parametrize("types", [b"{", b"[]", b'{"h":1}'])
def test_malformed_declarations_are_ignored(types: bytes) -> None:
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
def test_invalid_declared_value_stays_bytes(declared: str, data: bytes) -> None:
    """Whatever is wrong with it, the message is delivered."""
    types = json.dumps({"odd": declared}).encode()
    assert sent_headers([("odd", data), (JSON_HEADER_TYPES, types)]) == {"odd": data}


@pytest.mark.parametrize("types", [b"[1]", b'{"odd":"\xff"}', b'{"odd":' * 100_000, b"", b"nothing"])
def test_unreadable_declarations_are_ignored(types: bytes) -> None:
    """The headers stay bytes."""
    assert sent_headers([("odd", b"1"), (JSON_HEADER_TYPES, types)]) == {"odd": b"1"}


def test_sender_cannot_set_the_origin_headers() -> None:
    """The broker's facts override headers with the same names."""
    types = json.dumps({"kafka_offset": "java.lang.Integer", "scst_partition": "java.lang.Integer"}).encode()
    forged = [("kafka_offset", b"1"), ("scst_partition", b"9"), (JSON_HEADER_TYPES, types)]
    headers = from_record(record(headers=forged), "kitchen")
    assert (headers["kafka_offset"], headers[PARTITION]) == (7, 2)
