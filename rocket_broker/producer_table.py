"""Which producers are alive, by group: who may be asked about a transaction, and what tools list."""

import logging
from collections.abc import Callable, Iterator, Mapping

from rocket_broker.client_channel import ClientChannel
from rocket_broker.loop_time import loop_time
from rocket_remoting.connection import Connection

__all__ = ["ProducerTable"]

_log = logging.getLogger(__name__)


class ProducerTable:
    """Producers by group and connection, each until it leaves, its connection ends or its heartbeats stop."""

    def __init__(self, *, time: Callable[[], float] = loop_time) -> None:
        self._time = time
        self._groups: dict[str, dict[Connection, ClientChannel]] = {}
        self._clients: dict[str, ClientChannel] = {}

    def register(self, group: str, client: ClientChannel) -> None:
        """Note a heartbeat of the client in the group."""
        members = self._groups.setdefault(group, {})
        known = members.get(client.connection)
        if known is None or known.client_id != client.client_id:
            members[client.connection] = known = client
            _log.debug("producer group %s: %r joined", group, client)
        known.seen = self._time()
        self._clients[client.client_id] = known

    def unregister(self, group: str, connection: Connection) -> None:
        """Forget the group's member on this connection."""
        members = self._groups.get(group)
        if members is not None and members.pop(connection, None) is not None and not members:
            del self._groups[group]

    def connection_closed(self, connection: Connection) -> None:
        """Forget every member on this connection."""
        for client in [client for client in self._clients.values() if client.connection is connection]:
            del self._clients[client.client_id]
        for group in [group for group, members in self._groups.items() if connection in members]:
            self.unregister(group, connection)

    def remove_silent(self, seconds: float) -> list[Connection]:
        """Forget members without a heartbeat for so long, and return the connections to close."""
        limit = self._time() - seconds
        silent = [
            (group, client) for group, members in self._groups.items() for client in members.values()
            if client.seen < limit
        ]  # fmt: skip
        for group, client in silent:
            _log.warning("producer group %s: no heartbeat from %r, forgotten", group, client)
            self.unregister(group, client.connection)
        return [client.connection for _, client in silent]

    def find(self, client_id: str) -> ClientChannel | None:
        """Return the client with this id, until its connection ends; of two, the one heard of last."""
        return self._clients.get(client_id)

    def members(self, group: str) -> list[ClientChannel]:
        """Return the group's live members, in the order they joined."""
        return list(self._groups.get(group, {}).values())

    def groups(self) -> Mapping[str, list[ClientChannel]]:
        """Return all groups with their members."""
        return {group: list(members.values()) for group, members in self._groups.items()}

    def __contains__(self, group: str) -> bool:
        return group in self._groups

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)
