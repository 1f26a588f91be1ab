"""A client of a group: a client id on a connection."""

from rocket_remoting.session.connection import Connection

__all__ = ["ClientChannel"]


class ClientChannel:
    """A producer or consumer of one group over one connection.

    Attributes:
        connection: The client's connection.
        client_id: The id that the client reports, ``ip@instance``.
        language: The client's programming language, as its commands say.
        version: The client's version, as an index into Apache's list of versions.
        access_key: The account that has signed the client's heartbeat; None without access control.
        seen: When the last heartbeat came, in seconds of the loop's time.
    """

    __slots__ = ("access_key", "client_id", "connection", "language", "seen", "version")

    def __init__(
        self,
        connection: Connection,
        client_id: str,
        *,
        language: str = "OTHER",
        version: int = 0,
        access_key: str | None = None,
        seen: float = 0.0,
    ) -> None:
        self.connection = connection
        self.client_id = client_id
        self.language = language
        self.version = version
        self.access_key = access_key
        self.seen = seen

    def __repr__(self) -> str:
        return f"ClientChannel({self.client_id!r} at {self.connection.remote_address})"
