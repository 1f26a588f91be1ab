"""Maps the headers of a message to properties on the wire, and back.

    streamkit_tags, streamkit_key, streamkit_delay   TAGS, KEYS, DELAY        (RocketMQ's own)
    id, timestamp, contentType                       the same names, as text; a received message without `id` has its
                                                     UNIQ_KEY as id
    any other header                                 the same name; values other than text are JSON with their
                                                     Java class in `spring_json_header_types`, and so is
                                                     empty text, which RocketMQ would drop
    rocketmq_TOPIC, rocketmq_QUEUE_ID, ...           facts from the broker, on received messages only
    ORIGIN_DESTINATION, ORIGIN_PARTITION, ...        on received dead letters: where they were first sent to, and
                                                     the group that rejected them (`streamkit.binder.dead_letter`)

The first generation of Spring Cloud Alibaba's binder writes and reads the same form (`JacksonRocketMQHeaderMapper`), so
Java and Python applications read each other's headers.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import msgspec

from binders.rocket.header_names import (
    BORN_HOST,
    BORN_TIMESTAMP,
    FLAG,
    KEYS,
    MESSAGE_ID,
    QUEUE_ID,
    QUEUE_OFFSET,
    RECONSUME_TIMES,
    ROCKETMQ_PREFIX,
    SYS_FLAG,
    TAGS,
    TOPIC,
    TRANSACTION_ID,
)
from rocket_remoting.wire.message import MessageExt
from rocket_remoting.wire.properties import (
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_KEYS,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_ORIGIN_QUEUE_ID,
    PROPERTY_ORIGIN_QUEUE_OFFSET,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TAGS,
    PROPERTY_UNIQUE_KEY,
    RESERVED_PROPERTIES,
)
from rocket_remoting.wire.topics import DLQ_PREFIX, is_dead_letter_topic
from streamkit.binder.dead_letter import (
    ORIGIN_DESTINATION,
    ORIGIN_GROUP,
    ORIGIN_MESSAGE_ID,
    ORIGIN_OFFSET,
    ORIGIN_PARTITION,
)
from streamkit.messaging import headers as portable
from streamkit.messaging.java_headers import declared_types, from_json, java_type, require_utf8, to_json

_SKIPPED: Final = (
    portable.STEERING
    | {portable.KEY, portable.TAGS, PROPERTY_ORIGIN_QUEUE_ID, PROPERTY_ORIGIN_QUEUE_OFFSET}
    | RESERVED_PROPERTIES
)

_NOT_SENT: Final = _SKIPPED | {
    TOPIC,
    MESSAGE_ID,
    BORN_TIMESTAMP,
    BORN_HOST,
    FLAG,
    QUEUE_ID,
    QUEUE_OFFSET,
    SYS_FLAG,
    TRANSACTION_ID,
    RECONSUME_TIMES,
    KEYS,
    TAGS,
}
"""The headers that a send leaves out. Results of a listener have copies of the incoming message's headers, so the facts
from the broker, `rocketmq_*`, are among them."""

_SEPARATORS: Final = "\x01\x02"

_MOST_DIGITS: Final = 19
"""The most digits of a number that fits Java's `long`. Python's `int()` refuses texts of thousands."""


def to_properties(headers: portable.MessageHeaders) -> dict[str, str]:
    """Return the user properties of an outgoing message: its headers, except those that RocketMQ has fields for.

    Raises:
        ValueError: A header cannot be written, because JSON or UTF-8 has no form for it or because its text
            holds a character that separates properties on the wire.
    """
    properties = {portable.ID: str(headers.id), portable.TIMESTAMP: str(headers.timestamp)}
    types: dict[str, str] = {}
    for name, value in headers.items():
        if name in _NOT_SENT or name in properties or value is None or name.startswith(ROCKETMQ_PREFIX):
            continue
        if isinstance(value, str) and value:
            text = value
            # Printable ASCII, as most headers are, passes both checks.
            if text.isascii() and text.isprintable() and name.isascii() and name.isprintable():
                properties[name] = text
                continue
        elif name == portable.CONTENT_TYPE:
            text = str(value)
        else:
            text, types[name] = to_json(name, value).decode(), java_type(value)
        _check(name, text)
        require_utf8(name, text)
        properties[name] = text
    if types:
        properties[portable.JSON_HEADER_TYPES] = msgspec.json.encode(types).decode()
    return properties


def _check(name: str, text: str) -> None:
    for separator in _SEPARATORS:
        if separator in text or separator in name:
            raise ValueError(
                f"header {name!r} contains the control character U+0001 or U+0002, which separate properties"
            )


def from_message(message: MessageExt) -> dict[str, object]:
    """Return the headers of a received message: portable ones, the sender's, and those with facts from the broker."""
    properties = message.properties
    headers: dict[str, object] = {
        portable.PARTITION: message.queue_id,
        TOPIC: message.topic,
        MESSAGE_ID: message.msg_id,
        BORN_TIMESTAMP: message.born_timestamp,
        BORN_HOST: message.born_host[0],
        FLAG: message.flag,
        QUEUE_ID: message.queue_id,
        QUEUE_OFFSET: message.queue_offset,
        SYS_FLAG: message.sys_flag,
        RECONSUME_TIMES: message.reconsume_times,
    }
    for name, value in properties.items():
        if name not in _SKIPPED:
            headers[name] = value
    if keys := properties.get(PROPERTY_KEYS):
        headers[KEYS] = headers[portable.KEY] = keys
    if tags := properties.get(PROPERTY_TAGS):
        headers[TAGS] = headers[portable.TAGS] = tags
    if unique_key := properties.get(PROPERTY_UNIQUE_KEY):
        headers[TRANSACTION_ID] = unique_key
        if portable.ID not in headers:  # sent by another client: all ways of the message keep this key
            headers[portable.ID] = unique_key
    if timestamp := properties.get(portable.TIMESTAMP):
        is_time = timestamp.isdecimal() and len(timestamp) <= _MOST_DIGITS
        headers[portable.TIMESTAMP] = int(timestamp) if is_time else message.born_timestamp
    if is_dead_letter_topic(message.topic):
        headers |= _origin(message.topic, properties)
    if types := properties.get(portable.JSON_HEADER_TYPES):
        _restore(headers, types)
    return headers


def _origin(letters: str, properties: Mapping[str, str]) -> dict[str, object]:
    """Return the headers that say where a dead letter was first sent to, and which group rejected it.

    Args:
        letters: The dead letter topic.
        properties: The properties of the letter. Java's clients do not write the queue and its offset.
    """
    # RETRY_TOPIC names the dead letter topic itself once the dead letter's own listener has failed.
    retried = properties.get(PROPERTY_RETRY_TOPIC, "")
    topic = properties.get(PROPERTY_DLQ_ORIGIN_TOPIC) if is_dead_letter_topic(retried) else retried
    found: dict[str, object] = {
        ORIGIN_DESTINATION: topic,
        ORIGIN_PARTITION: _number(properties.get(PROPERTY_ORIGIN_QUEUE_ID)),
        ORIGIN_OFFSET: _number(properties.get(PROPERTY_ORIGIN_QUEUE_OFFSET)),
        ORIGIN_MESSAGE_ID: properties.get(PROPERTY_ORIGIN_MESSAGE_ID),
        ORIGIN_GROUP: letters.removeprefix(DLQ_PREFIX),
    }
    return {name: value for name, value in found.items() if value is not None and value != ""}


def _number(text: str | None) -> int | None:
    """Return the text as a whole number, or None if it is missing or not a number."""
    is_number = text is not None and text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS
    return int(text) if text is not None and is_number else None


def _restore(headers: dict[str, object], types: str) -> None:
    """Decode the headers that were sent as JSON; a header that cannot be decoded stays text."""
    for name, declared in declared_types(types).items():
        text = headers.get(name)
        if isinstance(text, str) and name not in portable.READ_ONLY:
            with suppress(ValueError):
                headers[name] = from_json(text, declared)
