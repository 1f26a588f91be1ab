"""How often a client may have something done that keeps the others waiting: so much at once, and so much a second."""

from rocket_remoting.session.connection import Connection

__all__ = ["Allowance", "Rates"]

MOST_REMEMBERED = 4096
"""Clients whose allowances are kept. Beyond so many, those go that are full, as a new client's is."""


class Allowance:
    """Fills by the second up to what may be taken at once."""

    __slots__ = ("_at_once", "_left", "_per_second", "_seen")

    def __init__(self, at_once: int, per_second: float, now: float) -> None:
        self._at_once = at_once
        self._per_second = per_second
        self._left: float = at_once
        self._seen = now

    def has(self, number: int, now: float) -> bool:
        """Return whether so many may be taken."""
        self._left = min(self._at_once, self._left + (now - self._seen) * self._per_second)
        self._seen = now
        return self._left >= number

    def take(self, number: int) -> None:
        """Take so many, which there are."""
        self._left -= number

    def is_full(self, now: float) -> bool:
        """Return whether the most may be taken, as at first."""
        return self.has(self._at_once, now)


class Rates:
    """The allowances of all clients: of an address, and at the broker's own address of a connection.

    Args:
        at_once: How much a client may take at once.
        per_second: How much it gets back a second.
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
                    known: allowance
                    for known, allowance in self._of_client.items()
                    if not allowance.is_full(now)
                }
            found = self._of_client[client] = Allowance(self._at_once, self._per_second, now)
        return found

    def connection_closed(self, connection: Connection) -> None:
        """Forget the connection; an address is remembered."""
        self._of_client.pop(connection, None)
