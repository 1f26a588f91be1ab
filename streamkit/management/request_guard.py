"""Refusal of requests that a browser sends to the management endpoints, or the console, for a page of another site.

A page of any site can make its visitor's browser send requests to addresses that only the visitor can reach, such as
loopback, and the browser adds a password that the visitor has entered before. Two checks refuse such requests:

Host     With DNS rebinding, the page's own host name resolves to this server. The browser then takes page and endpoints
         for the same origin, and the page could read all responses. The `Host` header contains that name. Only names
         of loopback, the local address of the connection, and those of a setting such as
         `management.server.allowed-hosts` are served.
Origin   With each request that may change something, a browser sends the origin of the page: in `Sec-Fetch-Site`, an
         older browser in `Origin`. Requests from other sites are refused. Programs send neither header. These are the
         rules of `CrossOriginProtection` in Go's net/http.
"""

import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from streamkit.config.application_properties import MANAGEMENT_SERVER
from streamkit.management.problem import problem

__all__ = ["RequestGuard"]

_SETTING: Final = f"{MANAGEMENT_SERVER}.allowed-hosts"
_READING: Final = ("GET", "HEAD", "OPTIONS")
_SAME_SITE: Final = ("same-origin", "none")
"""`none`: the user entered the address, no page sent the request."""
_HOST: Final = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[\w.~-]+?)\.?)(?::\d{1,5})?", re.ASCII)


class RequestGuard:
    """An ASGI middleware that refuses unknown host names, and changes requested by pages of other sites."""

    def __init__(self, app: ASGIApp, allowed_hosts: Sequence[str], setting: str = _SETTING) -> None:
        """Create the middleware.

        Args:
            app: The application to guard.
            allowed_hosts: Host names and addresses to serve, besides those of loopback and the local address of the
                connection: `ops.example.com`, `*.example.com` for all names below it, or `*` for any.
            setting: The name of the setting or option that lists these, for refusals.
        """
        self._app = app
        self._setting = setting
        self._allowed = frozenset(host.strip("[]").lower() for host in allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the application, or refuse it."""
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await refusal(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        host = hosts[0] if len(hosts) == 1 else ""
        if not self._is_allowed(host, scope):
            return problem(400, f"host {host!r} is not known here: {self._setting} lists the names served")
        if scope["method"] not in _READING and not _is_of_same_origin(headers, host):
            return problem(403, "the request comes from a page of another site, which may not change anything here")
        return None

    def _is_allowed(self, host: str, scope: Scope) -> bool:
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name = (found["v6"] or found["name"]).lower()
        if {"*", name, *_wildcards(name)} & self._allowed or f".{name}".endswith(".localhost"):
            return True
        address = _address(name)
        return address is not None and (address.is_loopback or address == _local_address(scope))


def _is_of_same_origin(headers: Headers, host: str) -> bool:
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:
        return site in _SAME_SITE
    return origin is None or origin.partition("://")[2].lower() == host.lower()


def _wildcards(name: str) -> list[str]:
    """Return the patterns that match a name: `*.b.c` and `*.c` for `a.b.c`."""
    labels = name.split(".")
    return [f"*.{'.'.join(labels[start:])}" for start in range(1, len(labels))]


def _local_address(scope: Scope) -> IPv4Address | IPv6Address | None:
    """Return the local address of the connection; None if the server gives a name, which the client may have chosen."""
    server = scope.get("server")
    address = None if server is None else _address(server[0])
    return None if address is None or address.is_unspecified else address


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None
