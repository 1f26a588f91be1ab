"""What a topic's or broker's permission number allows: a bit each."""

from rocket_remoting.sys_flag import PERM_INHERIT as INHERIT
from rocket_remoting.sys_flag import PERM_READ as READ
from rocket_remoting.sys_flag import PERM_WRITE as WRITE

__all__ = ["INHERIT", "READ", "WRITE", "is_readable", "is_writable", "perm_text"]


def is_readable(perm: int) -> bool:
    """Whether consumers may read."""
    return bool(perm & READ)


def is_writable(perm: int) -> bool:
    """Whether producers may send."""
    return bool(perm & WRITE)


def perm_text(perm: int) -> str:
    """Return it as Apache's remarks and tools show it: ``RW-``, ``R--``, ``-W-``, ``RWX``."""
    return ("R" if perm & READ else "-") + ("W" if perm & WRITE else "-") + ("X" if perm & INHERIT else "-")
