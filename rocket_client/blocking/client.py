"""The blocking client: queues, offsets, pulls and sends, without an event loop."""

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from itertools import count, groupby
from typing import Self, TypeVar

from rocket_client.blocking.batch_sender import BatchSender
from rocket_client.blocking.connection import BlockingConnection
from rocket_client.blocking.meters import BlockingMeters, Meters
from rocket_client.blocking.pipeline import Request
from rocket_client.blocking.pool import ConnectionPool
from rocket_client.blocking.pulls import PullRequest, PullResult, Subscription
from rocket_client.blocking.ranges import QueueRange, RangePart, RangePulls, lacks_messages
from rocket_client.blocking.retrying import BUSY_CODES, UNREACHABLE_ERRORS, Patience
from rocket_client.blocking.routes import BlockingRoutes
from rocket_client.core import offset_calls
from rocket_client.core.call import Call
from rocket_client.core.outgoing import Outgoing, OutgoingMessages
from rocket_client.core.pull_target import PullTarget
from rocket_client.core.selectors import MessageQueueSelector
from rocket_client.core.send_attempts import SendAttempts, SendRules
from rocket_client.core.send_result import SendResult
from rocket_client.core.topic_route import MASTER_ID
from rocket_client.errors import NotCopiedError
from rocket_client.namespace import Namespace
from rocket_client.settings import ProducerSettings
from rocket_remoting.clock import SystemClock
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import ConnectError, ConnectionLost, RemotingError, ResponseError
from rocket_remoting.wire.message import Message, MessageQueue
from rocket_remoting.wire.message_id import UniqueIdGenerator

T = TypeVar("T")

_HELD_LONGER = 5.0
"""Seconds by which a broker may answer a held pull too late: Apache's brokers check held pulls every 5 s."""

_NOT_HONOURED = (
    "retry_another_broker_when_not_store_ok",
    "send_latency_fault_enable",
    "trace_topic",
    "vip_channel_enabled",
)
"""Settings of producers that this client does not support and therefore refuses."""


class BlockingClient:
    """Reads and writes topics without an event loop.

    Methods that ask a broker raise a `RemotingError` if it cannot be reached, does not answer in time or refuses.

    Args:
        group: The group whose offsets are read and committed, and the producer group of sent messages.
        settings: Name servers, timeouts, and the settings of sends; without a namespace.

    Raises:
        ValueError: The settings have a namespace: this client uses names as brokers know them, because its records have
            them; `rocket_client.Namespace.wrap` makes such names. Or the settings enable a feature that this client
            does not have: `retry_another_broker_when_not_store_ok`, `send_latency_fault_enable`, `trace_topic` or
            `vip_channel_enabled`.
    """

    def __init__(self, group: str, settings: ProducerSettings) -> None:
        if settings.namespace:
            raise ValueError(
                f"the blocking client has no namespace: leave out {settings.namespace!r} (namespace='' if an address "
                f"names it), and use the names in brokers, such as {Namespace(settings.namespace).wrap(group)!r}"
            )
        for name in _NOT_HONOURED:
            if value := getattr(settings, name):
                text = f"{name}={value!r} has no effect in the blocking client: leave it out, or use Producer"
                raise ValueError(text)
        self.group = group
        self._settings = settings
        self._timeout = settings.request_timeout.total_seconds()
        self._pool = ConnectionPool(settings.connect_timeout.total_seconds(), settings.tls, settings.credentials)
        self._routes = BlockingRoutes(settings, self._pool)
        self._targets: dict[tuple[str, MessageQueue | None], PullTarget] = {}
        self._outgoing = OutgoingMessages(group, settings, SystemClock(), UniqueIdGenerator(settings.client_ip))
        metrics = settings.metrics
        self._meters = Meters() if metrics is None else BlockingMeters(metrics, group, settings)

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()
        self._meters.forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<BlockingClient {self.group} at {self._settings.name_servers_text}>"

    # Queues

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the topic's readable queues, sorted.

        Raises:
            TopicNotFoundError: No name server knows the topic.
            NameServersUnreachableError: No name server answered, and the route was not known.
        """
        queues = self._routes.route(topic).subscribe_queues
        self._meters.reads(topic)
        return queues

    def topics(self) -> frozenset[str]:
        """Return all topics that the name server knows, including the brokers' own."""
        return self._routes.topics()

    def brokers(self) -> frozenset[str]:
        """Return the names of all brokers that the name server knows."""
        return self._routes.brokers()

    def publish_queues(self, topic: str, *, create: bool = True) -> tuple[MessageQueue, ...]:
        """Return the topic's writable queues.

        Args:
            topic: The topic.
            create: Whether to return the future queues of a topic that does not exist but that brokers will create.

        Raises:
            TopicNotFoundError: The topic does not exist and is not created, or it is not writable.
            NameServersUnreachableError: No name server answered.
        """
        queues = (self._routes.for_publishing(topic) if create else self._routes.writable(topic)).publish_queues
        self._meters.writes(topic)
        return queues

    # Offsets

    def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the queue's oldest message."""
        return self._call(queue, offset_calls.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the queue's next message will get."""
        return self._call(queue, offset_calls.max_offset(queue))

    def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the message stored at a time: on Apache 4.9 the nearest message, on 5.x the next one."""
        return self._call(queue, offset_calls.search_offset(queue, timestamp_ms))

    def committed_offset(self, queue: MessageQueue) -> int | None:
        """Return the group's committed offset in the queue; None if the group has committed none.

        Without a committed offset, brokers of 4.9 answer 0 for a queue whose first message they have in memory.
        """
        return self._call(queue, offset_calls.committed_offset(queue, self.group, zero_if_young=False))

    def commit_offset(self, queue: MessageQueue, offset: int) -> None:
        """Commit the group's offset in the queue.

        Apache's brokers refuse the commit from 5.0 on while they do not know the group; a pull makes the group known.

        Raises:
            ResponseError: The broker refused the commit.
        """
        self._call(queue, offset_calls.commit_offset(queue, self.group, offset))

    def min_offsets(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """Return `min_offset` of many queues, with many requests under way at once."""
        return self._call_all({queue: offset_calls.min_offset(queue) for queue in queues})

    def max_offsets(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """Return `max_offset` of many queues, with many requests under way at once."""
        return self._call_all({queue: offset_calls.max_offset(queue) for queue in queues})

    def commit_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit the offsets of many queues, as `commit_offset` does, with many requests under way at once."""
        self._call_all(
            {queue: offset_calls.commit_offset(queue, self.group, offset) for queue, offset in offsets.items()}
        )

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
        """Pull messages of the queue from `offset` on.

        Args:
            queue: The queue.
            offset: The first offset.
            max_messages: Maximum number of messages to return; the broker may return fewer.
            expression: Tags, ``a || b``, or ``*`` for all messages; or an SQL92 expression.
            expression_type: ``TAG`` or ``SQL92``.
            wait: Seconds for which the broker may hold a pull that finds nothing; Apache's may take five more.

        Raises:
            ResponseError: The broker refused the pull.
        """
        limit = self._timeout + (wait + _HELD_LONGER if wait else 0.0)
        asked = PullRequest(queue, offset, max_messages)
        subscription = Subscription(self.group, expression, wait, expression_type)
        request = subscription.request(asked)
        target = self._target(queue.broker_name, queue)
        try:
            response = self._pull_once(queue, target, request, limit)
        except (ConnectError, ConnectionLost):
            self._routes.expire(queue.topic)
            response = self._pull_once(queue, target, request, limit)
        result = subscription.result(asked, response, queue.broker_name)
        target.answered(result.suggested_broker_id)
        self._meters.pulled(result)
        return result

    def _pull_once(self, queue: MessageQueue, target: PullTarget, request: Request, timeout: float) -> RemotingCommand:
        """Send a pull to the master or a slave; turn to another one if it cannot be reached."""
        address, broker_id = self._routes.pull_address(queue.topic, queue.broker_name, target)
        try:
            with self._pool.connection(address) as connection:
                return connection.invoke(*request, timeout=timeout)
        except (ConnectError, ConnectionLost):
            target.unreachable(broker_id)
            raise

    def _target(self, broker_name: str, queue: MessageQueue | None = None) -> PullTarget:
        """Return the choice of the broker for pulls of a queue, or for many pulls of a broker name."""
        key = broker_name, queue
        # `setdefault` for threads: two first pulls of a queue must not have a choice each.
        return self._targets.get(key) or self._targets.setdefault(key, self._routes.pull_target(broker_name))

    def pull_many(
        self, requests: Iterable[PullRequest], *, expression: str = "*", depth: int = 64
    ) -> Generator[PullResult]:
        """Yield the results of many pulls in the order of arrival, with up to `depth` pulls under way at once.

        Successive requests to one broker share a connection. `requests` is consumed as results arrive.

        Raises:
            ResponseError: A broker refused a pull.
        """
        subscription = Subscription(self.group, expression, 0.0)
        for (topic, broker_name), group in groupby(requests, lambda pull: _broker_of(pull.queue)):
            target = self._target(broker_name)
            address, broker_id = self._routes.pull_address(topic, broker_name, target)
            try:
                for _, result in self._pull_from(address, group, subscription, depth):
                    yield result
            except UNREACHABLE_ERRORS:
                self._routes.expire(topic)
                target.unreachable(broker_id)
                raise

    def _pull_from(
        self, address: str, pulls: Iterable[PullRequest], subscription: Subscription, depth: int
    ) -> Generator[tuple[int, PullResult]]:
        """Yield the results of pulls from one broker in the order of arrival, each with its pull's number from 0."""
        sent: dict[int, PullRequest] = {}
        numbers = count()

        def request_of(pull: PullRequest) -> Request:
            sent[next(numbers)] = pull
            return subscription.request(pull)

        with self._pool.connection(address) as connection:
            # Not a generator: `RangePulls` may yield more pulls after it had none, which would have ended a generator.
            requests = map(request_of, pulls)
            for number, response in connection.invoke_many(requests, depth=depth, timeout=self._timeout):
                result = subscription.result(sent.pop(number), response, address)
                self._meters.pulled(result)
                yield number, result

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
        """Yield all messages of the ranges, each range in the order of its queue.

        If the master is unreachable, or suggests a slave, continue at the slave where reading stopped; if all are
        unreachable or busy, wait for them.

        Args:
            ranges: The ranges; successive ranges of one broker share a connection.
            expression: Tags, ``a || b``, or ``*`` for all messages; or an SQL92 expression.
            expression_type: ``TAG`` or ``SQL92``.
            max_messages: Maximum number of messages of a pull.
            depth: Maximum number of pulls under way at once.
            patience: Seconds to wait for a broker that is unreachable or busy.

        Raises:
            ResponseError: A broker refused a pull, or stayed busy for `patience` seconds.
            ConnectError: A broker stayed unreachable; likewise ConnectionLost and RequestTimeout.
            NotCopiedError: The master stayed unreachable, and its slave lacks messages of the ranges.
        """
        subscription = Subscription(self.group, expression, 0.0, expression_type)
        for (topic, broker_name), group in groupby(ranges, lambda part: _broker_of(part.queue)):
            left, waiting = list(group), Patience(patience)
            target, follows = self._target(broker_name), True
            while left:
                pulls = RangePulls(left, max_messages=max_messages, depth=depth, is_filtered=not subscription.takes_all)
                broker_id = target.broker_id
                try:
                    address, broker_id = self._routes.pull_address(topic, broker_name, target)
                    for number, result in self._pull_from(address, pulls, subscription, depth):
                        if broker_id != MASTER_ID and lacks_messages(result):
                            raise NotCopiedError(result.request.queue, address)
                        if follows:
                            target.answered(result.suggested_broker_id)
                        for part in pulls.answered(number, result):
                            waiting.renew()
                            yield part
                            if target.moves_from(address):
                                pulls.stop()
                except (*UNREACHABLE_ERRORS, ResponseError) as error:
                    if isinstance(error, ResponseError) and error.code not in BUSY_CODES and broker_id == MASTER_ID:
                        raise
                    # Only a master is believed that messages, topics or groups are not there. It may suggest the slave
                    # again.
                    follows &= broker_id == MASTER_ID or not isinstance(error, NotCopiedError | ResponseError)
                    self._turn_away(target, broker_id, topic, error)
                    waiting.failed(error)
                left = pulls.unread()
                if left and waiting.is_waiting:
                    time.sleep(waiting.pause())

    def _turn_away(self, target: PullTarget, broker_id: int, topic: str, error: RemotingError) -> None:
        """Pull from another broker of the name next: to the master if a slave has answered."""
        if isinstance(error, NotCopiedError | ResponseError):
            target.answered(MASTER_ID)
        else:
            self._routes.expire(topic)
            target.unreachable(broker_id)

    # Sending

    def batch_sender(self, *, depth: int = 8, patience: float = 120.0, in_order: bool = False) -> BatchSender:
        """Return a sender of encoded batches, with up to `depth` of them under way to each broker."""
        return BatchSender(
            self._routes,
            self._pool,
            depth=depth,
            request_timeout=self._timeout,
            patience=patience,
            in_order=in_order,
            meters=self._meters,
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
        """Send a message and wait until a broker has stored it.

        Failures are tried again at other brokers as the settings say, unless the queue is fixed.

        Args:
            message: The message; the send sets its `unique_key`.
            queue: The queue to send to; by default the topic's queues are used in turn.
            selector: Function that chooses the queue among those of the topic's route.
            argument: Third argument of the selector.
            timeout: Seconds for all attempts together; `ProducerSettings.send_timeout` by default.

        Raises:
            IllegalMessageError: The message is malformed or too large.
            TopicNotFoundError: The topic does not exist, and brokers do not create it.
            SendError: No broker stored the message.
        """
        outgoing = self._outgoing.message(message)
        if selector is not None:
            queue = selector(self.publish_queues(message.topic), message, argument)
        return self._send(outgoing, queue, timeout)

    def send_batch(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None, timeout: float | None = None
    ) -> SendResult:
        """Send messages of one topic in one request to one queue; see `send`."""
        return self._send(self._outgoing.batch(messages), queue, timeout)

    def _send(self, outgoing: Outgoing, fixed: MessageQueue | None, timeout: float | None) -> SendResult:
        with self._meters.send(outgoing.topic):
            return self._attempts(outgoing, fixed, timeout)

    def _attempts(self, outgoing: Outgoing, fixed: MessageQueue | None, timeout: float | None) -> SendResult:
        limit = self._settings.send_timeout.total_seconds() if timeout is None else timeout
        rules = SendRules.of(self._settings, is_fixed=fixed is not None)
        attempts = SendAttempts(outgoing.topic, rules, time.monotonic(), limit)
        route = self._routes.for_publishing(outgoing.topic)
        while attempts.may_begin(now := time.monotonic()):
            target = fixed or route.next_queue(attempts.last_broker)
            attempts.begin(target.broker_name)
            try:
                result = self._send_to(target, outgoing, attempts.deadline - now)
            except RemotingError as error:
                attempts.failed(error)
                self._meters.attempt_failed(outgoing.topic)
                if _is_about_master(error):
                    self._routes.expire(outgoing.topic)
            else:
                if attempts.is_final(result):
                    return result
        return attempts.conclude(time.monotonic())

    def _send_to(self, target: MessageQueue, outgoing: Outgoing, remaining: float) -> SendResult:
        address = self._routes.master_address(target.topic, target.broker_name)
        header = self._outgoing.header(outgoing, target.broker_name, target.queue_id)
        with self._pool.connection(address) as connection:
            response = connection.invoke(outgoing.code, header, outgoing.body, timeout=remaining)
        result = self._outgoing.result(outgoing, target, response, address)
        self._routes.created(target.topic)
        return result

    # Requests

    def ask(self, queue: MessageQueue, request: Request) -> RemotingCommand:
        """Send a request to the queue's master; return the response of any code.

        If the connection is lost, the request is sent again with a new route; to a slave if that has no master.
        """
        return self._on_reader(queue, lambda connection: connection.invoke(*request, timeout=self._timeout))

    def _call(self, queue: MessageQueue, call: Call[T]) -> T:
        """Make a call as `ask` sends a request; return the result."""
        return call.result(self.ask(queue, Request(call.code, call.header)), queue.broker_name)

    def _call_all(self, calls: Mapping[MessageQueue, Call[T]]) -> dict[MessageQueue, T]:
        """Make the calls as `_call` does, with many requests under way at once; return the results by queue."""
        results: dict[MessageQueue, T] = {}
        for _, group in groupby(sorted(calls), _broker_of):
            queues = list(group)
            requests = [Request(calls[queue].code, calls[queue].header) for queue in queues]
            responses = self._on_reader(queues[0], partial(_invoke_all, requests, self._timeout))
            for queue, response in zip(queues, responses, strict=True):
                results[queue] = calls[queue].result(response, queue.broker_name)
        return results

    def _on_reader(self, queue: MessageQueue, ask: Callable[[BlockingConnection], T]) -> T:
        """Run `ask` with a connection to the queue's master, to a slave if the route has no master.

        If the connection is lost, run it once more, with a new route.
        """
        try:
            with self._pool.connection(self._reader_of(queue)) as connection:
                return ask(connection)
        except (ConnectError, ConnectionLost):
            self._routes.expire(queue.topic)
            with self._pool.connection(self._reader_of(queue)) as connection:
                return ask(connection)

    def _reader_of(self, queue: MessageQueue) -> str:
        return self._routes.reader_address(queue.topic, queue.broker_name)


def _is_about_master(error: RemotingError) -> bool:
    """Return whether another broker may be the master now: this one cannot be reached, or refuses as a slave does."""
    if isinstance(error, ResponseError):
        return error.code == ResponseCode.SERVICE_NOT_AVAILABLE
    return isinstance(error, ConnectError | ConnectionLost)


def _broker_of(queue: MessageQueue) -> tuple[str, str]:
    return queue.topic, queue.broker_name


def _invoke_all(requests: Sequence[Request], timeout: float, connection: BlockingConnection) -> list[RemotingCommand]:
    answers = dict(connection.invoke_many(requests, timeout=timeout))
    return [answers[number] for number in range(len(requests))]
