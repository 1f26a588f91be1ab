"""The order in which name servers are asked. This module does no I/O."""

import random
from collections.abc import Sequence


class NameServerOrder:
    """The order in which name servers are asked: the current one until it fails, then the next.

    Name servers are independent of each other, and each has all routes, so any of them can answer.

    Attributes:
        addresses: The configured addresses.
        current: The address that is asked first. Each client begins with a random one, which spreads the load.
    """

    __slots__ = ("addresses", "current")

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = tuple(addresses)
        self.current = random.choice(self.addresses)

    def in_turn(self) -> tuple[str, ...]:
        """Return all addresses, the current one first."""
        first = self.addresses.index(self.current)
        return self.addresses[first:] + self.addresses[:first]

    def failed(self, address: str) -> None:
        """Note that the name server at the address did not answer: the next one becomes the current one."""
        if address == self.current:
            self.current = self.addresses[(self.addresses.index(address) + 1) % len(self.addresses)]

    def __repr__(self) -> str:
        return f"NameServerOrder({', '.join(self.addresses)}; current {self.current})"
