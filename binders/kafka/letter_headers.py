"""The headers of a dead letter, with the names of Spring's Kafka binder; also of letters in memory.

    x-original-topic, x-original-partition, x-original-offset, x-original-timestamp, x-original-timestamp-type
    x-exception-fqcn, x-exception-message, x-exception-stacktrace
    ORIGIN_DESTINATION, ORIGIN_PARTITION, ORIGIN_OFFSET, ORIGIN_MESSAGE_ID, ORIGIN_GROUP,
    FAILURE_TYPE, FAILURE_MESSAGE, FAILURE_PLACE            the same on every binder of this framework

Those of Spring are bytes. Numbers are big-endian: the partition has 4 bytes, offset and timestamp have 8. Texts are
UTF-8. This module does not need kafka-python.
"""

import struct
import traceback
from typing import Final

from streamkit.binder.dead_letter import Origin, cause_headers, origin_headers
from streamkit.messaging.cause import text_of
from streamkit.settlement import Reject

__all__ = ["CREATE_TIME", "EXCEPTION_MESSAGE", "EXCEPTION_STACKTRACE", "letter_headers"]

EXCEPTION_MESSAGE: Final = "x-exception-message"
EXCEPTION_STACKTRACE: Final = "x-exception-stacktrace"
CREATE_TIME: Final = "CreateTime"

_MAX_STACKTRACE: Final = 30_000


def letter_headers(origin: Origin, rejected: Reject, timestamp_type: str = CREATE_TIME) -> dict[str, str | int | bytes]:
    """Return the headers with the origin of a rejected message and the cause of its rejection.

    Args:
        origin: Where the message was.
        rejected: The rejection.
        timestamp_type: Java's name for what the message's timestamp is.
    """
    return {
        "x-original-topic": origin.destination.encode(),
        "x-original-partition": struct.pack(">i", origin.partition),
        "x-original-offset": struct.pack(">q", origin.offset),
        "x-original-timestamp": struct.pack(">q", -1 if origin.timestamp is None else origin.timestamp),
        "x-original-timestamp-type": timestamp_type.encode(),
        # An exception may quote text that cannot be encoded as UTF-8.
        **{name: text.encode(errors="replace") for name, text in _exception(rejected).items()},
        **origin_headers(origin),
        **cause_headers(rejected),
    }


def _exception(rejected: Reject) -> dict[str, str]:
    cause = rejected.cause
    if cause is None:
        return {EXCEPTION_MESSAGE: rejected.reason}
    trace = "".join(traceback.format_exception(cause))
    return {
        "x-exception-fqcn": f"{type(cause).__module__}.{type(cause).__qualname__}",
        EXCEPTION_MESSAGE: text_of(cause),
        EXCEPTION_STACKTRACE: trace[-_MAX_STACKTRACE:],
    }
