"""The pull consumer: one pull per call; the application keeps the offsets.

::

    for queue in await consumer.fetch_message_queues("orders"):
        result = await consumer.pull(queue, offsets.get(queue, 0))
        …                                   # result.messages
        offsets[queue] = result.next_begin_offset
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from rocket_client.connection import shared_clients
from rocket_client.consuming.inspection import running_info
from rocket_client.consuming.queue_pulls import PullTerms, QueuePulls
from rocket_client.consuming.queue_reader import QueueReader
from rocket_client.core.pull_answer import PullStatus
from rocket_client.core.subscription import ALL, sql_subscription, tag_subscription
from rocket_client.core.unpacked_bodies import UnpackedBodies, is_compressed
from rocket_client.metrics import ConsumerMeter
from rocket_client.settings import PullConsumerSettings
from rocket_remoting.clock import Clock
from rocket_remoting.transports.transport import Transport
from rocket_remoting.wire.bodies import (
    ConsumeFromWhere,
    ConsumeMessageDirectlyResult,
    ConsumeMessageResult,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from rocket_remoting.wire.message import MessageExt, MessageQueue

_MILLISECOND = timedelta(milliseconds=1)


class PullResult(NamedTuple):
    """The result of one pull."""

    status: PullStatus
    next_begin_offset: int
    """The offset of the next pull."""
    min_offset: int
    """The offset of the queue's oldest message."""
    max_offset: int
    """The offset that the queue's next message will get."""
    messages: list[MessageExt]


class PullConsumer(QueueReader[PullConsumerSettings]):
    """A member of a consumer group that pulls queue by queue, on request of the application.

    Args:
        group: The group's name.
        settings: Name servers and timeouts.
        transport: The transport of connections; TCP by default.
        clock: The clock of timestamps; the system clock by default.
    """

    def __init__(
        self,
        group: str,
        settings: PullConsumerSettings,
        *,
        transport: Transport | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(group, settings, transport=transport, clock=clock)
        self._topics: dict[str, None] = {}
        self._pulls: dict[MessageQueue, QueuePulls] = {}
        self._meter: ConsumerMeter | None = None
        self._hold_ms = settings.broker_suspend_max_time // _MILLISECOND

    async def start(self) -> None:
        """Start the consumer. Connections are opened by the first request that needs them.

        Raises:
            ClientStateError: The consumer was started before.
            GroupInUseError: Another consumer of the group has the same `instance_name`.
            NameServersUnreachableError: The addresses of the name servers could not be fetched.
        """
        self._life.begin()
        self._client = self._acquire(self.settings.instance_name, lambda client: self.group not in client.consumers)
        self._client.register_consumer(self)
        try:
            await self._client.name_servers.find()
        except BaseException:
            await self._leave()
            raise
        if self.settings.metrics is not None:
            group = self._namespace.unwrap(self.group)
            self._meter = self.settings.metrics.consumer(self._client.client_id, group, ())
        self._life.succeed()

    async def shutdown(self) -> None:
        """Unregister from the brokers and release the connections."""
        if self._life.end():
            self._start_leaving(self._leave())
        await self._wait_until_left()

    async def _leave(self) -> None:
        if self.settings.metrics is not None and self._meter is not None:
            self.settings.metrics.forget(self._meter)
        await self._client.unregister_consumer(self.group)
        await shared_clients.release(self._client)

    # Queues and offsets

    async def fetch_message_queues(self, topic: str) -> list[MessageQueue]:
        """Return the topic's readable queues, sorted, and keep the topic's route up to date from now on.

        Raises:
            ClientStateError: The consumer is not running.
            TopicNotFoundError: The topic does not exist.
        """
        queues = await super().fetch_message_queues(topic)
        self._topics[self._namespace.wrap(topic)] = None
        if self._meter is not None:
            self._meter.know(topic)
        return queues

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's committed offset in the queue; None if the group has committed none.

        Without a committed offset, brokers of 4.9 answer 0 for a queue whose first message they have in memory.

        Raises:
            ClientStateError: The consumer is not running.
            RemotingError: No broker was found, or it did not answer, or it refused.
        """
        return await self._client.requests.committed_offset(self._broker_queue(queue), self.group, zero_if_young=False)

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit offsets of the group at their brokers, one after the other.

        Raises:
            ClientStateError: The consumer is not running.
            RemotingError: A broker was not found, did not answer or refused; later offsets are not committed.
        """
        for queue, offset in offsets.items():
            await self._client.requests.commit_offset(self._broker_queue(queue), self.group, offset)

    # Pulls

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        expression: str = ALL,
        sql: str | None = None,
        max_messages: int = 32,
    ) -> PullResult:
        """Pull messages from an offset on; the broker answers at once, also if there are none.

        Compressed bodies are decompressed, together up to `max_decompressed_body_size` bytes. If not all fit, fewer
        messages are returned, and `next_begin_offset` is the offset of the first message left out.

        Args:
            queue: A queue of an existing topic.
            offset: The first offset.
            expression: Tags such as ``"TagA || TagB"``; ``"*"`` for all messages.
            sql: An SQL92 expression over properties instead of tags, for brokers with ``enablePropertyFilter=true``.
            max_messages: Maximum number of messages to return.

        Raises:
            ClientStateError: The consumer is not running.
            ValueError: The expression is blank or names no tag.
            UnreadableBodyError: The body of the first message is damaged or too large. To skip the message, pull from
                the offset behind the one of the error's `message`.
            RemotingError: No broker was found, or it did not answer, or it refused.
        """
        queue = self._broker_queue(queue)
        return await self._pull(queue, offset, _subscription(queue.topic, expression, sql), max_messages, 0)

    async def pull_block_if_not_found(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        expression: str = ALL,
        sql: str | None = None,
        max_messages: int = 32,
    ) -> PullResult:
        """Pull as `pull` does, but let the broker hold the request until a message comes.

        The broker answers without messages after `broker_suspend_max_time`. Arguments and errors are those of `pull`.
        """
        queue = self._broker_queue(queue)
        subscription = _subscription(queue.topic, expression, sql)
        return await self._pull(queue, offset, subscription, max_messages, self._hold_ms)

    async def _pull(
        self,
        queue: MessageQueue,
        offset: int,
        subscription: SubscriptionData,
        max_messages: int,
        hold_ms: int,
    ) -> PullResult:
        settings = self.settings
        limit = settings.consumer_timeout_when_suspend if hold_ms else settings.consumer_pull_timeout
        terms = PullTerms(max_messages, hold_ms, limit.total_seconds(), posts_subscription=True)
        pulls = self._pulls.get(queue)
        if pulls is None:
            pulls = self._pulls[queue] = QueuePulls(self._client, self.group, queue, self._namespace)
        answer = await pulls.pull(subscription, offset, terms)
        messages = pulls.messages(answer, subscription)
        next_offset = answer.next_begin_offset
        if is_compressed(messages):
            # The limit is for this pull alone: when the application is done with the messages is not known.
            unpacked = await UnpackedBodies(settings).unpack(messages)
            if unpacked.error is not None and not unpacked.messages:
                raise unpacked.error
            if len(unpacked.messages) < len(messages):
                next_offset = messages[len(unpacked.messages)].queue_offset
            messages = unpacked.messages
        if self._meter is not None:
            self._count(self._meter, queue, max(0, answer.max_offset - next_offset), messages)
        return PullResult(answer.status, next_offset, answer.min_offset, answer.max_offset, messages)

    def _count(self, meter: ConsumerMeter, queue: MessageQueue, lag: int, messages: Sequence[MessageExt]) -> None:
        queue = self._namespace.unwrap_queue(queue)
        meter.pulled(queue, len(messages), lag)
        if messages:
            meter.arrived(queue.topic, self._clock.now_ms() - messages[0].store_timestamp)

    # Requests of the client and of brokers

    def heartbeat_data(self) -> ConsumerData:
        """Return the group's part of a heartbeat, without subscriptions: each pull carries its own."""
        return ConsumerData(
            group_name=self.group,
            consume_type=ConsumeType.CONSUME_ACTIVELY,
            message_model=MessageModel.CLUSTERING,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            subscription_data_set=[],
        )

    def subscribed_topics(self) -> Collection[str]:
        """Return the topics that `fetch_message_queues` was called for."""
        return self._topics

    def master_lost(self, broker_name: str) -> None:
        """Do nothing: this consumer has no locks."""

    def rebalance_soon(self) -> None:
        """Do nothing: queues are not divided among members."""

    async def persist_offsets(self) -> None:
        """Do nothing: `commit` sends offsets at once."""

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Do nothing: the application decides the offset of each pull."""

    def known_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """Return an empty dict: the application keeps the offsets."""
        return {}

    def running_info(self, name_servers: Sequence[str]) -> ConsumerRunningInfo:
        """Return settings and state of this consumer, for consoles."""
        return running_info(
            self.settings,
            name_servers,
            self._client.started_at_ms,
            self._clock.now_ms(),
            consume_type=ConsumeType.CONSUME_ACTIVELY,
            concurrency=0,
            orderly=False,
            subscriptions=[],
            process_queues=[],
            offsets={},
        )

    async def consume_directly(self, message: MessageExt) -> ConsumeMessageDirectlyResult:
        """Return CR_RETURN_NULL: this consumer has no listener."""
        return ConsumeMessageDirectlyResult(
            consume_result=ConsumeMessageResult.CR_RETURN_NULL, remark=f"consumer {self.client_id} pulls"
        )


def _subscription(topic: str, expression: str, sql: str | None) -> SubscriptionData:
    return tag_subscription(topic, expression, 0) if sql is None else sql_subscription(topic, sql, 0)
