"""The loop of a send: find the route, choose a queue, try, and try again as `send_attempts` says."""

import asyncio
from collections.abc import Callable

from rocket_client.connection.client import RocketClient
from rocket_client.connection.routes import vip_address
from rocket_client.core.outgoing import Outgoing, OutgoingMessages
from rocket_client.core.queue_choice import QueueChoice
from rocket_client.core.send_attempts import SendAttempts, SendRules
from rocket_client.core.send_result import SendResult
from rocket_client.core.topic_route import TopicRoute
from rocket_client.errors import SendError, SendTimeoutError
from rocket_client.producing.shared_requests import SharedRequests
from rocket_client.settings import ProducerSettings
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.errors import ConnectError, RemotingError, ResponseError, TooManyRequests
from rocket_remoting.wire.message import MessageQueue

ChooseQueue = Callable[[TopicRoute], MessageQueue]


class Sender:
    """Sends the messages of one producer, under its settings."""

    def __init__(self, client: RocketClient, settings: ProducerSettings, outgoing: OutgoingMessages) -> None:
        self._client = client
        self._settings = settings
        self._outgoing = outgoing
        self._vip = settings.vip_channel_enabled
        self._now = asyncio.get_running_loop().time
        self._choice = QueueChoice(self._now, avoids_faults=settings.send_latency_fault_enable)
        self._rules = {
            (is_fixed, sync): SendRules.of(settings, is_fixed=is_fixed, sync=sync)
            for is_fixed in (True, False)
            for sync in (True, False)
        }
        self._shared = SharedRequests(outgoing, self._choice, self._ready_connection, self._writable_connection)
        self._under_way = 0
        self._idle: asyncio.Future[None] | None = None
        self.topics: dict[str, None] = {}
        """Topics that were sent to, in that order; their routes are kept up to date."""

    def __repr__(self) -> str:
        return f"<Sender to {list(self.topics)}>"

    def next_queue(self, topic: str) -> MessageQueue | None:
        """Return the queue that is next in turn; None if the topic was not sent to, or has no queue."""
        route = self._client.routes.get(topic)
        if route is None or not route.publish_queues or topic not in self.topics:
            return None
        return self._choice.next_queue(route)

    async def send(
        self,
        outgoing: Outgoing,
        choose: ChooseQueue | None,
        limit: float,
        *,
        sync: bool,
        first: MessageQueue | None = None,
    ) -> SendResult:
        """Send a message and wait until a broker has stored it.

        Args:
            outgoing: The encoded message.
            choose: Function that chooses the queue, which all attempts then use; None for all queues in turn.
            limit: Seconds for the route and all attempts together.
            sync: True for the rules of `send`, False for those of `send_async`.
            first: The queue of the first attempt, if all queues are used in turn; None for the next in turn.

        Raises:
            TopicNotFoundError: The topic does not exist, and brokers do not create it.
            SendError: No broker stored the message.
        """
        self._under_way += 1
        try:
            started = begun = self._now()
            route = self._client.routes.get(outgoing.topic)
            # Another member of the client may have looked the route up. `route` also adds the topic to those of this
            # producer, so that the route is kept up to date when the other member has left.
            if route is None or not route.publish_queues or outgoing.topic not in self.topics:
                route = await self.route_within(outgoing.topic, limit)
                begun = self._now()
            fixed = choose(route) if choose is not None else None
            attempts = SendAttempts(outgoing.topic, self._rules[fixed is not None, sync], started, limit)
            shares = first is None and self._shared.takes(outgoing, fixed, is_only=self._under_way == 1)
            while attempts.may_begin(begun):
                try:
                    if shares:  # the first attempt only
                        shares = False
                        member = self._shared.begin(outgoing, route, fixed, attempts, limit)
                        try:
                            result = await member.answer
                        finally:
                            self._shared.end(member, attempts)
                    else:
                        target = fixed or first or self._choice.next_queue(route, attempts.last_broker)
                        first = None
                        broker_name, deadline = target.broker_name, attempts.deadline
                        attempts.begin(broker_name)
                        connection = self._ready_connection(broker_name) or await self._writable_connection(
                            broker_name, outgoing.topic, deadline
                        )
                        header = self._outgoing.header(outgoing, broker_name, target.queue_id)
                        response = await connection.invoke_async(
                            outgoing.code, header, outgoing.body, timeout=deadline - self._now()
                        )
                        result = self._outgoing.result(outgoing, target, response, connection.remote_address)
                except RemotingError as error:
                    if attempts.brokers:  # there may have been no time to choose one
                        self._choice.note(attempts.brokers[-1], begun, error)
                        if isinstance(error, ResponseError) and error.code == ResponseCode.SERVICE_NOT_AVAILABLE:
                            self._client.master_refused(attempts.brokers[-1])
                    self._note_failed_attempt(outgoing.topic)
                    attempts.failed(error)
                else:
                    self._choice.note(attempts.brokers[-1], begun)
                    if attempts.is_final(result):
                        return result
                begun = self._now()
            return attempts.conclude(begun)
        finally:
            self._under_way -= 1
            if self._idle is not None and not self._under_way and not self._idle.done():
                self._idle.set_result(None)

    def _note_failed_attempt(self, topic: str) -> None:
        """Do nothing: only a sender whose sends are counted needs it."""

    async def wait_idle(self) -> None:
        """Wait until no send is under way, then stop the timer of their time limits."""
        # A loop: another send may begin after the last one has ended and before this task runs.
        while self._under_way:
            if self._idle is None or self._idle.done():
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._idle,))
        self._shared.close()

    async def send_oneway(self, outgoing: Outgoing, choose: ChooseQueue | None, limit: float) -> None:
        """Write a message to the broker's connection; the broker sends no answer.

        Args:
            outgoing: The encoded message.
            choose: Function that chooses the queue; None for all queues in turn.
            limit: Seconds for the route and the connection together.

        Raises:
            TopicNotFoundError: The topic does not exist, and brokers do not create it.
            SendError: There is no connection to the broker, or the broker does not read.
        """
        deadline = self._now() + limit
        route = await self.route_within(outgoing.topic, limit)
        target = choose(route) if choose is not None else self._choice.next_queue(route)
        header = self._outgoing.header(outgoing, target.broker_name, target.queue_id)
        try:
            connection = await self._connection(target.broker_name, outgoing.topic, deadline)
            await self._wait_drained(connection, deadline)
            connection.invoke_oneway(outgoing.code, header, outgoing.body)
        except RemotingError as error:
            raise SendError(outgoing.topic, [target.broker_name], [error]) from error

    async def route(self, topic: str) -> TopicRoute:
        """Return the topic's route, and keep it up to date from now on.

        Raises:
            TopicNotFoundError: The topic does not exist, and brokers do not create it.
        """
        self.topics[topic] = None
        route = await self._client.routes.for_publishing(
            topic, self._settings.create_topic_key, self._settings.default_topic_queue_nums
        )
        if route.provisional:
            # The route is that of the topic `create_topic_key`. The first message creates the topic, so look for the
            # topic's own route soon.
            self._client.search_routes()
        return route

    async def route_within(self, topic: str, limit: float) -> TopicRoute:
        """Return the topic's route, as `route` does.

        Raises:
            TopicNotFoundError: The topic does not exist, and brokers do not create it.
            SendTimeoutError: No name server answered within `limit` seconds.
        """
        try:
            async with asyncio.timeout(limit):
                return await self.route(topic)
        except TimeoutError as error:
            raise SendTimeoutError(topic, (), (), limit) from error

    def _ready_connection(self, broker_name: str) -> Connection | None:
        """Return the connection to a broker if it is open and its peer reads."""
        address = self._client.routes.master_address(broker_name)
        if address is None:
            return None
        connection = self._client.brokers.get(vip_address(address) if self._vip else address)
        return None if connection is None or connection.is_stalled else connection

    async def _writable_connection(self, broker_name: str, topic: str, deadline: float) -> Connection:
        """Return a connection to a broker when it is open and its peer reads."""
        connection = await self._connection(broker_name, topic, deadline)
        await self._wait_drained(connection, deadline)
        return connection

    async def _connection(self, broker_name: str, topic: str, deadline: float) -> Connection:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._client.broker(broker_name, topic, vip=self._vip)
        except TimeoutError as error:
            raise ConnectError(broker_name, "no connection before the timeout of the send") from error

    async def _wait_drained(self, connection: Connection, deadline: float) -> None:
        """Wait until the broker reads again, so that messages do not pile up in this process.

        Raises:
            TooManyRequests: The broker read too little until the deadline.
        """
        try:
            async with asyncio.timeout_at(deadline):
                # A loop: other sends wake up too, and may have filled the buffer again.
                while connection.is_stalled and not connection.is_closed:
                    await connection.drain()
        except TimeoutError as error:
            raise TooManyRequests(
                f"too many bytes wait to be sent: {connection.remote_address} does not read"
            ) from error
