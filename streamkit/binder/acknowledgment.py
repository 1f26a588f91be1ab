"""Settling by hand: the object a listener asks for with a parameter annotated ``Acknowledgment``."""

import asyncio
import threading
from datetime import timedelta
from typing import Final

from streamkit.binder.settlement import ACCEPT, RejectMessage, Retry, Settlement

__all__ = ["ACKNOWLEDGMENT", "Acknowledgment"]

ACKNOWLEDGMENT: Final = "acknowledgmentCallback"
"""The header that carries the acknowledgment to the listener."""


class Acknowledgment:
    """Settles one delivered message, whenever and from whatever thread the listener likes.

    The first call decides; later ones return False and change nothing. A listener that returns without
    having settled may do so later; a message not settled within ``consume-timeout`` is delivered again, and
    then it is too late to settle it here.
    """

    __slots__ = ("_closed", "_engaged", "_lock", "_loop", "_settlement", "_waiter")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        # All three are guarded by the lock; the waiter is resolved only on the loop.
        self._settlement: Settlement | None = None
        self._closed = False
        self._waiter: asyncio.Future[None] | None = None
        self._engaged = False

    def accept(self) -> bool:
        """Settle the message as done; True when this call decided."""
        return self._settle(ACCEPT)

    def retry(self, after: timedelta | None = None) -> bool:
        """Have the message delivered again, ``after`` that pause or the binding's own."""
        return self._settle(Retry(after))

    def reject(self, reason: str = "the listener rejected it") -> bool:
        """Give the message to the dead letters, with the reason."""
        return self._settle(RejectMessage(reason))

    @property
    def settlement(self) -> Settlement | None:
        """What was decided, or None so far."""
        return self._settlement

    @property
    def is_engaged(self) -> bool:
        """Whether a listener took the decision upon itself."""
        return self._engaged

    def engage(self) -> None:
        """Say that a listener will settle: its return accepts nothing."""
        self._engaged = True

    def close(self) -> None:
        """Say that the message's fate is decided: whoever settles it from now on is told that he decided nothing."""
        with self._lock:
            self._closed = True

    async def settled(self) -> Settlement:
        """Wait for the decision."""
        with self._lock:
            if self._settlement is None:
                self._waiter = self._loop.create_future()
        if self._waiter is not None:
            await self._waiter
        assert self._settlement is not None
        return self._settlement

    def _settle(self, settlement: Settlement) -> bool:
        with self._lock:
            if self._closed or self._settlement is not None:
                return False
            self._settlement = settlement
            waiter = self._waiter
        if waiter is not None:
            self._loop.call_soon_threadsafe(_wake, waiter)
        return True

    def __repr__(self) -> str:
        return f"<Acknowledgment {self._settlement or 'open'}>"


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
