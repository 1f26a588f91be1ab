"""Which brokers are alive and which topics they have.

Four tables::

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
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field

from rocket_broker.limits.refusal import Refusal
from rocket_broker.limits.shares import Shares
from rocket_broker.loop.loop_steps import BackgroundSteps
from rocket_broker.namesrv.topic_routes import MAX_ROUTES, TopicRoutes
from rocket_broker.perm import READ, WRITE
from rocket_broker.settings.broker_settings import MASTER_ID
from rocket_remoting.session.address import crowd_of, host_of
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import (
    BrokerData,
    ClusterInfo,
    DataVersion,
    Registered,
    TopicConfig,
    TopicRouteData,
)
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.errors import RemoteProtocolError

__all__ = ["BROKER_EXPIRY_SECONDS", "MAX_BROKERS", "LiveBroker", "RouteTable"]

logger = logging.getLogger(__name__)

MAX_BROKERS = 4_096
"""Addresses that may be registered, and names of clusters. Those of one host are a quarter of them at most."""
BROKER_EXPIRY_SECONDS = 120.0
"""A broker that did not register for so long is dead."""
MOST_HOSTS_LOGGED = 100
"""Hosts whose attempts to register a living broker's name are logged, once each."""

_UNKNOWN = DataVersion(timestamp=-1, counter=-1)
"""No broker's: its topics are taken when it registers again."""


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
        self._by_connection: dict[Connection, dict[str, None]] = {}
        self._clusters_of: dict[str, set[str]] = {}
        self._routes = TopicRoutes()
        self._background = BackgroundSteps()
        self._cluster_owners: dict[str, str] = {}
        self._broker_shares = Shares("brokers", lambda: MAX_BROKERS)
        self._cluster_shares = Shares("clusters", lambda: MAX_BROKERS)

    def register(
        self,
        *,
        cluster: str,
        name: str,
        broker_id: int,
        address: str,
        ha_address: str,
        told: Iterable[Registered],
        connection: Connection,
    ) -> Generator[None, None, None]:
        """Make the broker and its topics known, or known to be still there, in steps.

        Args:
            cluster: The broker's cluster.
            name: The broker's name.
            broker_id: Its id, 0 for the master.
            address: Where clients reach it.
            ha_address: Where its replicas would connect.
            told: The version of its topics, and the topics, as `read_registration` yields them.
            connection: Over which it registers.

        Raises:
            Refusal: Another host's broker has the name and id, or the address, and is alive; or there is no room.
            RemoteProtocolError: What the broker tells cannot be read.
        """
        read = iter(told)
        version = yield from _version(name, read)
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
        # An address stands under one id only: a replica that became the master keeps no entry as replica.
        for other in [i for i, known in broker.broker_addrs.items() if known == address and i != broker_id]:
            del broker.broker_addrs[other]
        first = broker.broker_addrs.get(broker_id) is None
        broker.broker_addrs[broker_id] = address
        changed = first or self.is_changed(address, version)
        live = LiveBroker(name, self._time(), _UNKNOWN if changed else version, connection, ha_address)
        self._keep(address, live, cluster)
        if changed and broker_id == MASTER_ID:
            self._routes.begin(name, owner)
            yield from self._take_topics(address, live, read)
        live.data_version = version

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
                logger.warning(
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
        self._clusters_of.setdefault(name, set()).add(cluster)

    def _keep(self, address: str, live: LiveBroker, cluster: str) -> None:
        former = self._live.get(address)
        if former is None:
            logger.info("broker %s of cluster %s registered at %s", live.name, cluster, address)
        else:
            self._broker_shares.count(-1, former.connection.counted_as)
            self._forget_connection(address, former.connection)
            if former.host == live.host:
                live.refused = former.refused
        self._broker_shares.count(1, live.connection.counted_as)
        self._by_connection.setdefault(live.connection, {})[address] = None
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
            logger.info("broker %s at %s unregistered", name, address)
            self._remove(address)

    def connection_closed(self, connection: Connection) -> None:
        """Forget the brokers that registered over the connection, in steps."""
        self._background.add("brokers of a closed connection are removed", self._forget_all(connection))

    def _forget_all(self, connection: Connection) -> Generator[None, None, None]:
        for address in list(self._by_connection.get(connection, ())):
            live = self._live.get(address)
            if live is not None and live.connection is connection:
                logger.info("broker %s at %s removed: its connection closed", live.name, address)
                self._remove(address)
            yield

    def remove_silent(self, seconds: float) -> Generator[None, None, list[Connection]]:
        """Forget brokers that did not register for so long, in steps; return their connections, to be closed."""
        limit = self._time() - seconds
        silent: list[Connection] = []
        for address, live in list(self._live.items()):
            if live.seen < limit and self._live.get(address) is live:
                logger.warning(
                    "broker %s at %s removed: silent for more than %g s", live.name, address, seconds
                )
                self._remove(address)
                silent.append(live.connection)
            yield
        return silent

    def stop(self) -> None:
        """Do no more work in the background."""
        self._background.stop()
        self._routes.stop()

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
        queues = [data for data in self._routes.queues(topic) if data.broker_name in self._brokers]
        if not queues:
            return None
        return TopicRouteData(
            queue_datas=queues, broker_datas=[self._brokers[data.broker_name] for data in queues]
        )

    def cluster_info(self) -> ClusterInfo:
        """Return all brokers and clusters."""
        return ClusterInfo(
            broker_addr_table=dict(self._brokers),
            cluster_addr_table={cluster: set(names) for cluster, names in self._clusters.items()},
        )

    def topics(self, cluster: str | None = None) -> Iterator[str | None]:
        """Yield the names of all topics, or of those that a broker of the cluster has; None is a pause."""
        return self._routes.topics(None if cluster is None else self._clusters.get(cluster, set()))

    def topics_with_flags(self, *, unit: bool | None, unit_sub: bool | None) -> Iterator[str | None]:
        """Yield the topics whose unit flags are as asked, of which None asks for nothing; None is a pause."""
        return self._routes.topics_with_flags(unit=unit, unit_sub=unit_sub)

    def system_topics(self) -> tuple[list[str], str | None]:
        """Return the topics every cluster and broker has by its name, and one broker's address."""
        names = [name for cluster, members in self._clusters.items() for name in (cluster, *sorted(members))]
        addresses = (a for broker in self._brokers.values() for a in broker.broker_addrs.values())
        return names, next(addresses, None)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget the topic, everywhere or on the brokers of one cluster, until it is registered again."""
        if cluster is None:
            self._routes.drop_topic(topic)
        else:
            for name in self._clusters.get(cluster, set()):
                self._routes.drop(name, topic)

    def wipe_write_perm(self, name: str) -> Generator[None, None, int]:
        """Take the write permission from the broker's topics, in steps; return how many it has."""
        return self._routes.change_perm(name, lambda perm: perm & ~WRITE)

    def add_write_perm(self, name: str) -> Generator[None, None, int]:
        """Make the broker's topics readable and writable, in steps; return how many it has."""
        return self._routes.change_perm(name, lambda _: READ | WRITE)

    def _take_topics(
        self, address: str, live: LiveBroker, told: Iterable[Registered]
    ) -> Generator[None, None, None]:
        """Take the topics that a broker tells, as long as it lives."""
        listed: set[str] = set()
        left_out = 0
        for item in told:
            if self._live.get(address) is not live:  # gone, or registered anew, meanwhile
                return
            if isinstance(item, TopicConfig):
                listed.add(item.topic_name)
                left_out += not self._routes.put(live.name, item)
            yield
        if left_out:
            logger.warning(
                "%d topics of broker %s get no route: there are %d, of which one host's brokers have at most %d",
                left_out, live.name, MAX_ROUTES, self._routes.share,
            )  # fmt: skip
        if self.forget_missing_topics:
            yield from self._routes.keep_only(live.name, listed)

    def _remove(self, address: str) -> None:
        live = self._live.pop(address)
        self._broker_shares.count(-1, live.connection.counted_as)
        self._forget_connection(address, live.connection)
        broker = self._brokers.get(live.name)
        if broker is None:
            return
        for broker_id in [i for i, known in broker.broker_addrs.items() if known == address]:
            del broker.broker_addrs[broker_id]
        if not broker.broker_addrs:
            del self._brokers[live.name]
            self._leave_clusters(live.name)
            self._routes.forget(live.name)

    def _forget_connection(self, address: str, connection: Connection) -> None:
        addresses = self._by_connection.get(connection, {})
        addresses.pop(address, None)
        if not addresses:
            self._by_connection.pop(connection, None)

    def _leave_clusters(self, name: str) -> None:
        for cluster in self._clusters_of.pop(name, ()):
            names = self._clusters[cluster]
            names.discard(name)
            if not names:
                del self._clusters[cluster]
                self._cluster_shares.count(-1, self._cluster_owners.pop(cluster))


def _version(name: str, read: Iterator[Registered]) -> Generator[None, None, DataVersion]:
    """Return the version of a broker's topics, which comes before them.

    Raises:
        RemoteProtocolError: There is none.
    """
    for item in read:
        if isinstance(item, DataVersion):
            return item
        yield
    raise RemoteProtocolError(f"broker {name} registers without the version of its topics")


def _host(connection: Connection) -> str:
    """Return the host that a broker connects from, as addresses are counted."""
    return crowd_of(host_of(connection.remote_address))
