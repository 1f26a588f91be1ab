"""Kept messages, and the bytes in which a file holds them.

A message is held as its sender's binding has made it: the payload as bytes, the headers in MessagePack.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import msgspec

from streamkit.messaging.headers import DELAY, KEY, PARTITION, RECEIPT, MessageHeaders
from streamkit.messaging.message import NO_PAYLOAD, Message

__all__ = ["KeptMessage", "decoded", "encoded_headers", "order_key", "size_of"]

_SECOND: Final = timedelta(seconds=1)


@dataclass(slots=True)
class KeptMessage:
    """A message in a store, without its bytes.

    Attributes:
        number: Its place: messages are sent in the order of their numbers.
        key: Messages of one key are sent in their order; None for a message that has no place in any order.
        kept_ms: When it was kept, in milliseconds since 1970.
        size: The bytes of payload and headers.
    """

    number: int
    key: str | None
    kept_ms: int
    size: int


def order_key(message: Message[bytes]) -> str | None:
    """Return what keeps a message behind others: its key, else its partition, else None."""
    key = message.headers.get(KEY)
    if key is not None:
        return f"key {key}"
    partition = message.headers.get(PARTITION)
    return None if partition is None else f"partition {partition}"


def encoded_headers(headers: MessageHeaders) -> bytes:
    """Return headers, id and timestamp included, as bytes.

    Raises:
        TypeError: A header has no form in MessagePack.
    """
    values = {name: value for name, value in headers.items() if name != RECEIPT}
    delay = values.get(DELAY)
    if isinstance(delay, timedelta):
        values[DELAY] = delay / _SECOND
    return msgspec.msgpack.encode(values)


def decoded(payload: bytes | None, headers: bytes, waited: timedelta) -> Message[bytes]:
    """Return a message for its binder.

    Args:
        payload: The payload, or None for a message without one.
        headers: The headers, as `encoded_headers` has returned them.
        waited: How long the message was kept: its delay is that much shorter.

    Raises:
        ValueError: The headers are damaged.
    """
    values = msgspec.msgpack.decode(headers, type=dict[str, object])
    delay = values.get(DELAY)
    if isinstance(delay, int | float):
        values[DELAY] = max(0.0, delay - waited / _SECOND)
    return Message(NO_PAYLOAD if payload is None else payload, MessageHeaders.adopt(values))


def size_of(payload: bytes, headers: bytes) -> int:
    """Return the bytes that count against the limit of a store."""
    return len(payload) + len(headers)
