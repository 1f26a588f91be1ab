"""The groups of each connection, so that a closed connection needs no search through all groups."""

from collections.abc import Generator, Iterable

from rocket_broker.clients.client_channel import ClientChannel
from rocket_remoting.session.connection import Connection

__all__ = ["Memberships", "silent_members"]


class Memberships:
    """The groups of each connection, in the order in which they were joined."""

    def __init__(self) -> None:
        self._groups: dict[Connection, dict[str, None]] = {}

    def add(self, connection: Connection, group: str) -> None:
        """Note that the group has a member on the connection."""
        self._groups.setdefault(connection, {})[group] = None

    def remove(self, connection: Connection, group: str) -> None:
        """Note that the group has no member on the connection any more."""
        groups = self._groups.get(connection, {})
        groups.pop(group, None)
        if not groups:
            self._groups.pop(connection, None)

    def of(self, connection: Connection) -> list[str]:
        """Return the connection's groups."""
        return list(self._groups.get(connection, ()))


def silent_members(
    groups: Iterable[tuple[str, Iterable[ClientChannel]]], since: float
) -> Generator[None, None, list[tuple[str, ClientChannel]]]:
    """Find the members without a recent heartbeat, each with its group; yield after each group.

    Args:
        groups: The members of each group.
        since: Members whose last heartbeat is earlier are silent, in seconds of the loop's time.
    """
    silent: list[tuple[str, ClientChannel]] = []
    for group, members in groups:
        silent += [(group, member) for member in members if member.seen < since]
        yield
    return silent
