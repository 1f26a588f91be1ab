"""The base of producers and consumers: a member of a group, with a lifecycle and a client that it may share."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from rocket_client.connection import shared_clients
from rocket_client.connection.client import RocketClient, waiting_task
from rocket_client.core.state import Lifecycle, ServiceState
from rocket_client.namespace import Namespace
from rocket_client.settings import ClientSettings
from rocket_remoting.clock import Clock, SystemClock
from rocket_remoting.transports.transport import Transport
from rocket_remoting.wire.topics import DEFAULT_CONSUMER_GROUP, DEFAULT_PRODUCER_GROUP, validate_group

S = TypeVar("S", bound=ClientSettings)


class GroupMember(ABC, Generic[S]):
    """A producer or a consumer of a group.

    Args:
        group: The group's name.
        settings: Name servers, namespace, timeouts, and the settings of the kind of member.
        transport: The transport of connections; TCP by default.
        clock: The clock of timestamps; the system clock by default.

    Raises:
        ValueError: The group's name or the namespace is illegal, or the group is a default group of Apache's clients.
    """

    _KIND: str
    _client: RocketClient

    def __init__(
        self, group: str, settings: S, *, transport: Transport | None = None, clock: Clock | None = None
    ) -> None:
        if group in (DEFAULT_PRODUCER_GROUP, DEFAULT_CONSUMER_GROUP):
            raise ValueError(f"{group} is RocketMQ's default group, which every client may use: choose another name")
        self._namespace = Namespace(settings.namespace)
        group = self._namespace.wrap(group)
        validate_group(group)
        self.group = group
        """The group's name as brokers know it, the namespace included."""
        self.settings = settings
        self._transport = transport
        self._clock = clock or SystemClock()
        self._life = Lifecycle(f"{self._KIND} of group {group}")
        self._leaving: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.group}, {self._life.state.value}>"

    @property
    def state(self) -> ServiceState:
        """The state of the lifecycle."""
        return self._life.state

    @property
    def client_id(self) -> str:
        """The id by which brokers know this member's client.

        Raises:
            ClientStateError: The member is not running.
        """
        self._life.require_running()
        return self._client.client_id

    def _acquire(self, instance_name: str | None, is_free: Callable[[RocketClient], bool]) -> RocketClient:
        return shared_clients.acquire(
            self.settings,
            self._transport,
            None if isinstance(self._clock, SystemClock) else self._clock,
            instance_name=instance_name,
            is_free=is_free,
        )

    @abstractmethod
    async def start(self) -> None:
        """Start the member; it is running when this returns."""

    @abstractmethod
    async def shutdown(self) -> None:
        """Leave the group. Cancelling this call stops the waiting, not the shutdown; a further call waits again."""

    def _start_leaving(self, leaving: Coroutine[Any, Any, None]) -> None:
        """Leave in a task of its own, so that cancelling the caller cannot leave a half-stopped member."""
        context = copy_context()
        context.run(waiting_task.set, asyncio.current_task())
        self._leaving = asyncio.create_task(leaving, name=f"{self._KIND} of {self.group} leaves", context=context)

    async def _wait_until_left(self) -> None:
        """Wait until the member has left."""
        if self._leaving is not None:
            await asyncio.shield(self._leaving)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()
