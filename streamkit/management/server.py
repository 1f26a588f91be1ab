"""Serves the management endpoints on a port of their own, for as long as the application runs."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator

import uvicorn

from streamkit.config.application_properties import MANAGEMENT_SERVER, ManagementServerProperties
from streamkit.errors import ConfigurationError
from streamkit.management.endpoints import Endpoints, ManagedApplication

__all__ = ["ManagementServer"]

log = logging.getLogger(__name__)


class ManagementServer:
    """The endpoints of one application, behind a port.

    Attributes:
        url: Where they are, once started.
    """

    def __init__(self, application: ManagedApplication, properties: ManagementServerProperties) -> None:
        self.url = ""
        self._properties = properties
        self._endpoints = Endpoints(application, properties.base_path)
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Serve on the running loop.

        Raises:
            ConfigurationError: The address cannot be had.
        """
        try:
            listener = self._listen()
        except ConfigurationError:
            self._endpoints.close()
            raise
        host, port = listener.getsockname()[:2]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{port}{self._endpoints.base_path}"
        config = uvicorn.Config(
            self._endpoints.asgi,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=1,
        )
        self._server = _Server(config)
        loop = asyncio.get_running_loop()
        self._serving = loop.create_task(self._server.serve([listener]), name="management endpoints")
        log.info("Management endpoints at %s: %s", self.url, ", ".join(self._endpoints.exposed) or "none")

    async def stop(self) -> None:
        """Answer what is asked, and close."""
        self._endpoints.close()
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await self._serving
            self._server = self._serving = None

    def _listen(self) -> socket.socket:
        address, port = self._properties.address, self._properties.port or 0
        try:
            family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
            return socket.create_server((address, port), family=family)
        except OSError as error:
            raise ConfigurationError(
                f"the management endpoints cannot listen on {address}:{port}: {error.strerror or error}. Set "
                f"{MANAGEMENT_SERVER}.port to a free one, or to 0, which takes any",
                key=f"{MANAGEMENT_SERVER}.port",
                value=port,
            ) from error


class _Server(uvicorn.Server):
    """uvicorn's server without its signal handlers: the application has its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
