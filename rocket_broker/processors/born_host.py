"""The born host of a message: the address of its sender, for the message's record."""

from functools import lru_cache

from rocket_remoting.session.address import parse_address
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.message import Host

__all__ = ["born_host"]

_parsed = lru_cache(maxsize=4096)(parse_address)


def born_host(connection: Connection) -> Host:
    """Return the host and port at the other end of a connection."""
    return _parsed(connection.remote_address)
