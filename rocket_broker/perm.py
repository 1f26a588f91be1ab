"""What a topic's or broker's permission number allows: a bit each, as Apache's ``PermName``."""

__all__ = ["INHERIT", "PRIORITY", "READ", "WRITE", "is_readable", "is_writable", "perm_text"]

PRIORITY = 1 << 3
READ = 1 << 2
WRITE = 1 << 1
INHERIT = 1
"""New topics may be made after this one."""


def is_readable(perm: int) -> bool:
    """Whether consumers may read."""
    return bool(perm & READ)


def is_writable(perm: int) -> bool:
    """Whether producers may send."""
    return bool(perm & WRITE)


def perm_text(perm: int) -> str:
    """Return it as Apache's remarks and tools show it: ``RW-``, ``R--``, ``-W-``, ``RWX``."""
    return ("R" if perm & READ else "-") + ("W" if perm & WRITE else "-") + ("X" if perm & INHERIT else "-")
