"""Sends that a broker stores once, however often they come: an addition of ours to RocketMQ's protocol.

::

    request 70001   body: a batch (see `batch`), its messages numbered from the header's `sequence` on
                    no body: a question whether the broker serves this; it answers SUCCESS and stores nothing
    UNIQ_KEY        writer 16 | epoch 8 | sequence 8         hexadecimal digits; the broker finds it by its index

A writer sends to one queue, one epoch after the other, in each one message after the other from sequence 0 on.
An epoch begins when all of the one before is stored. So a message is stored already if its key is indexed, or if
its writer has stored a later one; what would leave a gap is refused, for its answer would mean that all before
it is stored. Apache's brokers answer REQUEST_CODE_NOT_SUPPORTED.

This module does no I/O.
"""

from hashlib import blake2b

SEND_DEDUPLICATED = 70_001
"""The request's code, far from Apache's."""

WRITER_DIGITS = 16
MAX_NUMBER = 0xFFFF_FFFF


def writer_id(*identity: object) -> str:
    """The id of a writer: equal for equal identities, and for no others."""
    text = "\0".join(map(str, identity))
    return blake2b(text.encode(), digest_size=WRITER_DIGITS // 2).hexdigest().upper()


def sequence_key(writer: str, epoch: int, sequence: int) -> str:
    """The UNIQ_KEY of a writer's message."""
    return f"{writer}{epoch:08X}{sequence:08X}"
