"""The live producers of each group: for transaction checks, for replies, and for tools."""

import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterator

from rocket_broker.clients.client_channel import ClientChannel
from rocket_broker.clients.memberships import Memberships, silent_members
from rocket_broker.loop.loop_time import loop_time
from rocket_remoting.session.connection import Connection

__all__ = ["ProducerTable"]

logger = logging.getLogger(__name__)

MAX_IDS = 16
"""Maximum number of client ids that are kept for a connection; usual clients have one."""
RESERVED_SECONDS = 60.0
"""Seconds for which a client id stays that of its account after the connection has closed: clients connect again."""
MAX_RESERVED = 10_000


class ProducerTable:
    """Producers by group and connection. Each is kept until it leaves, its connection closes or its heartbeats stop.

    With access control, a client id belongs to the account that has registered it first, so that no other account gets
    the replies for the client.
    """

    def __init__(self, *, time: Callable[[], float] = loop_time) -> None:
        self._time = time
        self._groups: dict[str, dict[Connection, ClientChannel]] = {}
        self._clients: dict[str, ClientChannel] = {}
        self._memberships = Memberships()
        self._ids: dict[Connection, deque[str]] = {}
        # The ids of clients that have gone: the account, and until when nobody else gets the id; the oldest first.
        self._reserved: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def register(self, group: str, client: ClientChannel) -> None:
        """Register the client in the group, or note its heartbeat."""
        members = self._groups.setdefault(group, {})
        known = members.get(client.connection)
        if known is None or (known.client_id, known.access_key) != (client.client_id, client.access_key):
            members[client.connection] = client
            self._memberships.add(client.connection, group)
            known = client
            logger.debug("producer group %s: %r joined", group, client)
        known.seen = self._time()
        self._clients[client.client_id] = known
        self._note_id(client)

    def unregister(self, group: str, connection: Connection) -> None:
        """Remove the group's member on this connection."""
        members = self._groups.get(group)
        if members is None or members.pop(connection, None) is None:
            return
        if not members:
            del self._groups[group]
        self._memberships.remove(connection, group)

    def connection_closed(self, connection: Connection) -> None:
        """Remove every member on this connection."""
        for client_id in self._ids.pop(connection, ()):
            self._reserve(client_id, connection)
            self._forget_id(client_id, connection)
        for group in self._memberships.of(connection):
            self.unregister(group, connection)

    def note_alive(self, connection: Connection) -> None:
        """Count a request on the connection as a heartbeat of all members on the connection."""
        now = self._time()
        for group in self._memberships.of(connection):
            self._groups[group][connection].seen = now

    def remove_silent(self, seconds: float) -> Generator[None, None, list[Connection]]:
        """Remove members without a heartbeat for ``seconds``, in steps; return their connections to close."""
        groups = ((group, self.members(group)) for group in list(self._groups))
        silent = yield from silent_members(groups, self._time() - seconds)
        for group, client in silent:
            logger.warning("producer group %s: removed %r, no heartbeat", group, client,
                         extra=client.connection.log_peer)  # fmt: skip
            self.unregister(group, client.connection)
            yield
        return [client.connection for _, client in silent]

    def find(self, client_id: str) -> ClientChannel | None:
        """Return the client with this id until its connection closes; of two, the one with the latest heartbeat."""
        return self._clients.get(client_id)

    def is_of_another_account(self, client_id: str, access_key: str | None) -> bool:
        """Return whether a client id belongs to another account than this one."""
        known = self._clients.get(client_id)
        if known is not None and not known.connection.is_closed:
            return known.access_key != access_key
        account, until = self._reserved.get(client_id, (access_key, 0.0))
        return account != access_key and until > self._time()

    def members(self, group: str) -> list[ClientChannel]:
        """Return the group's live members in the order in which they joined."""
        return list(self._groups.get(group, {}).values())

    def _note_id(self, client: ClientChannel) -> None:
        """Keep the last `MAX_IDS` ids that the client on a connection reported, and drop the oldest beyond that."""
        ids = self._ids.setdefault(client.connection, deque())
        if client.client_id not in ids:
            ids.append(client.client_id)
            if len(ids) > MAX_IDS:
                self._forget_id(ids.popleft(), client.connection)

    def _reserve(self, client_id: str, connection: Connection) -> None:
        known = self._clients.get(client_id)
        if known is not None and known.connection is connection and known.access_key is not None:
            self._reserved.pop(client_id, None)
            self._reserved[client_id] = known.access_key, self._time() + RESERVED_SECONDS
            if len(self._reserved) > MAX_RESERVED:
                self._reserved.popitem(last=False)

    def _forget_id(self, client_id: str, connection: Connection) -> None:
        known = self._clients.get(client_id)
        # The id may belong to a newer connection by now, if the client has reconnected.
        if known is not None and known.connection is connection:
            del self._clients[client_id]

    def __contains__(self, group: str) -> bool:
        return group in self._groups

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)
