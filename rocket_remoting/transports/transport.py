"""The interface of transports, and the server that all transports share."""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from rocket_remoting.session.address import format_address
from rocket_remoting.session.arrivals import Arrivals
from rocket_remoting.session.connection import Connection, FramesHandler, Handler
from rocket_remoting.session.limits import Limits
from rocket_remoting.session.turns import Turns
from rocket_remoting.tls.contexts import ServerContext
from rocket_remoting.tls.settings import ClientTls, ServerTls, TlsMode
from rocket_remoting.transports.first_request import FirstRequest
from rocket_remoting.wire.receive_buffer import ReceiveBuffer

logger = logging.getLogger("rocket_remoting")

_SECONDS_BETWEEN_WARNINGS = 1.0

ConnectionCallback = Callable[[Connection], None]


class Transport(Protocol):
    """Opens connections to peers and accepts connections from them."""

    async def connect(
        self,
        address: str,
        *,
        handler: Handler | None = None,
        timeout: float = 3.0,
        limits: Limits | None = None,
        tls: ClientTls | None = None,
    ) -> Connection:
        """Open a connection.

        Args:
            address: The peer's address, ``host:port``.
            handler: Handles the peer's requests; None refuses them all.
            timeout: Seconds within which the connection must be open.
            limits: Limits for the connection; `Limits()` by default.
            tls: How to encrypt the connection; None for a plain one.

        Raises:
            ConnectError: The address is malformed, or no connection could be opened within `timeout` seconds.
            TlsError: A file that `tls` names cannot be used.
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
        frames_handler: FramesHandler | None = None,
        tls: ServerTls | None = None,
    ) -> "Server":
        """Start a server; it listens when this returns.

        Args:
            host: The host to listen on.
            port: The port; 0 for a free one.
            handler: Handles requests.
            on_connect: Called with each new connection.
            on_close: Called with each connection that has ended.
            limits: Limits for all connections; `Limits()` by default.
            frames_handler: Asked for the first frames of each read before they are decoded.
            tls: The certificate of the server, and which connections it accepts; None for plain ones.

        Raises:
            OSError: The server cannot listen on the address.
            TlsError: A file that `tls` names cannot be used.
        """


class Server:
    """A server and its connections.

    Attributes:
        host: The host that the server listens on.
        port: The port, never 0.
        lacks_files: Whether the last connection was refused because this process is near its limit of open files.
    """

    CLOSE_TIMEOUT = 1.0  # seconds that `close` waits for peers to read the bytes written for them

    def __init__(
        self,
        handler: Handler,
        on_connect: ConnectionCallback | None,
        on_close: ConnectionCallback | None,
        limits: Limits,
        frames_handler: FramesHandler | None = None,
        *,
        tls: ServerTls | None = None,
    ) -> None:
        """Make a server that does not listen yet; only transports do."""
        self.host = ""
        self.port = 0
        self.lacks_files = False
        self._handler = handler
        self._on_connect = on_connect
        self._on_close = on_close
        self._limits = limits
        self._tls = None if tls is None or tls.mode is TlsMode.DISABLED else ServerContext(tls)
        self._connections: set[Connection] = set()
        self._turns = Turns(asyncio.get_running_loop())
        self._receive_buffer = ReceiveBuffer()
        self._arrivals: Arrivals[Connection] | None = None
        if frames_handler is not None:
            self._arrivals = Arrivals(
                self._receive_buffer,
                frames_handler.take,
                frames_handler.take_alone,
                frames_handler.begin_turn,
                frames_handler.end_turn,
                codes=frames_handler.codes,
            )
        self._closing = False
        # Number of connections of each address except the server's own.
        self._connections_of: Counter[str] = Counter()
        # The connections of unknown peers by addresses, the oldest of each first, and their number.
        self._unknown: dict[str, dict[Connection, None]] = {}
        self._unknown_count = 0
        # Whether the last connection was refused, and a refusal of this series was logged.
        self._refused = False
        self._next_warning_at = 0.0

    @property
    def address(self) -> str:
        """The address to connect to, ``host:port``."""
        return format_address((self.host, self.port))

    @property
    def connections(self) -> frozenset[Connection]:
        """The connections that are open now."""
        return frozenset(self._connections)

    async def close(self) -> None:
        """Stop listening, close all connections and wait until they have ended."""
        self._closing = True
        self._stop_listening()
        connections = list(self._connections)
        for connection in connections:
            connection.start_close("the server closes")
        if connections:
            closed = asyncio.gather(*(connection.close() for connection in connections))
            try:
                async with asyncio.timeout(self.CLOSE_TIMEOUT):
                    await closed
            except TimeoutError:  # a peer does not read: drop the unwritten bytes
                for connection in connections:
                    connection.abort("the server closes")
                await asyncio.gather(*(connection.close() for connection in connections))

    def accept(self) -> FirstRequest:
        """Return the protocol of a new connection of this server, to be opened by its transport."""
        connection = Connection(
            self._handler,
            self._limits,
            accepted=True,
            receive_buffer=self._receive_buffer,
            admit=self._admit,
            on_known=self._forget_unknown,
            turns=self._turns,
            arrivals=self._arrivals,
        )
        return FirstRequest(connection, self._limits, self._turns, self._tls)

    def _stop_listening(self) -> None:
        raise NotImplementedError

    def _admit(self, connection: Connection) -> bool:
        if self._closing:
            return False
        address = connection.counted_as
        refusal = self._refusal(connection, address)
        if refusal:
            self._log_refusal(connection, refusal)
            return False
        self._refused = False
        self._connections.add(connection)
        if address:
            self._connections_of[address] += 1
        self._unknown.setdefault(address, {})[connection] = None
        self._unknown_count += 1
        # A refused connection never gets this callback, so `_remove` does not subtract what was not counted.
        connection.add_close_callback(self._remove)
        if self._on_connect is not None:
            self._on_connect(connection)
        most = min(self._limits.max_connections, self._file_limit())
        if self._unknown_count > max(1, most * self._limits.max_unknown_percent // 100):
            self._close_oldest_unknown()
        return True

    def _close_oldest_unknown(self) -> None:
        """Make room: close the oldest connection of an unknown peer, of the address that has most of them."""
        of_address = max(self._unknown.values(), key=len)
        oldest = next(iter(of_address))
        reason = f"{self._unknown_count} connections of unknown peers are open, one more than the limit"
        self._log_refusal(oldest, reason)
        oldest.abort(reason)
        self._forget_unknown(oldest)  # now, since its end is reported later

    def _forget_unknown(self, connection: Connection) -> None:
        of_address = self._unknown.get(connection.counted_as)
        if of_address is not None and connection in of_address:
            del of_address[connection]
            self._unknown_count -= 1
            if not of_address:
                del self._unknown[connection.counted_as]

    def _refusal(self, connection: Connection, address: str) -> str:
        """Return why the connection is refused; an empty text if it is kept."""
        limits, files, all_open = self._limits, self._file_limit(), len(self._connections)
        self.lacks_files = False
        if all_open >= limits.max_connections:
            return f"{all_open} are open, which is the limit"
        # The system gives out the lowest free file descriptor, so this one shows how many are in use.
        number = connection.file_number
        if number is not None and number >= files:
            self.lacks_files = True
            return f"{all_open} are open, and this process may not have many more files open (ulimit -n)"
        if not address:
            return ""
        of_address, most = self._connections_of[address], min(limits.max_connections, files)
        if of_address * 100 >= most * limits.max_address_percent:
            return f"{of_address} of {address} are open, which is the limit of one address"
        unknown = len(self._unknown.get(address, ()))
        if unknown and unknown * 100 >= most * limits.max_address_unknown_percent:
            return f"{unknown} of {address} are open whose peers are unknown, which is the limit of one address"
        return ""

    def _file_limit(self) -> float:
        """Return the number of open files from which on connections are refused."""
        return math.inf

    def _log_refusal(self, connection: Connection, reason: str) -> None:
        """Log the first refusal of a series, so that a flood of connections does not flood the log.

        A series ends with the next accepted connection. As series may be short when only one address is refused, at
        most one refusal is logged in a second.
        """
        now = asyncio.get_running_loop().time()
        if not self._refused and now >= self._next_warning_at:
            self._refused, self._next_warning_at = True, now + _SECONDS_BETWEEN_WARNINGS
            logger.warning(
                "refusing the connection of %s and further ones: %s",
                connection.remote_address, reason, extra=connection.log_peer,
            )  # fmt: skip

    def _remove(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._forget_unknown(connection)
        address = connection.counted_as
        if address:
            self._connections_of[address] -= 1
            if not self._connections_of[address]:
                del self._connections_of[address]
        if self._on_close is not None:
            self._on_close(connection)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address}: {len(self._connections)} connections>"
