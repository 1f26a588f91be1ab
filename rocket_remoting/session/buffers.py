"""How much the connections of a process may buffer together, and which of them goes when it is too much.

A connection's buffers are large only while its peer is slow: it does not read what is written for it, or it does
not send the rest of a frame. Each is bounded by its own limits; ten thousand at once are not. The one that holds
the most for the longest is closed first, so that peers who come and go quickly are not disturbed by those who don't.
"""

import asyncio
import logging
from typing import Protocol

from rocket_remoting.session.address import log_peer

__all__ = ["BufferBudget"]

logger = logging.getLogger("rocket_remoting")

_SECONDS_BETWEEN_WARNINGS = 1.0


class _Holder(Protocol):
    """A connection."""

    remote_address: str

    def abort(self, reason: str) -> None:
        """Close it now; it holds nothing then, and tells so."""


class _Holding:
    __slots__ = ("since", "size")

    def __init__(self, since: float) -> None:
        self.since = since
        self.size = 0


class BufferBudget:
    """What is buffered for all connections that share it.

    Attributes:
        limit: Most bytes.
        used: Bytes now.
        closed: Connections that were closed because of it.
    """

    __slots__ = ("_holders", "_silent_until", "closed", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.closed = 0
        self._holders: dict[_Holder, _Holding] = {}
        self._silent_until = 0.0

    @property
    def is_short(self) -> bool:
        """Whether more than half is used: who adds to it may be refused."""
        return self.used > self.limit // 2

    def hold(self, holder: _Holder, size: int) -> None:
        """Note how many bytes a connection holds from now on; close connections until all hold no more than may be."""
        now = asyncio.get_running_loop().time()
        holding = self._holders.get(holder)
        if holding is None:
            holding = self._holders[holder] = _Holding(now)
        self.used += size - holding.size
        holding.size = size
        if not size:
            del self._holders[holder]
        while self.used > self.limit:
            self._close_worst(now)

    def _close_worst(self, now: float) -> None:
        worst = max(self._holders, key=lambda holder: self._weight(self._holders[holder], now))
        holding = self._holders.pop(worst)
        before = self.used
        self.used -= holding.size
        self.closed += 1
        if now >= self._silent_until:
            self._silent_until = now + _SECONDS_BETWEEN_WARNINGS
            logger.warning(
                "closing the connection to %s: it has buffered %d bytes for %.1f s, all connections together %d; "
                "%d connections closed for this reason so far",
                worst.remote_address, holding.size, now - holding.since, before, self.closed,
                extra=log_peer(worst.remote_address),
            )  # fmt: skip
        worst.abort("too much is buffered for all connections together")

    @staticmethod
    def _weight(holding: _Holding, now: float) -> float:
        return holding.size * (1.0 + now - holding.since)

    def __repr__(self) -> str:
        return f"BufferBudget({self.used} of {self.limit} bytes for {len(self._holders)} connections)"
