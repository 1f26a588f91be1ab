"""How the clients of a server share the turns of its loop.

::

    round        those who wait, by turns           TURN_SECONDS together
                 what comes in from each address    until it has had TURN_SECONDS of this round
    next round   …

What an address asks beyond that waits for a later round, and nothing more is read from its connections until then. A
round begins in the turn of the loop after one in which somebody had to wait: so a request of an address that asks
little waits for one turn, however much the others ask.
"""

import asyncio
from collections import deque
from collections.abc import Hashable
from time import perf_counter
from typing import Protocol

__all__ = ["TURN_SECONDS", "Turns"]

TURN_SECONDS = 0.003
"""How long the requests of one address are handled before others have their turn: some 20 to 60 sends. One read may
bring hundreds of small requests, and one address may have thousands of connections."""
_MOST_PARTIES = 1_000
"""Who has had little of a round is forgotten when there are more: rounds may be long where nobody waits."""


class _Waiting(Protocol):
    """A connection."""

    def take_turn(self, seconds: float) -> None:
        """Handle requests for so long."""


class Turns:
    """Who has had how much of this round, and who waits for the next.

    A party is what shares its time: an address, or one connection of a client that has no quotas.
    """

    __slots__ = ("_is_begun_soon", "_loop", "_used", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._used: dict[Hashable, float] = {}
        self._waiting: dict[Hashable, deque[_Waiting]] = {}  # the party whose turn it is comes first
        self._is_begun_soon = False

    def left(self, party: Hashable) -> float:
        """Return how many seconds of this round the party has left; not more than 0: it has to wait."""
        return 0.0 if party in self._waiting else TURN_SECONDS - self._used.get(party, 0.0)

    def use(self, party: Hashable, seconds: float) -> None:
        """Count what the party has used of this round."""
        self._used[party] = self._used.get(party, 0.0) + seconds
        if len(self._used) > _MOST_PARTIES:
            self._used.clear()

    def forget(self, party: Hashable) -> None:
        """Forget a party that is gone."""
        self._used.pop(party, None)

    def wait(self, party: Hashable, connection: _Waiting) -> None:
        """Have the connection go on in a later round, behind others of its party."""
        self._waiting.setdefault(party, deque()).append(connection)
        self._begin_soon()

    def _begin_soon(self) -> None:
        if not self._is_begun_soon:
            self._is_begun_soon = True
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._is_begun_soon = False
        self._used.clear()
        until = perf_counter() + TURN_SECONDS
        while self._waiting and (left := until - perf_counter()) > 0:
            party = next(iter(self._waiting))
            line = self._waiting.pop(party)
            connection = line.popleft()
            if line:
                self._waiting[party] = line
            connection.take_turn(left)
        if self._waiting:
            self._begin_soon()

    def __repr__(self) -> str:
        waiting = sum(map(len, self._waiting.values()))
        return f"<Turns: {waiting} connections of {len(self._waiting)} parties wait>"
