"""The headers of all responses: what browsers may load, where pages may be framed, what they tell other sites."""

from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["SecurityHeaders"]

_HEADERS: Final = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""`default-src 'self'` allows scripts and styles from files of the console, not inline ones or those of other sites."""

_NOT_KEPT: Final = "no-store"
"""Pages have figures of the moment, and names and bodies that a shared machine must not keep."""
_ASKED_AGAIN: Final = "no-cache"
"""The style sheet and the module may be kept, if the server says that they are the newest ones."""


class SecurityHeaders:
    """An ASGI middleware that adds the headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and add the headers to its response."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                is_static = scope["path"].startswith("/static/")
                headers.setdefault("cache-control", _ASKED_AGAIN if is_static else _NOT_KEPT)
            await send(message)

        await self._app(scope, receive, send_with_headers)
