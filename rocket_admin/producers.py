"""Producers: who is connected to the brokers to send messages."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from rocket_admin.broker_answers import BrokerFailure, ask_masters
from rocket_admin.times import time_of
from rocket_admin.versions import version_text
from rocket_client import Admin
from rocket_remoting.wire.bodies import ProducerInfo

__all__ = ["ConnectedProducer", "Producers", "connected_producers"]


class ConnectedProducer(msgspec.Struct, frozen=True, kw_only=True):
    """A producer that is connected to a broker.

    Attributes:
        group: Its producer group.
        client_id: Its client id.
        address: The address that it is connected from.
        language: Its programming language, such as `JAVA` or `PYTHON`.
        version: The version of the protocol that it speaks.
        seen_at: When it last sent a heartbeat; absent if that is not known.
    """

    group: str
    client_id: str
    address: str
    language: str
    version: str
    seen_at: datetime | None = None


class Producers(msgspec.Struct, frozen=True, kw_only=True):
    """The producers of a cluster. Brokers know their groups, and not the topics that they send to.

    Attributes:
        producers: The producers, sorted by group and client id.
        failures: The brokers that did not answer, or do not know the request.
    """

    producers: tuple[ConnectedProducer, ...]
    failures: tuple[BrokerFailure, ...]


async def connected_producers(admin: Admin, *, masters: Mapping[str, str] | None = None) -> Producers:
    """Return the producers that are connected to any master.

    Args:
        admin: A running admin.
        masters: The addresses of masters by broker name, if they are known.

    Raises:
        NoBrokerError: No master is registered.
    """
    found = await ask_masters(admin, admin.producers_at, masters=masters)
    producers = {
        (group, info.client_id): _producer(group, info)
        for table in found.answers.values()
        for group, infos in table.items()
        for info in infos
    }
    return Producers(producers=tuple(producers[key] for key in sorted(producers)), failures=found.failures)


def _producer(group: str, info: ProducerInfo) -> ConnectedProducer:
    return ConnectedProducer(
        group=group,
        client_id=info.client_id,
        address=info.remote_ip,
        language=info.language,
        version=version_text(info.version),
        seen_at=time_of(info.last_update_timestamp),
    )
