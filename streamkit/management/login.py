"""Who may use the management endpoints: everybody, or those with the user's password or the token.

::

    spring.security.user.name, password   Authorization: Basic base64(name:password)
    management.server.token               Authorization: Bearer token

Wrong ones are counted by address (`streamkit.management.wrong_logins`); after too many the response is 429.

The endpoint `health` answers everybody, as in Spring Boot, since probes have no password; whether it shows details is
the setting `management.endpoint.health.show-details`.
"""

import base64
import hmac
from collections.abc import Collection
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from streamkit.config.management_properties import ManagementServerProperties, SecurityUserProperties
from streamkit.management.problem import problem
from streamkit.management.wrong_logins import WrongLogins

__all__ = ["Login"]

_REALM: Final = 'realm="management"'
_NOBODY: Final = (b"", b"")


class Login:
    """Checks the credentials of requests."""

    def __init__(self, server: ManagementServerProperties, user: SecurityUserProperties) -> None:
        """Create the check.

        Args:
            server: Has the token, if there is one.
            user: Has the user's name and password, if there is a password.
        """
        self._token = server.token.encode() if server.token else None
        self._user = (user.name.encode(), user.plain_password.encode()) if user.plain_password else None
        self._roles = frozenset(user.roles)
        self._wrong = WrongLogins("the management endpoints")

    @property
    def is_needed(self) -> bool:
        """Whether there is a password or a token."""
        return self._token is not None or self._user is not None

    def refusal(self, request: Request) -> Response | None:
        """Return the response to a request that may not use the endpoints; None if it may."""
        if not self.is_needed:
            return None
        wait = self._seconds_to_wait(request)
        if wait:
            return problem(
                429,
                f"too many wrong passwords or tokens from this address: log in again in {wait} s",
                {"Retry-After": str(wait)},
            )
        return None if self.is_authorized(request, ()) else self._challenge()

    def is_authorized(self, request: Request, roles: Collection[str]) -> bool:
        """Return whether a request has the token, or the password of a user with one of the roles.

        A wrong password or token is counted; after too many, the right one is wrong for a while, too.

        Args:
            request: The request.
            roles: The roles of which the user must have one; empty if any user will do.
        """
        given = request.headers.getlist("authorization")
        if not given or self._seconds_to_wait(request):
            return False
        scheme, _, credentials = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        match scheme.lower():
            case "bearer" if self._is_token(credentials.strip()):
                return True
            case "basic" if self._is_user(credentials.strip()):
                return not roles or not self._roles.isdisjoint(roles)
        if self.is_needed:
            self._wrong.note(_host_of(request))
        return False

    def _seconds_to_wait(self, request: Request) -> int:
        # Without credentials a request tries none: it is told to log in.
        return self._wrong.seconds_to_wait(_host_of(request)) if "authorization" in request.headers else 0

    def _challenge(self) -> Response:
        response = problem(401, "log in with the user's name and password, or with the token")
        if self._token is not None:
            response.headers.append("www-authenticate", f"Bearer {_REALM}")
        if self._user is not None:
            response.headers.append("www-authenticate", f'Basic {_REALM}, charset="UTF-8"')
        return response

    def _is_token(self, credentials: str) -> bool:
        return self._token is not None and hmac.compare_digest(credentials.encode(), self._token)

    def _is_user(self, credentials: str) -> bool:
        try:
            name, _, password = base64.b64decode(credentials, validate=True).partition(b":")
        except ValueError:
            return False
        known = self._user or _NOBODY
        # Both are compared in any case, so that the time does not tell whether the name is right.
        is_name, is_password = hmac.compare_digest(name, known[0]), hmac.compare_digest(password, known[1])
        return self._user is not None and is_name and is_password


def _host_of(request: Request) -> str | None:
    return None if request.client is None else request.client.host
