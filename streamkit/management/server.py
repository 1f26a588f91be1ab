"""The HTTP server of the management endpoints, with a port of its own, for as long as the application runs."""

import logging
import socket

from streamkit.config.application_properties import MANAGEMENT_SERVER, SECURITY_USER
from streamkit.config.management_properties import ManagementServerProperties
from streamkit.errors import ConfigurationError
from streamkit.management.connection import ConnectionLimits
from streamkit.management.endpoint import ManagedApplication
from streamkit.management.endpoints import Endpoints
from streamkit.management.http_server import HttpServer, host_and_port, is_loopback, listen

__all__ = ["ManagementServer"]

logger = logging.getLogger(__name__)


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
        self._endpoints = Endpoints(application, properties.base_path)
        self._server = HttpServer(self._endpoints.asgi, limits or ConnectionLimits(), "management endpoints")

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
        if not is_loopback(listener) and not self._endpoints.needs_login:
            # A name such as localhost that means another address.
            host = listener.getsockname()[0]
            listener.close()
            self._endpoints.close()
            raise ConfigurationError(
                f"the management endpoints would listen on {host}, where other machines could use them without a "
                f"login: set {MANAGEMENT_SERVER}.token or {SECURITY_USER}.password"
            )
        self.url = f"http://{host_and_port(listener)}{self._endpoints.base_path}"
        self._server.start(listener)
        logger.info("Management endpoints at %s: %s", self.url, ", ".join(self._endpoints.exposed) or "none")
        if not is_loopback(listener):
            logger.warning(
                "The management endpoints at %s can be reached from other machines, and HTTP sends passwords, tokens "
                "and answers unencrypted: put a proxy with TLS in front of them, or set %s.address=127.0.0.1",
                self.url,
                MANAGEMENT_SERVER,
            )

    async def stop(self) -> None:
        """Finish the responses to complete requests within a second, and close all connections."""
        self._endpoints.close()
        await self._server.stop()

    def _listen(self) -> socket.socket:
        address, port = self._properties.address, self._properties.port or 0
        try:
            return listen(address, port)
        except OSError as error:
            raise ConfigurationError(
                f"the management endpoints cannot listen on {address}:{port}: {error.strerror or error}. Set "
                f"{MANAGEMENT_SERVER}.port to a free port, or to 0 for any free port",
                key=f"{MANAGEMENT_SERVER}.port",
                value=port,
            ) from error
