"""Why a database refuses a statement of an inbox, by the error of its driver."""

from typing import Final

__all__ = ["interfered", "is_locked"]

_LOCKED: Final = 1205
"""MariaDB's ER_LOCK_WAIT_TIMEOUT."""
_INTERFERED: Final = frozenset({1213, 1020})
"""MariaDB's ER_LOCK_DEADLOCK, and ER_CHECKREAD of a snapshot that another transaction has changed."""
_INTERFERED_STATES: Final = frozenset({"40001", "40P01"})
"""The states of SQL for a failed serialization and, on PostgreSQL, a deadlock."""


def is_locked(error: BaseException | None) -> bool:
    """Return whether another transaction has a lock that the statement needs."""
    return _code(error) == _LOCKED or "is locked" in str(error)  # SQLite's texts begin with "database"


def interfered(error: BaseException | None) -> bool:
    """Return whether the transaction can be repeated: another one was faster."""
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return _code(error) in _INTERFERED or state in _INTERFERED_STATES


def _code(error: BaseException | None) -> object:
    arguments = getattr(error, "args", ())
    return arguments[0] if arguments else None
