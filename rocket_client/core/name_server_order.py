"""The order in which name servers are asked. This module does no I/O."""

import math
import random
from collections.abc import Sequence

__all__ = ["SILENCE_SECONDS", "NameServerOrder"]

SILENCE_SECONDS = 10.0
"""Seconds after a failure in which a name server is asked only if no other one answers: a host that is switched off
costs each question the whole time to connect."""


class NameServerOrder:
    """The order in which name servers are asked: the current one until it fails, then the next.

    Name servers are independent of each other, and each has all routes, so any of them can answer. Several threads may
    use an order.

    Attributes:
        addresses: The addresses as they were given; empty until they are known.
    """

    __slots__ = ("_failed_at", "_turn", "addresses")

    def __init__(self, addresses: Sequence[str]) -> None:
        self._turn: tuple[str, ...] = ()  # replaced as a whole, because other threads read it
        self._failed_at: dict[str, float] = {}
        self.replace(addresses)

    @property
    def current(self) -> str | None:
        """The address that is asked first; None if none is known."""
        return next(iter(self._turn), None)

    def replace(self, addresses: Sequence[str]) -> None:
        """Use other addresses from now on.

        The current address stays the current one if it is among them. Otherwise a random one becomes it, which spreads
        the load of all clients.
        """
        self.addresses = tuple(addresses)
        if not self.addresses:
            self._turn = ()
            return
        current = self.current if self.current in self.addresses else random.choice(self.addresses)
        first = self.addresses.index(current)
        self._turn = self.addresses[first:] + self.addresses[:first]

    def in_turn(self) -> tuple[str, ...]:
        """Return all addresses, the current one first."""
        return self._turn

    def failed(self, address: str, now: float) -> None:
        """Note that the name server at the address did not answer: the next one becomes the current one.

        Args:
            address: The name server's address.
            now: Seconds of any clock that does not go back, the same one in all calls.
        """
        self._failed_at[address] = now
        turn = self._turn
        if turn[:1] == (address,):
            self._turn = turn[1:] + turn[:1]

    def answered(self, address: str) -> None:
        """Note that the name server at the address answers."""
        self._failed_at.pop(address, None)

    def is_silent(self, address: str, now: float) -> bool:
        """Return whether the name server at the address has failed in the last seconds, and not answered since then."""
        return now - self._failed_at.get(address, -math.inf) < SILENCE_SECONDS

    def __repr__(self) -> str:
        return f"NameServerOrder({', '.join(self.addresses)}; current {self.current})"
