"""Refuses what a browser sends to the management endpoints on behalf of another site's page.

There is no login: whoever reaches the endpoints may use them. A page of any site can have its visitor's browser send
requests to addresses that only the visitor reaches, such as loopback. Two checks keep such pages out:

Host     A page whose own name was made to lead here (DNS rebinding) is of the same origin as the endpoints for the
         browser, and could read all answers. The `Host` header gives the name away: only names of loopback, the
         address the connection came in at, and those of `management.server.allowed-hosts` are served.
Origin   With each request that may change something, a browser says where the page is from: by `Sec-Fetch-Site`, an
         older browser by `Origin`. Another site's are refused. Programs send neither header. These are the rules of
         `CrossOriginProtection` in Go's net/http.
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

_READING: Final = ("GET", "HEAD", "OPTIONS")
_SAME_SITE: Final = ("same-origin", "none")
"""`none`: the user asked for it, not a page."""
_HOST: Final = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[\w.~-]+?)\.?)(?::\d{1,5})?", re.ASCII)


class RequestGuard:
    """An ASGI middleware that refuses requests by foreign names, and changes asked for by other sites' pages."""

    def __init__(self, app: ASGIApp, allowed_hosts: Sequence[str]) -> None:
        """Guard an application.

        Args:
            app: The application.
            allowed_hosts: Names and addresses that it is reached by, beside those of loopback and the address that the
                connection came in at: `ops.example.com`, `*.example.com` for all names below it, or `*` for any.
        """
        self._app = app
        self._allowed = frozenset(host.strip("[]").lower() for host in allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
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
            return problem(
                400,
                f"host {host!r} is not known here: {MANAGEMENT_SERVER}.allowed-hosts lists the names served",
            )
        if scope["method"] not in _READING and not _is_of_same_origin(headers, host):
            return problem(
                403, "the request comes from a page of another site, which may not change anything here"
            )
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
    """The patterns that match a name: `*.b.c` and `*.c` for `a.b.c`."""
    labels = name.split(".")
    return [f"*.{'.'.join(labels[start:])}" for start in range(1, len(labels))]


def _local_address(scope: Scope) -> IPv4Address | IPv6Address | None:
    """The address that the connection came in at, unless the server tells a name, which may be the client's."""
    server = scope.get("server")
    address = None if server is None else _address(server[0])
    return None if address is None or address.is_unspecified else address


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None
