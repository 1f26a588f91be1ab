"""Client ids: how brokers tell the members of a group apart.

::

    10.0.0.7@4711#9f1c03aa[@unit]
    └ ip     └ instance name

Unset, the instance name is the process id and a random part, so that neither containers sharing an
address and a process id nor two event loops of one process are taken for one member.
"""

import os
import secrets

from rocket_client.settings import ClientSettings
from rocket_remoting.wire.message_id import local_ip


def new_instance_name() -> str:
    """An instance name nobody else has."""
    return f"{os.getpid()}#{secrets.token_hex(4)}"


def client_id(settings: ClientSettings, instance_name: str) -> str:
    """``ip@instance[@unit]``."""
    parts = [settings.client_ip or local_ip(), instance_name]
    if settings.unit_name:
        parts.append(settings.unit_name)
    return "@".join(parts)
