"""Who may use the management endpoints: everybody, or those with the user's password or the token.

::

    spring.security.user.name, password   Authorization: Basic base64(name:password)
    management.server.token               Authorization: Bearer token

The endpoint `health` answers everybody, as in Spring Boot, since probes have no password; whether it shows details is
the setting `management.endpoint.health.show-details`.
"""

import base64
import hmac
from collections.abc import Collection
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response

from streamkit.config.application_properties import ManagementServerProperties, SecurityUserProperties
from streamkit.management.problem import problem

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

    @property
    def is_needed(self) -> bool:
        """Whether there is a password or a token."""
        return self._token is not None or self._user is not None

    def admits(self, headers: Headers) -> bool:
        """Return whether a request may use the endpoints."""
        return not self.is_needed or self.is_authorized(headers, ())

    def is_authorized(self, headers: Headers, roles: Collection[str]) -> bool:
        """Return whether a request has the token, or the password of a user with one of the roles.

        Args:
            headers: The request's headers.
            roles: The roles of which the user must have one; empty if any user will do.
        """
        given = headers.getlist("authorization")
        if len(given) != 1:
            return False
        scheme, _, credentials = given[0].partition(" ")
        match scheme.lower():
            case "bearer":
                return self._token is not None and hmac.compare_digest(credentials.strip().encode(), self._token)
            case "basic":
                return self._is_user(credentials.strip()) and (not roles or not self._roles.isdisjoint(roles))
        return False

    def refusal(self) -> Response:
        """Return the response to a request without the right credentials."""
        response = problem(401, "log in with the user's name and password, or with the token")
        if self._token is not None:
            response.headers.append("www-authenticate", f"Bearer {_REALM}")
        if self._user is not None:
            response.headers.append("www-authenticate", f'Basic {_REALM}, charset="UTF-8"')
        return response

    def _is_user(self, credentials: str) -> bool:
        try:
            name, _, password = base64.b64decode(credentials, validate=True).partition(b":")
        except ValueError:
            return False
        known = self._user or _NOBODY
        # Both are compared in any case, so that the time does not tell whether the name is right.
        is_name, is_password = hmac.compare_digest(name, known[0]), hmac.compare_digest(password, known[1])
        return self._user is not None and is_name and is_password
