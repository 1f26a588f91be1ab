"""The clients of an event loop, shared by all members that may have the same client id.

Members with the same `instance_name`, name servers, TLS settings, credentials and transport share a client. Members
without an instance name share a client if their connection settings are equal and no group would be registered twice;
otherwise a new client with a client id of its own is made. The default instance name of broadcasting consumers is
``DEFAULT``, because the path of their offsets file has the client id and must be the same after a restart.
"""

import asyncio
from collections.abc import Callable
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
    """Return a started client for these settings. The caller must register with it, and `release` it in the end.

    Args:
        settings: Settings, of which the fields of `ClientSettings` matter.
        transport: The transport; None for TCP.
        clock: The clock; None for the system clock.
        instance_name: The instance name; None for any client that `is_free` accepts.
        is_free: Returns whether the member can register with a client.
    """
    clients = _CLIENTS.setdefault(asyncio.get_running_loop(), {})
    key = _key(settings, transport, clock, instance_name)
    sharing = clients.setdefault(key, [])
    for client in sharing:
        if instance_name is not None or is_free(client):
            return client
    name = instance_name if instance_name is not None else new_instance_name()
    client = RocketClient(client_id(settings, name), settings, transport or TcpTransport(), clock or SystemClock())
    sharing.append(client)
    client.start()
    return client


async def release(client: RocketClient) -> None:
    """Close the client if no member is registered with it any more."""
    if client.is_used:
        return
    for sharing in _CLIENTS.get(asyncio.get_running_loop(), {}).values():
        if client in sharing:
            sharing.remove(client)
    await client.close()


def _key(settings: ClientSettings, transport: Transport | None, clock: Clock | None, instance_name: str | None) -> _Key:
    ends = (id(transport) if transport is not None else None, id(clock) if clock is not None else None)
    if instance_name is not None:
        found_at = settings.name_server_addresses or (settings.name_server_domain, settings.name_server_subgroup)
        return (
            *ends, found_at, instance_name, settings.unit_name, settings.client_ip, settings.tls, settings.credentials
        )  # fmt: skip
    return (*ends, *(getattr(settings, name) for name in ClientSettings.__struct_fields__))
