"""The blocking client: queues, offsets, pulls and sends, each call with its answer."""

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import groupby
from typing import Self, TypeVar

from rocket_client.blocking.connection import BlockingConnection, Request
from rocket_client.blocking.pool import ConnectionPool
from rocket_client.blocking.pulls import PullRequest, PullResult
from rocket_client.blocking.routes import BlockingRoutes
from rocket_client.outgoing import Outgoing, OutgoingMessages
from rocket_client.pull_answer import PULL_STATUS
from rocket_client.selectors import MessageQueueSelector
from rocket_client.send_attempts import SendAttempts
from rocket_client.send_result import STATUS_OF_RESPONSE, SendResult
from rocket_client.settings import ProducerSettings
from rocket_client.subscription import tag_subscription
from rocket_remoting.clock import SystemClock
from rocket_remoting.codes import RequestCode, ResponseCode
from rocket_remoting.command import RemotingCommand
from rocket_remoting.errors import ConnectError, ConnectionLost, RemotingError, ResponseError
from rocket_remoting.ext_fields import Header
from rocket_remoting.headers import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    SendMessageResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocket_remoting.message import Message, MessageQueue
from rocket_remoting.message_id import UniqueIdGenerator
from rocket_remoting.sys_flag import PULL_SUBSCRIPTION, PULL_SUSPEND

T = TypeVar("T")


class BlockingClient:
    """Reads and writes topics without an event loop.

    Args:
        group: The group whose offsets are read and committed, and in whose name messages are sent.
        settings: Name servers, timeouts, and how messages are sent.
    """

    def __init__(self, group: str, settings: ProducerSettings) -> None:
        self.group = group
        self._settings = settings
        self._timeout = settings.request_timeout.total_seconds()
        self._pool = ConnectionPool(settings.connect_timeout.total_seconds())
        self._routes = BlockingRoutes(settings, self._pool)
        self._outgoing = OutgoingMessages(
            group, settings, SystemClock(), UniqueIdGenerator(settings.client_ip)
        )

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<BlockingClient {self.group} at {', '.join(self._settings.name_server_addresses)}>"

    # Queues

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues that can be read, sorted.

        Raises:
            TopicNotFoundError: No name server knows the topic.
        """
        return self._routes.route(topic).subscribe_queues

    def publish_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues that can be written to; of a topic that is to be created, those it will have.

        Raises:
            TopicNotFoundError: There is no such topic, and none is created.
        """
        return self._routes.for_publishing(topic).publish_queues

    # Offsets

    def min_offset(self, queue: MessageQueue) -> int:
        """Where the oldest message is."""
        header = GetMinOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
        response = self._ask(queue, RequestCode.GET_MIN_OFFSET, header)
        return response.header(GetMinOffsetResponseHeader).offset

    def max_offset(self, queue: MessageQueue) -> int:
        """Where the next message will be."""
        header = GetMaxOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
        response = self._ask(queue, RequestCode.GET_MAX_OFFSET, header)
        return response.header(GetMaxOffsetResponseHeader).offset

    def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The message stored at that time: the nearest one on Apache's 4.9, the next one on 5.x."""
        header = SearchOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms)
        response = self._ask(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        return response.header(SearchOffsetResponseHeader).offset

    def committed_offset(self, queue: MessageQueue) -> int | None:
        """The offset the group has committed; None when it has none."""
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=self.group, topic=queue.topic, queue_id=queue.queue_id
        )
        try:
            response = self._ask(queue, RequestCode.QUERY_CONSUMER_OFFSET, header)
        except ResponseError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return response.header(QueryConsumerOffsetResponseHeader).offset

    def commit_offset(self, queue: MessageQueue, offset: int) -> None:
        """The broker keeps the group's offset.

        Apache's brokers refuse it from 5.0 on while they do not know the group; a pull makes it known.

        Raises:
            ResponseError: The broker refused.
        """
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=self.group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
        )
        self._ask(queue, RequestCode.UPDATE_CONSUMER_OFFSET, header)

    # Pulling

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_messages: int = 32,
        expression: str = "*",
        wait: float = 0.0,
    ) -> PullResult:
        """Messages of the queue from `offset` on.

        Args:
            queue: The queue.
            offset: Where to begin.
            max_messages: Most messages wanted; the broker may give fewer.
            expression: Tags, ``a || b``, or ``*`` for all messages.
            wait: Seconds the broker may wait for a message where there is none.

        Raises:
            ResponseError: The broker refused.
        """
        asked = PullRequest(queue, offset, max_messages)
        subscription = _Subscription(self.group, expression, wait)
        request = subscription.request(asked)
        response = self._on_master(
            queue, lambda connection: connection.invoke(*request, timeout=wait + self._timeout)
        )
        return subscription.result(asked, response, queue.broker_name)

    def pull_many(
        self, requests: Iterable[PullRequest], *, expression: str = "*", depth: int = 64
    ) -> Generator[PullResult]:
        """The results of many pulls, up to `depth` of them under way at once, in the order of arrival.

        Requests next to each other that go to one broker share a connection; `requests` is taken from as
        results come.

        Raises:
            ResponseError: The broker refused one of them.
        """
        subscription = _Subscription(self.group, expression, 0.0)
        for (topic, broker_name), group in groupby(requests, lambda asked: _broker_of(asked.queue)):
            yield from self._pull_from(topic, broker_name, group, subscription, depth)

    def _pull_from(
        self,
        topic: str,
        broker_name: str,
        requests: Iterable[PullRequest],
        subscription: "_Subscription",
        depth: int,
    ) -> Generator[PullResult]:
        asked: dict[int, PullRequest] = {}

        def noted() -> Generator[Request]:
            for number, request in enumerate(requests):
                asked[number] = request
                yield subscription.request(request)

        address = self._routes.master_address(topic, broker_name)
        with self._pool.connection(address) as connection:
            for number, response in connection.invoke_many(noted(), depth=depth, timeout=self._timeout):
                yield subscription.result(asked.pop(number), response, address)

    # Sending

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        argument: object = None,
        timeout: float | None = None,
    ) -> SendResult:
        """The message is stored; tried on further brokers as the settings say, unless the queue is given.

        Args:
            message: What to send; it has a unique id afterwards.
            queue: The queue to send to.
            selector: Chooses the queue, from the queues, the message and `argument`.
            argument: What the selector goes by.
            timeout: Seconds for everything, instead of `ProducerSettings.send_timeout`.

        Raises:
            IllegalMessageError: The message cannot be sent as it is.
            TopicNotFoundError: There is no such topic, and none is created.
            SendError: No broker took it.
        """
        outgoing = self._outgoing.message(message)
        if selector is not None:
            queue = selector(self.publish_queues(message.topic), message, argument)
        return self._send(outgoing, queue, timeout)

    def send_batch(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None, timeout: float | None = None
    ) -> SendResult:
        """Several messages of one topic are stored, in one request and one queue; see `send`."""
        return self._send(self._outgoing.batch(messages), queue, timeout)

    def _send(self, outgoing: Outgoing, fixed: MessageQueue | None, timeout: float | None) -> SendResult:
        settings = self._settings
        limit = settings.send_timeout.total_seconds() if timeout is None else timeout
        deadline = time.monotonic() + limit
        route = self._routes.for_publishing(outgoing.topic)
        attempts = SendAttempts(outgoing.topic, limit)
        for _ in range(1 if fixed is not None else 1 + settings.retry_times_when_send_failed):
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                break
            target = fixed or route.next_queue(attempts.last_broker)
            attempts.brokers.append(target.broker_name)
            try:
                return self._send_to(target, outgoing, remaining)
            except RemotingError as error:
                if attempts.is_final(error, settings.retry_response_codes):
                    break
        return attempts.conclude(time.monotonic() >= deadline)

    def _send_to(self, target: MessageQueue, outgoing: Outgoing, remaining: float) -> SendResult:
        address = self._routes.master_address(target.topic, target.broker_name)
        header = self._outgoing.header(outgoing, target.broker_name, target.queue_id)
        with self._pool.connection(address) as connection:
            response = connection.invoke(outgoing.code, header, outgoing.body, timeout=remaining)
        status = STATUS_OF_RESPONSE.get(response.code)
        if status is None:
            raise ResponseError(response.code, response.remark, address=address, request_code=outgoing.code)
        self._routes.created(target.topic)
        stored = response.header(SendMessageResponseHeader)
        queue = MessageQueue(target.topic, target.broker_name, stored.queue_id)
        return SendResult(
            status, outgoing.msg_id, stored.msg_id, queue, stored.queue_offset, stored.transaction_id
        )

    # Asking

    def _ask(self, queue: MessageQueue, code: RequestCode, header: Header) -> RemotingCommand:
        response = self._on_master(
            queue, lambda connection: connection.invoke(code, header, timeout=self._timeout)
        )
        if response.code != ResponseCode.SUCCESS:
            raise ResponseError(response.code, response.remark, address=queue.broker_name, request_code=code)
        return response

    def _on_master(self, queue: MessageQueue, ask: Callable[[BlockingConnection], T]) -> T:
        """Ask the queue's master what may be asked twice; once more where it is now if it is gone."""
        try:
            with self._pool.connection(self._master_of(queue)) as connection:
                return ask(connection)
        except (ConnectError, ConnectionLost):
            self._routes.expire(queue.topic)
            with self._pool.connection(self._master_of(queue)) as connection:
                return ask(connection)

    def _master_of(self, queue: MessageQueue) -> str:
        return self._routes.master_address(queue.topic, queue.broker_name)


class _Subscription:
    """What all pulls of one call have in common."""

    __slots__ = ("_group", "_tags", "_text", "_wait_ms")

    def __init__(self, group: str, expression: str, wait: float) -> None:
        subscription = tag_subscription("", expression, 0)
        self._group = group
        self._text = subscription.sub_string
        self._tags = frozenset(subscription.tags_set)
        self._wait_ms = int(wait * 1000)

    def request(self, asked: PullRequest) -> Request:
        """The request for one pull."""
        return Request(
            RequestCode.PULL_MESSAGE,
            PullMessageRequestHeader(
                consumer_group=self._group,
                topic=asked.queue.topic,
                queue_id=asked.queue.queue_id,
                queue_offset=asked.offset,
                max_msg_nums=asked.max_messages,
                sys_flag=PULL_SUBSCRIPTION | (PULL_SUSPEND if self._wait_ms else 0),
                commit_offset=0,
                suspend_timeout_millis=self._wait_ms,
                subscription=self._text,
                sub_version=0,
                expression_type="TAG",
            ),
        )

    def result(self, asked: PullRequest, response: RemotingCommand, address: str) -> PullResult:
        """What the answer to one pull says."""
        status = PULL_STATUS.get(response.code)
        if status is None:
            raise ResponseError(
                response.code, response.remark, address=address, request_code=RequestCode.PULL_MESSAGE
            )
        header = response.header(PullMessageResponseHeader)
        return PullResult(
            asked,
            status,
            header.next_begin_offset,
            header.min_offset,
            header.max_offset,
            response.body,
            self._tags,
        )


def _broker_of(queue: MessageQueue) -> tuple[str, str]:
    return queue.topic, queue.broker_name
