"""Pulls messages one request at a time; where to begin, and what is consumed, is the application's to keep.

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
    """What a queue gave."""

    status: PullStatus
    next_begin_offset: int
    """Where to pull next."""
    min_offset: int
    """Where the queue's oldest message is."""
    max_offset: int
    """Where its next message will be."""
    messages: list[MessageExt]


class PullConsumer(QueueReader[PullConsumerSettings]):
    """A member of a consumer group that pulls queue by queue.

    Args:
        group: Its name.
        settings: Name servers and timeouts.
        transport: TCP unless given.
        clock: Where stamps come from; the machine's unless given.
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
        self._hold_ms = settings.broker_suspend_max_time // _MILLISECOND

    async def start(self) -> None:
        """The consumer can pull.

        Raises:
            ClientStateError: It was started before.
            GroupInUseError: Another consumer of the group has the same `instance_name`.
        """
        self._life.begin()
        self._client = self._acquire(
            self.settings.instance_name, lambda client: self.group not in client.consumers
        )
        self._client.register_consumer(self)
        self._life.succeed()

    async def shutdown(self) -> None:
        """Brokers know that the consumer left."""
        if self._life.end():
            self._begin_to_leave(self._leave())
        await self._has_left()

    async def _leave(self) -> None:
        await self._client.unregister_consumer(self.group)
        await shared_clients.release(self._client)

    # Queues and offsets

    async def fetch_message_queues(self, topic: str) -> list[MessageQueue]:
        """The topic's queues that can be read, in order.

        Raises:
            TopicNotFoundError: There is no such topic.
        """
        queues = await super().fetch_message_queues(topic)
        self._topics[self._namespace.wrap(topic)] = None
        return queues

    async def committed(self, queue: MessageQueue) -> int | None:
        """The offset the broker keeps for the group; None when it has none."""
        return await self._client.requests.committed_offset(self._known(queue), self.group)

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """The brokers keep these offsets for the group.

        Raises:
            RemotingError: A broker did not take one.
        """
        for queue, offset in offsets.items():
            await self._client.requests.commit_offset(self._known(queue), self.group, offset)

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
        """What the queue has from that offset on, at once.

        Args:
            queue: Of a topic that exists.
            offset: Where to begin.
            expression: The tags wanted: ``"TagA || TagB"``, or ``"*"``.
            sql: Instead, an SQL92 expression over properties, for brokers with ``enablePropertyFilter=true``.
            max_messages: At most so many.

        Compressed bodies are decompressed, up to `max_decompressed_body_size` bytes for one pull: of larger messages
        fewer come at once, and the result's `next_begin_offset` is that of the next one.

        Raises:
            UnreadableBodyError: The body of the first message is damaged or too large; pull from the offset behind
                its `message` on to pass over it.
            RemotingError: No broker was found, it did not answer, or it refused.
        """
        queue = self._known(queue)
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
        """`pull`, but the broker holds it until there is a message, or `broker_suspend_max_time` is over."""
        queue = self._known(queue)
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
            # Of this pull alone: what becomes of the messages is the application's to say.
            unpacked = await UnpackedBodies(settings).unpack(messages)
            if unpacked.error is not None and not unpacked.messages:
                raise unpacked.error
            if len(unpacked.messages) < len(messages):
                next_offset = messages[len(unpacked.messages)].queue_offset
            messages = unpacked.messages
        return PullResult(answer.status, next_offset, answer.min_offset, answer.max_offset, messages)

    # What the client and brokers ask of it

    def heartbeat_data(self) -> ConsumerData:
        """The group; what it reads is decided with each pull."""
        return ConsumerData(
            group_name=self.group,
            consume_type=ConsumeType.CONSUME_ACTIVELY,
            message_model=MessageModel.CLUSTERING,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            subscription_data_set=[],
        )

    def subscribed_topics(self) -> Collection[str]:
        """Topics whose queues were asked for."""
        return self._topics

    def rebalance_soon(self) -> None:
        """Nothing: queues are not shared."""

    async def persist_offsets(self) -> None:
        """Nothing: `commit` does it at once."""

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Nothing: where to pull is the application's to say."""

    def known_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """None: the application keeps them."""
        return {}

    def running_info(self, name_servers: Sequence[str]) -> ConsumerRunningInfo:
        """What this consumer looks like from inside."""
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
        """Nothing: there is no listener to give it to."""
        return ConsumeMessageDirectlyResult(
            consume_result=ConsumeMessageResult.CR_RETURN_NULL, remark=f"consumer {self.client_id} pulls"
        )


def _subscription(topic: str, expression: str, sql: str | None) -> SubscriptionData:
    return tag_subscription(topic, expression, 0) if sql is None else sql_subscription(topic, sql, 0)
