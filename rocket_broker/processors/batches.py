"""The messages of a batch request, divided into parts that are stored one after the other.

::

    body    message | message | … | message | message | …
            └────────── part ──────────┘└──── part ─ …      at most PART_MESSAGES messages, or PART_BYTES bytes

Between two parts the loop serves other clients, so messages of other senders may be stored between them. A part is
stored at once. If all its messages are plain, the native core takes it as a whole; otherwise, and without the core, it
is stored message by message.
"""

import struct
from collections.abc import Generator
from typing import TYPE_CHECKING

from rocket_broker.limits.refusal import Refusal
from rocket_broker.writing.message_keys import MAX_KEYS
from rocket_broker.writing.timer_request import TIMED_NAME
from rocket_remoting.native import has_native_core
from rocket_remoting.wire.batch import BatchEntry, decode_batch
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.errors import RemoteProtocolError

if TYPE_CHECKING:
    from rocket_native import PlainBatch

__all__ = ["MAX_MESSAGES", "MOST_KEYS", "BatchPart", "bounds_in_steps", "read_batch", "read_plain"]

MAX_MESSAGES = 65_536
"""Maximum number of messages of one request. Each gets an id of 33 characters in the answer's header. Java's client
gives every message a unique key of 45 bytes or more, so its largest batch of 4 MiB holds fewer."""

PART_MESSAGES = 2_048
PART_BYTES = 1024 * 1024
"""Limits of a part, which the native core stores in about two milliseconds."""

MOST_KEYS = 16_384
"""Maximum number of keys of a part that is taken as a whole; each gets an entry in the index, anywhere in its table."""

_SIZE = struct.Struct(">i")
_SMALLEST_MESSAGE = 22
_SIZES_A_STEP = 4096


class BatchPart:
    """Consecutive messages of a batch.

    Attributes:
        plain: The messages as the native core takes them; None if they have to be stored one by one.
        entries: The messages one by one, decoded on first access.
    """

    __slots__ = ("_bounds", "_data", "_entries", "plain")

    def __init__(self, data: bytes, bounds: tuple[int, int], *, at_once: bool) -> None:
        """Decode the messages.

        Args:
            data: The body of the request.
            bounds: The positions of the part in it.
            at_once: Whether the part may be stored at once.

        Raises:
            Refusal: The lengths in the data do not agree.
        """
        self._data = data
        self._bounds = bounds
        self._entries: list[BatchEntry] | None = None
        self.plain = read_plain(data, *bounds) if at_once and has_native_core() else None
        if self.plain is None:
            self._entries = self._decoded()

    @property
    def entries(self) -> list[BatchEntry]:
        """The messages one by one."""
        if self._entries is None:
            self._entries = self._decoded()
        return self._entries

    def _decoded(self) -> list[BatchEntry]:
        start, end = self._bounds
        try:
            return decode_batch(memoryview(self._data)[start:end])
        except RemoteProtocolError as e:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, str(e)) from None

    def __len__(self) -> int:
        return len(self.plain) if self.plain is not None else len(self.entries)


def read_batch(body: bytes | memoryview, *, at_once: bool) -> Generator[None, None, list[BatchPart]]:
    """Divide a batch into parts; yield after each part, return all parts.

    Args:
        body: The request's body.
        at_once: Whether the store takes a part at once now.

    Raises:
        Refusal: The batch is empty, has more than `MAX_MESSAGES` messages, or the lengths in it do not agree.
    """
    data = bytes(body)
    parts: list[BatchPart] = []
    for bounds in (yield from _bounds(data)):
        if parts:
            yield
        parts.append(BatchPart(data, bounds, at_once=at_once))
    if not parts:
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "the batch is empty")
    return parts


def _bounds(data: bytes) -> Generator[None, None, list[tuple[int, int]]]:
    """Return the start and the end of each part, from the size fields of the messages alone."""
    found = _native_bounds(data) if has_native_core() else (yield from bounds_in_steps(data))
    if found is None:
        raise Refusal(
            ResponseCode.MESSAGE_ILLEGAL,
            f"a batch has at most {MAX_MESSAGES} messages: send several batches",
        )
    return found


def bounds_in_steps(data: bytes) -> Generator[None, None, list[tuple[int, int]] | None]:
    """Find the parts as the native core does; None if there are more than `MAX_MESSAGES` messages."""
    bounds: list[tuple[int, int]] = []
    start = position = count = 0
    end = len(data)
    while position < end:
        if position + _SIZE.size > end or (size := _SIZE.unpack_from(data, position)[0]) < _SMALLEST_MESSAGE:
            size = end - position  # BatchPart raises the error when it decodes this part
        if position > start and (count % PART_MESSAGES == 0 or position + size - start > PART_BYTES):
            bounds.append((start, position))
            start = position
        position += size
        count += 1
        if count > MAX_MESSAGES:
            return None
        if count % _SIZES_A_STEP == 0:
            yield
    if end:
        bounds.append((start, end))
    return bounds


def _native_bounds(data: bytes) -> list[tuple[int, int]] | None:
    from rocket_native import part_bounds

    return part_bounds(data, most_messages=PART_MESSAGES, most_bytes=PART_BYTES, most_in_all=MAX_MESSAGES)


def read_plain(data: bytes, start: int, end: int) -> "PlainBatch | None":
    """Return the messages between two positions of a batch if all are plain; needs the native core."""
    from rocket_native import read_batch as read

    return read(data, start, end, timed=TIMED_NAME, most_keys=MAX_KEYS, most_keys_in_all=MOST_KEYS)
