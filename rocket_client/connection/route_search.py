"""The search for routes between the periodic updates: of topics without a route, and after a broker was lost.

::

    a topic has no route                    look it up
    a connection to a broker is lost        look up all routes in use, until they have another address, or the broker
    or cannot be opened                     accepts connections again
    a broker refuses what only a master     look up all routes in use, until they have another master
    does (SERVICE_NOT_AVAILABLE)

    after 0.5 s, 1 s, 2 s … up to the interval of the periodic updates

A master that fails is replaced within seconds in a cluster with automatic failover. Apache's client notices that with
its next periodic update, up to 30 s later. While nothing changes, the intervals grow, so that the clients of a broker
that stays away do not load the name servers.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from enum import Enum

from rocket_client.connection.connections import Connections
from rocket_client.connection.routes import RouteTable

logger = logging.getLogger(__name__)

FIRST_SEARCH = 0.5


class Doubt(Enum):
    """Why the routes may be wrong about a broker's address."""

    LOST = "its connection was lost, or cannot be opened"
    REFUSED = "it refuses what only a master does"


class RouteSearch:
    """Looks routes up at growing intervals, while there is a reason.

    Args:
        routes: The routes to look up.
        brokers: The connections to brokers.
        topics_in_use: Returns the topics that members read or send to.
        found: Called in a task after a search has ended a doubt: brokers may have new addresses.
        interval: Seconds between the periodic updates of all routes.
        spawn: Runs a coroutine in a task.
    """

    def __init__(
        self,
        routes: RouteTable,
        brokers: Connections,
        topics_in_use: Callable[[], list[str]],
        *,
        found: Callable[[], Coroutine[object, object, None]],
        interval: float,
        spawn: Callable[[Coroutine[object, object, None], str], asyncio.Task[None]],
    ) -> None:
        self._routes = routes
        self._brokers = brokers
        self._topics_in_use = topics_in_use
        self._found = found
        self._interval = interval
        self._spawn = spawn
        self._task: asyncio.Task[None] | None = None
        self._doubts: dict[str, Doubt] = {}

    def __repr__(self) -> str:
        return f"<RouteSearch, in doubt: {self._doubts}>"

    def begin(self) -> None:
        """Search from now on, with the shortest interval first."""
        if self._task is not None:
            self._task.cancel()
        self._task = self._spawn(self._search(), "search for routes")

    def doubt(self, address: str, reason: Doubt) -> None:
        """Search for another address of the broker; do nothing if the address is in doubt already."""
        if address in self._doubts or address not in self._routes.broker_addresses(masters_only=False):
            return
        self._doubts[address] = reason
        self.begin()

    def connected(self, address: str) -> None:
        """Note a new connection: the next loss of it begins a new search.

        A search that still runs decides by itself: the broker may have come back as a slave, at the same address.
        """
        if self._task is None or self._task.done():
            self._doubts.pop(address, None)

    def updated(self) -> None:
        """Note a periodic update of all routes: brokers that refused may refuse again, and begin a new search."""
        self._resolve()
        self._doubts = {address: reason for address, reason in self._doubts.items() if reason is Doubt.LOST}

    async def _search(self) -> None:
        delay = FIRST_SEARCH
        while delay < self._interval:
            await asyncio.sleep(delay)
            topics = self._topics_in_use()
            if not self._doubts:
                topics = [topic for topic in topics if self._is_missing(topic)]
                if not topics:
                    return
            await self._routes.refresh_all(topics)
            if self._doubts and self._resolve():
                # In a task of its own: it may begin a new search, which ends this one.
                self._spawn(self._found(), "heartbeat to found brokers")
            delay *= 2

    def _resolve(self) -> bool:
        """End the doubts that the routes, or a new connection, have answered; return whether there were any."""
        known = self._routes.broker_addresses(masters_only=False)
        masters = self._routes.broker_addresses(masters_only=True)
        resolved = [
            address
            for address, reason in self._doubts.items()
            if (address not in masters if reason is Doubt.REFUSED else address not in known)
            or (reason is Doubt.LOST and self._brokers.get(address) is not None)
        ]
        for address in resolved:
            del self._doubts[address]
        return bool(resolved)

    def _is_missing(self, topic: str) -> bool:
        route = self._routes.get(topic)
        return route is None or route.provisional
