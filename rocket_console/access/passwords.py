"""The passwords of the roles; a program sends one as the token of ``Authorization: Bearer``.

Wrong ones are counted by address, and further ones refused for a while (`streamkit.management.wrong_logins`).
"""

import hmac
from dataclasses import dataclass

from rocket_console.access.roles import Role
from streamkit.management.wrong_logins import WrongLogins

__all__ = ["Passwords", "TooManyWrongPasswordsError"]


class TooManyWrongPasswordsError(Exception):
    """Passwords from an address are not checked for a while.

    Attributes:
        seconds: The seconds until they are checked again.
    """

    def __init__(self, seconds: int) -> None:
        super().__init__(f"too many wrong passwords from this address: try again in {seconds} s")
        self.seconds = seconds


@dataclass(frozen=True, kw_only=True)
class _Password:
    text: bytes
    role: Role


class Passwords:
    """Checks passwords; the password says which role its user has."""

    def __init__(self, *, operator: str | None = None, viewer: str | None = None) -> None:
        """Create the check.

        Args:
            operator: The password of operators; None or empty if nobody logs in as one.
            viewer: That of viewers.

        Raises:
            ValueError: Both are the same.
        """
        if operator and operator == viewer:
            raise ValueError("operators and viewers have the same password: choose another one for viewers")
        given = ((operator, Role.OPERATOR), (viewer, Role.VIEWER))
        self._passwords = [_Password(text=text.encode(), role=role) for text, role in given if text]
        self._wrong = WrongLogins("the console")

    @property
    def is_needed(self) -> bool:
        """Whether there is a password."""
        return bool(self._passwords)

    def role_of(self, password: str, host: str | None) -> Role | None:
        """Return the role that has this password; None if none has it, which counts as a wrong password.

        Args:
            password: The password.
            host: The address that it comes from.

        Raises:
            TooManyWrongPasswordsError: The address has sent too many wrong passwords.
        """
        if wait := self._wrong.seconds_to_wait(host):
            raise TooManyWrongPasswordsError(wait)
        # All are compared in any case, so that the time does not tell which one was nearly right.
        found = [each.role for each in self._passwords if hmac.compare_digest(each.text, password.encode())]
        if not found:
            self._wrong.note(host)
        return found[0] if found else None
