"""The transport over TCP."""

import asyncio
import math
import os
import socket
import sys

from rocket_remoting.session.address import parse_address
from rocket_remoting.session.connection import Connection, Handler
from rocket_remoting.session.limits import Limits
from rocket_remoting.transports.transport import ConnectionCallback, Server
from rocket_remoting.wire.errors import ConnectError

ACCEPTED_A_TURN = 16
"""asyncio accepts so many connections before it returns to those there are: what it calls the backlog."""
WAITING_CONNECTIONS = 1024
"""The operating system answers so many clients that are not accepted yet."""


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
    ) -> Connection:
        """An open connection to ``host:port``; see `Transport.connect`."""
        host, port = parse_address(address)
        limits = limits or Limits()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                _, connection = await loop.create_connection(
                    lambda: Connection(handler, limits, remote_address=address), host, port
                )
        except TimeoutError:
            raise ConnectError(address, f"no connection within {timeout:g} s") from None
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
    ) -> Server:
        """A server that listens when this returns; see `Transport.serve`."""
        server = _TcpServer(handler, on_connect, on_close, limits or Limits())
        await server.listen(host, port)
        return server

    def __repr__(self) -> str:
        return "TcpTransport()"


def _reason(error: OSError) -> str:
    """Why there is no connection, in the system's words: asyncio's own repeat the address."""
    if error.errno is None or isinstance(error, socket.gaierror):  # which has numbers of its own
        return error.strerror or str(error)
    return os.strerror(error.errno)


class _TcpServer(Server):
    async def listen(self, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self.accept, host, port, backlog=ACCEPTED_A_TURN)
        for listening in self._listener.sockets:
            with socket.fromfd(listening.fileno(), listening.family, listening.type) as same:
                same.listen(WAITING_CONNECTIONS)
        self.host, self.port = self._listener.sockets[0].getsockname()[:2]

    def _stop_listening(self) -> None:
        self._listener.close()

    def _most_files(self) -> float:
        most = _files_allowed()
        return max(most - self._limits.spare_files, most // 2)


if sys.platform == "win32":

    def _files_allowed() -> float:
        return math.inf
else:
    import resource

    def _files_allowed() -> float:
        """How many files this process may have open."""
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return math.inf if most == resource.RLIM_INFINITY else most
