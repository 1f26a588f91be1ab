"""The base of push and lite pull consumers: subscriptions, a share of the queues, pulls, offsets.

::

    subscribe, start
         └─> Rebalancer ── one PullLoop per queue ──> ProcessQueue ──> a Consumption: a listener's calls, or polls
                 └── OffsetStore <── smallest unsettled offset ───────────┘
"""

import logging
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from rocket_client.connection import shared_clients
from rocket_client.connection.client import RocketClient
from rocket_client.consuming.inspection import running_info
from rocket_client.consuming.locks import QueueLocks
from rocket_client.consuming.membership import Membership
from rocket_client.consuming.metered_listener import Arrivals
from rocket_client.consuming.offsets import BrokerOffsets, LocalOffsets, OffsetStore
from rocket_client.consuming.pulling import Consumption
from rocket_client.consuming.queue_reader import QueueReader
from rocket_client.consuming.rebalance import Rebalancer
from rocket_client.consuming.send_back import SendBack
from rocket_client.consuming.shares import AllQueues, GroupShares, Shares
from rocket_client.core.outgoing import OutgoingMessages
from rocket_client.core.process_queue import ProcessQueue
from rocket_client.core.pull_gate import PullGate
from rocket_client.core.subscription import ALL, SQL92, sql_subscription, tag_subscription
from rocket_client.core.topic_route import TopicRoute
from rocket_client.core.unpacked_bodies import UnpackedBodies
from rocket_client.metrics import ClientMetrics, ConsumerMeter, ReadQueue
from rocket_client.settings import ConsumerSettings, MessageModel, ProducerSettings
from rocket_remoting.clock import Clock
from rocket_remoting.transports.transport import Transport
from rocket_remoting.wire import bodies
from rocket_remoting.wire.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumeType,
    SubscriptionData,
)
from rocket_remoting.wire.message import MessageExt, MessageQueue
from rocket_remoting.wire.properties import PROPERTY_RETRY_TOPIC
from rocket_remoting.wire.topics import is_retry_topic, retry_topic, validate_topic

logger = logging.getLogger(__name__)

C = TypeVar("C", bound=ConsumerSettings)

RebalanceListener = Callable[[str, frozenset[MessageQueue], frozenset[MessageQueue]], None]
"""Called with a topic, all its readable queues, and this member's queues among them."""


class GroupConsumer(QueueReader[C]):
    """A consumer that shares the queues of the topics it subscribes to with the other members of its group."""

    _CONSUME_TYPE: ConsumeType
    _offsets: OffsetStore
    _consumption: Consumption
    _rebalancer: Rebalancer
    _meter: ConsumerMeter | None = None
    _arrivals: Arrivals | None = None

    def __init__(
        self, group: str, settings: C, *, transport: Transport | None = None, clock: Clock | None = None
    ) -> None:
        super().__init__(group, settings, transport=transport, clock=clock)
        self._clustering = settings.message_model is MessageModel.CLUSTERING
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._version = 0
        self._gate = PullGate()
        self._bodies = UnpackedBodies(settings)
        self._listeners: list[RebalanceListener] = []

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.group} of {list(self._subscriptions)}, {self._life.state.value}>"

    @property
    def assigned(self) -> frozenset[MessageQueue]:
        """The queues assigned to this member now; empty unless the consumer is running."""
        if not self._life.running:
            return frozenset()
        queues = self._rebalancer.assigned()
        return frozenset(map(self._namespace.unwrap_queue, queues)) if self._namespace else queues

    @property
    def process_queues(self) -> Collection[ProcessQueue]:
        """The process queues of the assigned queues, whose names include the namespace."""
        return tuple(self._rebalancer.queues()) if self._life.running else ()

    @property
    def positions(self) -> dict[MessageQueue, int]:
        """For each assigned queue, the offset before which this member has settled all messages.

        The group's retry topic is among them. A lite pull consumer counts a polled message as settled.
        """
        unwrap = self._namespace.unwrap_queue
        return {unwrap(each.message_queue): each.position for each in self.process_queues}

    # Subscriptions

    def subscribe(self, topic: str, expression: str | None = ALL) -> None:
        """Subscribe to the topic's messages with one of the tags; this replaces a subscription to the same topic.

        Args:
            topic: The topic.
            expression: Tags such as ``"TagA || TagB"``; ``"*"`` or None for all messages.

        Raises:
            ValueError: The topic's name is illegal, or the expression names no tag.
        """
        self._put_subscription(tag_subscription(self._checked_topic(topic), expression, self._next_version()))
        self._subscriptions_changed()

    def subscribe_sql(self, topic: str, expression: str) -> None:
        """Subscribe to the topic's messages whose properties match an SQL92 expression.

        Brokers must have ``enablePropertyFilter=true``; `start` asks a broker to check the expression.

        Args:
            topic: The topic.
            expression: An SQL92 expression, such as ``"price > 10 AND kind = 'tea'"``.

        Raises:
            ValueError: The topic's name is illegal, or the expression is blank.
        """
        self._put_subscription(sql_subscription(self._checked_topic(topic), expression, self._next_version()))
        self._subscriptions_changed()

    def unsubscribe(self, topic: str) -> None:
        """End the subscription to the topic; do nothing if there is none."""
        if self._subscriptions.pop(self._namespace.wrap(topic), None) is not None:
            self._subscriptions_changed()

    def on_rebalance(self, listener: RebalanceListener) -> None:
        """Call the listener, on the consumer's event loop, after this member's queues of a topic have changed."""
        self._listeners.append(listener)

    def origin_topic(self, message: MessageExt) -> str:
        """Return the topic that the message was sent to, even if it came from the group's retry topic."""
        topic = self._namespace.wrap(message.topic)
        if topic == retry_topic(self.group):
            topic = message.properties.get(PROPERTY_RETRY_TOPIC, topic)
        return self._namespace.unwrap(topic)

    def _checked_topic(self, topic: str) -> str:
        """Return the topic as brokers know it.

        Raises:
            ValueError: The topic's name is illegal.
        """
        topic = self._namespace.wrap(topic)
        validate_topic(topic)
        return topic

    def _next_version(self) -> int:
        # Brokers accept a subscription only if its version is higher than that of the subscription they have.
        self._version = max(self._clock.now_ms(), self._version + 1)
        return self._version

    def _put_subscription(self, subscription: SubscriptionData) -> None:
        self._subscriptions[subscription.topic] = subscription

    def _subscriptions_changed(self) -> None:
        if self._life.running:
            self._client.spawn(self._publish_subscriptions(), "announce subscriptions")

    async def _publish_subscriptions(self) -> None:
        await self._client.routes.refresh_all(list(self._subscriptions))
        await self._client.heartbeat()
        self._client.search_routes()
        self._rebalancer.request()

    # Life

    async def _join(self) -> None:
        """Join the group: make the consumer's parts, register at the brokers, and take queues over."""
        self._client = self._acquire_client()
        self._offsets = (
            BrokerOffsets(self._client.requests, self.group) if self._clustering else LocalOffsets(self._offsets_path())
        )
        if self.settings.metrics is not None:
            self._count(self.settings.metrics)
        member = self._membership()
        self._consumption = self._make_consumption(member)
        self._rebalancer = Rebalancer(member, self._shares(member), self._consumption, self._locks(), self._listeners)
        self._client.register_consumer(self)
        try:
            await self._begin()
        except BaseException:
            self._start_leaving(self._leave(timeout=0))
            await self._wait_until_left()
            raise
        self._life.succeed()
        logger.info("%r started as %s", self, self._client.client_id)

    def _count(self, metrics: ClientMetrics) -> None:
        unwrap = self._namespace.unwrap
        topics = [unwrap(topic) for topic in self._subscriptions if not is_retry_topic(topic)]
        self._meter = metrics.consumer(self._client.client_id, unwrap(self.group), topics, self._read_queues)
        self._arrivals = Arrivals(self._meter, self._namespace, self._clock)

    def _read_queues(self) -> list[ReadQueue]:
        unwrap = self._namespace.unwrap
        return [ReadQueue(unwrap(each.message_queue.topic), each.lag, *each.cached()) for each in self.process_queues]

    def _acquire_client(self) -> RocketClient:
        name = self.settings.instance_name
        if name is None and not self._clustering:
            name = shared_clients.BROADCASTING_INSTANCE
        return self._acquire(name, lambda client: self.group not in client.consumers)

    @abstractmethod
    def _membership(self) -> Membership:
        """Return the object that this consumer's parts share."""

    @abstractmethod
    def _make_consumption(self, member: Membership) -> Consumption:
        """Return the consumption that gets the pulled messages."""

    def _shares(self, member: Membership) -> Shares:
        return GroupShares(member) if self._clustering else AllQueues()

    def _locks(self) -> QueueLocks | None:
        return None

    def _send_back(self) -> SendBack | None:
        """Return the sender of failed messages; None in broadcasting, where they are dropped."""
        if not self._clustering:
            return None
        client = self._client
        # A message that a broker has stored may go back to brokers whatever its size.
        sending = ProducerSettings(
            name_servers=self.settings.name_servers,
            name_server_domain=self.settings.name_server_domain,
            namespace=self._namespace.name,
            max_message_size=1 << 31,
        )
        outgoing = OutgoingMessages(self.group, sending, client.clock, client.unique_ids)
        return SendBack(self.group, client.requests, client.routes, outgoing)

    async def _close_traces(self) -> None:
        """Write the message traces that wait; nothing if none are written."""

    async def _begin(self) -> None:
        await self._client.name_servers.find()
        for topic in list(self._subscriptions):
            route = await self._client.routes.refresh(topic)
            if route is None and not is_retry_topic(topic):
                logger.warning(
                    "group %s: topic %s does not exist yet; nothing is received from it until it does",
                    self.group,
                    topic,
                )
        await self._check_expressions()
        # Before the rebalance: a broker names this member to the allocation strategy only after a heartbeat.
        await self._client.heartbeat()
        self._consumption.start()
        self._client.routes.changed.append(self._route_changed)
        await self._rebalancer.start()
        self._client.search_routes()

    async def _check_expressions(self) -> None:
        """Ask brokers to check the SQL92 expressions, so that `start` fails and not each pull.

        Raises:
            ResponseError: A broker does not accept an expression.
        """
        for subscription in self._subscriptions.values():
            address = self._client.routes.any_broker_of(subscription.topic)
            if subscription.expression_type == SQL92 and address is not None:
                await self._client.requests.check_subscription(
                    address, self.group, self._client.client_id, subscription
                )

    def _offsets_path(self) -> Path:
        directory = self.settings.local_offset_store_dir or Path.home() / ".rocketmq_offsets"
        return directory / self._client.client_id / self.group / "offsets.json"

    def _route_changed(self, route: TopicRoute) -> None:
        if route.topic in self._subscriptions:
            self._rebalancer.request()

    async def _leave(self, timeout: float) -> None:
        self._consumption.close()
        if self._route_changed in self._client.routes.changed:
            self._client.routes.changed.remove(self._route_changed)
        await self._rebalancer.stop_pulling()
        await self._consumption.stop(timeout)
        await self._rebalancer.give_all_back()
        if self.settings.metrics is not None and self._meter is not None:
            self.settings.metrics.forget(self._meter)
        await self._close_traces()
        # After the last commits: the broker tells the other members at once, and they fetch the offsets.
        await self._client.unregister_consumer(self.group)
        await shared_clients.release(self._client)
        logger.info("%r", self)

    # Requests of the client and of brokers

    def heartbeat_data(self) -> ConsumerData:
        """Return the group's part of a heartbeat: message model and subscriptions."""
        return ConsumerData(
            group_name=self.group,
            consume_type=self._CONSUME_TYPE,
            message_model=bodies.MessageModel(self.settings.message_model.value),
            consume_from_where=bodies.ConsumeFromWhere(self.settings.consume_from_where.value),
            subscription_data_set=list(self._subscriptions.values()),
        )

    def subscribed_topics(self) -> Collection[str]:
        """Return the subscribed topics, including a push consumer's retry topic."""
        return self._subscriptions

    def master_lost(self, broker_name: str) -> None:
        """Ask for the locks at the broker anew: locks are not kept when a master ends, nor passed on to the next."""
        self._rebalancer.void_locks(broker_name)

    def rebalance_soon(self) -> None:
        """Rebalance in the background, without delay."""
        self._rebalancer.request()

    async def persist_offsets(self) -> None:
        """Commit the settled offsets of the assigned queues."""
        await self._offsets.persist(self._rebalancer.assigned())

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue the topic's queues at the given offsets; ignore queues that are not assigned."""
        if self._life.running:
            await self._rebalancer.restart_at({queue: at for queue, at in offsets.items() if queue.topic == topic})

    def known_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """Return the topic's offsets as this member knows them."""
        return {queue: offset for queue, offset in self._offsets.snapshot().items() if queue.topic == topic}

    def running_info(self, name_servers: Sequence[str]) -> ConsumerRunningInfo:
        """Return settings, subscriptions and process queues of this consumer, for consoles."""
        return running_info(
            self.settings,
            name_servers,
            self._client.started_at_ms,
            self._clock.now_ms(),
            consume_type=self._CONSUME_TYPE,
            concurrency=self._concurrency,
            orderly=self._is_orderly,
            subscriptions=list(self._subscriptions.values()),
            process_queues=self._rebalancer.queues(),
            offsets=self._offsets.snapshot(),
        )

    @property
    def _concurrency(self) -> int:
        return 0

    @property
    def _is_orderly(self) -> bool:
        return False

    @abstractmethod
    async def consume_directly(self, message: MessageExt) -> ConsumeMessageDirectlyResult:
        """Consume this message now, which belongs to no assigned queue, and return the outcome."""
