"""Sends messages.

::

    send          awaits the broker's answer; up to 1 + `retry_times_when_send_failed` attempts (3)
    send_async    a future; up to 1 + `retry_times_when_send_async_failed` attempts (3), after connection failures only
    send_oneway   written to the connection; nobody learns what became of it
    send_batch    several messages of a topic in one request

    an attempt failed because                     send            send_async    its broker is isolated (faults)
    no connection, connection lost, no answer     next broker     next broker   yes
    too many requests                             next broker     next broker   no
    answer in `retry_response_codes`              next broker     given up      yes
    any other answer (SYSTEM_BUSY, …)             given up        given up      yes

A message with its queue given, or chosen by a selector, has one attempt in `send`, and further ones in `send_async` go
to the same queue: order stands above delivery. The timeout covers the whole send, all attempts together.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from types import TracebackType
from typing import Self

from rocket_client import shared_clients
from rocket_client.client import RocketClient
from rocket_client.errors import IllegalMessageError, SendError, SendRejectedError, SendTimeoutError
from rocket_client.faults import FaultTable
from rocket_client.outgoing import Outgoing, OutgoingMessages
from rocket_client.routes import TopicRoute
from rocket_client.selectors import MessageQueueSelector
from rocket_client.send_result import STATUS_OF_RESPONSE, SendResult, SendStatus
from rocket_client.settings import ProducerSettings
from rocket_client.state import Lifecycle, ServiceState
from rocket_remoting.clock import Clock
from rocket_remoting.command import RemotingCommand
from rocket_remoting.connection import Connection
from rocket_remoting.errors import RemotingError, RequestTimeout, ResponseError, TooManyRequests
from rocket_remoting.headers import SendMessageResponseHeader
from rocket_remoting.message import Message, MessageQueue
from rocket_remoting.topics import DEFAULT_PRODUCER_GROUP, validate_group
from rocket_remoting.transport import Transport


class Producer:
    """A member of a producer group.

    Args:
        group: Its name; the group's members answer for each other's transactions.
        settings: Name servers, timeouts, retries, sizes.
        transport: TCP unless given.
        clock: Where birth stamps come from; the machine's unless given.
    """

    def __init__(
        self,
        group: str,
        settings: ProducerSettings,
        *,
        transport: Transport | None = None,
        clock: Clock | None = None,
    ) -> None:
        validate_group(group)
        if group == DEFAULT_PRODUCER_GROUP:
            raise ValueError(f"{group} is nobody's own group: choose another name")
        self.group = group
        self.settings = settings
        self._transport = transport
        self._clock = clock
        self._life = Lifecycle(f"producer of group {group}")
        self._topics: dict[str, None] = {}
        self._timeout = settings.send_timeout.total_seconds()
        self._asyncs: set[asyncio.Task[SendResult]] = set()
        self._client: RocketClient
        self._outgoing: OutgoingMessages
        self._faults: FaultTable | None = None
        self._now: Callable[[], float]

    def __repr__(self) -> str:
        return f"<Producer {self.group}, {self._life.state.value}>"

    @property
    def state(self) -> ServiceState:
        """Where in its life it is."""
        return self._life.state

    # Life

    async def start(self) -> None:
        """The producer can send. Connections are made when they are needed.

        Raises:
            ClientStateError: It was started before.
            GroupInUseError: Another producer of the group has the same `instance_name`.
        """
        self._life.begin()
        loop = asyncio.get_running_loop()
        self._now = loop.time
        self._client = shared_clients.acquire(
            self.settings,
            self._transport,
            self._clock,
            instance_name=self.settings.instance_name,
            is_free=lambda client: self.group not in client.producers,
        )
        self._outgoing = OutgoingMessages(
            self.group, self.settings, self._client.clock, self._client.unique_ids
        )
        if self.settings.send_latency_fault_enable:
            self._faults = FaultTable(lambda: loop.time() * 1000)
        self._client.register_producer(self)
        self._life.succeed()

    async def shutdown(self) -> None:
        """Sends under way have ended, brokers know that the producer left."""
        if not self._life.end():
            return
        await asyncio.gather(*self._asyncs, return_exceptions=True)
        await self._client.unregister_producer(self.group)
        await shared_clients.release(self._client)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()

    def publish_topics(self) -> Collection[str]:
        """Topics it sends to."""
        return self._topics

    # Sending

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        argument: object = None,
        timeout: float | None = None,
    ) -> SendResult:
        """The message is stored by a broker.

        Args:
            message: What to send; it has a `unique_key` afterwards.
            queue: Where to, instead of round robin.
            selector: Chooses the queue.
            argument: The selector's third argument.
            timeout: Seconds for the whole send; `send_timeout` unless given.

        Raises:
            IllegalMessageError: The message cannot be sent as it is.
            TopicNotFoundError: There is no such topic, and none is created.
            SendError: No broker took it; `SendTimeoutError` and `SendRejectedError` say more.
        """
        self._life.require_running()
        outgoing = self._outgoing.message(message)
        return await self._send(outgoing, message, queue, selector, argument, timeout, waits=True)

    async def send_batch(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None, timeout: float | None = None
    ) -> SendResult:
        """All the messages, of one topic, are stored one after the other in one queue.

        Raises:
            IllegalMessageError: They do not go together, are too many bytes, or one is delayed.
            SendError: No broker took them.
        """
        self._life.require_running()
        outgoing = self._outgoing.batch(messages)
        return await self._send(outgoing, messages[0], queue, None, None, timeout, waits=True)

    def send_async(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        argument: object = None,
        timeout: float | None = None,
    ) -> asyncio.Future[SendResult]:
        """A future of what `send` returns or raises; what is wrong with the message is raised at once."""
        self._life.require_running()
        outgoing = self._outgoing.message(message)
        task = asyncio.create_task(
            self._send(outgoing, message, queue, selector, argument, timeout, waits=False), name="send"
        )
        self._asyncs.add(task)
        task.add_done_callback(self._asyncs.discard)
        return task

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        argument: object = None,
    ) -> None:
        """The message is on its way; it may get lost without anybody noticing.

        Raises:
            SendError: There is no connection to the broker.
        """
        self._life.require_running()
        outgoing = self._outgoing.message(message)
        try:
            async with asyncio.timeout(self._timeout):
                route = await self._route(message.topic)
                target = self._fixed_queue(route, message, queue, selector, argument) or self._next_queue(
                    route, None
                )
                connection = await self._client.broker(target.broker_name, message.topic)
        except TimeoutError as error:
            raise SendTimeoutError(message.topic, (), (), self._timeout) from error
        try:
            header = self._outgoing.header(outgoing, target.broker_name, target.queue_id)
            connection.invoke_oneway(outgoing.code, header, outgoing.body)
            await connection.drain()
        except RemotingError as error:
            raise SendError(message.topic, [target.broker_name], [error]) from error

    async def publish_queues(self, topic: str) -> list[MessageQueue]:
        """The topic's queues that can be written to.

        Raises:
            TopicNotFoundError: There is no such topic, and none is created.
        """
        self._life.require_running()
        return list((await self._route(topic)).publish_queues)

    # One send

    async def _send(
        self,
        outgoing: Outgoing,
        message: Message,
        queue: MessageQueue | None,
        selector: MessageQueueSelector | None,
        argument: object,
        timeout: float | None,
        *,
        waits: bool,
    ) -> SendResult:
        limit = self._timeout if timeout is None else timeout
        deadline = self._now() + limit
        route = self._client.routes.get(outgoing.topic)
        if route is None or not route.publish_queues or outgoing.topic not in self._topics:
            try:
                async with asyncio.timeout(limit):
                    route = await self._route(outgoing.topic)
            except TimeoutError as error:
                raise SendTimeoutError(outgoing.topic, (), (), limit) from error
        fixed = None
        if queue is not None or selector is not None:
            fixed = self._fixed_queue(route, message, queue, selector, argument)
        return await self._attempt(outgoing, route, fixed, deadline, limit, waits)

    async def _attempt(
        self,
        outgoing: Outgoing,
        route: TopicRoute,
        fixed: MessageQueue | None,
        deadline: float,
        limit: float,
        waits: bool,
    ) -> SendResult:
        settings, now = self.settings, self._now
        if not waits:
            attempts = 1 + settings.retry_times_when_send_async_failed
        else:
            attempts = 1 if fixed is not None else 1 + settings.retry_times_when_send_failed
        brokers: list[str] = []
        causes: list[Exception] = []
        stored: SendResult | None = None
        last_broker: str | None = None
        for _ in range(attempts):
            target = fixed or self._next_queue(route, last_broker)
            last_broker = target.broker_name
            begun = now()
            if begun >= deadline:
                break
            brokers.append(last_broker)
            try:
                result = await self._send_to(target, outgoing, deadline, begun)
            except ResponseError as error:
                causes.append(error)
                self._note(last_broker, begun, isolation=True)
                if not waits or error.code not in settings.retry_response_codes:
                    if stored is not None:
                        return stored
                    raise SendRejectedError(outgoing.topic, brokers, causes, error) from error
            except RemotingError as error:
                causes.append(error)
                self._note(last_broker, begun, isolation=not isinstance(error, TooManyRequests))
            else:
                if self._faults is not None:
                    self._note(last_broker, begun, isolation=False)
                if result.status is SendStatus.SEND_OK or not waits:
                    return self._stored(route, result)
                stored = result
                causes.append(RemotingError(f"stored, with status {result.status.value}"))
                if not settings.retry_another_broker_when_not_store_ok:
                    return self._stored(route, result)
        if stored is not None:
            return stored
        cause = causes[-1] if causes else None
        if now() >= deadline or isinstance(cause, RequestTimeout):
            raise SendTimeoutError(outgoing.topic, brokers, causes, limit) from cause
        raise SendError(outgoing.topic, brokers, causes) from cause

    async def _send_to(
        self, target: MessageQueue, outgoing: Outgoing, deadline: float, begun: float
    ) -> SendResult:
        broker_name = target.broker_name
        address = self._client.routes.master_address(broker_name)
        connection = self._client.brokers.get(address) if address is not None else None
        if connection is None:
            connection = await self._connect(broker_name, outgoing.topic, deadline)
            begun = self._now()
        header = self._outgoing.header(outgoing, broker_name, target.queue_id)
        response = await connection.invoke(outgoing.code, header, outgoing.body, timeout=deadline - begun)
        return _result(response, outgoing, target, connection)

    async def _connect(self, broker_name: str, topic: str, deadline: float) -> Connection:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._client.broker(broker_name, topic)
        except TimeoutError as error:
            raise RemotingError(f"no connection to broker {broker_name!r} in time") from error

    def _stored(self, route: TopicRoute, result: SendResult) -> SendResult:
        if route.provisional:
            self._client.search_routes()  # the topic exists now, and soon has a route of its own
        return result

    # Queues

    async def _route(self, topic: str) -> TopicRoute:
        self._topics[topic] = None
        settings = self.settings
        return await self._client.routes.for_publishing(
            topic, settings.create_topic_key, settings.default_topic_queue_nums
        )

    def _fixed_queue(
        self,
        route: TopicRoute,
        message: Message,
        queue: MessageQueue | None,
        selector: MessageQueueSelector | None,
        argument: object,
    ) -> MessageQueue | None:
        if queue is None:
            return selector(route.publish_queues, message, argument) if selector is not None else None
        if queue.topic != message.topic:
            raise IllegalMessageError(message.topic, f"the queue given is one of topic {queue.topic}")
        return queue

    def _next_queue(self, route: TopicRoute, last_broker: str | None) -> MessageQueue:
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

    def _note(self, broker_name: str, begun: float, *, isolation: bool) -> None:
        if self._faults is not None:
            self._faults.update(broker_name, (self._now() - begun) * 1000, isolation=isolation)


def _result(
    response: RemotingCommand, outgoing: Outgoing, target: MessageQueue, connection: Connection
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
        status, outgoing.msg_id, header.msg_id, target, header.queue_offset, header.transaction_id
    )
