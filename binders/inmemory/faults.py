"""Faults of the broker in memory, for tests: late, lost and repeated sends, and acceptances that get lost."""

import asyncio
from collections.abc import Callable
from typing import Final

from streamkit.chaos import Chaos

__all__ = ["Faults"]

_ATTEMPTS: Final = 3
"""The attempts of a send whose connection ends, as of RocketMQ's clients by default."""
_BEFORE: Final = 0.5
"""Share of the dropped connections that end before the message is stored."""


class Faults:
    """Decides what happens to each send and each acceptance.

    Args:
        chaos: The faults and their shares.
    """

    def __init__(self, chaos: Chaos) -> None:
        self._chaos = chaos
        self._sends = chaos.draws("sends")
        self._acceptances = chaos.draws("acceptances")

    async def send(self, put: Callable[[], None]) -> bool:
        """Store a message by `put`: later, twice, or again after the connection has ended.

        Returns:
            Whether an attempt had an answer. Without one, the message may be stored or not.
        """
        chaos = self._chaos
        for _ in range(_ATTEMPTS):
            # Each attempt takes the same number of draws, so that the share of one fault does not change the others.
            wait, moved, by, repeated, dropped, before = (self._sends.random() for _ in range(6))
            seconds = wait * chaos.delay + (chaos.REORDER_SECONDS * by if moved < chaos.reorder else 0.0)
            if seconds:
                await asyncio.sleep(seconds)
            is_dropped = dropped < chaos.drop_connection
            if is_dropped and before < _BEFORE:
                continue
            put()
            if repeated < chaos.duplicate:
                put()
            if not is_dropped:
                return True
        return False

    def lose_acceptance(self) -> bool:
        """Return whether the connection ends before an acceptance arrives, so that the message is delivered again."""
        return self._acceptances.random() < self._chaos.drop_connection
