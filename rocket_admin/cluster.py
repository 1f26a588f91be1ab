"""A cluster at a glance: name servers, brokers, and how many topics and groups there are."""

import asyncio

import msgspec

from rocket_admin.broker_answers import BrokerFailure
from rocket_admin.brokers import Broker, list_brokers
from rocket_admin.groups import group_names
from rocket_admin.topics import TopicKind, kind_of, own_topics
from rocket_client import Admin

__all__ = ["Overview", "overview"]


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster at a glance.

    Attributes:
        name_servers: The addresses of the name servers that were asked.
        clusters: The names of the clusters, sorted.
        brokers: The brokers of all clusters.
        topics: Topics of applications.
        dead_letter_topics: Topics with dead letters, or for them.
        groups: Groups of applications; absent if a broker did not answer.
        sends_per_second: Messages that all masters stored per second; absent if one did not say.
        deliveries_per_second: Messages that all masters delivered per second; absent if one did not say.
        failures: The brokers that did not answer.
    """

    name_servers: tuple[str, ...]
    clusters: tuple[str, ...]
    brokers: tuple[Broker, ...]
    topics: int
    dead_letter_topics: int
    groups: int | None
    sends_per_second: float | None
    deliveries_per_second: float | None
    failures: tuple[BrokerFailure, ...]


async def overview(admin: Admin) -> Overview:
    """Return the clusters that the name servers know, at a glance.

    Raises:
        NoBrokerError: No master is registered.
        NameServersUnreachableError: No name server answered.
    """
    cluster, names, brokers, groups = await asyncio.gather(
        admin.cluster_info(), admin.topics(), list_brokers(admin), group_names(admin)
    )
    masters = [broker for broker in brokers.brokers if broker.broker_id == 0]
    own = own_topics(cluster)
    kinds = [kind_of(name, own) for name in names]
    return Overview(
        name_servers=admin.settings.name_server_addresses,
        clusters=tuple(sorted({broker.cluster for broker in brokers.brokers})),
        brokers=brokers.brokers,
        topics=kinds.count(TopicKind.NORMAL),
        dead_letter_topics=kinds.count(TopicKind.DEAD_LETTER),
        groups=None if groups.failures else len(groups.names),
        sends_per_second=_sum([broker.sends_per_second for broker in masters]),
        deliveries_per_second=_sum([broker.deliveries_per_second for broker in masters]),
        failures=tuple(dict.fromkeys((*brokers.failures, *groups.failures))),
    )


def _sum(rates: list[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return round(sum(known), 2) if len(known) == len(rates) else None
