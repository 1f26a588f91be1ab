"""The HTTP server from which clients fetch the addresses of the name servers. This module does no I/O.

::

    GET /rocketmq/nsaddr HTTP/1.1              HTTP/1.1 200 OK
    Host: mq.example.org:8080
    Connection: close                          10.0.0.1:9876;10.0.0.2:9876

The first line of the answer counts, as in Apache's ``DefaultTopAddressing``.
"""

import io
import os
import socket
from typing import Self, cast
from urllib.parse import quote

import msgspec

from rocket_client.errors import AddressFetchError
from rocket_client.settings import ClientSettings, is_address, parse_addresses
from rocket_remoting.session.address import parse_address
from rocket_remoting.wire.errors import seconds_text

MAX_ANSWER = 64 * 1024
"""Maximum number of bytes of an answer, its headers included."""

_PORT = 8080


class AddressServer(msgspec.Struct, frozen=True):
    """The HTTP server of one client's settings.

    Attributes:
        authority: ``host:port``.
        path: The path and the query of the request.
        timeout: Seconds within which the whole answer must be there.
    """

    authority: str
    path: str
    timeout: float

    @classmethod
    def of(cls, settings: ClientSettings) -> Self | None:
        """Return the server of the settings; None if the addresses are configured."""
        domain = settings.name_server_domain
        if settings.name_server_addresses or domain is None:
            return None
        path = f"/rocketmq/{quote(settings.name_server_subgroup)}"
        if settings.unit_name:
            path += f"-{quote(settings.unit_name)}?nofix=1"
        authority = domain if domain.rpartition(":")[2].isdecimal() else f"{domain}:{_PORT}"
        return cls(authority, path, settings.request_timeout.total_seconds())

    @property
    def url(self) -> str:
        """The URL of the addresses."""
        return f"http://{self.authority}{self.path}"

    @property
    def endpoint(self) -> tuple[str, int]:
        """The host and the port to connect to."""
        return parse_address(self.authority)

    def request(self) -> bytes:
        """Return the request to send; the server closes the connection after its answer."""
        return f"GET {self.path} HTTP/1.1\r\nHost: {self.authority}\r\nConnection: close\r\n\r\n".encode("ascii")

    def addresses(self, received: bytes) -> tuple[str, ...]:
        """Return the addresses in an answer.

        Args:
            received: All bytes that the server has sent; at least one byte more than `MAX_ANSWER` of a larger answer.

        Raises:
            AddressFetchError: The answer has no addresses.
        """
        from http.client import HTTPException, HTTPResponse  # takes long to import, and few clients need it

        if len(received) > MAX_ANSWER:
            raise self.failed(f"the answer has more than {MAX_ANSWER} bytes")
        # HTTPResponse uses nothing of a socket but its file.
        response = HTTPResponse(cast(socket.socket, _Received(received)), method="GET")
        try:
            response.begin()
            body = response.read()
        except (HTTPException, ValueError) as error:
            raise self.failed(f"the answer is not HTTP ({error!r})") from error
        if response.status != 200:
            raise self.failed(f"the answer is {response.status} {response.reason}".rstrip())
        line = next(iter(body.decode("utf-8", "replace").strip().splitlines()), "")
        addresses = parse_addresses(line)
        if not addresses:
            raise self.failed("the answer is empty")
        if not all(map(is_address, addresses)):
            raise self.failed(f"the answer is not a list of addresses: {line[:100]!r}")
        return addresses

    def unreachable(self, error: OSError) -> AddressFetchError:
        """Return the error for a server that cannot be reached, or that does not answer in time."""
        if isinstance(error, TimeoutError):
            return self.failed(f"no answer within {seconds_text(self.timeout)} s")
        if error.errno is None or isinstance(error, socket.gaierror):  # which has numbers of its own
            return self.failed(error.strerror or str(error))
        return self.failed(os.strerror(error.errno))  # asyncio's text would repeat the address

    def failed(self, reason: str) -> AddressFetchError:
        """Return the error for a request that failed."""
        return AddressFetchError(self.url, reason)


class _Received:
    """A socket from which all bytes have been received."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)
