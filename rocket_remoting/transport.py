"""What a transport does, and the server half that all of them share."""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from rocket_remoting.address import format_address
from rocket_remoting.connection import Connection, Handler, Limits

logger = logging.getLogger("rocket_remoting")

ConnectionCallback = Callable[[Connection], None]


class Transport(Protocol):
    """A way to reach peers, and to be reached."""

    async def connect(
        self,
        address: str,
        *,
        handler: Handler | None = None,
        timeout: float = 3.0,
        limits: Limits | None = None,
    ) -> Connection:
        """An open connection to ``host:port``.

        Args:
            address: Whom to connect to.
            handler: Answers the peer's requests; without one they are refused.
            timeout: Seconds within which the connection must stand.
            limits: What the peer may do; `Limits()` by default.

        Raises:
            ConnectError: There is no connection within `timeout` seconds.
        """

    async def serve(
        self,
        host: str,
        port: int,
        handler: Handler,
        *,
        on_connect: ConnectionCallback | None = None,
        on_close: ConnectionCallback | None = None,
        limits: Limits | None = None,
    ) -> "Server":
        """A server that listens when this returns.

        Args:
            host: The address to listen on.
            port: The port; 0 takes a free one.
            handler: Answers requests.
            on_connect: Called for each new connection.
            on_close: Called for each connection that ended.
            limits: What peers may do; `Limits()` by default.

        Raises:
            OSError: The address cannot be listened on.
        """


class Server:
    """A listening end and its connections.

    Attributes:
        host: Where it listens.
        port: The port, never 0.
    """

    CLOSE_PATIENCE = 1.0  # seconds that peers have at the end to read what was written for them

    def __init__(
        self,
        handler: Handler,
        on_connect: ConnectionCallback | None,
        on_close: ConnectionCallback | None,
        limits: Limits,
    ) -> None:
        """Transports make servers."""
        self.host = ""
        self.port = 0
        self._handler = handler
        self._on_connect = on_connect
        self._on_close = on_close
        self._limits = limits
        self._connections: set[Connection] = set()
        self._closing = False
        self._refused = False  # whether the last connection was

    @property
    def address(self) -> str:
        """``host:port``, to be connected to."""
        return format_address((self.host, self.port))

    @property
    def connections(self) -> frozenset[Connection]:
        """The connections that are open now."""
        return frozenset(self._connections)

    async def close(self) -> None:
        """Return when nothing is listened on and all connections have ended."""
        self._closing = True
        self._stop_listening()
        connections = list(self._connections)
        for connection in connections:
            connection.start_close("the server closes")
        if connections:
            closed = asyncio.gather(*(connection.close() for connection in connections))
            try:
                async with asyncio.timeout(self.CLOSE_PATIENCE):
                    await closed
            except TimeoutError:  # a peer that does not read: what is unwritten is dropped
                for connection in connections:
                    connection.abort("the server closes")
                await asyncio.gather(*(connection.close() for connection in connections))

    def accept(self) -> Connection:
        """A connection of this server, which stands when its transport says so."""
        return Connection(self._handler, self._limits, accepted=True, made=self._made)

    def _stop_listening(self) -> None:
        raise NotImplementedError

    def _made(self, connection: Connection) -> bool:
        if self._closing:
            return False
        if len(self._connections) >= self._limits.max_connections:
            self._tell_refusal(connection, "which is the limit")
            return False
        if not self._has_files_left(connection):
            self._tell_refusal(connection, "and this process may not have many more files open (ulimit -n)")
            return False
        self._refused = False
        self._connections.add(connection)
        connection.add_close_callback(self._lost)
        if self._on_connect is not None:
            self._on_connect(connection)
        return True

    def _has_files_left(self, connection: Connection) -> bool:
        """Whether this connection leaves enough files to this process; one that has no file does."""
        return True

    def _tell_refusal(self, connection: Connection, reason: str) -> None:
        """Log the first refusal of a row: who floods a server with connections must not flood its log."""
        if not self._refused:
            self._refused = True
            logger.warning(
                "refusing the connection of %s and further ones: %d are open, %s",
                connection.remote_address,
                len(self._connections),
                reason,
            )

    def _lost(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if self._on_close is not None:
            self._on_close(connection)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address}: {len(self._connections)} connections>"
