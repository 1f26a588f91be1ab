"""The order in which name servers are asked. This module does no I/O."""

import random
from collections.abc import Sequence


class NameServerOrder:
    """The order in which name servers are asked: the current one until it fails, then the next.

    Name servers are independent of each other, and each has all routes, so any of them can answer. Several threads may
    use an order.

    Attributes:
        addresses: The addresses as they were given; empty until they are known.
    """

    __slots__ = ("_turn", "addresses")

    def __init__(self, addresses: Sequence[str]) -> None:
        self._turn: tuple[str, ...] = ()  # replaced as a whole, because other threads read it
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

    def failed(self, address: str) -> None:
        """Note that the name server at the address did not answer: the next one becomes the current one."""
        turn = self._turn
        if turn[:1] == (address,):
            self._turn = turn[1:] + turn[:1]

    def __repr__(self) -> str:
        return f"NameServerOrder({', '.join(self.addresses)}; current {self.current})"
