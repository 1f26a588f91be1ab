"""Faults of the broker in memory, for tests: late, lost and repeated sends, and acceptances that get lost."""

import asyncio
from collections.abc import Callable
from typing import Final

from streamkit.chaos import Chaos

__all__ = ["Faults"]

_ATTEMPTS: Final = 3
"""The attempts of a send whose connection ends, as of RocketMQ's clients by default."""


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
        for _ in range(_ATTEMPTS):
            fate = self._chaos.fate(self._sends)
            if seconds := fate.waits + fate.is_overtaken_for:
                await asyncio.sleep(seconds)
            if fate.is_lost:
                continue
            put()
            if fate.is_repeated:
                put()
            if not fate.is_answer_lost:
                return True
        return False

    def lose_acceptance(self) -> bool:
        """Return whether the connection ends before an acceptance arrives, so that the message is delivered again."""
        return self._acceptances.random() < self._chaos.drop_connection
