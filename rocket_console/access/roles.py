"""The roles of the console's users."""

from enum import StrEnum

__all__ = ["Role"]


class Role(StrEnum):
    """The rights of a user."""

    VIEWER = "viewer"
    """Sees all pages, and changes nothing."""
    OPERATOR = "operator"
    """Also sends messages, and creates, changes and deletes."""

    @property
    def may_change(self) -> bool:
        """Whether the role may change something."""
        return self is Role.OPERATOR
