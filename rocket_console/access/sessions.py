"""Sessions: who sends a request, and the token that proves that one of the console's own pages has sent it.

::

    cookie     streamkit_console_<port>, a random text; HttpOnly, SameSite=Lax
    CSRF       the field `csrf` of a form: an HMAC of the cookie with a key of this process
    programs   Authorization: Bearer <password>: no cookie, and no CSRF token, since browsers add no such header

Without passwords everybody has the same role, and the cookie only ties the CSRF token to a browser.
"""

import asyncio
import hmac
import secrets
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from rocket_console.access.passwords import Passwords
from rocket_console.access.roles import Role

__all__ = ["Session", "Sessions"]

LIFETIME: Final = 12 * 3600.0
"""Seconds after which users log in again."""
MOST: Final = 1_000
"""Sessions that are kept; beyond, the oldest one ends."""
_BYTES: Final = 32
_BEARER: Final = "bearer"
_LONGEST: Final = 128
"""Characters of a cookie that can be one of ours."""


@dataclass(frozen=True, kw_only=True)
class Session:
    """A session: the user who sends a request.

    Attributes:
        role: What the user may do.
        user: The name that the user has given, for the audit log.
        csrf_token: What a form must send back; None of a program, which needs none.
        new_cookie: The cookie to set, if the browser has none yet.
    """

    role: Role
    user: str
    csrf_token: str | None
    new_cookie: str | None = None

    def sent(self, csrf_token: str) -> bool:
        """Return whether a form with this token comes from a page of this session."""
        return self.csrf_token is None or hmac.compare_digest(self.csrf_token.encode(), csrf_token.encode())


@dataclass(frozen=True, kw_only=True)
class _Login:
    role: Role
    user: str
    ends_at: float


class Sessions:
    """The sessions of the console's users."""

    def __init__(self, passwords: Passwords, *, port: int, role_without_password: Role) -> None:
        """Create the sessions.

        Args:
            passwords: The passwords of the roles.
            port: The console's port: browsers send cookies to all ports of a host.
            role_without_password: Everybody's role, if there is no password.
        """
        self.passwords = passwords
        self._cookie = f"streamkit_console_{port}"
        self._role = role_without_password
        self._key = secrets.token_bytes(_BYTES)
        self._logins: dict[str, _Login] = {}

    def of(self, request: Request) -> Session | None:
        """Return the session of a request; None if its sender has to log in.

        Raises:
            TooManyWrongPasswordsError: A program's address has sent too many wrong passwords.
        """
        cookie = request.cookies.get(self._cookie, "")[:_LONGEST]
        if not self.passwords.is_needed:
            new = None if cookie else secrets.token_urlsafe(_BYTES)
            token = self._csrf_token(cookie or new or "")
            return Session(role=self._role, user="", csrf_token=token, new_cookie=new)
        scheme, _, password = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == _BEARER:
            role = self.passwords.role_of(password.strip(), host_of(request))
            return None if role is None else Session(role=role, user="a program", csrf_token=None)
        login = self._logins.get(cookie)
        if login is None or login.ends_at < asyncio.get_running_loop().time():
            return None
        return Session(role=login.role, user=login.user, csrf_token=self._csrf_token(cookie))

    def login_token(self, request: Request) -> tuple[str, str | None]:
        """Return the CSRF token of the form of the login, and the cookie to set if the browser has none."""
        cookie = request.cookies.get(self._cookie, "")[:_LONGEST]
        new = None if cookie else secrets.token_urlsafe(_BYTES)
        return self._csrf_token(cookie or new or ""), new

    def begin(self, role: Role, user: str) -> str:
        """Begin a session; return its cookie."""
        while len(self._logins) >= MOST:
            del self._logins[next(iter(self._logins))]
        cookie = secrets.token_urlsafe(_BYTES)
        self._logins[cookie] = _Login(role=role, user=user, ends_at=asyncio.get_running_loop().time() + LIFETIME)
        return cookie

    def end(self, request: Request) -> None:
        """End the session of a request, if it has one."""
        self._logins.pop(request.cookies.get(self._cookie, ""), None)

    def set_cookie(self, response: Response, cookie: str, request: Request) -> None:
        """Set the cookie of the session in a response; the browser sends it with each further request."""
        response.set_cookie(
            self._cookie, cookie, httponly=True, samesite="lax", secure=request.url.scheme == "https", path="/"
        )

    def _csrf_token(self, cookie: str) -> str:
        return hmac.new(self._key, cookie.encode(), sha256).hexdigest()


def host_of(request: Request) -> str | None:
    """Return the address of a request's sender."""
    return None if request.client is None else request.client.host
