"""Routes: on which brokers a topic's queues are, and at which addresses those brokers are.

A route once known stays in use until a name server gives another one, also while no name server answers.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

from rocket_client.core.topic_route import MASTER_ID, TopicRoute
from rocket_client.errors import NameServersUnreachableError, TopicNotFoundError
from rocket_remoting.wire.bodies import TopicRouteData
from rocket_remoting.wire.errors import RemotingError

logger = logging.getLogger(__name__)

R = TypeVar("R")

_NAME_SERVERS = "name servers"


class RouteTable:
    """All routes in use, and the addresses of the brokers in them."""

    def __init__(self, look_up: Callable[[str], Awaitable[TopicRouteData | None]]) -> None:
        self._look_up = look_up
        self._routes: dict[str, TopicRoute] = {}
        self._brokers: dict[str, dict[int, str]] = {}
        self._running: dict[str, asyncio.Task[Any]] = {}
        self._in_trouble: set[str] = set()
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
            except NameServersUnreachableError as error:
                self._note(_NAME_SERVERS, "routes stay as they are: %s", error)
                return  # the next topic would ask in vain as well
            except RemotingError as error:
                self._note(topic, "a route stays as it is: %s", error)
            else:
                self._in_trouble -= {topic, _NAME_SERVERS}

    def _note(self, trouble: str, text: str, error: RemotingError) -> None:
        """Log a trouble the first time."""
        level = logging.DEBUG if trouble in self._in_trouble else logging.WARNING
        self._in_trouble.add(trouble)
        logger.log(level, text, error)

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
            logger.info("route of topic %s: %r", route.topic, route)
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
