"""What all administrative requests need: the client, its start and end, and the addresses of brokers."""

from collections.abc import Iterable
from types import TracebackType
from typing import Self

from rocket_client.connection import shared_clients
from rocket_client.connection.client import RocketClient
from rocket_client.core import name_server_calls
from rocket_client.core.state import Lifecycle
from rocket_client.core.topic_route import MASTER_ID, TopicRoute
from rocket_client.errors import NoBrokerError, TopicNotFoundError
from rocket_client.settings import ClientSettings
from rocket_remoting.clock import Clock
from rocket_remoting.transports.transport import Transport
from rocket_remoting.wire.bodies import ClusterInfo
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.ext_fields import Header

__all__ = ["AdminRequests"]


class AdminRequests:
    """The base of the requests of each kind; `Admin` documents its arguments.

    Attributes:
        settings: Name servers and timeouts.
        transport: The transport of connections; None for TCP.
        clock: The clock of timestamps; None for the system clock.
    """

    def __init__(
        self, settings: ClientSettings, *, transport: Transport | None = None, clock: Clock | None = None
    ) -> None:
        self.settings = settings
        self.transport = transport
        self.clock = clock
        self._life = Lifecycle("admin")
        self._client: RocketClient

    def __repr__(self) -> str:
        return f"<Admin of {self.settings.name_servers_text}, {self._life.state.value}>"

    async def start(self) -> None:
        """Start the admin. Connections are opened by the first request that needs them.

        Raises:
            ClientStateError: The admin was started before.
            NameServersUnreachableError: The addresses of the name servers could not be fetched.
        """
        self._life.begin()
        self._client = shared_clients.acquire(
            self.settings,
            self.transport,
            self.clock,
            instance_name=self.settings.instance_name,
            is_free=lambda client: True,
        )
        self._client.admins += 1
        try:
            await self._client.name_servers.find()
        except BaseException:
            await self._leave()
            raise
        self._life.succeed()

    async def shutdown(self) -> None:
        """Close the connections that no other member of this process uses."""
        if self._life.end():
            await self._leave()

    async def _leave(self) -> None:
        self._client.admins -= 1
        await shared_clients.release(self._client)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()

    async def cluster_info(self) -> ClusterInfo:
        """Return the clusters and brokers that the name servers know."""
        self._life.require_running()
        return await self._client.name_servers.call(name_server_calls.cluster_info())

    async def masters(self, broker_names: Iterable[str] | None = None) -> dict[str, str]:
        """Return the addresses of masters by broker name; of all brokers if ``broker_names`` is None.

        Raises:
            NoBrokerError: No master is registered.
            ValueError: No master of a named broker is registered.
        """
        table = (await self.cluster_info()).broker_addr_table
        masters = {name: data.broker_addrs[MASTER_ID] for name, data in table.items() if MASTER_ID in data.broker_addrs}
        if broker_names is None:
            if not masters:
                raise NoBrokerError(self._client.name_servers.addresses)
            return masters
        wanted = list(broker_names)
        missing = [name for name in wanted if name not in masters]
        if missing:
            raise ValueError(f"no master of {', '.join(missing)} is known; there are {', '.join(masters) or 'none'}")
        return {name: masters[name] for name in wanted}

    async def topic_route(self, topic: str) -> TopicRoute:
        """Return the topic's route from a name server.

        Raises:
            TopicNotFoundError: The topic does not exist.
        """
        self._life.require_running()
        data = await self._client.name_servers.topic_route(topic)
        if data is None:
            raise TopicNotFoundError(topic, "it does not exist")
        route = TopicRoute(topic, data)
        self._client.routes.put(route)
        return route

    async def _invoke_name_servers(self, code: RequestCode, header: Header) -> list[RemotingCommand]:
        self._life.require_running()
        name_servers = self._client.name_servers
        return [await name_servers.invoke(address, code, header) for address in name_servers.addresses]

    async def _invoke_masters(
        self,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        *,
        brokers: Iterable[str] | None = None,
    ) -> None:
        for address in (await self.masters(brokers)).values():
            await self._client.requests.invoke(address, code, header, body)

    async def _brokers_of(self, topic: str) -> list[str]:
        """Return an address of each broker that has queues of the topic.

        Raises:
            TopicNotFoundError: The topic does not exist.
        """
        route = await self.topic_route(topic)
        addresses: list[str] = []
        for broker in route.data.broker_datas:
            found = self._client.routes.address(broker.broker_name, MASTER_ID)
            if found is not None:
                addresses.append(found[0])
        return addresses

    async def _ensure_route(self, topic: str) -> None:
        self._life.require_running()
        if self._client.routes.get(topic) is None:
            await self.topic_route(topic)
