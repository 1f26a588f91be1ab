"""One send: its route, its attempts, its end.

::

    an attempt failed because                    send           send_async     broker isolated (faults)
    no connection, connection lost, no answer    next broker    next broker    yes
    too many requests                            next broker    next broker    no
    answer in `retry_response_codes`             next broker    given up       yes
    any other answer (SYSTEM_BUSY, …)            given up       given up       yes

A message whose queue is fixed, by name or by a selector, has one attempt in `send`, and further ones in
`send_async` go to the same queue: order stands above delivery. The time limit covers all attempts together.
"""

import asyncio
from collections.abc import Callable

from rocket_client.connection.client import RocketClient
from rocket_client.connection.routes import vip_address
from rocket_client.core.faults import FaultTable
from rocket_client.core.outgoing import Outgoing, OutgoingMessages
from rocket_client.core.send_attempts import SendAttempts
from rocket_client.core.send_result import STATUS_OF_RESPONSE, SendResult, SendStatus
from rocket_client.core.topic_route import TopicRoute
from rocket_client.errors import SendError, SendTimeoutError
from rocket_client.settings import ProducerSettings
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import ConnectError, RemotingError, ResponseError, TooManyRequests
from rocket_remoting.wire.headers import SendMessageResponseHeader
from rocket_remoting.wire.message import MessageQueue

ChooseQueue = Callable[[TopicRoute], MessageQueue]


class Sender:
    """Sends under one producer's settings."""

    def __init__(self, client: RocketClient, settings: ProducerSettings, outgoing: OutgoingMessages) -> None:
        self._client = client
        self._settings = settings
        self._outgoing = outgoing
        self._vip = settings.vip_channel_enabled
        self._namespace = outgoing.namespace
        self._now = asyncio.get_running_loop().time
        self._faults: FaultTable | None = None
        if settings.send_latency_fault_enable:
            self._faults = FaultTable(lambda: self._now() * 1000)
        self._under_way = 0
        self._idle: asyncio.Future[None] | None = None
        self.topics: dict[str, None] = {}
        """Topics sent to, to be kept up to date."""

    def __repr__(self) -> str:
        return f"<Sender to {list(self.topics)}>"

    async def send(
        self, outgoing: Outgoing, choose: ChooseQueue | None, limit: float, *, waits: bool
    ) -> SendResult:
        """The message is stored.

        Args:
            outgoing: What to send.
            choose: Fixes the queue; None for round robin.
            limit: Seconds for everything.
            waits: Whether by the rules of `send`, or by those of `send_async`.

        Raises:
            TopicNotFoundError: There is no such topic, and none is created.
            SendError: No broker took it.
        """
        self._under_way += 1
        try:
            deadline = self._now() + limit
            route = self._client.routes.get(outgoing.topic)
            if route is None or not route.publish_queues or outgoing.topic not in self.topics:
                route = await self.route_within(outgoing.topic, limit)
            fixed = choose(route) if choose is not None else None
            attempts = SendAttempts(outgoing.topic, limit)
            for _ in range(self._most_attempts(fixed is not None, waits)):
                begun = self._now()
                if begun >= deadline:
                    break
                target = fixed or self.next_queue(route, attempts.last_broker)
                attempts.brokers.append(target.broker_name)
                try:
                    result = await self._send_to(target, outgoing, begun, deadline)
                except RemotingError as error:
                    isolation = not isinstance(error, TooManyRequests)
                    self._note(target.broker_name, begun, isolation=isolation)
                    if attempts.is_final(
                        error, self._settings.retry_response_codes if waits else frozenset()
                    ):
                        break
                else:
                    self._note(target.broker_name, begun, isolation=False)
                    if result.status is SendStatus.SEND_OK or not waits or not self._tries_others:
                        return result
                    attempts.keep(result)
            return attempts.conclude(self._now() >= deadline)
        finally:
            self._under_way -= 1
            if self._idle is not None and not self._under_way and not self._idle.done():
                self._idle.set_result(None)

    async def idle(self) -> None:
        """Return when no send waits for its broker's answer."""
        while self._under_way:
            if self._idle is None or self._idle.done():
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._idle,))

    async def send_oneway(self, outgoing: Outgoing, choose: ChooseQueue | None, limit: float) -> None:
        """The message is on its way.

        Raises:
            TopicNotFoundError: There is no such topic, and none is created.
            SendError: There is no connection to the broker.
        """
        deadline = self._now() + limit
        route = await self.route_within(outgoing.topic, limit)
        target = choose(route) if choose is not None else self.next_queue(route)
        header = self._outgoing.header(outgoing, target.broker_name, target.queue_id)
        try:
            connection = await self._connection(target.broker_name, outgoing.topic, deadline)
            await self._drained(connection, deadline)
            connection.invoke_oneway(outgoing.code, header, outgoing.body)
        except RemotingError as error:
            raise SendError(outgoing.topic, [target.broker_name], [error]) from error

    async def route(self, topic: str) -> TopicRoute:
        """Where the topic can be written; it is kept up to date from now on."""
        self.topics[topic] = None
        route = await self._client.routes.for_publishing(
            topic, self._settings.create_topic_key, self._settings.default_topic_queue_nums
        )
        if route.provisional:
            # The first message makes the topic; then it soon has a route of its own.
            self._client.search_routes()
        return route

    async def route_within(self, topic: str, limit: float) -> TopicRoute:
        """`route`, or `SendTimeoutError` after that many seconds."""
        try:
            async with asyncio.timeout(limit):
                return await self.route(topic)
        except TimeoutError as error:
            raise SendTimeoutError(topic, (), (), limit) from error

    def next_queue(self, route: TopicRoute, last_broker: str | None = None) -> MessageQueue:
        """The next queue in turn; after a failure one of another broker, if avoiding faults one that answers."""
        if self._faults is None:
            return route.next_queue(last_broker)
        queues, start = route.publish_queues, route.next_index()
        for step in range(len(queues)):
            queue = queues[(start + step) % len(queues)]
            if self._faults.is_available(queue.broker_name):
                return queue
        best = self._faults.pick_one_at_least()
        if best is not None:
            count = route.write_queue_count(best)
            if count > 0:
                return MessageQueue(route.topic, best, route.next_index() % count)
            self._faults.remove(best)
        return route.next_queue()

    @property
    def _tries_others(self) -> bool:
        return self._settings.retry_another_broker_when_not_store_ok

    def _most_attempts(self, is_fixed: bool, waits: bool) -> int:
        if not waits:
            return 1 + self._settings.retry_times_when_send_async_failed
        return 1 if is_fixed else 1 + self._settings.retry_times_when_send_failed

    async def _send_to(
        self, target: MessageQueue, outgoing: Outgoing, begun: float, deadline: float
    ) -> SendResult:
        broker_name = target.broker_name
        address = self._client.routes.master_address(broker_name)
        if address is not None and self._vip:
            address = vip_address(address)
        connection = self._client.brokers.get(address) if address is not None else None
        if connection is None:
            connection = await self._connection(broker_name, outgoing.topic, deadline)
            begun = self._now()
        if connection.is_stalled:
            await self._drained(connection, deadline)
            begun = self._now()
        header = self._outgoing.header(outgoing, broker_name, target.queue_id)
        response = await connection.invoke_async(
            outgoing.code, header, outgoing.body, timeout=deadline - begun
        )
        return self._result(response, outgoing, target, connection)

    async def _connection(self, broker_name: str, topic: str, deadline: float) -> Connection:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._client.broker(broker_name, topic, vip=self._vip)
        except TimeoutError as error:
            raise ConnectError(broker_name, "not in the time given to the send") from error

    async def _drained(self, connection: Connection, deadline: float) -> None:
        """Hold back what a broker that reads nothing would only pile up here."""
        try:
            async with asyncio.timeout_at(deadline):
                while (
                    connection.is_stalled and not connection.is_closed
                ):  # others that waited may have been first
                    await connection.drain()
        except TimeoutError as error:
            raise TooManyRequests(f"{connection.remote_address} reads nothing of what it was sent") from error

    def _note(self, broker_name: str, begun: float, *, isolation: bool) -> None:
        if self._faults is not None:
            self._faults.update(broker_name, (self._now() - begun) * 1000, isolation=isolation)

    def _result(
        self, response: RemotingCommand, outgoing: Outgoing, target: MessageQueue, connection: Connection
    ) -> SendResult:
        status = STATUS_OF_RESPONSE.get(response.code)
        if status is None:
            raise ResponseError(
                response.code, response.remark, address=connection.remote_address, request_code=outgoing.code
            )
        header = response.header(SendMessageResponseHeader)
        if header.queue_id != target.queue_id:
            target = MessageQueue(outgoing.topic, target.broker_name, header.queue_id)
        return SendResult(
            status,
            outgoing.msg_id,
            header.msg_id,
            self._namespace.unwrap_queue(target),
            header.queue_offset,
            header.transaction_id,
        )
