"""The HTTP server of the management endpoints, with a port of its own, for as long as the application runs."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from functools import partial
from ipaddress import ip_address
from typing import Final, cast

import uvicorn

from streamkit.config.application_properties import MANAGEMENT_SERVER, SECURITY_USER, ManagementServerProperties
from streamkit.errors import ConfigurationError
from streamkit.management.connection import MAX_HEAD, ConnectionLimits, ManagementConnection
from streamkit.management.endpoint import ManagedApplication
from streamkit.management.endpoints import Endpoints

__all__ = ["ManagementServer"]

logger = logging.getLogger(__name__)

_PATIENCE: Final = 1
"""The seconds for responses in progress when the server stops."""


class ManagementServer:
    """The management endpoints of one application, served on a port.

    Attributes:
        url: The URL of the endpoints, once started; empty before.
    """

    def __init__(
        self,
        application: ManagedApplication,
        properties: ManagementServerProperties,
        limits: ConnectionLimits | None = None,
    ) -> None:
        """Create the endpoints; :meth:`start` serves them.

        Args:
            application: The application.
            properties: The address, the port and the base path.
            limits: The limits of connections; the defaults of :class:`ConnectionLimits` if None.
        """
        self.url = ""
        self._properties = properties
        self._limits = limits or ConnectionLimits()
        self._endpoints = Endpoints(application, properties.base_path)
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start to serve on the running loop.

        Raises:
            ConfigurationError: The address or port cannot be bound, or other machines could use the endpoints without a
                login.
        """
        try:
            listener = self._listen()
        except ConfigurationError:
            self._endpoints.close()
            raise
        host, port = listener.getsockname()[:2]
        is_loopback = ip_address(host.partition("%")[0]).is_loopback
        if not is_loopback and not self._endpoints.needs_login:  # a name such as localhost that means another address
            listener.close()
            self._endpoints.close()
            raise ConfigurationError(
                f"the management endpoints would listen on {host}, where other machines could use them without a "
                f"login: set {MANAGEMENT_SERVER}.token or {SECURITY_USER}.password"
            )
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{port}{self._endpoints.base_path}"
        config = uvicorn.Config(
            self._endpoints.asgi,
            # uvicorn calls the value as it would call the class.
            http=cast("type[asyncio.Protocol]", partial(ManagementConnection, self._limits)),
            h11_max_incomplete_event_size=MAX_HEAD,
            backlog=self._limits.connections,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=_PATIENCE,
        )
        self._server = _Server(config)
        loop = asyncio.get_running_loop()
        self._serving = loop.create_task(self._server.serve([listener]), name="management endpoints")
        logger.info("Management endpoints at %s: %s", self.url, ", ".join(self._endpoints.exposed) or "none")
        if not is_loopback:
            logger.warning(
                "The management endpoints at %s can be reached from other machines, and HTTP sends passwords, tokens "
                "and answers unencrypted: put a proxy with TLS in front of them, or set %s.address=127.0.0.1",
                self.url,
                MANAGEMENT_SERVER,
            )

    async def stop(self) -> None:
        """Finish the responses to complete requests within a second, and close all connections."""
        self._endpoints.close()
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await self._serving
            self._server.abort_connections()
            self._server = self._serving = None

    def _listen(self) -> socket.socket:
        address, port = self._properties.address, self._properties.port or 0
        try:
            family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
            return socket.create_server((address, port), family=family)
        except OSError as error:
            raise ConfigurationError(
                f"the management endpoints cannot listen on {address}:{port}: {error.strerror or error}. Set "
                f"{MANAGEMENT_SERVER}.port to a free port, or to 0 for any free port",
                key=f"{MANAGEMENT_SERVER}.port",
                value=port,
            ) from error


class _Server(uvicorn.Server):
    """uvicorn's server without its signal handlers: the application has handlers of its own."""

    def abort_connections(self) -> None:
        """Close the connections whose clients have not read their responses."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
