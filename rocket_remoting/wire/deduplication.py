"""Deduplicated sends: a broker stores a message once, even if it receives it several times. Not in Apache's protocol.

::

    request 70001   body: a batch (see `batch`), its messages numbered from the header's `sequence` on
                    no body: asks whether the broker supports the request; it answers SUCCESS and stores nothing
    UNIQ_KEY        writer 16 | epoch 8 | sequence 8         hexadecimal digits; the broker finds it by its index

A writer sends to one queue. It numbers the messages of each epoch from 0 on and sends them in this order. It begins an
epoch when all messages of the epoch before are stored. So a message is stored already if the index has its key, or if
its writer has stored a later message. A message that would leave a gap is refused, because a success means that all
messages before it are stored. Apache's brokers answer REQUEST_CODE_NOT_SUPPORTED.

This module does no I/O.
"""

from hashlib import blake2b

SEND_DEDUPLICATED = 70_001
"""The request code; Apache uses no codes near it."""

WRITER_DIGITS = 16
MAX_NUMBER = 0xFFFF_FFFF


def writer_id(*identity: object) -> str:
    """Return the id of a writer, a hash of its identity: 16 hexadecimal digits."""
    text = "\0".join(map(str, identity))
    return blake2b(text.encode(), digest_size=WRITER_DIGITS // 2).hexdigest().upper()


def sequence_key(writer: str, epoch: int, sequence: int) -> str:
    """Return the UNIQ_KEY of a writer's message."""
    return f"{sequence_prefix(writer, epoch)}{sequence:08X}"


def sequence_prefix(writer: str, epoch: int) -> str:
    """Return what the UNIQ_KEYs of a writer's messages in an epoch begin with."""
    return f"{writer}{epoch:08X}"
