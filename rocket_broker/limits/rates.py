"""Token buckets: limits of the work that each client may cause, at once and per second."""

from rocket_remoting.session.connection import Connection

__all__ = ["Allowance", "Rates"]

MOST_REMEMBERED = 4096
"""Clients whose allowances are kept. Beyond that number full allowances are dropped: a new client's is full too."""


class Allowance:
    """A token bucket: it gains a number of tokens each second, up to a maximum."""

    __slots__ = ("_at_once", "_left", "_per_second", "_seen")

    def __init__(self, at_once: int, per_second: float, now: float) -> None:
        self._at_once = at_once
        self._per_second = per_second
        self._left: float = at_once
        self._seen = now

    def has(self, number: int, now: float) -> bool:
        """Return whether an amount may be taken now.

        Args:
            number: The amount.
            now: Seconds of the loop's time.
        """
        self._left = min(self._at_once, self._left + (now - self._seen) * self._per_second)
        self._seen = now
        return self._left >= number

    def take(self, number: int) -> None:
        """Take an amount for which `has` returned True."""
        self._left -= number

    def is_full(self, now: float) -> bool:
        """Return whether the maximum may be taken at once, at ``now`` in seconds of the loop's time."""
        return self.has(self._at_once, now)


class Rates:
    """The allowances of all clients: one for each address, and one for each connection from the broker's own address.

    Args:
        at_once: The amount that a client may take at once.
        per_second: The amount that is added each second.
    """

    def __init__(self, at_once: int, per_second: float) -> None:
        self._at_once = at_once
        self._per_second = per_second
        self._of_client: dict[Connection | str, Allowance] = {}

    def of(self, connection: Connection, now: float) -> Allowance:
        """Return the allowance of the connection's client.

        Args:
            connection: The client's connection.
            now: Seconds of the loop's time.
        """
        client = connection.counted_as or connection
        found = self._of_client.get(client)
        if found is None:
            if len(self._of_client) >= MOST_REMEMBERED:
                self._of_client = {
                    known: allowance for known, allowance in self._of_client.items() if not allowance.is_full(now)
                }
            found = self._of_client[client] = Allowance(self._at_once, self._per_second, now)
        return found

    def connection_closed(self, connection: Connection) -> None:
        """Forget the connection's allowance; allowances of addresses are kept."""
        self._of_client.pop(connection, None)
