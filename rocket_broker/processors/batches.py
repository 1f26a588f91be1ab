"""The messages of a batch request, in parts that are stored one after the other.

::

    body    message | message | … | message | message | …
            └────────── part ──────────┘└──── part ─ …      at most PART_MESSAGES messages, or PART_BYTES bytes

The loop serves other clients between two parts, and messages of other senders may come to lie between them. A part is
stored in one go, by columns, where numpy is installed (the extra ``fast`` brings it) and nothing in it is unusual;
otherwise message by message.
"""

import struct
from collections.abc import Callable, Generator
from functools import cache
from typing import TYPE_CHECKING

from rocket_broker.limits.refusal import Refusal
from rocket_remoting.wire.batch import BatchEntry, decode_batch
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.errors import RemoteProtocolError

if TYPE_CHECKING:
    from rocket_broker.writing.batch_columns import BatchColumns

__all__ = ["MAX_MESSAGES", "BatchPart", "load_columns", "read_batch"]

MAX_MESSAGES = 65_536
"""Of one request. Each gets an id of 33 characters in the answer's header. Java's client gives every message a unique
key of 45 bytes or more, so that 4 MiB, its largest batch, hold fewer."""

PART_MESSAGES = 2_048
PART_BYTES = 1024 * 1024
"""By columns a message takes some 3 µs, and a part 1.2 ms beside that."""

SMALLEST = 4096
"""Bytes of a part for which numpy is worth loading."""

_SIZE = struct.Struct(">i")
_SMALLEST_MESSAGE = 22
_SIZES_A_STEP = 4096


class BatchPart:
    """Messages of a batch that follow each other.

    Attributes:
        columns: The messages by columns; None if they have to be stored one by one.
        entries: The messages one by one; of a part with columns they are read when they are asked for.
    """

    __slots__ = ("_data", "_entries", "columns")

    def __init__(self, data: bytes, *, by_columns: bool) -> None:
        """Read the messages.

        Raises:
            Refusal: The lengths in the data do not agree.
        """
        read_columns = _read_columns() if by_columns and len(data) >= SMALLEST else None
        self._data = data
        self.columns = read_columns(data) if read_columns is not None else None
        self._entries = _decoded(data) if self.columns is None else None

    @property
    def entries(self) -> list[BatchEntry]:
        """The messages one by one."""
        if self._entries is None:
            self._entries = _decoded(self._data)
        return self._entries

    def __len__(self) -> int:
        return len(self.columns) if self.columns is not None else len(self.entries)


def read_batch(body: bytes | memoryview, *, by_columns: bool) -> Generator[None, None, list[BatchPart]]:
    """Read a batch; yield after each part, return all parts.

    Args:
        body: The request's body.
        by_columns: Whether parts may be stored by columns now.

    Raises:
        Refusal: The batch is empty or has too many messages, or the lengths in it do not agree.
    """
    parts = []
    for start, end in (yield from _bounds(body)):
        parts.append(BatchPart(bytes(body[start:end]), by_columns=by_columns))
        yield
    if not parts:
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "the batch is empty")
    return parts


def _bounds(body: bytes | memoryview) -> Generator[None, None, list[tuple[int, int]]]:
    """Find where each part begins and ends, by the sizes of its messages alone."""
    bounds: list[tuple[int, int]] = []
    start = position = count = 0
    end = len(body)
    while position < end:
        if position + _SIZE.size > end or (size := _SIZE.unpack_from(body, position)[0]) < _SMALLEST_MESSAGE:
            size = end - position  # what is wrong is said when this part is read
        if position > start and (count % PART_MESSAGES == 0 or position + size - start > PART_BYTES):
            bounds.append((start, position))
            start = position
        position += size
        count += 1
        if count > MAX_MESSAGES:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL, f"a batch has at most {MAX_MESSAGES} messages: send several"
            )
        if count % _SIZES_A_STEP == 0:
            yield
    if end:
        bounds.append((start, end))
    return bounds


def load_columns() -> None:
    """Load numpy now: that takes so long that the first large batch would hold up everybody."""
    _read_columns()


def _decoded(data: bytes) -> list[BatchEntry]:
    try:
        return decode_batch(data)
    except RemoteProtocolError as e:
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, str(e)) from None


@cache
def _read_columns() -> "Callable[[bytes], BatchColumns | None] | None":
    try:
        from rocket_broker.writing.batch_columns import read_columns
    except (ImportError, OSError):
        return None
    return read_columns
