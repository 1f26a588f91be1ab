"""An HTTP server for an ASGI application, on a socket that listens already, with limits for its connections."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from functools import partial
from ipaddress import ip_address
from typing import Final, cast

import uvicorn
from starlette.types import ASGIApp

from streamkit.management.connection import MAX_HEAD, ConnectionLimits, ManagementConnection

__all__ = ["HttpServer", "host_and_port", "is_loopback", "listen"]

_PATIENCE: Final = 1
"""The seconds for responses in progress when the server stops."""


def listen(address: str, port: int) -> socket.socket:
    """Return a socket that listens at an address; port 0 takes a free one.

    Raises:
        OSError: The address is not known, or the port cannot be bound.
    """
    family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
    return socket.create_server((address, port), family=family)


def is_loopback(listener: socket.socket) -> bool:
    """Return whether only this machine reaches a socket that listens."""
    return ip_address(listener.getsockname()[0].partition("%")[0]).is_loopback


def host_and_port(listener: socket.socket) -> str:
    """Return the address of a socket that listens, as it is written in a URL."""
    host, port = listener.getsockname()[:2]
    return f"{f'[{host}]' if ':' in host else host}:{port}"


class HttpServer:
    """Serves an ASGI application on the running loop."""

    def __init__(self, app: ASGIApp, limits: ConnectionLimits, name: str) -> None:
        """Create the server; :meth:`start` serves the application.

        Args:
            app: The application.
            limits: The limits of connections.
            name: The name of the task that serves.
        """
        config = uvicorn.Config(
            app,
            # uvicorn calls the value as it would call the class.
            http=cast("type[asyncio.Protocol]", partial(ManagementConnection, limits)),
            h11_max_incomplete_event_size=MAX_HEAD,
            backlog=limits.connections,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=_PATIENCE,
        )
        self._name = name
        self._server = _Server(config)
        self._serving: asyncio.Task[None] | None = None

    def start(self, listener: socket.socket) -> None:
        """Start to serve on a socket that listens, which the server closes when it stops."""
        work = self._server.serve([listener])
        self._serving = asyncio.get_running_loop().create_task(work, name=self._name)

    async def stop(self) -> None:
        """Finish the responses to complete requests within a second, and close all connections."""
        if self._serving is not None:
            self._server.should_exit = True
            await self._serving
            self._server.abort_connections()
            self._serving = None


class _Server(uvicorn.Server):
    """uvicorn's server without its signal handlers: the application has handlers of its own."""

    def abort_connections(self) -> None:
        """Close the connections whose clients have not read their responses."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
