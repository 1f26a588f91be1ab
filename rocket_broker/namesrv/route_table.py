"""The live brokers and their topics.

Four tables::

    cluster     -> broker names
    broker name -> cluster, {broker id -> address}
    address     -> when it last registered, over which connection, with which version of its topics
    topic       -> broker name -> queues and permissions

A broker that unregisters, whose connection closes, or that sends nothing for two minutes is removed from all four
tables at once; a topic without brokers is removed too.

A broker's name with an id, and an address, belong to the host that registered them first, while that broker is alive:
only that host can register them again, keep them alive and unregister them. So a broker can restart and reconnect, and
another machine can take its place when it is gone, but no host can take the route of a live broker. Apache's name
server lets any host do that.
"""

import logging
from collections.abc import Callable, Generator, Iterable, Iterator

import msgspec

from rocket_broker.limits.owner_quota import OwnerQuota
from rocket_broker.limits.refusal import Refusal
from rocket_broker.loop.loop_steps import BackgroundSteps
from rocket_broker.namesrv.topic_routes import MAX_ROUTES, TopicRoutes
from rocket_broker.perm import READ, WRITE
from rocket_broker.settings.checks import MASTER_ID
from rocket_remoting.session.address import counted_address, host_of
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import (
    BrokerData,
    ClusterInfo,
    DataVersion,
    TopicConfig,
    TopicRouteData,
)
from rocket_remoting.wire.bodies.registration import Registered
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.errors import RemoteProtocolError

__all__ = ["BROKER_EXPIRY_SECONDS", "MAX_BROKERS", "LiveBroker", "RouteTable"]

logger = logging.getLogger(__name__)

MAX_BROKERS = 4_096
"""Registered addresses, and names of clusters. One host has at most a quarter of them."""
BROKER_EXPIRY_SECONDS = 120.0
"""Seconds after its last registration when a broker counts as dead."""
MOST_HOSTS_LOGGED = 100
"""Hosts whose attempts to register a live broker's name are logged, once each."""

_UNKNOWN = DataVersion(timestamp=-1, counter=-1)
"""A version that no broker has, so the topics are read again at the next registration."""


class LiveBroker(msgspec.Struct):
    """One registered address.

    Attributes:
        name: The broker's name.
        seen: Loop time of its last registration.
        data_version: The version of its topics then.
        connection: The connection of its registration; the broker is removed when it closes.
        ha_address: The address for its replicas.
        refused: The hosts whose attempts to take its place are logged.
    """

    name: str
    seen: float
    data_version: DataVersion
    connection: Connection
    ha_address: str
    refused: set[str] = msgspec.field(default_factory=set)

    @property
    def host(self) -> str:
        """The host from which it registered."""
        return _host(self.connection)


class RouteTable:
    """The routes of all clusters.

    Args:
        time: The loop's clock, in seconds.
        forget_missing_topics: Whether a registration removes the broker's topics that it does not list.
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
        self._broker_quota = OwnerQuota("brokers", lambda: MAX_BROKERS)
        self._cluster_quota = OwnerQuota("clusters", lambda: MAX_BROKERS)

    def register(
        self,
        *,
        cluster: str,
        name: str,
        broker_id: int,
        address: str,
        ha_address: str,
        reported: Iterable[Registered],
        connection: Connection,
    ) -> Generator[None, None, None]:
        """Register a broker and its topics, or renew the registration, in steps.

        Args:
            cluster: The broker's cluster.
            name: The broker's name.
            broker_id: Its id, 0 for the master.
            address: Its address for clients.
            ha_address: The address for its replicas.
            reported: The version of its topics, and the topics, as `read_registration` yields them.
            connection: The connection of the registration.

        Raises:
            Refusal: Another host's broker has the name and id, or the address, and is alive; or there is no room.
            RemoteProtocolError: The registration cannot be read.
        """
        read = iter(reported)
        version = yield from _version(name, read)
        # The processor has checked this already, but `_version` yields: another host may have registered
        # meanwhile. From here to `_keep` nothing yields, so the tables agree with each other.
        self.check_owner(name, broker_id, address, connection)
        owner = connection.counted_as
        self._check_capacity(cluster, address, owner)
        known = self._live.get(address)
        # The broker at this address was renamed: its former name must not keep a route to it.
        if known is not None and known.name != name:
            self._remove(address)
        self._join_cluster(cluster, name, owner)
        broker = self._brokers.get(name)
        if broker is None:
            broker = self._brokers[name] = BrokerData(cluster=cluster, broker_name=name, broker_addrs={})
        # An address has one id only: a replica that becomes the master loses its entry as replica.
        for other in [i for i, known in broker.broker_addrs.items() if known == address and i != broker_id]:
            del broker.broker_addrs[other]
        first = broker.broker_addrs.get(broker_id) is None
        broker.broker_addrs[broker_id] = address
        changed = first or self.is_changed(address, version)
        # The version is noted only when all topics are taken. If the steps end early, such as by an
        # unreadable topic, the next registration finds the version changed and brings the topics again.
        live = LiveBroker(name, self._time(), _UNKNOWN if changed else version, connection, ha_address)
        self._keep(address, live, cluster)
        # Only a master's topics are taken, as by Apache's RouteInfoManager of 4.9.
        if changed and broker_id == MASTER_ID:
            self._routes.begin(name, owner)
            yield from self._take_topics(address, live, read)
        live.data_version = version

    def check_owner(self, name: str, broker_id: int, address: str, connection: Connection) -> None:
        """Check that the connection may register, or unregister, the broker.

        Raises:
            Refusal: Another host's broker has the name and id, or the address, and is alive.
        """
        broker = self._brokers.get(name)
        former = broker.broker_addrs.get(broker_id) if broker is not None else None
        host = _host(connection)
        # Both must be free: the place in the broker's name, and the address itself, which may be registered
        # by another name.
        for taken in {former, address} - {None}:
            live = self._live.get(taken or "")
            if live is None or live.host == host or not self._is_alive(live):
                continue
            reason = (
                f"broker {live.name} at {taken} is registered by {live.host} and still alive: {host} cannot "
                f"replace it. Choose another brokerName or brokerId, or stop that broker"
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

    def _check_capacity(self, cluster: str, address: str, owner: str) -> None:
        is_new, is_new_cluster = address not in self._live, cluster not in self._clusters
        if (is_new or is_new_cluster) and max(len(self._live), len(self._clusters)) >= MAX_BROKERS:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"this name server has {MAX_BROKERS} brokers or clusters, which is the limit",
            )
        if is_new:
            self._broker_quota.check(1, owner)
        if is_new_cluster:
            self._cluster_quota.check(1, owner)

    def _join_cluster(self, cluster: str, name: str, owner: str) -> None:
        if cluster not in self._clusters:
            self._cluster_quota.count(1, owner)
            self._cluster_owners[cluster] = owner
        self._clusters.setdefault(cluster, set()).add(name)
        self._clusters_of.setdefault(name, set()).add(cluster)

    def _keep(self, address: str, live: LiveBroker, cluster: str) -> None:
        former = self._live.get(address)
        if former is None:
            logger.info("broker %s of cluster %s registered at %s", live.name, cluster, address)
        else:
            self._broker_quota.count(-1, former.connection.counted_as)
            self._forget_connection(address, former.connection)
            # The same host registers again, so hosts that were logged before are not logged once more.
            if former.host == live.host:
                live.refused = former.refused
        self._broker_quota.count(1, live.connection.counted_as)
        self._by_connection.setdefault(live.connection, {})[address] = None
        self._live[address] = live

    def master_of(self, name: str) -> tuple[str, LiveBroker] | None:
        """Return the live master of the broker name: its address and its registration."""
        broker = self._brokers.get(name)
        address = broker.broker_addrs.get(MASTER_ID) if broker is not None else None
        live = self._live.get(address) if address is not None else None
        return (address, live) if address is not None and live is not None else None

    def unregister(self, name: str, broker_id: int, address: str, connection: Connection) -> None:
        """Remove the broker at the address, at its request.

        Raises:
            Refusal: The broker belongs to another host, and is alive.
        """
        self.check_owner(name, broker_id, address, connection)
        broker = self._brokers.get(name)
        if broker is not None and broker.broker_addrs.get(broker_id) == address:
            logger.info("broker %s at %s unregistered", name, address)
            self._remove(address)

    def connection_closed(self, connection: Connection) -> None:
        """Remove the brokers that registered over the connection, in steps."""
        self._background.add("removing the brokers of a closed connection", self._forget_all(connection))

    def _forget_all(self, connection: Connection) -> Generator[None, None, None]:
        for address in list(self._by_connection.get(connection, ())):
            live = self._live.get(address)
            # The broker may have registered again over a new connection before the end of the old one was
            # noticed.
            if live is not None and live.connection is connection:
                logger.info("broker %s at %s removed: its connection closed", live.name, address)
                self._remove(address)
            yield

    def remove_silent(self, seconds: float) -> Generator[None, None, list[Connection]]:
        """Remove brokers that have not registered for `seconds`, in steps; return their connections, to be closed."""
        limit = self._time() - seconds
        silent: list[Connection] = []
        for address, live in list(self._live.items()):
            # The steps before have let registrations in: the entry may be a new one.
            if live.seen < limit and self._live.get(address) is live:
                logger.warning(
                    "broker %s at %s removed: no registration for more than %g s", live.name, address, seconds
                )
                self._remove(address)
                silent.append(live.connection)
            yield
        return silent

    def stop(self) -> None:
        """Stop the work in the background."""
        self._background.stop()
        self._routes.stop()

    def data_version(self, address: str) -> DataVersion | None:
        """Return the version of the topics that the broker at the address last registered."""
        live = self._live.get(address)
        return live.data_version if live is not None else None

    def is_changed(self, address: str, version: DataVersion) -> bool:
        """Return whether the broker at the address has changed its topics since its last registration."""
        known = self.data_version(address)
        return known is None or known != version

    def touch(self, address: str, connection: Connection) -> None:
        """Record a sign of life of the broker at the address, if it comes from the broker's host."""
        live = self._live.get(address)
        if live is not None and live.host == _host(connection):
            live.seen = self._time()

    def route(self, topic: str) -> TopicRouteData | None:
        """Return the route of the topic, or None if no live broker has it."""
        queues = [data for data in self._routes.queues(topic) if data.broker_name in self._brokers]
        if not queues:
            return None
        return TopicRouteData(queue_datas=queues, broker_datas=[self._brokers[data.broker_name] for data in queues])

    def cluster_info(self) -> ClusterInfo:
        """Return all brokers and clusters."""
        return ClusterInfo(
            broker_addr_table=dict(self._brokers),
            cluster_addr_table={cluster: set(names) for cluster, names in self._clusters.items()},
        )

    @property
    def route_count(self) -> int:
        """The number of routes: a topic counts once for each of its brokers."""
        return self._routes.count

    def topics(self, cluster: str | None = None) -> Iterator[str | None]:
        """Yield the names of all topics, or of those that a broker of the cluster has; a yielded None is a pause."""
        return self._routes.topics(None if cluster is None else self._clusters.get(cluster, set()))

    def topics_with_flags(self, *, unit: bool | None, unit_sub: bool | None) -> Iterator[str | None]:
        """Yield the topics with these unit flags (None: any); a yielded None is a pause."""
        return self._routes.topics_with_flags(unit=unit, unit_sub=unit_sub)

    def system_topics(self) -> tuple[list[str], str | None]:
        """Return the topics that are named after clusters and brokers, and one broker's address."""
        names = [name for cluster, members in self._clusters.items() for name in (cluster, *sorted(members))]
        addresses = (a for broker in self._brokers.values() for a in broker.broker_addrs.values())
        return names, next(addresses, None)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove the topic, everywhere or on the brokers of one cluster, until it is registered again."""
        if cluster is None:
            self._routes.drop_topic(topic)
        else:
            for name in self._clusters.get(cluster, set()):
                self._routes.drop(name, topic)

    def wipe_write_perm(self, name: str) -> Generator[None, None, int]:
        """Remove the write permission of the broker's topics, in steps; return how many it has."""
        return self._routes.change_perm(name, lambda perm: perm & ~WRITE)

    def add_write_perm(self, name: str) -> Generator[None, None, int]:
        """Make the broker's topics readable and writable, in steps; return how many it has."""
        return self._routes.change_perm(name, lambda _: READ | WRITE)

    def _take_topics(
        self, address: str, live: LiveBroker, reported: Iterable[Registered]
    ) -> Generator[None, None, None]:
        """Add the topics of a registration, while the broker is alive."""
        listed: set[str] = set()
        left_out = 0
        for item in reported:
            if self._live.get(address) is not live:  # removed, or registered again, meanwhile
                return
            if isinstance(item, TopicConfig):
                listed.add(item.topic_name)
                left_out += not self._routes.put(live.name, item)
            yield
        if left_out:
            logger.warning(
                "%d topic(s) of broker %s get no route: of %d routes, the brokers of one host may have %d",
                left_out, live.name, MAX_ROUTES, self._routes.quota,
            )  # fmt: skip
        if self.forget_missing_topics:
            yield from self._routes.keep_only(live.name, listed)

    def _remove(self, address: str) -> None:
        live = self._live.pop(address)
        self._broker_quota.count(-1, live.connection.counted_as)
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
                self._cluster_quota.count(-1, self._cluster_owners.pop(cluster))


def _version(name: str, read: Iterator[Registered]) -> Generator[None, None, DataVersion]:
    """Return the version of a broker's topics, which precedes them.

    Raises:
        RemoteProtocolError: There is no version.
    """
    for item in read:
        if isinstance(item, DataVersion):
            return item
        yield
    raise RemoteProtocolError(f"broker {name} registers without dataVersion of its topics")


def _host(connection: Connection) -> str:
    """Return the host from which a broker connects, in the form in which addresses are counted."""
    return counted_address(host_of(connection.remote_address))
