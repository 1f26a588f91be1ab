"""The known routes of topics, and the addresses of the brokers in them. This module does no I/O."""

import logging
import random
from collections.abc import Callable

from rocket_client.core.topic_route import MASTER_ID, TopicRoute

logger = logging.getLogger(__name__)


class Routes:
    """The routes that a client knows, and the addresses of the brokers in them.

    Attributes:
        changed: Functions that are called with a topic's new route after a change.
        master_moved: Functions that are called with a broker's name when its master has another address.
    """

    def __init__(self) -> None:
        self._routes: dict[str, TopicRoute] = {}
        self._brokers: dict[str, dict[int, str]] = {}
        self.changed: list[Callable[[TopicRoute], None]] = []
        self.master_moved: list[Callable[[str], None]] = []

    def __repr__(self) -> str:
        return f"<{type(self).__name__} topics={list(self._routes)} brokers={self._brokers}>"

    def get(self, topic: str) -> TopicRoute | None:
        """Return the topic's last known route; None if there is none."""
        return self._routes.get(topic)

    def topics(self) -> list[str]:
        """Return the topics with a known route."""
        return list(self._routes)

    def forget(self, topic: str) -> None:
        """Drop the route: the topic is not used any more."""
        self._routes.pop(topic, None)

    def put(self, route: TopicRoute) -> None:
        """Store a route and its broker addresses; call `changed` if the route differs from the former one."""
        for broker in route.data.broker_datas:
            self._note(broker.broker_name, broker.broker_addrs)
        former = self._routes.get(route.topic)
        if former is not None:
            route.continue_from(former)
        self._routes[route.topic] = route
        if former is None or not route.same_as(former):
            logger.info("route of topic %s: %r", route.topic, route)
            for callback in self.changed:
                callback(route)

    def _note(self, broker_name: str, addresses: dict[int, str]) -> None:
        former = self.master_address(broker_name)
        self._brokers[broker_name] = addresses
        if former is not None and MASTER_ID in addresses and addresses[MASTER_ID] != former:
            logger.info("broker %s has another master: %s, before %s", broker_name, addresses[MASTER_ID], former)
            for callback in self.master_moved:
                callback(broker_name)

    def masters_at(self, address: str) -> list[str]:
        """Return the names of the brokers whose master has this address."""
        return [name for name, addresses in self._brokers.items() if addresses.get(MASTER_ID) == address]

    def master_address(self, broker_name: str) -> str | None:
        """Return the address of the broker's master; None if it is not known."""
        addresses = self._brokers.get(broker_name)
        return addresses.get(MASTER_ID) if addresses else None

    def reader_address(self, broker_name: str) -> str | None:
        """Return the address of the broker's master, of a slave if no master is known; None without any of them."""
        found = self.address(broker_name, MASTER_ID)
        return found[0] if found is not None else None

    def other_id(self, broker_name: str, broker_id: int) -> int | None:
        """Return the id of another broker with this name; None if no other one is known."""
        return next((other for other in self._brokers.get(broker_name, ()) if other != broker_id), None)

    def address(self, broker_name: str, broker_id: int) -> tuple[str, int] | None:
        """Return address and id of the broker with this id, or of another one with the same name if it is missing.

        None if no address of the broker name is known.
        """
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
        """Return the address of a random broker of the topic, of its master if there is one; None without a route."""
        route = self._routes.get(topic)
        if route is None or not route.data.broker_datas:
            return None
        addresses = random.choice(route.data.broker_datas).broker_addrs
        return addresses.get(MASTER_ID) or next(iter(addresses.values()), None)

    def broker_addresses(self, *, masters_only: bool) -> list[str]:
        """Return the addresses of all known brokers, or of the masters among them."""
        return list(
            dict.fromkeys(
                address
                for addresses in self._brokers.values()
                for broker_id, address in addresses.items()
                if broker_id == MASTER_ID or not masters_only
            )
        )

    def drop_offline_brokers(self) -> list[str]:
        """Forget the addresses that no route has any more; return them."""
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
