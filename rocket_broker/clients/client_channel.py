"""One client as a group knows it: an id over a connection."""

from rocket_remoting.session.connection import Connection

__all__ = ["ClientChannel"]


class ClientChannel:
    """A producer or consumer of one group over one connection.

    Attributes:
        connection: Where it is reached.
        client_id: What it calls itself, ``ip@instance``.
        language: What it is written in, as its commands say.
        version: Its version, a position in Apache's list.
        seen: Loop time of its last heartbeat.
    """

    __slots__ = ("client_id", "connection", "language", "seen", "version")

    def __init__(
        self,
        connection: Connection,
        client_id: str,
        *,
        language: str = "OTHER",
        version: int = 0,
        seen: float = 0.0,
    ) -> None:
        self.connection = connection
        self.client_id = client_id
        self.language = language
        self.version = version
        self.seen = seen

    def __repr__(self) -> str:
        return f"ClientChannel({self.client_id!r} at {self.connection.remote_address})"
