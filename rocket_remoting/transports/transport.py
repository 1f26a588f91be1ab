"""What a transport does, and the server half that all of them share."""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from rocket_remoting.session.address import format_address
from rocket_remoting.session.connection import Connection, Handler
from rocket_remoting.session.limits import Limits
from rocket_remoting.session.turns import Turns
from rocket_remoting.wire.frame_decoder import FrameDecoder

logger = logging.getLogger("rocket_remoting")

_SECONDS_BETWEEN_WARNINGS = 1.0

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
        lacks_files: Whether the last connection was refused because this process may hardly open more files.
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
        self.lacks_files = False
        self._handler = handler
        self._on_connect = on_connect
        self._on_close = on_close
        self._limits = limits
        self._connections: set[Connection] = set()
        self._turns = Turns(asyncio.get_running_loop())
        self._room = memoryview(bytearray(FrameDecoder.BUFFER_SIZE))
        self._closing = False
        self._crowds: Counter[str] = Counter()  # connections of each address but the server's own
        self._refused = False  # whether the last connection was, and it was told
        self._silent_until = 0.0

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
        return Connection(
            self._handler, self._limits, accepted=True, room=self._room, made=self._made, turns=self._turns
        )

    def _stop_listening(self) -> None:
        raise NotImplementedError

    def _made(self, connection: Connection) -> bool:
        if self._closing:
            return False
        crowd = connection.counted_as
        refusal = self._refusal(connection, crowd)
        if refusal:
            self._tell_refusal(connection, refusal)
            return False
        self._refused = False
        self._connections.add(connection)
        if crowd:
            self._crowds[crowd] += 1
        connection.add_close_callback(self._lost)
        if self._on_connect is not None:
            self._on_connect(connection)
        return True

    def _refusal(self, connection: Connection, crowd: str) -> str:
        """Say why the connection is not kept; nothing when it is."""
        limits, files, all_open = self._limits, self._most_files(), len(self._connections)
        self.lacks_files = False
        if all_open >= limits.max_connections:
            return f"{all_open} are open, which is the limit"
        # Numbers are given out from the lowest that is free: this one tells how many are in use.
        number = connection.file_number
        if number is not None and number >= files:
            self.lacks_files = True
            return f"{all_open} are open, and this process may not have many more files open (ulimit -n)"
        of_address = self._crowds[crowd] if crowd else 0
        if of_address * 100 >= min(limits.max_connections, files) * limits.max_address_percent:
            return f"{of_address} of {crowd} are open, which is the limit of one address"
        return ""

    def _most_files(self) -> float:
        """How many files may be open while there are connections to come."""
        return math.inf

    def _tell_refusal(self, connection: Connection, reason: str) -> None:
        """Log the first refusal of a row: who floods a server with connections must not flood its log.

        Rows may be short, where one address is refused and others are not: of those of one second the first is told.
        """
        now = asyncio.get_running_loop().time()
        if not self._refused and now >= self._silent_until:
            self._refused, self._silent_until = True, now + _SECONDS_BETWEEN_WARNINGS
            logger.warning(
                "refusing the connection of %s and further ones: %s",
                connection.remote_address, reason, extra=connection.log_peer,
            )  # fmt: skip

    def _lost(self, connection: Connection) -> None:
        self._connections.discard(connection)
        crowd = connection.counted_as
        if crowd:
            self._crowds[crowd] -= 1
            if not self._crowds[crowd]:
                del self._crowds[crowd]
        if self._on_close is not None:
            self._on_close(connection)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address}: {len(self._connections)} connections>"
