"""The cluster that a command asks: from its options, the environment, or the settings of an application."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocket_client import ClientTls, Credentials

__all__ = ["FoundCluster"]


@dataclass(repr=False, eq=False, kw_only=True)
class FoundCluster:
    """A cluster, and how it is reached.

    Attributes:
        name_servers: The addresses of its name servers.
        origin: Where they were found.
        credentials: The keys of an application that has this cluster; None without them.
        tls: How that application encrypts its connections; None if it does not.
    """

    name_servers: str
    origin: str
    credentials: "Credentials | None" = None
    tls: "ClientTls | None" = None
