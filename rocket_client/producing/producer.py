"""The producer of normal messages.

::

    send          awaits the broker's answer; 1 + `retry_times_when_send_failed` attempts (3)
    send_async    returns a future; 1 + `retry_times_when_send_async_failed` attempts (3), none after a refusal
    send_oneway   writes to the connection; the broker sends no answer
    send_batch    sends several messages of one topic in one request
    request       awaits the reply of a consumer, which calls `reply`

`rocket_client.core.send_attempts` has the rules: which failures are tried again, and at which broker.
"""

import asyncio
import logging
from collections.abc import Collection, Coroutine, Sequence

from rocket_client.connection import shared_clients
from rocket_client.connection.group_member import GroupMember
from rocket_client.connection.request_reply import reply_to
from rocket_client.core.outgoing import Outgoing, OutgoingMessages
from rocket_client.core.selectors import MessageQueueSelector
from rocket_client.core.send_result import SendResult
from rocket_client.core.topic_route import TopicRoute
from rocket_client.core.unpacked_bodies import UnpackedBodies
from rocket_client.errors import IllegalMessageError, ReplyTimeoutError
from rocket_client.producing.metered_sender import MeteredSender
from rocket_client.producing.send_traces import SendTraces
from rocket_client.producing.sending import ChooseQueue, Sender
from rocket_client.settings import ProducerSettings
from rocket_client.tracing.trace_writer import TraceWriter
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
        group: The group's name. A broker may ask any member of the group about any transaction of the group.
        settings: Name servers, timeouts, retries, sizes.
        transport: The transport of connections; TCP by default.
        clock: The clock of birth timestamps; the system clock by default.
    """

    _KIND = "producer"
    _outgoing: OutgoingMessages
    _sender: Sender
    _traces: SendTraces | None = None

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
        self._async_sends: set[asyncio.Task[SendResult]] = set()
        self._bodies = UnpackedBodies(settings)

    # Life

    async def start(self) -> None:
        """Start the producer. Connections are opened by the first request that needs them.

        Raises:
            ClientStateError: The producer was started before.
            GroupInUseError: Another producer of the group has the same `instance_name`.
            NameServersUnreachableError: The addresses of the name servers could not be fetched.
        """
        self._life.begin()
        self._client = self._acquire(self.settings.instance_name, lambda client: self.group not in client.producers)
        self._outgoing = OutgoingMessages(self.group, self.settings, self._client.clock, self._client.unique_ids)
        self._sender = self._make_sender()
        if self.settings.trace_topic is not None:
            writer = TraceWriter(self._client, self.group, self.settings.trace_topic, self.settings)
            self._traces = SendTraces(writer, self.group, self._namespace, self._client.clock)
        self._client.register_producer(self)
        try:
            await self._client.name_servers.find()
        except BaseException:
            await self._leave()
            raise
        self._client.spawn(self._client.heartbeat(), "announce producer")
        self._life.succeed()

    def _make_sender(self) -> Sender:
        if self.settings.metrics is None:
            return Sender(self._client, self.settings, self._outgoing)
        meter = self.settings.metrics.producer(self._client.client_id)
        return MeteredSender(self._client, self.settings, self._outgoing, meter)

    async def shutdown(self) -> None:
        """Wait for the sends under way, unregister from the brokers and release the connections."""
        if self._life.end():
            self._start_leaving(self._leave())
        await self._wait_until_left()

    async def _leave(self) -> None:
        await asyncio.gather(*self._async_sends, return_exceptions=True)
        await self._sender.wait_idle()
        if self._traces is not None:
            await self._traces.close()
        await self._client.unregister_producer(self.group)
        await shared_clients.release(self._client)

    def publish_topics(self) -> Collection[str]:
        """Return the topics that messages were sent to; their routes are kept up to date."""
        return self._sender.topics

    def check_transaction(
        self, connection: Connection, header: CheckTransactionStateRequestHeader, message: MessageExt
    ) -> None:
        """Log a broker's check of a transaction. This producer has no checker; another member of its group may."""
        logger.warning(
            "%s checks the transaction of message %s of producer group %s, but this member has no checker: "
            "use a group for transactions only",
            connection.remote_address,
            message.msg_id,
            self.group,
        )

    # Sending

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        argument: object = None,
        first: MessageQueue | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send a message and wait until a broker has stored it.

        Args:
            message: The message; the send sets its `unique_key`.
            queue: The queue to send to; by default the topic's queues are used in turn.
            selector: Function that chooses the queue among those of the topic's route.
            argument: Third argument of the selector.
            first: The queue of the first attempt, as `next_queue` returned it; further attempts use the next in turn.
            timeout: Seconds for all attempts together; `send_timeout` by default.

        Returns:
            The broker's status, the message's ids, and its queue and offset there.

        Raises:
            ClientStateError: The producer is not running.
            IllegalMessageError: The message is malformed or too large, or `queue` is of another topic.
            TopicNotFoundError: The topic does not exist, and brokers do not create it.
            SendError: No broker stored the message. `SendTimeoutError` means that the time was over,
                `SendRejectedError` that a broker refused the message.
        """
        outgoing, choose = self._prepare(message, queue, selector, argument)
        limit = self._timeout if timeout is None else timeout
        sending = self._sender.send(outgoing, choose, limit, sync=True, first=first)
        return await (sending if self._traces is None else self._traced([message], sending, self._traces))

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        argument: object = None,
        first: MessageQueue | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send messages of one topic in one request; the broker stores them one after the other in one queue.

        Args:
            messages: The messages.
            queue: The queue to send to; by default the topic's queues are used in turn.
            selector: Function that chooses the queue for the first message, and so for all.
            argument: Third argument of the selector.
            first: The queue of the first attempt, as `next_queue` returned it; further attempts use the next in turn.
            timeout: Seconds for all attempts together; `send_timeout` by default.

        Raises:
            ClientStateError: The producer is not running.
            IllegalMessageError: The messages are of several topics, too large together, or one is delayed.
            TopicNotFoundError: The topic does not exist, and brokers do not create it.
            SendError: No broker stored the messages.
        """
        self._life.require_running()
        outgoing = self._outgoing.batch(messages)
        choose = self._chooser(outgoing.topic, messages[0], queue, selector, argument)
        sending = self._sender.send(outgoing, choose, self._limit(timeout), sync=True, first=first)
        return await (sending if self._traces is None else self._traced(messages, sending, self._traces))

    def send_async(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        argument: object = None,
        timeout: float | None = None,
    ) -> asyncio.Future[SendResult]:
        """Send a message in the background; return a future with the result or the exception of the send.

        A lost connection or a missing answer is tried again, up to `retry_times_when_send_async_failed` times; an
        answer that refuses the message is not. `shutdown` waits for the future. The arguments are those of `send`.

        Raises:
            ClientStateError: The producer is not running.
            IllegalMessageError: The message is malformed or too large, or `queue` is of another topic.
        """
        outgoing, choose = self._prepare(message, queue, selector, argument)
        sending = self._sender.send(outgoing, choose, self._limit(timeout), sync=False)
        if self._traces is not None:
            sending = self._traced([message], sending, self._traces)
        task = asyncio.create_task(sending, name="send")
        self._async_sends.add(task)
        task.add_done_callback(self._async_sends.discard)
        return task

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        argument: object = None,
    ) -> None:
        """Write a message to the broker's connection. The broker sends no answer, so a loss goes unnoticed.

        The arguments are those of `send`.

        Raises:
            ClientStateError: The producer is not running.
            IllegalMessageError: The message is malformed or too large, or `queue` is of another topic.
            TopicNotFoundError: The topic does not exist, and brokers do not create it.
            SendError: There is no connection to the broker, or the broker does not read.
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
        """Send a request message and wait for the reply of its consumer.

        Args:
            message: The request. A copy is sent; `message` itself is not changed.
            queue: The queue to send to; by default the topic's queues are used in turn.
            selector: Function that chooses the queue among those of the topic's route.
            argument: Third argument of the selector.
            timeout: Seconds until the reply; `send_timeout` by default.

        Returns:
            The reply, with its body decompressed.

        Raises:
            ClientStateError: The producer is not running.
            IllegalMessageError: The message is malformed or too large, or `queue` is of another topic.
            ReplyTimeoutError: No reply came in time.
            TopicNotFoundError: The topic does not exist, and brokers do not create it.
            SendError: No broker stored the request.
            UnreadableBodyError: The body of the reply is damaged or too large.
        """
        self._life.require_running()
        limit = self._limit(timeout)
        deadline = asyncio.get_running_loop().time() + limit
        asked = Message(message.topic, message.body, properties=dict(message.properties), flag=message.flag)
        # Before the send: the reply may come before the broker's answer to the send.
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
        self._bodies.release(unpacked.reserved)
        if unpacked.error is not None:
            raise unpacked.error
        return unpacked.messages[0]

    async def reply(self, request: MessageExt, body: bytes, *, properties: dict[str, str] | None = None) -> SendResult:
        """Reply to a request message; the broker passes the reply on to the client that sent the request.

        Args:
            request: The consumed request.
            body: Body of the reply; not empty.
            properties: Further properties of the reply.

        Raises:
            ClientStateError: The producer is not running.
            IllegalMessageError: The message is not a request, or the reply is malformed or too large.
            SendError: The requesting client is not connected any more, or no broker could be reached.
        """
        self._life.require_running()
        answer = reply_to(request, body, properties or {})
        # The reply topic belongs to the cluster: it is not in the producer's namespace.
        outgoing = self._outgoing.message(answer)
        outgoing = outgoing._replace(code=RequestCode.SEND_REPLY_MESSAGE_V2, topic=answer.topic, may_share=False)
        return await self._sender.send(outgoing, None, self._timeout, sync=True)

    async def cancel_delivery(self, message: Message, sent: SendResult) -> SendResult:
        """Cancel the delivery of a message whose `deliver_at_ms` is still to come.

        The cancellation is a message to the same queue. Brokers with a timer wheel (Apache 5.x and the bundled
        broker) drop the timed message when its time comes. A success means that the broker stored the cancellation.

        Args:
            message: The message as it was sent.
            sent: The result of that send; it names the broker that has the timer.

        Raises:
            ClientStateError: The producer is not running.
            IllegalMessageError: The message was not sent with `deliver_at_ms`.
            SendError: The broker refused because the time is past, or could not be reached.
        """
        self._life.require_running()
        if message.deliver_at_ms is None:
            raise IllegalMessageError(message.topic, "only a message sent with deliver_at_ms can be cancelled")
        properties = {
            PROPERTY_TIMER_DELIVER_MS: str(message.deliver_at_ms),
            PROPERTY_TIMER_DEL_UNIQKEY: f"{self._namespace.wrap(message.topic)}+{sent.msg_id}",
        }
        return await self.send(Message(message.topic, b"cancel", properties=properties), queue=sent.message_queue)

    async def publish_queues(self, topic: str) -> list[MessageQueue]:
        """Return the topic's writable queues.

        Raises:
            ClientStateError: The producer is not running.
            TopicNotFoundError: The topic does not exist, and brokers do not create it.
        """
        self._life.require_running()
        return list(self._visible(await self._sender.route(self._namespace.wrap(topic))))

    def next_queue(self, topic: str) -> MessageQueue | None:
        """Return the queue that is next in turn, for the argument `first` of a send.

        A caller that sends several messages in one request for each queue so spreads them as single sends would.

        Returns:
            The queue, as brokers know it; None if nothing was sent to the topic so far, or no queue can be written to.

        Raises:
            ClientStateError: The producer is not running.
        """
        self._life.require_running()
        return self._sender.next_queue(self._namespace.wrap(topic))

    @staticmethod
    async def _traced(
        messages: Sequence[Message], sending: Coroutine[object, object, SendResult], traces: SendTraces
    ) -> SendResult:
        """Send messages, and write a trace if a broker has stored them."""
        began_ms = traces.now_ms()
        result = await sending
        traces.sent(messages, result, began_ms)
        return result

    # Preparation that all kinds of send share

    def _prepare(
        self,
        message: Message,
        queue: MessageQueue | None,
        selector: MessageQueueSelector | None,
        argument: object,
    ) -> tuple[Outgoing, ChooseQueue | None]:
        """Return the encoded message, and the function that chooses its queue; None for all queues in turn."""
        self._life.require_running()
        outgoing = self._outgoing.message(message)
        if queue is None and selector is None:
            return outgoing, None
        return outgoing, self._chooser(outgoing.topic, message, queue, selector, argument)

    def _chooser(
        self,
        topic: str,
        message: Message,
        queue: MessageQueue | None,
        selector: MessageQueueSelector | None,
        argument: object,
    ) -> ChooseQueue | None:
        if queue is not None:
            return self._fixed(topic, queue)
        if selector is not None:
            return lambda route: selector(self._visible(route), message, argument)
        return None

    def _fixed(self, topic: str, queue: MessageQueue) -> ChooseQueue:
        if self._namespace.wrap(queue.topic) != topic:
            raise IllegalMessageError(topic, f"the queue belongs to topic {queue.topic}")
        return lambda route: queue

    def _visible(self, route: TopicRoute) -> Sequence[MessageQueue]:
        """Return the route's writable queues, their topics without the namespace."""
        queues = route.publish_queues
        return tuple(map(self._namespace.unwrap_queue, queues)) if self._namespace else queues

    def _limit(self, timeout: float | None) -> float:
        return self._timeout if timeout is None else timeout
