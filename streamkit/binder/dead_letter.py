"""The headers of a dead letter that tell why the message was rejected: limited in size, the same on every binder."""

import traceback
from dataclasses import dataclass
from typing import Final

from streamkit.messaging.cause import text_of
from streamkit.settlement import Reject

__all__ = ["FAILURE_MESSAGE", "FAILURE_PLACE", "FAILURE_TYPE", "Origin", "cause_headers"]

FAILURE_TYPE: Final = "FAILURE_TYPE"
"""The exception's class, with its module."""
FAILURE_MESSAGE: Final = "FAILURE_MESSAGE"
"""The exception's text, or the reason of a listener that rejected the message."""
FAILURE_PLACE: Final = "FAILURE_PLACE"
"""``file:line in function`` of the innermost frame of the exception's traceback."""

_MAX_TYPE: Final = 200
_MAX_MESSAGE: Final = 1000
_MAX_PLACE: Final = 300


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a rejected message was.

    Attributes:
        destination: The destination.
        partition: The number of the partition.
        offset: The place of the message in the partition, counted from 0.
        timestamp: The message's time in milliseconds since 1970; None if the message has none.
    """

    destination: str
    partition: int
    offset: int
    timestamp: int | None


def cause_headers(rejected: Reject) -> dict[str, str]:
    """Return the headers that tell why a message was rejected; headers without text are left out.

    A character that UTF-8 cannot encode, such as half of a surrogate pair from JSON, is replaced by ``?``.
    """
    headers = {FAILURE_MESSAGE: rejected.reason[:_MAX_MESSAGE]}
    if rejected.cause is not None:
        headers = _of_cause(rejected.cause)
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
