"""Client ids, by which brokers distinguish the members of a group.

::

    10.0.0.7@4711#9f1c03aa[@unit]
    └ ip     └ instance name

The default instance name is the process id with a random part. So containers with the same address and process id, and
event loops of one process, are different members.
"""

import os
import secrets

from rocket_client.settings import ClientSettings
from rocket_remoting.wire.message_id import local_ip


def new_instance_name() -> str:
    """Return a unique instance name."""
    return f"{os.getpid()}#{secrets.token_hex(4)}"


def client_id(settings: ClientSettings, instance_name: str) -> str:
    """Return the client id, ``ip@instance[@unit]``."""
    parts = [settings.client_ip or local_ip(), instance_name]
    if settings.unit_name:
        parts.append(settings.unit_name)
    return "@".join(parts)
