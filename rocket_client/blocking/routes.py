"""The routes of the blocking client, looked up when needed and kept for a while."""

import logging
import math
import time
from typing import TypeVar

from rocket_client.blocking.address_fetch import fetch_addresses
from rocket_client.blocking.pool import ConnectionPool
from rocket_client.core import name_server_calls
from rocket_client.core.address_server import AddressServer
from rocket_client.core.call import Call
from rocket_client.core.inquiry import Inquiry
from rocket_client.core.name_server_order import NameServerOrder
from rocket_client.core.pull_target import PullTarget
from rocket_client.core.routes import Routes
from rocket_client.core.topic_route import TopicRoute
from rocket_client.errors import (
    AddressFetchError,
    BrokerNotFoundError,
    NameServersUnreachableError,
    TopicNotFoundError,
)
from rocket_client.settings import ProducerSettings
from rocket_remoting.wire.errors import ConnectError, ConnectionLost, RequestTimeout

logger = logging.getLogger(__name__)

T = TypeVar("T")


class BlockingRoutes:
    """The routes of topics in use. A route older than the polling interval is looked up again.

    While no name server answers, the known routes stay in use.
    """

    def __init__(self, settings: ProducerSettings, pool: ConnectionPool) -> None:
        self._order = NameServerOrder(settings.name_server_addresses)
        self._address_server = AddressServer.of(settings)
        self._refresh_interval = settings.name_server_refresh_interval.total_seconds()
        self._refresh_at = -math.inf
        self._timeout = settings.request_timeout.total_seconds()
        self._lifetime = settings.poll_name_server_interval.total_seconds()
        self._default_topic = settings.create_topic_key
        self._default_queues = settings.default_topic_queue_nums
        self._pool = pool
        self._known = Routes()
        self._asked: dict[str, float] = {}  # when a name server gave the topic's route

    def route(self, topic: str) -> TopicRoute:
        """Return the topic's route.

        Raises:
            TopicNotFoundError: No name server knows the topic.
            NameServersUnreachableError: None answered, and the route was not known.
        """
        route = self._current(topic)
        if route is None or (route.provisional and not route.subscribe_queues):
            raise TopicNotFoundError(topic, "no name server knows it; create it, or send a message to it first")
        return route

    def for_publishing(self, topic: str) -> TopicRoute:
        """Return a route with writable queues: the topic's own, or a provisional one made from the default topic's.

        Raises:
            TopicNotFoundError: Neither route exists, or the topic is not writable.
            NameServersUnreachableError: No name server answered.
        """
        return self._writable(self._current(topic) or self._provisional(topic))

    def writable(self, topic: str) -> TopicRoute:
        """Return the topic's own route, which has writable queues.

        Raises:
            TopicNotFoundError: No name server knows the topic, or it is not writable.
            NameServersUnreachableError: None answered, and the route was not known.
        """
        return self._writable(self.route(topic))

    def topics(self) -> frozenset[str]:
        """Return all topics that a name server knows.

        Raises:
            NameServersUnreachableError: No name server answered.
        """
        return self._call(name_server_calls.topics())

    def brokers(self) -> frozenset[str]:
        """Return the names of all brokers that a name server knows.

        Raises:
            NameServersUnreachableError: No name server answered.
        """
        return frozenset(self._call(name_server_calls.cluster_info()).broker_addr_table)

    def created(self, topic: str) -> None:
        """Note that a topic's first message was stored: its provisional queues can be read from now on."""
        route = self._known.get(topic)
        if route is not None and route.provisional:
            route.subscribe_queues = route.publish_queues

    def master_address(self, topic: str, broker_name: str) -> str:
        """Return the address of the broker's master.

        Raises:
            BrokerNotFoundError: The topic's route has no such address.
        """
        # The second time with a route that was just looked up: the broker may have a new address.
        for _ in range(2):
            # The topic need not be writable: its messages can still be read.
            address = (self._current(topic) or self._provisional(topic)).master_address(broker_name)
            if address is not None:
                return address
            self.expire(topic)
        raise BrokerNotFoundError(broker_name)

    def reader_address(self, topic: str, broker_name: str) -> str:
        """Return the address of the broker's master, of a slave if the route that was just looked up has no master.

        Raises:
            BrokerNotFoundError: The topic's route has no address of the broker.
        """
        try:
            return self.master_address(topic, broker_name)
        except BrokerNotFoundError:
            address = self._known.reader_address(broker_name)
            if address is None:
                raise
            return address

    def pull_target(self, broker_name: str) -> PullTarget:
        """Return a choice of the broker that pulls of a broker name go to."""
        return PullTarget(self._known, broker_name)

    def pull_address(self, topic: str, broker_name: str, target: PullTarget) -> tuple[str, int]:
        """Return address and id of the broker that the next pull of a topic goes to.

        Raises:
            BrokerNotFoundError: The topic's route has no address of the broker.
        """
        for _ in range(2):
            self._current(topic)
            found = target.address()
            if found is not None:
                return found
            self.expire(topic)
        raise BrokerNotFoundError(broker_name)

    def expire(self, topic: str) -> None:
        """Expire the topic's route; its next use looks it up, and keeps the known one if no name server answers."""
        self._asked.pop(topic, None)

    def _current(self, topic: str) -> TopicRoute | None:
        known, now = self._known.get(topic), time.monotonic()
        age = now - self._asked.get(topic, -math.inf)
        if known is not None and age < self._lifetime and not known.provisional:
            return known
        try:
            data = self._call(name_server_calls.topic_route(topic))
        except NameServersUnreachableError:
            if known is None:
                raise
            return known
        if data is None:
            return known
        route = TopicRoute(topic, data)
        self._known.put(route)
        self._known.drop_offline_brokers()
        self._asked[topic] = now
        return route

    def _provisional(self, topic: str) -> TopicRoute:
        default = self._call(name_server_calls.topic_route(self._default_topic))
        route = TopicRoute.from_default(topic, default, self._default_topic, self._default_queues)
        self._known.put(route)
        return route

    def _writable(self, route: TopicRoute) -> TopicRoute:
        if not route.publish_queues:
            self.expire(route.topic)  # that may change at any moment
        return route.require_writable()

    def _refresh_addresses(self) -> None:
        """Fetch the addresses of the name servers if they are not configured, and not known or due again."""
        server, now = self._address_server, time.monotonic()
        if server is None or now < self._refresh_at:
            return
        if self._order.addresses:
            # Before the fetch: other threads use the known addresses meanwhile.
            self._refresh_at = now + self._refresh_interval
        try:
            self._order.replace(fetch_addresses(server))
        except AddressFetchError as error:
            if not self._order.addresses:
                raise NameServersUnreachableError((), [error]) from error
            logger.warning("the name servers stay as they are: %s", error)
        self._refresh_at = time.monotonic() + self._refresh_interval

    def _call(self, call: Call[T]) -> T:
        """Make the call to one name server after the other until one knows the result; return it, or None."""
        self._refresh_addresses()
        inquiry = Inquiry(self._order, call, time.monotonic())
        for address in inquiry:
            try:
                with self._pool.connection(address) as connection:
                    response = connection.invoke(call.code, call.header, timeout=self._timeout)
            except (ConnectError, ConnectionLost, RequestTimeout) as error:
                inquiry.failed(address, error)
            else:
                inquiry.answered(address, response)
        return inquiry.result()
