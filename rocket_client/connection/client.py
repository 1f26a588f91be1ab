"""The client that the producers, consumers and admins of one client id share: connections, routes, heartbeats.

::

    every 30 s, first after 10 ms    look up the routes of all topics in use
    every 30 s, first after  1 s     forget brokers that no route has; send a heartbeat to all others
    every  2 min                     fetch the addresses of the name servers, if they are not configured
    every  5 s, first after 10 s     commit the settled offsets of consumers
    new connection to a broker       send a heartbeat first: a restarted broker must know the members before they pull
    topic without a route, or a      look routes up after 0.5 s, 1 s, 2 s …, up to the interval of 30 s, see
    broker that was lost             `route_search`

All work runs on one event loop, by its time.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextvars import ContextVar
from typing import Any

from rocket_client.connection.broker_requests import BrokerRequests
from rocket_client.connection.connections import Connections
from rocket_client.connection.name_servers import NameServers
from rocket_client.connection.remoting_processor import (
    ClientRemotingProcessor,
    ConsumerMember,
    ProducerMember,
)
from rocket_client.connection.request_reply import Replies
from rocket_client.connection.route_search import Doubt, RouteSearch
from rocket_client.connection.routes import RouteTable, vip_address
from rocket_client.core.address_server import AddressServer
from rocket_client.errors import BrokerNotFoundError, GroupInUseError
from rocket_client.settings import ClientSettings
from rocket_remoting.clock import Clock
from rocket_remoting.session.connection import Connection
from rocket_remoting.tls.contexts import client_context
from rocket_remoting.transports.transport import Transport
from rocket_remoting.wire.bodies import HeartbeatData, ProducerData, encode_body
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.errors import RemotingError
from rocket_remoting.wire.headers import UnregisterClientRequestHeader
from rocket_remoting.wire.message_id import UniqueIdGenerator

logger = logging.getLogger(__name__)

FIRST_ROUTE_REFRESH = 0.01
FIRST_HEARTBEAT = 1.0
FIRST_PERSIST = 10.0


class RocketClient:
    """One client id on one event loop. Made and shared by `rocket_client.connection.shared_clients.acquire`."""

    def __init__(self, client_id: str, settings: ClientSettings, transport: Transport, clock: Clock) -> None:
        self.client_id = client_id
        self.clock = clock
        self.unique_ids = UniqueIdGenerator(clock=clock)
        self.producers: dict[str, ProducerMember] = {}
        self.consumers: dict[str, ConsumerMember] = {}
        self.replies = Replies()
        self.admins = 0
        self.started_at_ms = clock.now_ms()
        self._timeout = settings.request_timeout.total_seconds()
        self._poll_interval = settings.poll_name_server_interval.total_seconds()
        self._heartbeat_interval = settings.heartbeat_broker_interval.total_seconds()
        self._persist_interval = settings.persist_consumer_offset_interval.total_seconds()
        connect_timeout = settings.connect_timeout.total_seconds()
        tls, keys = settings.tls, settings.credentials
        if tls is not None:
            client_context(tls)  # a file that cannot be used fails the start
        self._name_server_connections = Connections(transport, None, connect_timeout, tls=tls, credentials=keys)
        self._address_server = AddressServer.of(settings)
        self._refresh_interval = settings.name_server_refresh_interval.total_seconds()
        self.name_servers = NameServers(
            settings.name_server_addresses, self._address_server, self._name_server_connections, self._timeout
        )
        processor = ClientRemotingProcessor(self.producers, self.consumers, self.replies, self.name_servers, self.spawn)
        self.brokers = Connections(
            transport, processor.handle, connect_timeout, self._introduce, self._lost, tls=tls, credentials=keys
        )
        self.routes = RouteTable(self.name_servers.topic_route)
        self.routes.master_moved.append(self._master_lost)
        self.requests = BrokerRequests(self.routes, self.brokers, self._timeout)
        self._tasks: set[asyncio.Task[None]] = set()
        self._search = RouteSearch(
            self.routes,
            self.brokers,
            self.topics_in_use,
            found=self.heartbeat,
            interval=self._poll_interval,
            spawn=self.spawn,
        )

    def __repr__(self) -> str:
        return (
            f"<RocketClient {self.client_id} producers={list(self.producers)}"
            f" consumers={list(self.consumers)} {self.name_servers!r}>"
        )

    # Members

    @property
    def is_used(self) -> bool:
        """Whether a producer, a consumer or an admin is registered."""
        return bool(self.producers or self.consumers or self.admins)

    def register_producer(self, producer: ProducerMember) -> None:
        """Add a producer; brokers learn of its group by the next heartbeat.

        Raises:
            GroupInUseError: Another producer of this client has the group.
        """
        if producer.group in self.producers:
            raise GroupInUseError("producer", producer.group, self.client_id)
        self.producers[producer.group] = producer

    def register_consumer(self, consumer: ConsumerMember) -> None:
        """Add a consumer; brokers learn of its group by the next heartbeat.

        Raises:
            GroupInUseError: Another consumer of this client has the group.
        """
        if consumer.group in self.consumers:
            raise GroupInUseError("consumer", consumer.group, self.client_id)
        self.consumers[consumer.group] = consumer

    async def unregister_producer(self, group: str) -> None:
        """Remove a producer and tell the brokers."""
        if self.producers.pop(group, None) is not None:
            await self._unregister(UnregisterClientRequestHeader(client_id=self.client_id, producer_group=group))

    async def unregister_consumer(self, group: str) -> None:
        """Remove a consumer and tell the brokers, which tell the group's other members."""
        if self.consumers.pop(group, None) is not None:
            await self._unregister(UnregisterClientRequestHeader(client_id=self.client_id, consumer_group=group))

    async def _unregister(self, header: UnregisterClientRequestHeader) -> None:
        async def unregister(address: str) -> None:
            try:
                await self.requests.invoke(address, RequestCode.UNREGISTER_CLIENT, header)
            except RemotingError as error:
                logger.info("could not unregister from broker %s, client %s: %s", address, self.client_id, error)

        await asyncio.gather(*(unregister(address) for address in self.brokers.addresses()))

    # Brokers

    async def broker(self, broker_name: str, topic: str, *, vip: bool = False) -> Connection:
        """Return a connection to the broker's master; with `vip` to its second port.

        Raises:
            BrokerNotFoundError: No route has the broker's address, even after a refresh of the topic's route.
            ConnectError: The broker cannot be reached.
        """
        address = self.routes.master_address(broker_name)
        if address is None:
            await self.routes.refresh(topic)
            address = self.routes.master_address(broker_name)
            if address is None:
                raise BrokerNotFoundError(broker_name)
        return await self.brokers.to(vip_address(address) if vip else address)

    async def heartbeat(self) -> None:
        """Send every broker a heartbeat with the groups of this client; log failures."""
        if not (self.producers or self.consumers):
            return
        # Slaves serve pulls, so they must know consumers. Producers only send to masters. Apache's MQClientInstance
        # does the same.
        addresses = self.routes.broker_addresses(masters_only=not self.consumers)
        await asyncio.gather(*(self._heartbeat_to(address) for address in addresses))

    async def _heartbeat_to(self, address: str) -> None:
        fresh = self.brokers.get(address) is None
        try:
            connection = await self.brokers.to(address)
            if not fresh:  # a new connection begins with a heartbeat
                await self._heartbeat_over(connection)
        except RemotingError as error:
            logger.info("could not send a heartbeat to broker %s: %s", address, error)

    async def _introduce(self, connection: Connection) -> None:
        """Send the first heartbeat over a new connection."""
        self._search.connected(connection.remote_address)
        await self._heartbeat_over(connection)

    async def _heartbeat_over(self, connection: Connection) -> None:
        if not (self.producers or self.consumers):
            return
        body = HeartbeatData(
            client_id=self.client_id,
            producer_data_set=[ProducerData(group_name=group) for group in self.producers],
            consumer_data_set=[consumer.heartbeat_data() for consumer in self.consumers.values()],
        )
        response = await connection.invoke(RequestCode.HEART_BEAT, None, encode_body(body), timeout=self._timeout)
        if response.code != ResponseCode.SUCCESS:
            logger.warning(
                "broker %s refused the heartbeat with %d: %s",
                connection.remote_address,
                response.code,
                response.remark,
            )

    # Routes

    def topics_in_use(self) -> list[str]:
        """Return the topics that members read or send to."""
        topics: dict[str, None] = {}
        for consumer in self.consumers.values():
            topics.update(dict.fromkeys(consumer.subscribed_topics()))
        for producer in self.producers.values():
            topics.update(dict.fromkeys(producer.publish_topics()))
        return list(topics)

    def search_routes(self) -> None:
        """Look up the routes of topics that have none yet, after 0.5 s and then at doubled intervals."""
        self._search.begin()

    def master_refused(self, broker_name: str) -> None:
        """Look for another master: this one has refused what only a master does."""
        address = self.routes.master_address(broker_name)
        if address is not None:
            self._search.doubt(address, Doubt.REFUSED)

    def _lost(self, address: str) -> None:
        self._search.doubt(address, Doubt.LOST)
        for broker_name in self.routes.masters_at(address):
            self._master_lost(broker_name)

    def _master_lost(self, broker_name: str) -> None:
        for consumer in self.consumers.values():
            consumer.master_lost(broker_name)

    async def _refresh_routes(self) -> None:
        await self.routes.refresh_all(self.topics_in_use())
        self._search.updated()

    async def _maintain_brokers(self) -> None:
        for address in self.routes.drop_offline_brokers():
            logger.info("closing the connection to broker %s: no route has its address any more", address)
            await self.brokers.drop(address)
        await self.heartbeat()

    async def _persist(self) -> None:
        for consumer in list(self.consumers.values()):
            await consumer.persist_offsets()

    # Life

    def start(self) -> None:
        """Start the periodic work."""
        self.every(FIRST_ROUTE_REFRESH, self._poll_interval, self._refresh_routes, "refresh routes")
        self.every(FIRST_HEARTBEAT, self._heartbeat_interval, self._maintain_brokers, "heartbeat")
        self.every(FIRST_PERSIST, self._persist_interval, self._persist, "commit offsets")
        if self._address_server is not None:
            interval = self._refresh_interval
            self.every(interval, interval, self.name_servers.refresh, "refresh name server addresses")

    def every(
        self, first: float, interval: float, action: Callable[[], Awaitable[None]], name: str
    ) -> asyncio.Task[None]:
        """Run an action periodically until the returned task is cancelled or the client closes.

        Args:
            first: Seconds before the first run.
            interval: Seconds between the end of a run and the beginning of the next.
            action: The action; its errors are logged.
            name: The action's name for logs.
        """

        async def run() -> None:
            await asyncio.sleep(first)
            while True:
                try:
                    await action()
                except RemotingError as error:
                    logger.warning("%s: %s failed: %s", self.client_id, name, error)
                except Exception:
                    logger.exception("%s: %s failed", self.client_id, name)
                await asyncio.sleep(interval)

        return self.spawn(run(), name)

    def spawn(self, work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
        """Run a coroutine in a task, which is cancelled when the client closes."""
        task = asyncio.create_task(work, name=f"{name} of {self.client_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """End the periodic work and close all connections."""
        await cancel(self._tasks)
        await self.routes.close()
        await self.brokers.close()
        await self._name_server_connections.close()
        await cancel(self._tasks)  # an attempt to connect that failed meanwhile has begun a search


waiting_task: ContextVar[asyncio.Task[Any] | None] = ContextVar("waiting_task", default=None)
"""The task that waits for the current task's work, such as a listener that shuts its own consumer down."""


async def cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait for their end; spare the current task and the task that waits for it (`waiting_task`)."""
    spared = asyncio.current_task(), waiting_task.get()
    ending = [task for task in tasks if task not in spared]
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)
