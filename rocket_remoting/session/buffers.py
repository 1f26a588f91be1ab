"""The limit of bytes that all connections of a process buffer together.

A connection buffers much only while its peer is slow: the peer does not read its responses, or does not send the rest
of a frame. `Limits` bounds each connection, but not ten thousand of them together. When they exceed the budget, the
connection with the largest product of bytes and time is closed first, so that fast peers do not suffer from slow ones.
"""

import asyncio
import logging
from typing import Protocol

from rocket_remoting.session.address import log_peer

__all__ = ["BufferBudget"]

logger = logging.getLogger("rocket_remoting")

_SECONDS_BETWEEN_WARNINGS = 1.0


class _BufferingConnection(Protocol):
    """A connection, as `BufferBudget` uses it."""

    remote_address: str

    def abort(self, reason: str) -> None:
        """Close the connection now; it then calls `BufferBudget.update` with size 0."""


class _Buffered:
    __slots__ = ("since", "size")

    def __init__(self, since: float) -> None:
        self.since = since
        self.size = 0


class BufferBudget:
    """The bytes that the connections with this budget buffer.

    Attributes:
        limit: Maximum number of bytes of all connections together.
        used: Bytes that they buffer now.
        closed: Number of connections closed because the limit was exceeded.
    """

    __slots__ = ("_connections", "_next_warning_at", "closed", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.closed = 0
        self._connections: dict[_BufferingConnection, _Buffered] = {}
        self._next_warning_at = 0.0

    @property
    def is_scarce(self) -> bool:
        """Whether more than half of the limit is used, so that requests with large responses may be refused."""
        return self.used > self.limit // 2

    def update(self, connection: _BufferingConnection, size: int) -> None:
        """Note the bytes that a connection buffers from now on; close connections while the limit is exceeded."""
        now = asyncio.get_running_loop().time()
        buffered = self._connections.get(connection)
        if buffered is None:
            buffered = self._connections[connection] = _Buffered(now)
        self.used += size - buffered.size
        buffered.size = size
        if not size:
            del self._connections[connection]
        while self.used > self.limit:
            self._close_largest(now)

    def _close_largest(self, now: float) -> None:
        largest = max(self._connections, key=lambda connection: self._weight(self._connections[connection], now))
        # Removed before `abort`, which calls `update` with size 0: the bytes are then not subtracted twice.
        buffered = self._connections.pop(largest)
        before = self.used
        self.used -= buffered.size
        self.closed += 1
        if now >= self._next_warning_at:
            self._next_warning_at = now + _SECONDS_BETWEEN_WARNINGS
            logger.warning(
                "closing the connection to %s: it has buffered %d bytes for %.1f s, all connections together %d; "
                "%d connection(s) closed for this reason so far",
                largest.remote_address, buffered.size, now - buffered.since, before, self.closed,
                extra=log_peer(largest.remote_address),
            )  # fmt: skip
        largest.abort("too much is buffered for all connections together")

    @staticmethod
    def _weight(buffered: _Buffered, now: float) -> float:
        # The second that is added makes the size count for connections that began to buffer only now.
        return buffered.size * (1.0 + now - buffered.since)

    def __repr__(self) -> str:
        return f"BufferBudget({self.used} of {self.limit} bytes for {len(self._connections)} connections)"
