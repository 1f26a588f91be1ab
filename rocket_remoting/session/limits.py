"""The limits that one end of a connection sets for the other end."""

import msgspec

from rocket_remoting.session.buffers import BufferBudget
from rocket_remoting.wire.command import MAX_HEADER
from rocket_remoting.wire.frame_decoder import DEFAULT_MAX_FRAME

__all__ = ["Limits"]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a connection, or of all connections of a server.

    Attributes:
        max_frame: Maximum number of bytes of a received frame.
        max_header: Maximum number of bytes of a frame's header.
        max_connections: Maximum number of connections a server keeps; further ones are closed at once.
        max_address_percent: Percent of the possible connections that one address may have: an IPv4 address, or the
            first 64 bits of an IPv6 address. Peers at the server's own address have no such limit.
        max_unknown_percent: Percent of the possible connections that unknown peers may have, which have sent no request
            yet. At one more, the oldest is closed of the address that has most of them.
        max_address_unknown_percent: Percent of the possible connections that unknown peers of one address may have;
            further ones are closed at once. Peers at the server's own address have no such limit.
        knows_by_handler: Whether a peer is known only when the handler calls `Connection.mark_known`.
        max_pending_bytes: Bytes that may wait to be written to a peer. Above this, `Connection.drain` waits, and a
            server stops reading from the peer.
        max_unread_bytes: Bytes that may wait to be written to a server's client that does not read, such as pushes and
            responses to held requests. Above this, the connection is closed.
        max_pending_requests: Maximum number of requests of this end without a response on one connection.
        idle_timeout: Seconds without a byte in either direction after which a connection is closed; None for never.
        handshake_timeout: Seconds within which a server's client must complete its TLS handshake.
        first_request_timeout: Seconds within which a server's client must have sent its first request; None
            for no limit.
        spare_files: Open files that a server leaves for other uses than connections, out of the process's limit.
        buffers: The bytes that all connections with these limits may buffer together; None for no limit.
    """

    max_frame: int = DEFAULT_MAX_FRAME
    max_header: int = MAX_HEADER
    max_connections: int = 10_000
    max_address_percent: int = 20
    max_unknown_percent: int = 50
    max_address_unknown_percent: int = 10
    knows_by_handler: bool = False
    max_pending_bytes: int = 4 * 1024 * 1024
    max_unread_bytes: int = 64 * 1024 * 1024
    max_pending_requests: int = 65_536
    idle_timeout: float | None = 120.0
    handshake_timeout: float = 10.0
    first_request_timeout: float | None = 60.0
    spare_files: int = 128
    buffers: BufferBudget | None = None
