"""The HTTP endpoint that Prometheus scrapes: `GET /metrics`, and nothing else.

It is small on purpose: one request for each connection, few connections, no body of a request is read, and each step
has a time limit. An answer is read in slices of the loop's time, so that a scrape delays no client of the server.
"""

import asyncio
import errno
import ipaddress
import logging
from collections.abc import Callable, Generator
from typing import Final

from rocket_broker.errors import AddressInUse, CannotListen
from rocket_broker.loop.loop_steps import run_in_steps
from rocket_remoting.session.address import format_address, host_of, log_peer
from streamkit.exposition import CONTENT_TYPE

__all__ = ["MetricsEndpoint"]

logger = logging.getLogger(__name__)

MAX_HEAD: Final = 8 * 1024
"""Maximum bytes of a request's first line and headers."""
MOST_CONNECTIONS: Final = 16
"""Connections at once; further ones are closed at once."""
SECONDS: Final = 10.0
"""Seconds until a request must have arrived, and seconds until a piece of the answer must have been taken."""

_PATH: Final = "/metrics"

Scrape = Callable[[], Generator[None, None, list[bytes]]]
"""Begins a scrape, whose result is the text in pieces."""


class MetricsEndpoint:
    """Serves the metrics of one server.

    Attributes:
        address: The address, once started; empty before.
    """

    def __init__(self, scrape: Scrape, host: str, port: int) -> None:
        """Create the endpoint; :meth:`start` serves it.

        Args:
            scrape: Begins a scrape.
            host: The host to listen on.
            port: The port; 0 for a free one.
        """
        self.address = ""
        self._scrape = scrape
        self._host = host
        self._port = port
        self._scraping = asyncio.Lock()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen.

        Raises:
            AddressInUse: Another process listens there.
            CannotListen: The address is not this machine's, or needs privileges.
        """
        try:
            self._server = await asyncio.start_server(self._connected, self._host, self._port, limit=MAX_HEAD)
        except OSError as e:
            address = format_address((self._host, self._port))
            if e.errno == errno.EADDRINUSE:
                raise AddressInUse(address, "metricsPromExporterPort") from e
            raise CannotListen(address, e, "metricsPromExporterHost", "metricsPromExporterPort") from e
        host, port = self._server.sockets[0].getsockname()[:2]
        self.address = format_address((host, port))
        logger.info("metrics are served at http://%s%s", self.address, _PATH)
        if not ipaddress.ip_address(host).is_loopback:
            logger.warning(
                "the metrics at %s can be read by other machines without a login: admit only trusted hosts (a "
                "firewall), or set metricsPromExporterHost=127.0.0.1",
                self.address,
            )

    async def stop(self) -> None:
        """Stop listening, and close all connections."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= MOST_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._serve(reader, writer), name="metrics endpoint")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.wait([task])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._answer(reader, writer)
            writer.close()
            async with asyncio.timeout(SECONDS):
                await writer.wait_closed()
        except (OSError, EOFError, TimeoutError):
            pass  # the client is gone, or does not send or read in time
        except Exception:  # a defect of a scrape must not end the server
            peer = writer.get_extra_info("peername")
            logger.exception(
                "a scrape of the metrics failed", extra=log_peer(format_address(peer[:2])) if peer else None
            )
        finally:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read a request and answer it.

        Raises:
            OSError: The connection is broken.
            EOFError: The client has closed the connection.
            TimeoutError: The client does not send its request, or does not read the answer.
        """
        try:
            async with asyncio.timeout(SECONDS):
                request = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.LimitOverrunError:
            await _send(writer, "431 Request Header Fields Too Large")
            return
        first, *headers = request.split("\r\n")
        method, _, rest = first.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if not self._is_expected(headers):
            await _send(writer, "400 Bad Request", b"unknown host: ask for the address that the server listens on\n")
        elif path != _PATH:
            await _send(writer, "404 Not Found", f"the metrics are at {_PATH}\n".encode())
        elif method != "GET":
            await _send(writer, "405 Method Not Allowed", more="Allow: GET\r\n")
        else:
            async with self._scraping:
                pieces = await run_in_steps("reading the metrics", self._scrape())
            await _send(writer, "200 OK", *pieces)

    def _is_expected(self, headers: list[str]) -> bool:
        """Return whether the request names this server by an address, or by a name that is always the machine's own.

        A web page that a browser on this machine shows could otherwise read the metrics, by a name of its own that it
        lets point here.
        """
        for header in headers:
            name, _, value = header.partition(":")
            if name.strip().lower() == "host":
                host = host_of(value.strip()) if ":" in value else value.strip()
                return host == self._host or host.lower() == "localhost" or _is_address(host)
        return False


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


async def _send(writer: asyncio.StreamWriter, status: str, *pieces: bytes, more: str = "") -> None:
    """Write an answer; the connection is closed after it.

    Raises:
        OSError: The connection is broken.
        TimeoutError: The client does not read the answer.
    """
    kind = CONTENT_TYPE if status.startswith("200") else "text/plain; charset=utf-8"
    length = sum(map(len, pieces))
    head = f"Content-Type: {kind}\r\nContent-Length: {length}\r\n{more}Connection: close\r\n\r\n"
    writer.write(f"HTTP/1.1 {status}\r\n{head}".encode())
    for piece in pieces:
        writer.write(piece)
        async with asyncio.timeout(SECONDS):
            await writer.drain()
