"""The bits of the permission number of a topic or a broker."""

from rocket_remoting.wire.sys_flag import PERM_INHERIT as INHERIT
from rocket_remoting.wire.sys_flag import PERM_READ as READ
from rocket_remoting.wire.sys_flag import PERM_WRITE as WRITE

__all__ = ["INHERIT", "READ", "WRITE"]
