"""Settling by hand: a listener with a parameter annotated ``Acknowledgment`` settles its messages itself."""

import asyncio
import threading
from datetime import timedelta
from typing import Final

from streamkit.settlement import ACCEPT, Reject, Requeue, Settlement

__all__ = ["ACKNOWLEDGMENT", "Acknowledgment"]

ACKNOWLEDGMENT: Final = "acknowledgmentCallback"
"""The header in which the acknowledgment reaches the listener."""


class Acknowledgment:
    """Settles one delivered message, at any time and from any thread.

    The first call of `accept`, `requeue` or `reject` decides; later calls return False and change nothing. A listener
    may settle its message after it has returned. A message that is not settled within ``consume-timeout`` is delivered
    again; settling it here then has no effect.
    """

    __slots__ = ("_closed", "_engaged", "_lock", "_loop", "_settlement", "_waiter")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        # The lock guards these three. Only the loop's thread sets the waiter's result.
        self._settlement: Settlement | None = None
        self._closed = False
        self._waiter: asyncio.Future[None] | None = None
        self._engaged = False

    def accept(self) -> bool:
        """Settle the message as consumed; return whether this call decided."""
        return self._settle(ACCEPT)

    def requeue(self, after: timedelta | None = None) -> bool:
        """Settle the message for another delivery; return whether this call decided.

        Args:
            after: The shortest time until the next delivery; None uses the binding's redelivery delays.

        Raises:
            TypeError: ``after`` has another type.
        """
        return self._settle(Requeue("retried by hand", after=after))

    def reject(self, reason: str = "the listener rejected it") -> bool:
        """Settle the message as a dead letter with that reason; return whether this call decided.

        Raises:
            TypeError: ``reason`` has another type.
        """
        return self._settle(Reject(reason))

    @property
    def settlement(self) -> Settlement | None:
        """The settlement, or None if the message is not settled."""
        return self._settlement

    @property
    def is_engaged(self) -> bool:
        """Whether a listener settles the message by hand."""
        return self._engaged

    def engage(self) -> None:
        """Note that a listener settles by hand: its return does not accept the message."""
        self._engaged = True

    def close(self) -> None:
        """Refuse later settlements: `accept`, `requeue` and `reject` return False from now on."""
        with self._lock:
            self._closed = True

    async def settled(self) -> Settlement:
        """Wait until the message is settled; return the settlement."""
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
