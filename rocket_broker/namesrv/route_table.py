"""Which brokers are alive and which topics they have.

Four tables, as the seed's checklist names them (B10)::

    cluster     -> broker names
    broker name -> cluster, {broker id -> address}
    address     -> when it last registered, over which connection, with which version of its topics
    topic       -> broker name -> queues and permissions

Whatever ends a broker's life — it unregisters, its connection closes, it falls silent — takes it out of all
four at once; a topic with no broker left is gone too.

A broker's name with an id, and an address, belong to the host that registered them first, for as long as that broker
is alive: only from there are they registered anew, kept alive and unregistered. So a broker may restart and reconnect,
and another machine takes its place when it is gone; but nobody takes the route of a living broker.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from rocket_broker.perm import READ, WRITE
from rocket_broker.refusal import Refusal
from rocket_broker.settings import MASTER_ID
from rocket_broker.shares import Shares
from rocket_remoting.address import crowd_of, host_of
from rocket_remoting.bodies import (
    BrokerData,
    ClusterInfo,
    DataVersion,
    QueueData,
    RegisterBrokerBody,
    TopicConfig,
    TopicRouteData,
)
from rocket_remoting.codes import ResponseCode
from rocket_remoting.connection import Connection

__all__ = ["BROKER_EXPIRY_SECONDS", "MAX_BROKERS", "MAX_ROUTES", "LiveBroker", "RouteTable"]

_log = logging.getLogger(__name__)

MAX_BROKERS = 4_096
"""Addresses that may be registered, and names of clusters. Those of one host are a quarter of them at most."""
MAX_ROUTES = 1_000_000
"""Topics of brokers: each takes some 300 bytes. Those of one host's brokers are a quarter of them at most."""
BROKER_EXPIRY_SECONDS = 120.0
"""A broker that did not register for so long is dead."""
MOST_HOSTS_LOGGED = 100
"""Hosts whose attempts to register a living broker's name are logged, once each."""

UNIT_FLAG = 1
UNIT_SUB_FLAG = 1 << 1


@dataclass(slots=True)
class LiveBroker:
    """One address that registered.

    Attributes:
        name: The broker's name.
        seen: Loop time of its last registration.
        data_version: The version of its topics then.
        connection: Over which it registered; the broker is gone when this closes.
        ha_address: Where its replicas would connect.
        refused: The hosts that tried to take its place, as far as the log has them.
    """

    name: str
    seen: float
    data_version: DataVersion
    connection: Connection
    ha_address: str
    refused: set[str] = field(default_factory=set)

    @property
    def host(self) -> str:
        """Where it registered from."""
        return _host(self.connection)


class RouteTable:
    """The routes of all clusters.

    Args:
        time: The loop's clock, in seconds.
        forget_missing_topics: A broker's registration takes away those of its topics that it does not list.
    """

    def __init__(self, time: Callable[[], float], *, forget_missing_topics: bool = False) -> None:
        self._time = time
        self.forget_missing_topics = forget_missing_topics
        self._clusters: dict[str, set[str]] = {}
        self._brokers: dict[str, BrokerData] = {}
        self._live: dict[str, LiveBroker] = {}
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._routes = 0
        self._owners: dict[str, str] = {}
        self._cluster_owners: dict[str, str] = {}
        self._broker_shares = Shares("brokers", lambda: MAX_BROKERS)
        self._cluster_shares = Shares("clusters", lambda: MAX_BROKERS)
        self._route_shares = Shares("topics of brokers", lambda: MAX_ROUTES)

    def register(
        self,
        *,
        cluster: str,
        name: str,
        broker_id: int,
        address: str,
        ha_address: str,
        body: RegisterBrokerBody,
        connection: Connection,
    ) -> None:
        """Make the broker and its topics known, or known to be still there.

        Raises:
            Refusal: Another host's broker has the name and id, or the address, and is alive; or there is no room.
        """
        self.check_owner(name, broker_id, address, connection)
        owner = connection.counted_as
        self._check_room(cluster, address, owner)
        known = self._live.get(address)
        if known is not None and known.name != name:
            self._remove(address)
        self._join_cluster(cluster, name, owner)
        broker = self._brokers.get(name)
        if broker is None:
            broker = self._brokers[name] = BrokerData(cluster=cluster, broker_name=name, broker_addrs={})
            self._owners[name] = owner
        # An address stands under one id only: a replica that became the master keeps no entry as replica.
        for other in [i for i, known in broker.broker_addrs.items() if known == address and i != broker_id]:
            del broker.broker_addrs[other]
        first = broker.broker_addrs.get(broker_id) is None
        broker.broker_addrs[broker_id] = address
        wrapper = body.topic_config_serialize_wrapper
        if broker_id == MASTER_ID and (first or self.is_changed(address, wrapper.data_version)):
            self._take_topics(name, wrapper.topic_config_table.values())
        self._keep(
            address, LiveBroker(name, self._time(), wrapper.data_version, connection, ha_address), cluster
        )

    def check_owner(self, name: str, broker_id: int, address: str, connection: Connection) -> None:
        """Return if the connection may register, or unregister, the broker.

        Raises:
            Refusal: Another host's broker has the name and id, or the address, and is alive.
        """
        broker = self._brokers.get(name)
        former = broker.broker_addrs.get(broker_id) if broker is not None else None
        host = _host(connection)
        for taken in {former, address} - {None}:
            live = self._live.get(taken or "")
            if live is None or live.host == host or not self._is_alive(live):
                continue
            reason = (
                f"broker {live.name} at {taken} was registered by {live.host}, from where it lives on: {host} cannot "
                f"take its place. Choose another brokerName or brokerId, or stop that broker"
            )
            if host not in live.refused and len(live.refused) < MOST_HOSTS_LOGGED:
                live.refused.add(host)
                _log.warning(
                    "%s is not registered as broker %s, id %d, at %s: %s",
                    connection.remote_address, name, broker_id, address, reason, extra=connection.log_peer,
                )  # fmt: skip
            raise Refusal(ResponseCode.SYSTEM_ERROR, reason)

    def _is_alive(self, live: LiveBroker) -> bool:
        return not live.connection.is_closed and self._time() - live.seen < BROKER_EXPIRY_SECONDS

    def _check_room(self, cluster: str, address: str, owner: str) -> None:
        is_new, is_new_cluster = address not in self._live, cluster not in self._clusters
        if (is_new or is_new_cluster) and max(len(self._live), len(self._clusters)) >= MAX_BROKERS:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"this name server knows {MAX_BROKERS} brokers or clusters and takes no more",
            )
        if is_new:
            self._broker_shares.check(1, owner)
        if is_new_cluster:
            self._cluster_shares.check(1, owner)

    def _join_cluster(self, cluster: str, name: str, owner: str) -> None:
        if cluster not in self._clusters:
            self._cluster_shares.count(1, owner)
            self._cluster_owners[cluster] = owner
        self._clusters.setdefault(cluster, set()).add(name)

    def _keep(self, address: str, live: LiveBroker, cluster: str) -> None:
        former = self._live.get(address)
        if former is None:
            _log.info("broker %s of cluster %s registered at %s", live.name, cluster, address)
        else:
            self._broker_shares.count(-1, former.connection.counted_as)
            if former.host == live.host:
                live.refused = former.refused
        self._broker_shares.count(1, live.connection.counted_as)
        self._live[address] = live

    def master_of(self, name: str) -> tuple[str, LiveBroker] | None:
        """Return the living master of the broker name: its address and what it said."""
        broker = self._brokers.get(name)
        address = broker.broker_addrs.get(MASTER_ID) if broker is not None else None
        live = self._live.get(address) if address is not None else None
        return (address, live) if address is not None and live is not None else None

    def unregister(self, name: str, broker_id: int, address: str, connection: Connection) -> None:
        """Forget the broker at the address, at its own wish.

        Raises:
            Refusal: It is another host's, and alive.
        """
        self.check_owner(name, broker_id, address, connection)
        broker = self._brokers.get(name)
        if broker is not None and broker.broker_addrs.get(broker_id) == address:
            _log.info("broker %s at %s unregistered", name, address)
            self._remove(address)

    def connection_closed(self, connection: Connection) -> None:
        """Forget the brokers that registered over the connection."""
        for address in [a for a, live in self._live.items() if live.connection is connection]:
            _log.info("broker %s at %s removed: its connection closed", self._live[address].name, address)
            self._remove(address)

    def remove_silent(self, seconds: float) -> list[Connection]:
        """Forget brokers that did not register for so long; return their connections, to be closed."""
        limit = self._time() - seconds
        silent = {address: live for address, live in self._live.items() if live.seen < limit}
        for address, live in silent.items():
            _log.warning("broker %s at %s removed: silent for more than %g s", live.name, address, seconds)
            self._remove(address)
        return [live.connection for live in silent.values()]

    def data_version(self, address: str) -> DataVersion | None:
        """Return the version of the topics that the broker at the address last registered."""
        live = self._live.get(address)
        return live.data_version if live is not None else None

    def is_changed(self, address: str, version: DataVersion) -> bool:
        """Whether the broker at the address has other topics than it last registered."""
        known = self.data_version(address)
        return known is None or known != version

    def touch(self, address: str, connection: Connection) -> None:
        """Note a sign of life of the broker at the address, if it comes from the broker's host."""
        live = self._live.get(address)
        if live is not None and live.host == _host(connection):
            live.seen = self._time()

    def route(self, topic: str) -> TopicRouteData | None:
        """Return where the topic is, or None when no living broker has it."""
        queues = self._topics.get(topic, {})
        brokers = [self._brokers[name] for name in queues if name in self._brokers]
        if not brokers:
            return None
        return TopicRouteData(queue_datas=list(queues.values()), broker_datas=brokers)

    def cluster_info(self) -> ClusterInfo:
        """Return all brokers and clusters."""
        return ClusterInfo(
            broker_addr_table=self._brokers,
            cluster_addr_table={cluster: set(names) for cluster, names in self._clusters.items()},
        )

    def topics(self, cluster: str | None = None) -> list[str]:
        """Return the names of all topics, or of those that a broker of the cluster has."""
        if cluster is None:
            return list(self._topics)
        names = self._clusters.get(cluster, set())
        return [topic for topic, queues in self._topics.items() if not names.isdisjoint(queues)]

    def topics_with_flags(self, *, unit: bool | None, unit_sub: bool | None) -> list[str]:
        """Return the topics whose unit flags are as asked; None asks for nothing."""

        def matches(queues: dict[str, QueueData]) -> bool:
            flags = next(iter(queues.values())).topic_sys_flag
            return unit in (None, bool(flags & UNIT_FLAG)) and unit_sub in (None, bool(flags & UNIT_SUB_FLAG))

        return [topic for topic, queues in self._topics.items() if queues and matches(queues)]

    def system_topics(self) -> tuple[list[str], str | None]:
        """Return the topics every cluster and broker has by its name, and one broker's address."""
        names = [name for cluster, members in self._clusters.items() for name in (cluster, *sorted(members))]
        addresses = (a for broker in self._brokers.values() for a in broker.broker_addrs.values())
        return names, next(addresses, None)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget the topic, everywhere or on the brokers of one cluster, until it is registered again."""
        queues = self._topics.get(topic, {})
        for name in list(queues) if cluster is None else self._clusters.get(cluster, set()):
            self._drop_route(topic, name)
        self._drop_empty([topic])

    def wipe_write_perm(self, name: str) -> int:
        """Take the write permission from the broker's topics; return how many it has."""
        return self._set_perm(name, lambda perm: perm & ~WRITE)

    def add_write_perm(self, name: str) -> int:
        """Make the broker's topics readable and writable; return how many it has."""
        return self._set_perm(name, lambda _: READ | WRITE)

    def _set_perm(self, name: str, change: Callable[[int], int]) -> int:
        found = [queues[name] for queues in self._topics.values() if name in queues]
        for queue_data in found:
            queue_data.perm = change(queue_data.perm)
        return len(found)

    def _take_topics(self, name: str, configs: Iterable[TopicConfig]) -> None:
        listed = set()
        left_out = 0
        owner = self._owners[name]
        for config in configs:
            listed.add(config.topic_name)
            is_new = name not in self._topics.get(config.topic_name, ())
            if is_new and (self._routes >= MAX_ROUTES or not self._route_shares.room(owner)):
                left_out += 1
                continue
            data = QueueData(
                broker_name=name,
                read_queue_nums=config.read_queue_nums,
                write_queue_nums=config.write_queue_nums,
                perm=config.perm,
                topic_sys_flag=config.topic_sys_flag,
            )
            queues = self._topics.setdefault(config.topic_name, {})
            known = queues.get(name)
            if known != data:
                _log.debug("topic %s: %s", config.topic_name, data)
                queues[name] = data
                if is_new:
                    self._routes += 1
                    self._route_shares.count(1, owner)
        if left_out:
            _log.warning(
                "%d topics of broker %s get no route: there are %d, of which one host's brokers have at most %d",
                left_out, name, MAX_ROUTES, self._route_shares.share,
            )  # fmt: skip
        if self.forget_missing_topics:
            self._forget(name, [topic for topic in self._topics if topic not in listed])

    def _remove(self, address: str) -> None:
        live = self._live.pop(address)
        self._broker_shares.count(-1, live.connection.counted_as)
        broker = self._brokers.get(live.name)
        if broker is None:
            return
        for broker_id in [i for i, known in broker.broker_addrs.items() if known == address]:
            del broker.broker_addrs[broker_id]
        if not broker.broker_addrs:
            del self._brokers[live.name]
            self._leave_clusters(live.name)
            self._forget(live.name, list(self._topics))
            del self._owners[live.name]

    def _leave_clusters(self, name: str) -> None:
        for cluster, names in list(self._clusters.items()):
            names.discard(name)
            if not names:
                del self._clusters[cluster]
                self._cluster_shares.count(-1, self._cluster_owners.pop(cluster))

    def _forget(self, name: str, topics: list[str]) -> None:
        for topic in topics:
            self._drop_route(topic, name)
        self._drop_empty(topics)

    def _drop_route(self, topic: str, name: str) -> None:
        if self._topics.get(topic, {}).pop(name, None) is not None:
            self._routes -= 1
            self._route_shares.count(-1, self._owners[name])

    def _drop_empty(self, topics: Iterable[str]) -> None:
        for topic in topics:
            if not self._topics.get(topic, True):
                del self._topics[topic]


def _host(connection: Connection) -> str:
    """Return the host that a broker connects from, as addresses are counted."""
    return crowd_of(host_of(connection.remote_address))
