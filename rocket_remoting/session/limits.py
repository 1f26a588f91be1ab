"""What one end of a connection allows the other."""

from dataclasses import dataclass

from rocket_remoting.session.buffers import BufferBudget
from rocket_remoting.wire.command import MAX_HEADER
from rocket_remoting.wire.frame_decoder import DEFAULT_MAX_FRAME

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one end allows the other.

    Attributes:
        max_frame: Most bytes of a frame that is read.
        max_header: Most bytes of a frame's header.
        max_connections: Most connections a server keeps; further ones are closed at once.
        max_address_percent: Percent of the connections possible that one address may have, an IPv4 address or 64 bits
            of an IPv6 address. Who has the server's own address may have all.
        max_pending_bytes: Bytes that may wait to be written to a peer. Above, `Connection.drain` waits, and a
            server reads nothing more from that peer.
        max_unread_bytes: Bytes that may wait to be written to a client of a server that does not read: pushes and
            answers to held requests. Above, the connection is closed.
        max_pending_requests: Most requests of ours without an answer on one connection.
        idle_timeout: Seconds without a byte either way after which a connection is closed; None for never.
        spare_files: How many of the files a process may have open a server leaves for other uses than connections.
        buffers: What all connections with these limits may buffer together; None for no bound.
    """

    max_frame: int = DEFAULT_MAX_FRAME
    max_header: int = MAX_HEADER
    max_connections: int = 10_000
    max_address_percent: int = 20
    max_pending_bytes: int = 4 * 1024 * 1024
    max_unread_bytes: int = 64 * 1024 * 1024
    max_pending_requests: int = 65_536
    idle_timeout: float | None = 120.0
    spare_files: int = 128
    buffers: BufferBudget | None = None
