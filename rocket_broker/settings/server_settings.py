"""What the settings of brokers and of name servers share, so that neither needs those of the other."""

from pathlib import Path
from typing import Final

from rocket_broker.settings.apache_settings import setting

__all__ = ["LOOPBACK", "MAX_QUEUES", "address_connections_ratio", "rocketmq_home"]

LOOPBACK: Final = "127.0.0.1"
MAX_QUEUES: Final = 65_536
"""Maximum number of queues of a topic, since requests of tools about a topic handle each of its queues."""


def rocketmq_home() -> Path | None:
    """Declare ``rocketmqHome`` for the settings of the broker and of the name server."""
    return setting(
        None,
        "Installation whose conf/plain_acl.yml and conf/acl/ have the accounts of access control; default: the "
        "environment variable ROCKETMQ_HOME, else plain_acl.yml and acl/ are beside the settings file.",
        fixed=True,
        local="it names files of the server",
    )


def address_connections_ratio() -> int:
    """Declare ``maxAddressConnectionsRatio`` for the settings of the broker and of the name server."""
    return setting(
        20,
        "Maximum percentage of the port's connections that one client address may have; IPv6 addresses with "
        "the same first 64 bits count as one, and the server's own addresses are not limited. 100: no limit "
        "(no key of Apache's).",
        minimum=1,
        maximum=100,
        fixed=True,
    )
