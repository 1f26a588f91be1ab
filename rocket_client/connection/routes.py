"""The routes of an asyncio client, each looked up once at a time.

A known route stays in use until a name server returns another one, even while no name server answers.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

from rocket_client.core.routes import Routes
from rocket_client.core.topic_route import TopicRoute
from rocket_client.errors import NameServersUnreachableError
from rocket_remoting.wire.bodies import TopicRouteData
from rocket_remoting.wire.errors import RemotingError

logger = logging.getLogger(__name__)

R = TypeVar("R")

_NAME_SERVERS = "name servers"


class RouteTable(Routes):
    """The routes that a client knows.

    Args:
        look_up: Asks a name server for a topic's route; returns None if the topic does not exist.
    """

    def __init__(self, look_up: Callable[[str], Awaitable[TopicRouteData | None]]) -> None:
        super().__init__()
        self._look_up = look_up
        self._running: dict[str, asyncio.Task[Any]] = {}
        self._failing: set[str] = set()

    async def refresh(self, topic: str) -> TopicRoute | None:
        """Look the topic's route up and return it; return the known route, or None, if the name server has none.

        Raises:
            NameServersUnreachableError: No name server answered.
        """
        return await self._share_look_up(f"route of {topic}", lambda: self._refresh(topic))

    async def _refresh(self, topic: str) -> TopicRoute | None:
        data = await self._look_up(topic)
        if data is not None:
            self.put(TopicRoute(topic, data))
        return self.get(topic)

    async def _share_look_up(self, name: str, look_up: Callable[[], Coroutine[object, object, R]]) -> R:
        """Run one look-up of this name at a time. Callers share its result; cancelling one does not end the look-up."""
        task: asyncio.Task[R] | None = self._running.get(name)
        if task is None:
            task = self._running[name] = asyncio.create_task(look_up(), name=name)
            task.add_done_callback(self._finished)
        return await asyncio.shield(task)

    def _finished(self, task: asyncio.Task[R]) -> None:
        self._running.pop(task.get_name(), None)
        if not task.cancelled():
            task.exception()  # retrieved even if every caller was cancelled, so that asyncio does not log it

    async def close(self) -> None:
        """Cancel the look-ups under way."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def refresh_all(self, topics: Iterable[str]) -> None:
        """Look up the routes of the topics; log failures and keep the known routes."""
        for topic in topics:
            try:
                await self.refresh(topic)
            except NameServersUnreachableError as error:
                self._log_failure(_NAME_SERVERS, "routes stay as they are: %s", error)
                return  # the next look-up would fail as well
            except RemotingError as error:
                self._log_failure(topic, "a route stays as it is: %s", error)
            else:
                self._failing -= {topic, _NAME_SERVERS}

    def _log_failure(self, cause: str, text: str, error: RemotingError) -> None:
        """Log a failure: as a warning the first time, then at debug level."""
        level = logging.DEBUG if cause in self._failing else logging.WARNING
        self._failing.add(cause)
        logger.log(level, text, error)

    async def for_publishing(self, topic: str, create_topic_key: str, default_queues: int) -> TopicRoute:
        """Return a route with writable queues: the topic's own, or a provisional one made from the default topic's.

        Raises:
            TopicNotFoundError: Neither route exists, or the topic is not writable.
            NameServersUnreachableError: No name server answered.
        """
        route = self.get(topic)
        if route is None or not route.publish_queues:
            route = await self.refresh(topic)
        if route is None:
            route = await self._share_look_up(
                f"provisional {topic}", lambda: self._look_up_default(topic, create_topic_key, default_queues)
            )
        return route.require_writable()

    async def _look_up_default(self, topic: str, create_topic_key: str, default_queues: int) -> TopicRoute:
        default = await self._look_up(create_topic_key)
        route = TopicRoute.from_default(topic, default, create_topic_key, default_queues)
        self.put(route)
        return route


def vip_address(address: str) -> str:
    """Return the address of the broker's second port (VIP channel), where sends do not wait behind pulls."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) - 2}"
