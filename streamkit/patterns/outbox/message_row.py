"""Rows of messages, and messages of rows."""

import json
from datetime import datetime, timedelta

from streamkit.messaging.converter import PayloadWriter
from streamkit.messaging.headers import CONTENT_TYPE, ID, KEY, TIMESTAMP, MessageHeaders
from streamkit.messaging.message import NO_PAYLOAD, Message
from streamkit.patterns.outbox.claims import ClaimedRow
from streamkit.patterns.outbox.errors import OutboxError
from streamkit.patterns.outbox.status import MessageStatus
from streamkit.patterns.outbox.tables import ProducerMessage, lane_of
from streamkit.patterns.storable_text import storable

__all__ = ["OUTBOX_ID", "message_of", "row_of"]

OUTBOX_ID = "outbox_id"
"""The header with the business id of a message that comes from an outbox."""

_LONGEST = 255


def row_of(
    topic: str, message: Message[object], write: PayloadWriter, now: int, *, key: str | None, id_: str | None
) -> ProducerMessage:
    """Return the row of a message.

    Args:
        topic: The output binding.
        message: The message.
        write: Converts the payload, now: what cannot be sent fails in the sender's transaction.
        now: The time.
        key: Rows with one key are sent in their order.
        id_: The business id; the message's own id if not given.

    Raises:
        MessageConversionError: The payload cannot be converted.
        OutboxError: A header, the id or the key cannot be kept in the database.
    """
    wire = write(message)
    id_ = id_ or message.headers.id
    key = key or None
    for name, value in (("id", id_), ("key", key)):
        if value is not None:
            _check(topic, name, value)
    headers = {name: _kept(topic, name, value) for name, value in wire.headers.user_values().items()}
    headers |= {ID: message.headers.id, TIMESTAMP: message.headers.timestamp}
    if wire.headers.content_type is not None:
        headers[CONTENT_TYPE] = wire.headers.content_type
    return ProducerMessage(
        msgid=id_,
        topic=topic,
        body=None if wire.payload is NO_PAYLOAD else wire.payload,
        headers=json.dumps(headers, ensure_ascii=False),
        message_key=key,
        lane=lane_of(key or id_),
        message_status=str(MessageStatus.NOT_CONSUMED),
        create_time=now,
        update_time=now,
        send_times=0,
        pending=1,
        due_time=0,
        check_time=0,
    )


def message_of(row: ClaimedRow | ProducerMessage) -> Message[bytes]:
    """Return the message of a row: with the same id each time, so that consumers know it again."""
    headers: dict[str, object] = json.loads(row.headers)
    headers.setdefault(KEY, row.message_key or row.msgid)
    headers[OUTBOX_ID] = row.msgid
    return Message(NO_PAYLOAD if row.body is None else row.body, MessageHeaders.adopt(headers))


def _check(topic: str, name: str, value: object) -> None:
    """Refuse an id or a key that a database refuses, or compares in another way than Python."""
    if not isinstance(value, str):
        fault = f"is {value!r}; expected text: {name}=str(…)"
    elif len(value) > _LONGEST:
        fault = f"has {len(value)} characters; at most {_LONGEST}"
    elif storable(value, _LONGEST) != value:
        fault = f"is {value!r}: databases store neither NUL nor lone surrogates"
    elif value.endswith(" "):  # MariaDB compares text without the spaces at its end
        fault = f"is {value!r}: remove the space at its end, which some databases do not compare"
    else:
        return
    raise OutboxError(f"the {name} of a message to {topic!r} {fault}")


def _kept(topic: str, name: str, value: object) -> object:
    """Return a header's value as JSON has it; durations are seconds, times milliseconds since 1970."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    try:
        text = json.dumps(value, ensure_ascii=False)
        if json.loads(text) == value and storable(text, len(text)) == text:
            return value
    except (TypeError, ValueError, RecursionError):
        pass
    raise OutboxError(
        f"header {name!r} of a message to {topic!r} is {type(value).__name__}, which an outbox cannot keep: use text, "
        "numbers, lists and tables with text as keys"
    )
