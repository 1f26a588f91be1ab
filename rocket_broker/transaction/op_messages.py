"""The body of an op message: the offsets in the half queue of half messages that have ended.

::

    RocketMQ 4.9    417            an op message for each end
    RocketMQ 5.x    417,419,420,   one op message for several ends, written up to three seconds later

Both forms are read. The form of 4.9 is written, because every version reads it: 4.9 does not parse the list of 5.x,
and checks transactions again that have ended. And an end that is written at once cannot be lost in a crash.
"""

__all__ = ["REMOVE_TAG", "ended_offsets", "op_body"]

REMOVE_TAG = "d"
"""The tag of all op messages."""


def op_body(half_offset: int) -> bytes:
    """Return the body that says that one half message has ended."""
    return str(half_offset).encode()


def ended_offsets(body: bytes) -> list[int]:
    """Return the offsets in a body of either form; parts that are not numbers are skipped."""
    return [int(part) for part in body.split(b",") if part.isdigit()]
