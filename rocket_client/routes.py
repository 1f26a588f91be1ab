"""Routes: on which brokers a topic's queues are, and at which addresses those brokers are.

::

    publish queues     writable queues of brokers with a master, sorted by broker; with an `orderTopicConf`
                       ("broker-a:4;broker-b:4") exactly those it lists, in its order, whoever is alive (D8)
    subscribe queues   readable queues, sorted

A route once known stays in use until a name server gives another one, also while no name server answers.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

from rocket_client.errors import TopicNotFoundError
from rocket_remoting.bodies import QueueData, TopicRouteData
from rocket_remoting.errors import RemotingError
from rocket_remoting.message import MessageQueue
from rocket_remoting.sys_flag import PERM_READ, PERM_WRITE
from rocket_remoting.topics import is_retry_topic

_LOG = logging.getLogger(__name__)

MASTER_ID = 0

R = TypeVar("R")


class TopicRoute:
    """The queues of one topic, as one name server's answer gives them."""

    __slots__ = ("_next", "data", "order_topic", "provisional", "publish_queues", "subscribe_queues", "topic")

    def __init__(self, topic: str, data: TopicRouteData, *, provisional: bool = False) -> None:
        self.topic = topic
        self.data = data
        self.provisional = provisional
        """Taken from the default topic: the topic itself will be created by the first message."""
        self.order_topic = bool(data.order_topic_conf)
        if data.order_topic_conf:
            self.publish_queues = _configured_queues(topic, data.order_topic_conf)
        else:
            self.publish_queues = _writable_queues(topic, data)
        self.subscribe_queues = () if provisional else _readable_queues(topic, data)
        self._next = random.randrange(1 << 16)

    def __repr__(self) -> str:
        kind = "provisional " if self.provisional else "ordered " if self.order_topic else ""
        return (
            f"<{kind}TopicRoute {self.topic}: {len(self.publish_queues)} queues to write, "
            f"{len(self.subscribe_queues)} to read>"
        )

    def same_as(self, other: "TopicRoute") -> bool:
        """Whether nothing a client acts on has changed."""
        return (
            self.publish_queues == other.publish_queues
            and self.subscribe_queues == other.subscribe_queues
            and self.provisional == other.provisional
        )

    def next_index(self) -> int:
        """The round-robin counter, one further."""
        self._next += 1
        return self._next

    def continue_from(self, other: "TopicRoute") -> None:
        """Go on where the round robin of a former route stands."""
        self._next = other._next

    def next_queue(self, last_broker: str | None = None) -> MessageQueue:
        """The next queue to write to; if possible not one of the broker that just failed."""
        queues = self.publish_queues
        if last_broker is not None:
            for _ in queues:
                queue = queues[self.next_index() % len(queues)]
                if queue.broker_name != last_broker:
                    return queue
        return queues[self.next_index() % len(queues)]

    def write_queue_count(self, broker_name: str) -> int:
        """How many queues of the broker can be written to; 0 for an unknown broker."""
        for queue_data in self.data.queue_datas:
            if queue_data.broker_name == broker_name:
                return queue_data.write_queue_nums
        return 0


class RouteTable:
    """All routes in use, and the addresses of the brokers in them."""

    def __init__(self, look_up: Callable[[str], Awaitable[TopicRouteData | None]]) -> None:
        self._look_up = look_up
        self._routes: dict[str, TopicRoute] = {}
        self._brokers: dict[str, dict[int, str]] = {}
        self._running: dict[str, asyncio.Task[Any]] = {}
        self.changed: list[Callable[[TopicRoute], None]] = []
        """Called after a topic's route has changed."""

    def __repr__(self) -> str:
        return f"<RouteTable topics={list(self._routes)} brokers={self._brokers}>"

    def get(self, topic: str) -> TopicRoute | None:
        """The route as last seen."""
        return self._routes.get(topic)

    def topics(self) -> list[str]:
        """Topics with a route."""
        return list(self._routes)

    def forget(self, topic: str) -> None:
        """Drop the route: the topic is not used any more."""
        self._routes.pop(topic, None)

    async def refresh(self, topic: str) -> TopicRoute | None:
        """The route as a name server gives it now; what was known stays when it gives none.

        Raises:
            NameServersUnreachableError: No name server answered.
        """
        return await self._once(f"route of {topic}", lambda: self._refresh(topic))

    async def _refresh(self, topic: str) -> TopicRoute | None:
        data = await self._look_up(topic)
        if data is not None:
            self.put(TopicRoute(topic, data))
        return self._routes.get(topic)

    async def _once(self, name: str, look_up: Callable[[], Coroutine[object, object, R]]) -> R:
        """Run one look-up of that name at a time; who wants it shares it, and cannot cancel it for others."""
        task: asyncio.Task[R] | None = self._running.get(name)
        if task is None:
            task = self._running[name] = asyncio.create_task(look_up(), name=name)
            task.add_done_callback(self._finished)
        return await asyncio.shield(task)

    def _finished(self, task: asyncio.Task[R]) -> None:
        self._running.pop(task.get_name(), None)
        if not task.cancelled():
            task.exception()  # taken, also when every waiter has given up

    async def close(self) -> None:
        """End look-ups under way."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def refresh_all(self, topics: Iterable[str]) -> None:
        """Refresh each of the topics; failures are logged, what is known stays."""
        for topic in topics:
            try:
                await self.refresh(topic)
            except RemotingError as error:
                _LOG.log(
                    logging.DEBUG if is_retry_topic(topic) else logging.WARNING,
                    "route of topic %s not refreshed: %s",
                    topic,
                    error,
                )

    async def for_publishing(self, topic: str, create_topic_key: str, default_queues: int) -> TopicRoute:
        """A route with queues to write to: the topic's own, or one made from the default topic's.

        Raises:
            TopicNotFoundError: Neither exists, or the topic is not writable.
            NameServersUnreachableError: No name server answered.
        """
        route = self._routes.get(topic)
        if route is None or not route.publish_queues:
            route = await self.refresh(topic)
        if route is None:
            route = await self._once(
                f"provisional {topic}", lambda: self._provide(topic, create_topic_key, default_queues)
            )
        if not route.publish_queues:
            raise TopicNotFoundError(topic, "none of its queues can be written to")
        return route

    async def _provide(self, topic: str, create_topic_key: str, default_queues: int) -> TopicRoute:
        default = await self._look_up(create_topic_key)
        if default is None:
            raise TopicNotFoundError(
                topic,
                f"it does not exist, and no broker creates topics by itself (no route of {create_topic_key})",
            )
        for queue_data in default.queue_datas:
            count = min(default_queues, queue_data.read_queue_nums)
            queue_data.read_queue_nums = queue_data.write_queue_nums = count
        route = TopicRoute(topic, default, provisional=True)
        self.put(route)
        return route

    def put(self, route: TopicRoute) -> None:
        """Take over a route, and the broker addresses in it."""
        for broker in route.data.broker_datas:
            self._brokers[broker.broker_name] = broker.broker_addrs
        former = self._routes.get(route.topic)
        if former is not None:
            route.continue_from(former)
        self._routes[route.topic] = route
        if former is None or not route.same_as(former):
            _LOG.info("route of topic %s: %r", route.topic, route)
            for callback in self.changed:
                callback(route)

    # Brokers

    def master_address(self, broker_name: str) -> str | None:
        """Where the broker's master is."""
        addresses = self._brokers.get(broker_name)
        return addresses.get(MASTER_ID) if addresses else None

    def address(self, broker_name: str, broker_id: int) -> tuple[str, int] | None:
        """Address and id of that member of the broker; of another member if that one is gone."""
        addresses = self._brokers.get(broker_name)
        if not addresses:
            return None
        if broker_id in addresses:
            return addresses[broker_id], broker_id
        if broker_id != MASTER_ID and broker_id + 1 in addresses:
            return addresses[broker_id + 1], broker_id + 1
        other = next(iter(addresses))
        return addresses[other], other

    def any_broker_of(self, topic: str) -> str | None:
        """Address of some broker of the topic, its master if it has one."""
        route = self._routes.get(topic)
        if route is None or not route.data.broker_datas:
            return None
        addresses = random.choice(route.data.broker_datas).broker_addrs
        return addresses.get(MASTER_ID) or next(iter(addresses.values()), None)

    def broker_addresses(self, *, masters_only: bool) -> list[str]:
        """Addresses of all brokers known."""
        return list(
            dict.fromkeys(
                address
                for addresses in self._brokers.values()
                for broker_id, address in addresses.items()
                if broker_id == MASTER_ID or not masters_only
            )
        )

    def drop_offline_brokers(self) -> list[str]:
        """Forget addresses that no route names any more; returns them."""
        alive = {
            address
            for route in self._routes.values()
            for broker in route.data.broker_datas
            for address in broker.broker_addrs.values()
        }
        gone = [address for address in self.broker_addresses(masters_only=False) if address not in alive]
        for broker_name, addresses in list(self._brokers.items()):
            kept = {broker_id: address for broker_id, address in addresses.items() if address in alive}
            if kept:
                self._brokers[broker_name] = kept
            else:
                del self._brokers[broker_name]
        return gone


def vip_address(address: str) -> str:
    """The broker's second port, on which it serves what must not wait behind pulls."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) - 2}"


def _configured_queues(topic: str, order_topic_conf: str) -> tuple[MessageQueue, ...]:
    queues: list[MessageQueue] = []
    for part in order_topic_conf.split(";"):
        broker_name, colon, count = part.strip().rpartition(":")
        if colon and count.isdecimal():
            queues.extend(MessageQueue(topic, broker_name, number) for number in range(int(count)))
        elif part.strip():
            _LOG.warning("order configuration of topic %s: %r is not broker:count", topic, part)
    return tuple(queues)


def _writable_queues(topic: str, data: TopicRouteData) -> tuple[MessageQueue, ...]:
    masters = {broker.broker_name for broker in data.broker_datas if MASTER_ID in broker.broker_addrs}
    return tuple(
        MessageQueue(topic, queue_data.broker_name, number)
        for queue_data in sorted(data.queue_datas, key=_broker_name)
        if queue_data.perm & PERM_WRITE and queue_data.broker_name in masters
        for number in range(queue_data.write_queue_nums)
    )


def _readable_queues(topic: str, data: TopicRouteData) -> tuple[MessageQueue, ...]:
    return tuple(
        sorted(
            MessageQueue(topic, queue_data.broker_name, number)
            for queue_data in data.queue_datas
            if queue_data.perm & PERM_READ
            for number in range(queue_data.read_queue_nums)
        )
    )


def _broker_name(queue_data: QueueData) -> str:
    return queue_data.broker_name
