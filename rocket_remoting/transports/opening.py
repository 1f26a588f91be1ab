"""The start of a connection that a client opens, with TLS or without."""

import asyncio

from rocket_remoting.session.address import host_of
from rocket_remoting.session.connection import Connection, Handler
from rocket_remoting.session.limits import Limits
from rocket_remoting.tls.contexts import client_context
from rocket_remoting.tls.settings import ClientTls
from rocket_remoting.tls.transport import TlsTransport
from rocket_remoting.wire.errors import ConnectError

__all__ = ["Opening"]


class Opening:
    """A connection to ``address`` that is being opened.

    Args:
        address: The peer's address, ``host:port``.
        handler: Handles the peer's requests.
        limits: Limits for the connection.
        tls: How to encrypt it; None for a plain connection.

    Raises:
        TlsError: A file that `tls` names cannot be used.
    """

    def __init__(self, address: str, handler: Handler | None, limits: Limits, tls: ClientTls | None) -> None:
        self._connection = Connection(handler, limits, remote_address=address)
        self._address = address
        self._context = None if tls is None else client_context(tls)
        self._opened: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        self._transport: TlsTransport | None = None

    def protocol(self) -> asyncio.BufferedProtocol:
        """Return the protocol for the transport."""
        if self._context is None:
            self._opened.set_result(self._connection)
            return self._connection
        self._transport = TlsTransport(
            self._connection,
            self._context,
            server_side=False,
            server_hostname=host_of(self._address),
            on_open=self._open,
            on_failure=self._fail,
        )
        return self._transport

    async def opened(self) -> Connection:
        """Return the connection when it is open, with TLS after its handshake.

        Raises:
            ConnectError: The TLS handshake failed.
        """
        try:
            return await self._opened
        except BaseException:
            if self._transport is not None:
                self._transport.abort()
            raise

    def _open(self) -> None:
        assert self._transport is not None
        self._connection.connection_made(self._transport)
        if not self._opened.done():
            self._opened.set_result(self._connection)

    def _fail(self, reason: str) -> None:
        if not self._opened.done():
            self._opened.set_exception(ConnectError(self._address, reason))
        elif not self._connection.is_closed:
            self._connection.abort(reason)
