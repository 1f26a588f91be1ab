"""What name servers know, asked for when it is needed and kept for a while."""

import math
import random
import time

from rocket_client.blocking.pool import ConnectionPool
from rocket_client.core.topic_route import MASTER_ID, TopicRoute
from rocket_client.errors import BrokerNotFoundError, NameServersUnreachableError, TopicNotFoundError
from rocket_client.settings import ProducerSettings
from rocket_remoting.wire.bodies import ClusterInfo, TopicList, TopicRouteData, decode_body
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import ConnectError, ConnectionLost, RequestTimeout, ResponseError
from rocket_remoting.wire.ext_fields import Header
from rocket_remoting.wire.headers import GetRouteInfoRequestHeader


class BlockingRoutes:
    """The routes of topics in use. A route is asked for anew when it is older than the polling interval.

    While no name server answers, what is known stays in use.
    """

    def __init__(self, settings: ProducerSettings, pool: ConnectionPool) -> None:
        self._addresses = list(settings.name_server_addresses)
        random.shuffle(self._addresses)  # clients begin with different ones, so that the load spreads
        self._timeout = settings.request_timeout.total_seconds()
        self._lifetime = settings.poll_name_server_interval.total_seconds()
        self._default_topic = settings.create_topic_key
        self._default_queues = settings.default_topic_queue_nums
        self._pool = pool
        self._routes: dict[str, tuple[float, TopicRoute]] = {}

    def route(self, topic: str) -> TopicRoute:
        """The topic's route.

        Raises:
            TopicNotFoundError: No name server knows the topic.
            NameServersUnreachableError: None answered, and the route was not known.
        """
        route = self._current(topic)
        if route is None or (route.provisional and not route.subscribe_queues):
            raise TopicNotFoundError(
                topic, "no name server knows it; create it, or send a message to it first"
            )
        return route

    def for_publishing(self, topic: str) -> TopicRoute:
        """A route with queues to write to: the topic's own, or one made from the default topic's.

        Raises:
            TopicNotFoundError: Neither exists, or the topic is not writable.
            NameServersUnreachableError: No name server answered.
        """
        return self._writable(self._current(topic) or self._provisional(topic))

    def writable(self, topic: str) -> TopicRoute:
        """The topic's own route, with queues to write to.

        Raises:
            TopicNotFoundError: No name server knows the topic, or it is not writable.
            NameServersUnreachableError: None answered, and the route was not known.
        """
        return self._writable(self.route(topic))

    def topics(self) -> frozenset[str]:
        """All topics that a name server knows.

        Raises:
            NameServersUnreachableError: No name server answered.
        """
        response = self._told(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return frozenset(decode_body(response.body, TopicList).topic_list)

    def brokers(self) -> frozenset[str]:
        """The names of all brokers that a name server knows.

        Raises:
            NameServersUnreachableError: No name server answered.
        """
        response = self._told(RequestCode.GET_BROKER_CLUSTER_INFO)
        return frozenset(decode_body(response.body, ClusterInfo).broker_addr_table)

    def created(self, topic: str) -> None:
        """Note that a message was stored: until a name server knows more, the topic has the queues foreseen."""
        _, route = self._routes.get(topic, (0.0, None))
        if route is not None and route.provisional:
            route.subscribe_queues = route.publish_queues

    def master_address(self, topic: str, broker_name: str) -> str:
        """Where the broker's master is.

        Raises:
            BrokerNotFoundError: The topic's route names no such address.
        """
        for _ in range(2):
            # Whether anything may be written to it is no matter: what it has can still be read.
            route = self._current(topic) or self._provisional(topic)
            for broker in route.data.broker_datas:
                address = broker.broker_addrs.get(MASTER_ID)
                if broker.broker_name == broker_name and address is not None:
                    return address
            self.expire(topic)
        raise BrokerNotFoundError(broker_name)

    def expire(self, topic: str) -> None:
        """Ask for the topic's route when it is wanted next; if nobody answers then, what is known stays in use."""
        known = self._routes.get(topic)
        if known is not None:
            self._routes[topic] = -math.inf, known[1]

    def _current(self, topic: str) -> TopicRoute | None:
        asked, known = self._routes.get(topic, (0.0, None))
        now = time.monotonic()
        if known is not None and now - asked < self._lifetime and not known.provisional:
            return known
        try:
            data = self._look_up(topic)
        except NameServersUnreachableError:
            if known is None:
                raise
            return known
        if data is None:
            return known
        route = TopicRoute(topic, data)
        if known is not None:
            route.continue_from(known)
        self._routes[topic] = now, route
        return route

    def _provisional(self, topic: str) -> TopicRoute:
        data = self._look_up(self._default_topic)
        if data is None:
            raise TopicNotFoundError(
                topic,
                f"it does not exist, and no broker creates topics by itself (no route of {self._default_topic})",
            )
        for queue_data in data.queue_datas:
            count = min(self._default_queues, queue_data.read_queue_nums)
            queue_data.read_queue_nums = queue_data.write_queue_nums = count
        route = TopicRoute(topic, data, provisional=True)
        self._routes[topic] = time.monotonic(), route
        return route

    def _writable(self, route: TopicRoute) -> TopicRoute:
        if not route.publish_queues:
            self.expire(route.topic)  # that may change at any moment
            raise TopicNotFoundError(route.topic, "none of its queues can be written to")
        return route

    def _look_up(self, topic: str) -> TopicRouteData | None:
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        response, address = self._ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        if response.code == ResponseCode.SUCCESS and response.body:
            return decode_body(response.body, TopicRouteData)
        if response.code in {ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST}:
            return None
        raise ResponseError(
            response.code,
            response.remark,
            address=address,
            request_code=RequestCode.GET_ROUTEINFO_BY_TOPIC,
        )

    def _told(self, code: RequestCode) -> RemotingCommand:
        response, address = self._ask(code, None)
        if response.code != ResponseCode.SUCCESS:
            raise ResponseError(response.code, response.remark, address=address, request_code=code)
        return response

    def _ask(self, code: RequestCode, header: Header | None) -> tuple[RemotingCommand, str]:
        addresses = self._addresses
        causes: list[Exception] = []
        for number, address in enumerate(addresses):
            try:
                with self._pool.connection(address) as connection:
                    response = connection.invoke(code, header, timeout=self._timeout)
            except (ConnectError, ConnectionLost, RequestTimeout) as error:
                causes.append(error)
                continue
            if number:
                self._addresses = addresses[number:] + addresses[:number]  # the next question begins there
            return response, address
        raise NameServersUnreachableError(addresses, causes)
