"""Maps the headers of a message to those of its record in Kafka, and back.

    streamkit_key, kafka_messageKey     the record's key, as bytes
    kafka_timestamp, timestamp          the record's timestamp
    scst_partition, kafka_partitionId   the record's partition
    id                                  streamkit_id, as text: Spring never sends `id`. A received record without it
                                        has its place as id, `topic-partition-offset`
    contentType, any other header       the same name: text in UTF-8, bytes unchanged, other values as JSON; values
                                        other than bytes have their Java class in `spring_json_header_types`
    kafka_receivedTopic, kafka_offset…  facts from the broker, on received messages only

Spring's Kafka binder writes and reads the same form (`BinderHeaderMapper`), so Java and Python applications read each
other's headers. As there, a header without a Java class is bytes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec

from streamkit.binder.dead_letter import ORIGIN_DESTINATION, ORIGIN_OFFSET, ORIGIN_PARTITION
from streamkit.messaging import headers as portable
from streamkit.messaging.headers import MessageHeaders
from streamkit.messaging.java_headers import STRING, declared_types, from_json, java_type, to_json

TOPIC: Final = "kafka_topic"
MESSAGE_KEY: Final = "kafka_messageKey"
PARTITION_ID: Final = "kafka_partitionId"
RECORD_TIMESTAMP: Final = "kafka_timestamp"
RECEIVED_KEY: Final = "kafka_receivedMessageKey"
RECEIVED_TOPIC: Final = "kafka_receivedTopic"
RECEIVED_PARTITION: Final = "kafka_receivedPartitionId"
RECEIVED_TIMESTAMP: Final = "kafka_receivedTimestamp"
OFFSET: Final = "kafka_offset"
TIMESTAMP_TYPE: Final = "kafka_timestampType"
GROUP_ID: Final = "kafka_groupId"
TIMESTAMP_TYPES: Final = {0: "CREATE_TIME", 1: "LOG_APPEND_TIME"}

ID: Final = "streamkit_id"

RecordHeaders: TypeAlias = list[tuple[str, bytes]]
Record: TypeAlias = Any
"""A `ConsumerRecord` of kafka-python, whose classes have no annotations."""

# Headers that Spring's mapper never writes: they describe the record, or belong to the receiving application.
NEVER_SENT: Final = frozenset(
    {
        TOPIC,
        MESSAGE_KEY,
        PARTITION_ID,
        RECORD_TIMESTAMP,
        RECEIVED_KEY,
        RECEIVED_TOPIC,
        RECEIVED_PARTITION,
        RECEIVED_TIMESTAMP,
        OFFSET,
        TIMESTAMP_TYPE,
        GROUP_ID,
        "kafka_acknowledgment",
        "kafka_batchConvertedHeaders",
        "kafka_consumer",
        "kafka_data",
        "kafka_deliveryAttempt",
        "kafka_listenerInfo",
        "kafka_nativeHeaders",
    }
)
OWN_SPELLINGS: Final = {
    MESSAGE_KEY: portable.KEY,
    PARTITION_ID: portable.PARTITION,
    RECORD_TIMESTAMP: portable.TIMESTAMP,
}
"""Headers of outgoing messages that set a field of the record, with the portable header for the same."""
# Headers that Spring writes and reads as text without a declared Java class.
_UNDECLARED_TEXT: Final = frozenset(
    {"b3", "traceparent", "X-B3-TraceId", "X-B3-SpanId", "X-B3-Sampled", "X-B3-Flags", "kafka_listenerInfo"}
)
# Headers that a record has fields for, and headers that each sender sets anew.
_LOCAL: Final = (
    portable.STEERING
    | NEVER_SENT
    | {portable.ID, portable.TIMESTAMP, portable.KEY, ID, "nativeHeadersPresent", "scst_nativeHeadersPresent"}
)


_NAMES_KEPT: Final = 256
"""The number of header names whose decision is cached. Bounded, because messages may have any names."""


class HeaderPatterns:
    """Decides which headers are sent: the first pattern that matches the name decides.

    A header that matches a pattern with a leading `!`, or no pattern, is not sent. As in Spring, `*` is the only
    wildcard, and case is ignored.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._rules = [(_Wildcards(pattern.removeprefix("!")), not pattern.startswith("!")) for pattern in patterns]
        self._decided = lru_cache(maxsize=_NAMES_KEPT)(self._decide)

    def __call__(self, name: str) -> bool:
        """Return whether a header is sent; without patterns all headers are."""
        return self._decided(name)

    def _decide(self, name: str) -> bool:
        if not self._rules:
            return True
        return next((travels for pattern, travels in self._rules if pattern.matches(name)), False)


class _Wildcards:
    """A pattern with `*` as wildcard, which ignores case.

    The parts between the stars must follow each other in the name. Each part is searched for once, from the end of the
    part before it. A regular expression with `.*` would try all places of all parts, which takes 12 seconds for
    `a*a*a*a*b` and a name of 400 characters.
    """

    def __init__(self, pattern: str) -> None:
        self._first, *self._others = pattern.casefold().split("*")

    def matches(self, name: str) -> bool:
        """Return whether the pattern matches the whole name."""
        name = name.casefold()
        if not self._others:
            return name == self._first
        *middle, last = self._others
        position, end = len(self._first), len(name) - len(last)
        if position > end or not (name.startswith(self._first) and name.endswith(last)):
            return False
        for part in middle:
            found = name.find(part, position, end)
            if found < 0:
                return False
            position = found + len(part)
        return True


def to_record(headers: MessageHeaders, travels: Callable[[str], bool]) -> RecordHeaders:
    """Return the record's headers for the headers of an outgoing message.

    Args:
        headers: The headers of the message.
        travels: Returns whether a header is sent, by its name.

    Raises:
        ValueError: The value of a header has no form in JSON.
    """
    found: RecordHeaders = [(ID, headers.id.encode())]
    types: dict[str, str] = {}
    for name, value in headers.items():
        if value is None or name in _LOCAL or not travels(name):
            continue
        if isinstance(value, bytes):
            found.append((name, value))
            continue
        encoded, types[name] = _encoded(name, value)
        found.append((name, encoded))
    return with_types(found, types)


def with_types(headers: RecordHeaders, types: Mapping[str, str]) -> RecordHeaders:
    """Append a header with the Java classes of headers, by name, if there are any, and return the headers."""
    if types:
        headers.append((portable.JSON_HEADER_TYPES, msgspec.json.encode(types)))
    return headers


def _encoded(name: str, value: object) -> tuple[bytes, str]:
    if name == portable.CONTENT_TYPE:
        return str(value).encode(), STRING
    # Receivers read text that begins with a quote as JSON, so such text is written as JSON.
    if isinstance(value, str) and not value.startswith('"'):
        return value.encode(), STRING
    return to_json(name, value), java_type(value)


def key_of(headers: MessageHeaders) -> bytes | None:
    """Return the record's key as bytes; None if there is none. Spring's header wins over the portable one."""
    key = headers.get(MESSAGE_KEY)
    if key is None:
        key = headers.get(portable.KEY)
    if key is None or isinstance(key, bytes):
        return key
    if isinstance(key, (list, tuple)):
        key = " ".join(map(str, key))
    return str(key).encode()


def partition_of(headers: MessageHeaders) -> int | None:
    """Return the partition that a message names, which may be beyond the topic's; None if it names none.

    Raises:
        ValueError: The header is not a whole number.
    """
    for name in (portable.PARTITION, PARTITION_ID):
        chosen = headers.get(name)
        if chosen is not None:
            return _number(name, chosen)
    return None


def timestamp_of(headers: MessageHeaders) -> int | None:
    """Return the record's timestamp in milliseconds since 1970. Spring's header wins over the portable one.

    Raises:
        ValueError: Spring's header is not a whole number, or is negative.
    """
    chosen = headers.get(RECORD_TIMESTAMP)
    if chosen is None:
        return headers.timestamp
    timestamp = _number(RECORD_TIMESTAMP, chosen)
    if timestamp < 0:
        raise ValueError(f"the header {RECORD_TIMESTAMP} is before 1970: {timestamp}")
    return timestamp


def _number(name: str, value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise ValueError(f"the header {name} is not a whole number: {value!r}") from None


def from_record(record: Record, group: str | None) -> dict[str, object]:
    """Return the headers of a received record: portable ones, the sender's, and those with facts from the broker.

    Args:
        record: The record.
        group: The name of the consumer group; None to leave that header out.
    """
    headers = sent_headers(record.headers) if record.headers else {}
    headers |= {
        portable.PARTITION: record.partition,
        portable.TIMESTAMP: record.timestamp,
        RECEIVED_TOPIC: record.topic,
        RECEIVED_PARTITION: record.partition,
        RECEIVED_TIMESTAMP: record.timestamp,
        TIMESTAMP_TYPE: TIMESTAMP_TYPES.get(record.timestamp_type, "NO_TIMESTAMP_TYPE"),
        OFFSET: record.offset,
    }
    if portable.ID not in headers:
        headers[portable.ID] = _stored_id(headers, record)
    if group is not None:
        headers[GROUP_ID] = group
    if record.key is not None:
        headers[RECEIVED_KEY] = record.key
        headers[portable.KEY] = _text_or_bytes(record.key)
    return headers


def _stored_id(headers: Mapping[str, object], record: Record) -> str:
    """Return an id for a record without one: its topic, partition and offset; for a dead letter, its original's."""
    place = [headers.get(name) for name in (ORIGIN_DESTINATION, ORIGIN_PARTITION, ORIGIN_OFFSET)]
    topic, partition, offset = place if None not in place else (record.topic, record.partition, record.offset)
    return f"{topic}-{partition}-{offset}"


def sent_headers(record_headers: Iterable[tuple[str, bytes | None]]) -> dict[str, object]:
    """Return the headers that a sender has set; of several with one name, the last."""
    raw = dict(record_headers)
    types = declared_types(raw.pop(portable.JSON_HEADER_TYPES, None) or b"{}")
    headers: dict[str, object] = {}
    for name, data in raw.items():
        if data is None or name in portable.READ_ONLY:
            continue
        declared = types.get(name, STRING if name in _UNDECLARED_TEXT else None)
        headers[name] = data if declared is None else _decoded(data, declared)
    id_ = headers.pop(ID, None)
    if isinstance(id_, bytes):
        headers[portable.ID] = id_.decode(errors="replace")
    content_type = headers.get(portable.CONTENT_TYPE)
    if isinstance(content_type, bytes):
        headers[portable.CONTENT_TYPE] = _decoded(content_type, STRING)
    return headers


def _decoded(data: bytes, declared: str) -> object:
    """Return the value of a header; bytes that cannot be decoded are returned unchanged."""
    try:
        if declared == STRING and not data.startswith(b'"'):
            return data.decode()
        return from_json(data, declared)
    except ValueError:
        return data


def _text_or_bytes(key: bytes) -> str | bytes:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key
