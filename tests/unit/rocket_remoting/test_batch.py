"""The batch codec."""

import struct

import pytest

from rocket_remoting.wire.batch import BatchEntry, decode_batch, encode_batch
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.message import Message

BATCH = encode_batch([Message("orders", b"one", tags="a", flag=7), Message("orders", b"")])


def test_batch_round_trip() -> None:
    """A batch keeps body, flag and properties of each message, in order."""
    assert decode_batch(memoryview(BATCH)) == [
        BatchEntry(7, b"one", b"TAGS\x01a\x02"),
        BatchEntry(0, b"", b""),
    ]


def test_first_message_has_apaches_layout() -> None:
    """Size, two unused fields, flag and body length come first, as in Apache's encoder."""
    assert struct.unpack_from(">iiiii", BATCH) == (32, 0, 0, 7, 3)
    assert encode_batch([]) == b""


@pytest.mark.parametrize("cut", [1, 19, 22, 31, 34, len(BATCH) - 1])
def test_truncated_batches_are_refused(cut: int) -> None:
    """The error says which message is incomplete."""
    with pytest.raises(RemoteProtocolError, match=r"batch entry [01]"):
        decode_batch(BATCH[:cut])


@pytest.mark.parametrize(("position", "value"), [(0, 0), (0, -1), (0, 1000), (16, -1), (16, 2**31 - 1), (16, 4)])
def test_inconsistent_lengths_are_refused(position: int, value: int) -> None:
    """A wrong size is an error, never an endless loop."""
    batch = bytearray(BATCH)
    struct.pack_into(">i", batch, position, value)
    with pytest.raises(RemoteProtocolError, match="batch entry 0"):
        decode_batch(bytes(batch))


@pytest.mark.parametrize(("size", "body", "properties"), [(12, -10, 0), (25, 4, -1)])
def test_negative_lengths_are_refused(size: int, body: int, properties: int) -> None:
    """They may agree with each other and with the size; some sizes would lead back to where the message begins."""
    batch = struct.pack(">iiiii", size, 0, 0, 0, body) + b"body" + struct.pack(">h", properties)
    with pytest.raises(RemoteProtocolError, match="batch entry 0 at 0"):
        decode_batch(batch)
