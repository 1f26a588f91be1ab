"""The transport over TCP."""

import asyncio
import math
import os
import socket
import sys

from rocket_remoting.session.address import parse_address
from rocket_remoting.session.connection import Connection, FramesHandler, Handler
from rocket_remoting.session.limits import Limits
from rocket_remoting.tls.settings import ClientTls, ServerTls
from rocket_remoting.transports.opening import Opening
from rocket_remoting.transports.transport import ConnectionCallback, Server
from rocket_remoting.wire.errors import ConnectError, seconds_text

ACCEPTS_PER_TURN = 16
"""Connections that asyncio accepts in one turn of the loop, before it serves open ones: asyncio's ``backlog``."""
LISTEN_BACKLOG = 1024
"""Connections that the operating system keeps until they are accepted: the backlog of ``listen(2)``."""


class TcpTransport:
    """Connections over TCP sockets of the running loop."""

    __slots__ = ()

    async def connect(
        self,
        address: str,
        *,
        handler: Handler | None = None,
        timeout: float = 3.0,
        limits: Limits | None = None,
        tls: ClientTls | None = None,
    ) -> Connection:
        """Open a connection to ``host:port``; see `Transport.connect`."""
        host, port = parse_address(address)
        limits = limits or Limits()
        loop = asyncio.get_running_loop()
        opening = Opening(address, handler, limits, tls)
        try:
            async with asyncio.timeout(timeout):
                await loop.create_connection(opening.protocol, host, port)
                connection = await opening.opened()
        except TimeoutError:
            raise ConnectError(address, f"no connection within {seconds_text(timeout)} s") from None
        except OSError as error:
            raise ConnectError(address, _reason(error)) from error
        return connection

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
    ) -> Server:
        """Start a server; see `Transport.serve`."""
        server = _TcpServer(handler, on_connect, on_close, limits or Limits(), frames_handler, tls=tls)
        await server.listen(host, port)
        return server

    def __repr__(self) -> str:
        return "TcpTransport()"


def _reason(error: OSError) -> str:
    """Return the system's text for an error; asyncio's text would repeat the address."""
    if error.errno is None or isinstance(error, socket.gaierror):  # which has numbers of its own
        return error.strerror or str(error)
    return os.strerror(error.errno)


class _TcpServer(Server):
    async def listen(self, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        # asyncio uses its backlog for two things: for listen(2), and as the number of connections that it accepts in
        # one turn. So the first is set again below, on a copy of the socket's descriptor, with a number of its own.
        self._listener = await loop.create_server(self.accept, host, port, backlog=ACCEPTS_PER_TURN)
        for listening in self._listener.sockets:
            with socket.fromfd(listening.fileno(), listening.family, listening.type) as same:
                same.listen(LISTEN_BACKLOG)
        self.host, self.port = self._listener.sockets[0].getsockname()[:2]

    def _stop_listening(self) -> None:
        self._listener.close()

    def _file_limit(self) -> float:
        most = _process_file_limit()
        return max(most - self._limits.spare_files, most // 2)


if sys.platform == "win32":

    def _process_file_limit() -> float:
        return math.inf
else:
    import resource

    def _process_file_limit() -> float:
        """Return the number of files that this process may have open."""
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return math.inf if most == resource.RLIM_INFINITY else most
