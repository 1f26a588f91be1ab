"""The body of an op message: which half messages have ended, by their offsets in the half queue.

::

    RocketMQ 4.9    417            one op message for each end
    RocketMQ 5.x    417,419,420,   many ends in one, written up to three seconds later

Both are read. Written is 4.9's form, which every version reads; 4.9 takes the list of 5.x for no number and
asks again about transactions that ended. An end that is written at once is also one that no crash forgets.
"""

__all__ = ["REMOVE_TAG", "ended_offsets", "op_body"]

REMOVE_TAG = "d"
"""The tag of an op message; there is no other."""


def op_body(half_offset: int) -> bytes:
    """Return the body that says that a half message has ended."""
    return str(half_offset).encode()


def ended_offsets(body: bytes) -> list[int]:
    """Return the offsets in a body of either form; what is no number is passed over."""
    return [int(part) for part in body.split(b",") if part.isdigit()]
