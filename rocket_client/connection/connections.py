"""One connection per address, opened when first needed and reopened after a loss.

Callers that need the same address at the same time share one attempt. On each new connection `on_connect` runs before
any other request: brokers must know a group from a heartbeat before they serve its pulls. `on_loss` is called when a
connection is lost or cannot be opened, not when this side closes it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from rocket_remoting.session.connection import Connection, Handler
from rocket_remoting.tls.settings import ClientTls
from rocket_remoting.transports.transport import Transport
from rocket_remoting.wire.credentials import Credentials
from rocket_remoting.wire.errors import ConnectError, ConnectionLost, RemotingError

logger = logging.getLogger(__name__)


class Connections:
    """Open connections by address."""

    def __init__(
        self,
        transport: Transport,
        handler: Handler | None,
        connect_timeout: float,
        on_connect: Callable[[Connection], Awaitable[None]] | None = None,
        on_loss: Callable[[str], None] = lambda address: None,
        *,
        tls: ClientTls | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self._transport = transport
        self._handler = handler
        self._connect_timeout = connect_timeout
        self._on_connect = on_connect
        self._on_loss = on_loss
        self._tls = tls
        self._credentials = credentials
        self._open: dict[str, Connection] = {}
        self._opening: dict[str, asyncio.Task[Connection]] = {}
        self._closed = False

    def __repr__(self) -> str:
        return f"<Connections open={list(self._open)} opening={list(self._opening)}>"

    def get(self, address: str) -> Connection | None:
        """Return the open connection to the address; None if there is none."""
        connection = self._open.get(address)
        return None if connection is None or connection.is_closed else connection

    def addresses(self) -> list[str]:
        """Return the addresses with an open connection."""
        return [address for address, connection in self._open.items() if not connection.is_closed]

    async def to(self, address: str) -> Connection:
        """Return an open connection to the address, on which `on_connect` has run.

        Raises:
            ConnectError: No connection could be opened within `connect_timeout`.
            TlsError: A file of the TLS settings cannot be used.
            ConnectionLost: The connection was lost at once, or the client is shut down.
        """
        connection = self._open.get(address)
        if connection is not None and not connection.is_closed:
            return connection
        if self._closed:
            raise ConnectionLost(address, "the client is shut down")
        opening = self._opening.get(address)
        if opening is None:
            opening = asyncio.create_task(self._connect(address), name=f"connect to {address}")
            self._opening[address] = opening
            opening.add_done_callback(lambda task: self._opened(address, task))
        # Shielded: other callers may wait for the same attempt, so cancelling one of them must not end it.
        return await asyncio.shield(opening)

    async def _connect(self, address: str) -> Connection:
        try:
            connection = await self._transport.connect(
                address, handler=self._handler, timeout=self._connect_timeout, tls=self._tls
            )
        except ConnectError:
            self._on_loss(address)
            raise
        connection.sign_with(self._credentials)
        try:
            if self._on_connect is not None:
                await self._on_connect(connection)
        except RemotingError as error:
            # The connection is used all the same: sends need no heartbeat, and the periodic one introduces the client
            # later.
            logger.warning("could not send the first heartbeat to %s: %s", address, error)
        except BaseException:
            connection.abort("given up")
            raise
        if connection.is_closed:
            raise ConnectionLost(address)
        self._open[address] = connection
        connection.add_close_callback(lambda closed: self._forget(address, closed))
        return connection

    def _opened(self, address: str, task: asyncio.Task[Connection]) -> None:
        self._opening.pop(address, None)
        if not task.cancelled():
            task.exception()  # retrieved even if every caller was cancelled, so that asyncio does not log it

    def _forget(self, address: str, connection: Connection) -> None:
        # A newer connection to the address may be open by now.
        if self._open.get(address) is connection:
            del self._open[address]
            self._on_loss(address)

    async def drop(self, address: str) -> None:
        """Close the connection to an address that is not needed any more."""
        connection = self._open.pop(address, None)
        if connection is not None:
            await connection.close()

    async def close(self) -> None:
        """Close all connections, and open no new ones."""
        self._closed = True
        for task in list(self._opening.values()):
            task.cancel()
        await asyncio.gather(*self._opening.values(), return_exceptions=True)
        connections, self._open = list(self._open.values()), {}
        for connection in connections:
            await connection.close()
