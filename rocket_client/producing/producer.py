"""Sends messages.

::

    send          awaits the broker's answer; 1 + `retry_times_when_send_failed` attempts (3)
    send_async    a future; 1 + `retry_times_when_send_async_failed` attempts (3), if connections fail
    send_oneway   written to the connection; nobody learns what became of it
    send_batch    several messages of a topic in one request
    request       awaits the message that a consumer sends back; `reply` is how

Which failures are tried again, and where, stands in `sending`.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence

from rocket_client.connection import shared_clients
from rocket_client.connection.group_member import GroupMember
from rocket_client.connection.request_reply import reply_to
from rocket_client.core.outgoing import Outgoing, OutgoingMessages
from rocket_client.core.selectors import MessageQueueSelector
from rocket_client.core.send_result import SendResult
from rocket_client.core.topic_route import TopicRoute
from rocket_client.core.unpacked_bodies import UnpackedBodies
from rocket_client.errors import IllegalMessageError, ReplyTimeoutError
from rocket_client.producing.sending import ChooseQueue, Sender
from rocket_client.settings import ProducerSettings
from rocket_remoting.clock import Clock
from rocket_remoting.session.connection import Connection
from rocket_remoting.transports.transport import Transport
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.headers import CheckTransactionStateRequestHeader
from rocket_remoting.wire.message import Message, MessageExt, MessageQueue
from rocket_remoting.wire.properties import PROPERTY_TIMER_DEL_UNIQKEY, PROPERTY_TIMER_DELIVER_MS

logger = logging.getLogger(__name__)


class Producer(GroupMember[ProducerSettings]):
    """A member of a producer group.

    Args:
        group: Its name; the group's members answer for each other's transactions.
        settings: Name servers, timeouts, retries, sizes.
        transport: TCP unless given.
        clock: Where birth stamps come from; the machine's unless given.
    """

    _KIND = "producer"
    _outgoing: OutgoingMessages
    _sender: Sender

    def __init__(
        self,
        group: str,
        settings: ProducerSettings,
        *,
        transport: Transport | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(group, settings, transport=transport, clock=clock)
        self._timeout = settings.send_timeout.total_seconds()
        self._asyncs: set[asyncio.Task[SendResult]] = set()
        self._bodies = UnpackedBodies(settings)

    # Life

    async def start(self) -> None:
        """The producer can send. Connections are made when they are needed.

        Raises:
            ClientStateError: It was started before.
            GroupInUseError: Another producer of the group has the same `instance_name`.
        """
        self._life.begin()
        self._client = self._acquire(
            self.settings.instance_name, lambda client: self.group not in client.producers
        )
        self._outgoing = OutgoingMessages(
            self.group, self.settings, self._client.clock, self._client.unique_ids
        )
        self._sender = Sender(self._client, self.settings, self._outgoing)
        self._client.register_producer(self)
        self._client.spawn(self._client.heartbeat(), "announce producer")
        self._life.succeed()

    async def shutdown(self) -> None:
        """Sends under way have ended, brokers know that the producer left."""
        if self._life.end():
            self._begin_to_leave(self._leave())
        await self._has_left()

    async def _leave(self) -> None:
        await asyncio.gather(*self._asyncs, return_exceptions=True)
        await self._sender.idle()
        await self._client.unregister_producer(self.group)
        await shared_clients.release(self._client)

    def publish_topics(self) -> Collection[str]:
        """Topics it sends to."""
        return self._sender.topics

    def check_transaction(
        self, connection: Connection, header: CheckTransactionStateRequestHeader, message: MessageExt
    ) -> None:
        """A broker asks for a transaction; this producer knows of none, another one of the group may."""
        logger.warning(
            "%s asks producer group %s for the transaction of message %s, but this member has no checker: "
            "a group of transactions is used for nothing else",
            connection.remote_address,
            self.group,
            message.msg_id,
        )

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
        outgoing, choose = self._prepare(message, queue, selector, argument)
        return await self._sender.send(outgoing, choose, self._limit(timeout), waits=True)

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
        choose = None if queue is None else self._fixed(outgoing.topic, queue)
        return await self._sender.send(outgoing, choose, self._limit(timeout), waits=True)

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
        outgoing, choose = self._prepare(message, queue, selector, argument)
        sending = self._sender.send(outgoing, choose, self._limit(timeout), waits=False)
        task = asyncio.create_task(sending, name="send")
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
        outgoing, choose = self._prepare(message, queue, selector, argument)
        await self._sender.send_oneway(outgoing, choose, self._timeout)

    async def request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        argument: object = None,
        timeout: float | None = None,
    ) -> MessageExt:
        """The reply of whoever consumed the message.

        Args:
            message: What to ask.
            queue: Where to, instead of round robin.
            selector: Chooses the queue.
            argument: The selector's third argument.
            timeout: Seconds until the reply; `send_timeout` unless given.

        Raises:
            IllegalMessageError: The message cannot be sent as it is.
            ReplyTimeoutError: It was sent, and no reply came in time.
            SendError: No broker took it.
            UnreadableBodyError: The body of the reply is damaged or too large.
        """
        self._life.require_running()
        limit = self._limit(timeout)
        deadline = asyncio.get_running_loop().time() + limit
        asked = Message(message.topic, message.body, properties=dict(message.properties), flag=message.flag)
        correlation_id, reply = self._client.replies.expect(asked, self._client.client_id, limit)
        try:
            await self.send(asked, queue=queue, selector=selector, argument=argument, timeout=limit)
            async with asyncio.timeout_at(deadline):
                replied = await reply
        except TimeoutError as error:
            raise ReplyTimeoutError(message.topic, correlation_id, limit) from error
        finally:
            self._client.replies.forget(correlation_id)
        unpacked = await self._bodies.unpack([replied])
        self._bodies.release(unpacked.room)
        if unpacked.error is not None:
            raise unpacked.error
        return unpacked.messages[0]

    async def reply(
        self, request: MessageExt, body: bytes, *, properties: dict[str, str] | None = None
    ) -> SendResult:
        """The broker gave the reply to the client that sent the request.

        Args:
            request: The message that was consumed.
            body: The answer; not empty.
            properties: Further properties of the reply.

        Raises:
            IllegalMessageError: The message is no request.
            SendError: The client that asked is gone, or no broker could be reached.
        """
        self._life.require_running()
        answer = reply_to(request, body, properties or {})
        # To the cluster's own topic for replies, which is in no namespace.
        outgoing = self._outgoing.message(answer)._replace(
            code=RequestCode.SEND_REPLY_MESSAGE_V2, topic=answer.topic
        )
        return await self._sender.send(outgoing, None, self._timeout, waits=True)

    async def cancel_delivery(self, message: Message, sent: SendResult) -> SendResult:
        """The broker was told not to deliver a message whose `deliver_at_ms` is still to come.

        Brokers with a timer wheel (5.x, the bundled one) do so when that time comes; it is theirs to forget it.

        Args:
            message: As it was sent.
            sent: What sending it returned: cancelling is said to the same broker.

        Raises:
            IllegalMessageError: It was not sent with a delivery time.
            SendError: The broker refused, because the time is past, or could not be reached.
        """
        self._life.require_running()
        if message.deliver_at_ms is None:
            raise IllegalMessageError(
                message.topic, "only a message sent with deliver_at_ms can be cancelled"
            )
        properties = {
            PROPERTY_TIMER_DELIVER_MS: str(message.deliver_at_ms),
            PROPERTY_TIMER_DEL_UNIQKEY: f"{self._namespace.wrap(message.topic)}+{sent.msg_id}",
        }
        return await self.send(
            Message(message.topic, b"cancel", properties=properties), queue=sent.message_queue
        )

    async def publish_queues(self, topic: str) -> list[MessageQueue]:
        """The topic's queues that can be written to.

        Raises:
            TopicNotFoundError: There is no such topic, and none is created.
        """
        self._life.require_running()
        return list(self._visible(await self._sender.route(self._namespace.wrap(topic))))

    # What all ways to send begin with

    def _prepare(
        self,
        message: Message,
        queue: MessageQueue | None,
        selector: MessageQueueSelector | None,
        argument: object,
    ) -> tuple[Outgoing, ChooseQueue | None]:
        """The message ready to be sent, and how its queue is fixed, if it is."""
        self._life.require_running()
        outgoing = self._outgoing.message(message)
        if queue is not None:
            return outgoing, self._fixed(outgoing.topic, queue)
        if selector is not None:
            return outgoing, lambda route: selector(self._visible(route), message, argument)
        return outgoing, None

    def _fixed(self, topic: str, queue: MessageQueue) -> ChooseQueue:
        if self._namespace.wrap(queue.topic) != topic:
            raise IllegalMessageError(topic, f"the queue given is one of topic {queue.topic}")
        return lambda route: queue

    def _visible(self, route: TopicRoute) -> Sequence[MessageQueue]:
        """The queues to write to, as the application says them."""
        queues = route.publish_queues
        return tuple(map(self._namespace.unwrap_queue, queues)) if self._namespace else queues

    def _limit(self, timeout: float | None) -> float:
        return self._timeout if timeout is None else timeout
