"""Fair sharing of a server's event loop among its clients.

::

    round        waiting connections, one party after the other    TURN_SECONDS for all together
                 requests that arrive, by address                  TURN_SECONDS for each address
    next round   …

When an address has used up its time in a round, its further requests wait for a later round, and its connections are
not read until then. A new round begins in the turn of the loop after a connection had to wait. So a client with few
requests waits for one turn of the loop at most, however many requests the others send.

Requests that are handled together need no round while their connection comes alone (`Arrivals`): one read of it takes
less than a turn, and if any other connection is read, it is alone no more.
"""

import asyncio
from collections import deque
from collections.abc import Hashable
from time import perf_counter
from typing import Protocol

__all__ = ["TURN_SECONDS", "Turns"]

TURN_SECONDS = 0.003
"""Seconds for which requests of one address are handled in a round: enough for some 20 to 60 sends. The limit is needed
because one read may bring hundreds of small requests, and one address may have thousands of connections."""
_MOST_PARTIES = 1_000
"""Maximum number of parties whose time a round remembers: a round lasts until a connection has to wait, and any number
of parties may take part in it."""


class _Waiting(Protocol):
    """A connection, as `Turns` uses it."""

    def take_turn(self, seconds: float) -> None:
        """Handle requests for up to ``seconds``."""


class Turns:
    """The time that each party has used in this round, and the connections that wait for the next round.

    A party is an address, whose connections share its time, or a single connection of a client without quotas.

    Attributes:
        waiting: The connections that wait, of each party, in the order of the parties' turns; to be read only.
    """

    __slots__ = ("_is_scheduled", "_loop", "_used", "waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._used: dict[Hashable, float] = {}
        self.waiting: dict[Hashable, deque[_Waiting]] = {}
        self._is_scheduled = False

    def left(self, party: Hashable) -> float:
        """Return the seconds that the party has left in this round; with 0 or less it must wait."""
        # While connections of the party wait, its others must not go first.
        return 0.0 if party in self.waiting else TURN_SECONDS - self._used.get(party, 0.0)

    def use(self, party: Hashable, seconds: float) -> None:
        """Add seconds to the time that the party has used in this round."""
        self._used[party] = self._used.get(party, 0.0) + seconds
        if len(self._used) > _MOST_PARTIES:
            # Forgetting gives each party a fresh share within the round; the table must not grow with
            # invented addresses.
            self._used.clear()

    def forget(self, party: Hashable) -> None:
        """Forget a party whose connection has ended."""
        self._used.pop(party, None)

    def wait(self, party: Hashable, connection: _Waiting) -> None:
        """Queue a connection behind others of its party, to be handled in a later round."""
        self.waiting.setdefault(party, deque()).append(connection)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._is_scheduled = False
        self._used.clear()
        until = perf_counter() + TURN_SECONDS
        while self.waiting and (left := until - perf_counter()) > 0:
            party = next(iter(self.waiting))
            # The party goes to the end of the dict, if more of its connections wait: each party has one
            # turn before any has the second one.
            line = self.waiting.pop(party)
            connection = line.popleft()
            if line:
                self.waiting[party] = line
            connection.take_turn(left)
        if self.waiting:
            self._schedule()

    def __repr__(self) -> str:
        waiting = sum(map(len, self.waiting.values()))
        return f"<Turns: {waiting} connections of {len(self.waiting)} parties wait>"
