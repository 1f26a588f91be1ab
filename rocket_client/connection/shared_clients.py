"""One `RocketClient` for all members that may share a client id on an event loop.

Members with the same `instance_name`, name servers and transport share it. Without an instance name they
share one as well, as long as their connection settings are equal and no group would be there twice; the
next one gets a client id of its own then. A broadcasting consumer's default name is ``DEFAULT``: its
offsets file is found by client id again after a restart.
"""

import asyncio
from collections.abc import Callable
from dataclasses import fields
from weakref import WeakKeyDictionary

from rocket_client.connection.client import RocketClient
from rocket_client.connection.identity import client_id, new_instance_name
from rocket_client.settings import ClientSettings
from rocket_remoting.clock import Clock, SystemClock
from rocket_remoting.transports.tcp import TcpTransport
from rocket_remoting.transports.transport import Transport

_Key = tuple[object, ...]

_CLIENTS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[_Key, list[RocketClient]]] = WeakKeyDictionary()

BROADCASTING_INSTANCE = "DEFAULT"


def acquire(
    settings: ClientSettings,
    transport: Transport | None,
    clock: Clock | None,
    *,
    instance_name: str | None,
    is_free: Callable[[RocketClient], bool],
) -> RocketClient:
    """A started client for these settings; register with it, and `release` it in the end.

    Args:
        settings: Whose client part counts.
        transport: None for TCP.
        clock: None for the machine's.
        instance_name: None when any client that `is_free` will do.
        is_free: Whether the member could register with a client.
    """
    clients = _CLIENTS.setdefault(asyncio.get_running_loop(), {})
    key = _key(settings, transport, clock, instance_name)
    sharing = clients.setdefault(key, [])
    for client in sharing:
        if instance_name is not None or is_free(client):
            return client
    name = instance_name if instance_name is not None else new_instance_name()
    client = RocketClient(
        client_id(settings, name), settings, transport or TcpTransport(), clock or SystemClock()
    )
    sharing.append(client)
    client.start()
    return client


async def release(client: RocketClient) -> None:
    """Close the client if nobody is registered with it any more."""
    if client.is_used:
        return
    for sharing in _CLIENTS.get(asyncio.get_running_loop(), {}).values():
        if client in sharing:
            sharing.remove(client)
    await client.close()


def _key(
    settings: ClientSettings, transport: Transport | None, clock: Clock | None, instance_name: str | None
) -> _Key:
    ends = (id(transport) if transport is not None else None, id(clock) if clock is not None else None)
    if instance_name is not None:
        return (*ends, settings.name_server_addresses, instance_name, settings.unit_name, settings.client_ip)
    return (*ends, *(getattr(settings, field.name) for field in fields(ClientSettings)))
