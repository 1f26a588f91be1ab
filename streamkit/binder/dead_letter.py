"""The headers of a dead letter that tell where its message was and why it was rejected, the same on every binder."""

import traceback
from typing import Final

import msgspec

from streamkit.messaging.cause import text_of
from streamkit.settlement import Reject

__all__ = [
    "FAILURE_MESSAGE",
    "FAILURE_PLACE",
    "FAILURE_TYPE",
    "ORIGIN_DESTINATION",
    "ORIGIN_GROUP",
    "ORIGIN_MESSAGE_ID",
    "ORIGIN_OFFSET",
    "ORIGIN_PARTITION",
    "Origin",
    "cause_headers",
    "origin_headers",
]

FAILURE_TYPE: Final = "FAILURE_TYPE"
"""The exception's class, with its module; the class `Reject` of a listener that rejected without an exception."""
FAILURE_MESSAGE: Final = "FAILURE_MESSAGE"
"""The exception's text, or the reason of a listener that rejected the message."""
FAILURE_PLACE: Final = "FAILURE_PLACE"
"""``file:line in function`` of the innermost frame of the exception's traceback."""

ORIGIN_DESTINATION: Final = "ORIGIN_DESTINATION"
"""The destination from which the group received the message, as text."""
ORIGIN_PARTITION: Final = "ORIGIN_PARTITION"
"""The number of its partition there."""
ORIGIN_OFFSET: Final = "ORIGIN_OFFSET"
"""Its place in the partition, counted from 0."""
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
"""The id of the message, as text: RocketMQ's id of its first record; elsewhere the header ``id`` of its sender."""
ORIGIN_GROUP: Final = "ORIGIN_GROUP"
"""The group that rejected the message, as text."""

# The most characters of the texts in headers.
_MAX_TYPE: Final = 200
_MAX_MESSAGE: Final = 1000
_MAX_PLACE: Final = 300


class Origin(msgspec.Struct, frozen=True):
    """Where a rejected message was.

    Attributes:
        destination: The destination.
        partition: The number of the partition.
        offset: The place of the message in the partition, counted from 0.
        timestamp: The message's time in milliseconds since 1970; None if the message has none.
        group: The group that rejected the message; None if it is anonymous.
        message_id: The id of the message; None if the message has none.
    """

    destination: str
    partition: int
    offset: int
    timestamp: int | None
    group: str | None = None
    message_id: str | None = None


def origin_headers(origin: Origin) -> dict[str, str | int]:
    """Return the headers that tell where a rejected message was; what is not known is left out."""
    headers: dict[str, str | int | None] = {
        ORIGIN_DESTINATION: origin.destination,
        ORIGIN_PARTITION: origin.partition,
        ORIGIN_OFFSET: origin.offset,
        ORIGIN_MESSAGE_ID: origin.message_id,
        ORIGIN_GROUP: origin.group,
    }
    return {name: value for name, value in headers.items() if value is not None}


def cause_headers(rejected: Reject) -> dict[str, str]:
    """Return the headers that tell why a message was rejected; headers without text are left out.

    A character that UTF-8 cannot encode, such as half of a surrogate pair from JSON, is replaced by ``?``.
    """
    headers = _of_cause(rejected if rejected.cause is None else rejected.cause)
    return {name: text.encode(errors="replace").decode() for name, text in headers.items() if text}


def _of_cause(cause: BaseException) -> dict[str, str]:
    kind = type(cause)
    frames = traceback.extract_tb(cause.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}" if frames else ""
    return {
        FAILURE_TYPE: f"{kind.__module__}.{kind.__qualname__}"[:_MAX_TYPE],
        FAILURE_MESSAGE: text_of(cause)[:_MAX_MESSAGE],
        FAILURE_PLACE: place[-_MAX_PLACE:],
    }
