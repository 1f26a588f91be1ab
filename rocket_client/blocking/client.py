"""The blocking client: queues, offsets, pulls and sends, each call with its answer."""

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Self, TypeVar

from rocket_client.blocking.batch_sender import BatchSender
from rocket_client.blocking.connection import BlockingConnection
from rocket_client.blocking.pipeline import Request
from rocket_client.blocking.pool import ConnectionPool
from rocket_client.blocking.pulls import PullRequest, PullResult, Subscription
from rocket_client.blocking.ranges import QueueRange, RangePart, RangePulls
from rocket_client.blocking.retrying import AWAY, BUSY_CODES, Patience
from rocket_client.blocking.routes import BlockingRoutes
from rocket_client.core.outgoing import Outgoing, OutgoingMessages
from rocket_client.core.selectors import MessageQueueSelector
from rocket_client.core.send_attempts import SendAttempts
from rocket_client.core.send_result import STATUS_OF_RESPONSE, SendResult
from rocket_client.namespace import Namespace
from rocket_client.settings import ProducerSettings
from rocket_remoting.clock import SystemClock
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import ConnectError, ConnectionLost, RemotingError, ResponseError
from rocket_remoting.wire.ext_fields import Header
from rocket_remoting.wire.headers import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    SendMessageResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocket_remoting.wire.message import Message, MessageQueue
from rocket_remoting.wire.message_id import UniqueIdGenerator

T = TypeVar("T")

_HELD_LONGER = 5.0
"""Seconds by which a broker may answer a held pull later than it was asked to: Apache's looks at them so often."""

_NOT_HONOURED = ("retry_another_broker_when_not_store_ok", "send_latency_fault_enable", "vip_channel_enabled")
"""Settings of producers that this client refuses rather than ignores."""


class BlockingClient:
    """Reads and writes topics without an event loop.

    Args:
        group: The group whose offsets are read and committed, and in whose name messages are sent.
        settings: Name servers, timeouts, and how messages are sent; without a namespace.

    Raises:
        ValueError: The settings have a namespace, for this client says names as brokers know them, which stand in the
            records it hands out: `rocket_client.Namespace.wrap` makes them. Or they turn on what this client does not
            do: `retry_another_broker_when_not_store_ok`, `send_latency_fault_enable`, `vip_channel_enabled`.
    """

    def __init__(self, group: str, settings: ProducerSettings) -> None:
        if settings.namespace:
            raise ValueError(
                f"the blocking client is in no namespace: leave out {settings.namespace!r} (namespace='' if an address "
                f"names it), and say names as brokers know them, such as {Namespace(settings.namespace).wrap(group)!r}"
            )
        for name in _NOT_HONOURED:
            if getattr(settings, name):
                raise ValueError(
                    f"{name}=True has no effect in the blocking client: leave it out, or use Producer"
                )
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

    def topics(self) -> frozenset[str]:
        """All topics the name server knows, the system's own among them."""
        return self._routes.topics()

    def brokers(self) -> frozenset[str]:
        """The names of all brokers the name server knows."""
        return self._routes.brokers()

    def publish_queues(self, topic: str, *, create: bool = True) -> tuple[MessageQueue, ...]:
        """The queues that can be written to; of a topic that is to be created, those it will have.

        Args:
            topic: The topic.
            create: Whether a topic that does not exist counts, where brokers create topics.

        Raises:
            TopicNotFoundError: There is no such topic, and none is created; or nothing may be written to it.
        """
        return (self._routes.for_publishing(topic) if create else self._routes.writable(topic)).publish_queues

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

    def min_offsets(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """`min_offset` of many queues, asked for all at once."""
        headers = [GetMinOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id) for queue in queues]
        answers = self._ask_all(queues, RequestCode.GET_MIN_OFFSET, headers)
        return {queue: answer.header(GetMinOffsetResponseHeader).offset for queue, answer in answers}

    def max_offsets(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """`max_offset` of many queues, asked for all at once."""
        headers = [GetMaxOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id) for queue in queues]
        answers = self._ask_all(queues, RequestCode.GET_MAX_OFFSET, headers)
        return {queue: answer.header(GetMaxOffsetResponseHeader).offset for queue, answer in answers}

    def commit_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """`commit_offset` for many queues, all at once."""
        headers = [
            UpdateConsumerOffsetRequestHeader(
                consumer_group=self.group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
            )
            for queue, offset in offsets.items()
        ]
        self._ask_all(list(offsets), RequestCode.UPDATE_CONSUMER_OFFSET, headers)

    # Pulling

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_messages: int = 32,
        expression: str = "*",
        expression_type: str = "TAG",
        wait: float = 0.0,
    ) -> PullResult:
        """Messages of the queue from `offset` on.

        Args:
            queue: The queue.
            offset: Where to begin.
            max_messages: Most messages wanted; the broker may give fewer.
            expression: Tags, ``a || b``, or ``*`` for all messages; or an SQL92 expression.
            expression_type: ``TAG`` or ``SQL92``.
            wait: Seconds the broker may wait for a message where there is none; Apache's takes up to five more.

        Raises:
            ResponseError: The broker refused.
        """
        limit = self._timeout + (wait + _HELD_LONGER if wait else 0.0)
        asked = PullRequest(queue, offset, max_messages)
        subscription = Subscription(self.group, expression, wait, expression_type)
        request = subscription.request(asked)
        response = self._on_master(queue, lambda connection: connection.invoke(*request, timeout=limit))
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
        subscription = Subscription(self.group, expression, 0.0)
        for (topic, broker_name), group in groupby(requests, lambda asked: _broker_of(asked.queue)):
            yield from self._pull_from(topic, broker_name, group, subscription, depth)

    def _pull_from(
        self,
        topic: str,
        broker_name: str,
        requests: Iterable[PullRequest],
        subscription: Subscription,
        depth: int,
    ) -> Generator[PullResult]:
        asked: dict[int, PullRequest] = {}
        address = self._routes.master_address(topic, broker_name)
        noted = subscription.noted(requests, asked)
        with self._pool.connection(address) as connection:
            for number, response in connection.invoke_many(noted, depth=depth, timeout=self._timeout):
                yield subscription.result(asked.pop(number), response, address)

    def read_ranges(
        self,
        ranges: Iterable[QueueRange],
        *,
        expression: str = "*",
        expression_type: str = "TAG",
        max_messages: int = 4096,
        depth: int = 64,
        patience: float = 120.0,
    ) -> Generator[RangePart]:
        """Everything between the offsets of the ranges, each range in its queue's order.

        A broker that is away or busy is waited for, and reading goes on where it stopped.

        Args:
            ranges: What to read; those next to each other that lie at one broker share its connection.
            expression: Tags, ``a || b``, or ``*`` for all messages; or an SQL92 expression.
            expression_type: ``TAG`` or ``SQL92``.
            max_messages: Most messages asked for in a pull.
            depth: Most pulls under way at once.
            patience: Seconds after which a broker that gives nothing is given up.

        Raises:
            ResponseError: A broker refused.
            ConnectError: A broker stayed away; likewise ConnectionLost and RequestTimeout.
        """
        subscription = Subscription(self.group, expression, 0.0, expression_type)
        for (topic, broker_name), group in groupby(ranges, lambda asked: _broker_of(asked.queue)):
            left, waiting = list(group), Patience(patience)
            while left:
                pulls = RangePulls(
                    left, max_messages=max_messages, depth=depth, is_filtered=not subscription.takes_all
                )
                try:
                    for part in self._read_from(topic, broker_name, pulls, subscription, depth):
                        waiting.renew()
                        yield part
                except AWAY as error:
                    self._routes.expire(topic)
                    waiting.failed(error)
                except ResponseError as error:
                    if error.code not in BUSY_CODES:
                        raise
                    waiting.failed(error)
                left = pulls.unread()
                if left:
                    time.sleep(waiting.pause())

    def _read_from(
        self, topic: str, broker_name: str, pulls: RangePulls, subscription: Subscription, depth: int
    ) -> Generator[RangePart]:
        asked: dict[int, PullRequest] = {}
        address = self._routes.master_address(topic, broker_name)
        requests = subscription.noted(pulls, asked)
        with self._pool.connection(address) as connection:
            for number, response in connection.invoke_many(requests, depth=depth, timeout=self._timeout):
                yield from pulls.answered(number, subscription.result(asked.pop(number), response, address))

    # Sending

    def batch_sender(self, *, depth: int = 8, patience: float = 120.0, in_order: bool = False) -> BatchSender:
        """Sends batches that are encoded already, up to `depth` under way to each broker; see `BatchSender`."""
        return BatchSender(
            self._routes,
            self._pool,
            depth=depth,
            request_timeout=self._timeout,
            patience=patience,
            in_order=in_order,
        )

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

    def ask(self, queue: MessageQueue, request: Request) -> RemotingCommand:
        """The answer of the queue's master, whatever its code, to a request that may be sent twice."""
        return self._on_master(queue, lambda connection: connection.invoke(*request, timeout=self._timeout))

    def _ask(self, queue: MessageQueue, code: RequestCode, header: Header) -> RemotingCommand:
        response = self._on_master(
            queue, lambda connection: connection.invoke(code, header, timeout=self._timeout)
        )
        if response.code != ResponseCode.SUCCESS:
            raise ResponseError(response.code, response.remark, address=queue.broker_name, request_code=code)
        return response

    def _ask_all(
        self, queues: Sequence[MessageQueue], code: RequestCode, headers: Sequence[Header]
    ) -> list[tuple[MessageQueue, RemotingCommand]]:
        """Ask the masters of all queues what may be asked twice, each of them everything at once."""
        answers: list[tuple[MessageQueue, RemotingCommand]] = []
        asked = sorted(zip(queues, headers, strict=True), key=lambda pair: pair[0])
        for _, group in groupby(asked, lambda pair: _broker_of(pair[0])):
            pairs = list(group)
            requests = [Request(code, header) for _, header in pairs]
            responses = self._on_master(pairs[0][0], partial(_invoke_all, requests, self._timeout))
            for (queue, _), response in zip(pairs, responses, strict=True):
                if response.code != ResponseCode.SUCCESS:
                    raise ResponseError(
                        response.code, response.remark, address=queue.broker_name, request_code=code
                    )
                answers.append((queue, response))
        return answers

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


def _broker_of(queue: MessageQueue) -> tuple[str, str]:
    return queue.topic, queue.broker_name


def _invoke_all(
    requests: Sequence[Request], timeout: float, connection: BlockingConnection
) -> list[RemotingCommand]:
    answers = dict(connection.invoke_many(requests, timeout=timeout))
    return [answers[number] for number in range(len(requests))]
