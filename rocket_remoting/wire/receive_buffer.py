"""Memory for the received bytes of many connections, which are read one after the other.

::

    view    | frames of A | frames of B | free          |
            0                           used     at least BUFFER_SIZE

Each read puts its bytes behind those of the connections that were read before and have not handled theirs.
"""

__all__ = ["BUFFER_SIZE", "ReceiveBuffer"]

BUFFER_SIZE = 64 * 1024
"""Bytes that a read has room for."""


class ReceiveBuffer:
    """The memory that the frame decoders of a server share.

    Attributes:
        view: The memory.
        used: Bytes at its start that are not handled yet.
    """

    MOST_USED = BUFFER_SIZE
    """From this number of used bytes on there may be no room for another read."""

    __slots__ = ("used", "view")

    def __init__(self) -> None:
        self.view = memoryview(bytearray(self.MOST_USED + BUFFER_SIZE))
        self.used = 0

    @property
    def is_full(self) -> bool:
        """Whether the used bytes must be handled before the next read."""
        return self.used >= self.MOST_USED
