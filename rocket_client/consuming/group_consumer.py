"""What push and lite pull consumers have in common: subscriptions, a share of the queues, pulls, offsets.

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
"""Called with a topic, all its readable queues, and those this member has now."""


class GroupConsumer(QueueReader[C]):
    """A consumer that gets its share of the queues of the topics it subscribes to."""

    _CONSUME_TYPE: ConsumeType
    _offsets: OffsetStore
    _consumption: Consumption
    _rebalancer: Rebalancer

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
        return (
            f"<{type(self).__name__} {self.group} of {list(self._subscriptions)}, {self._life.state.value}>"
        )

    @property
    def assigned(self) -> frozenset[MessageQueue]:
        """The queues this member has now."""
        if not self._life.running:
            return frozenset()
        queues = self._rebalancer.assigned()
        return frozenset(map(self._namespace.unwrap_queue, queues)) if self._namespace else queues

    @property
    def process_queues(self) -> Collection[ProcessQueue]:
        """What is pulled and not settled, queue by queue; the queues as brokers know them."""
        return tuple(self._rebalancer.queues()) if self._life.running else ()

    # Subscriptions

    def subscribe(self, topic: str, expression: str | None = ALL) -> None:
        """The consumer gets messages of the topic with one of the tags: ``"TagA || TagB"``, or ``"*"``.

        Raises:
            ValueError: The topic's name is illegal, or the expression names no tag.
        """
        self._take_over(tag_subscription(self._legal(topic), expression, self._next_version()))
        self._subscriptions_changed()

    def subscribe_sql(self, topic: str, expression: str) -> None:
        """The consumer gets messages of the topic whose properties match: ``"price > 10 AND kind = 'tea'"``.

        Brokers filter so only with ``enablePropertyFilter=true``; `start` asks them whether they can.

        Raises:
            ValueError: The topic's name is illegal, or the expression is blank.
        """
        self._take_over(sql_subscription(self._legal(topic), expression, self._next_version()))
        self._subscriptions_changed()

    def unsubscribe(self, topic: str) -> None:
        """The consumer gets no further messages of the topic."""
        if self._subscriptions.pop(self._namespace.wrap(topic), None) is not None:
            self._subscriptions_changed()

    def on_rebalance(self, listener: RebalanceListener) -> None:
        """The listener is called, on the consumer's loop, after this member's queues of a topic have changed."""
        self._listeners.append(listener)

    def origin_topic(self, message: MessageExt) -> str:
        """The topic the message was sent to, also of one that comes again by the group's retry topic."""
        topic = self._namespace.wrap(message.topic)
        if topic == retry_topic(self.group):
            topic = message.properties.get(PROPERTY_RETRY_TOPIC, topic)
        return self._namespace.unwrap(topic)

    def _legal(self, topic: str) -> str:
        """The topic as brokers know it, when it is a name they accept."""
        topic = self._namespace.wrap(topic)
        validate_topic(topic)
        return topic

    def _next_version(self) -> int:
        # Brokers take a subscription over only if its version is higher than that of the one they have.
        self._version = max(self._clock.now_ms(), self._version + 1)
        return self._version

    def _take_over(self, subscription: SubscriptionData) -> None:
        self._subscriptions[subscription.topic] = subscription

    def _subscriptions_changed(self) -> None:
        if self._life.running:
            self._client.spawn(self._announce(), "announce subscriptions")

    async def _announce(self) -> None:
        await self._client.routes.refresh_all(list(self._subscriptions))
        await self._client.heartbeat()
        self._client.search_routes()
        self._rebalancer.soon()

    # Life

    async def _join(self) -> None:
        """Take part in the group, with what `_make_consumption` gives."""
        self._client = self._acquire_client()
        self._offsets = (
            BrokerOffsets(self._client.requests, self.group)
            if self._clustering
            else LocalOffsets(self._offsets_path())
        )
        member = self._membership()
        self._consumption = self._make_consumption(member)
        self._rebalancer = Rebalancer(
            member, self._shares(member), self._consumption, self._locks(), self._listeners
        )
        self._client.register_consumer(self)
        try:
            await self._begin()
        except BaseException:
            self._begin_to_leave(self._leave(patience=0))
            await self._has_left()
            raise
        self._life.succeed()
        logger.info("%r started as %s", self, self._client.client_id)

    def _acquire_client(self) -> RocketClient:
        name = self.settings.instance_name
        if name is None and not self._clustering:
            name = shared_clients.BROADCASTING_INSTANCE
        return self._acquire(name, lambda client: self.group not in client.consumers)

    @abstractmethod
    def _membership(self) -> Membership:
        """What the parts of this consumer share."""

    @abstractmethod
    def _make_consumption(self, member: Membership) -> Consumption:
        """Where pulled messages go."""

    def _shares(self, member: Membership) -> Shares:
        return GroupShares(member) if self._clustering else AllQueues()

    def _locks(self) -> QueueLocks | None:
        return None

    def _send_back(self) -> SendBack | None:
        """Where failed messages go; None: nowhere, as in broadcasting."""
        if not self._clustering:
            return None
        client = self._client
        # What came from a broker goes back to it, whatever its size.
        sending = ProducerSettings(
            name_servers=self.settings.name_servers,
            namespace=self._namespace.name,
            max_message_size=1 << 31,
        )
        outgoing = OutgoingMessages(self.group, sending, client.clock, client.unique_ids)
        return SendBack(self.group, client.requests, client.routes, outgoing)

    async def _begin(self) -> None:
        for topic in list(self._subscriptions):
            route = await self._client.routes.refresh(topic)
            if route is None and not is_retry_topic(topic):
                logger.warning(
                    "group %s: topic %s does not exist yet; nothing is received from it until it does",
                    self.group,
                    topic,
                )
        await self._check_selectors()
        await self._client.heartbeat()
        self._consumption.start()
        self._client.routes.changed.append(self._route_changed)
        await self._rebalancer.start()
        self._client.search_routes()

    async def _check_selectors(self) -> None:
        """Have brokers tell what is wrong with SQL92 expressions, which they would otherwise tell with each pull."""
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
            self._rebalancer.soon()

    async def _leave(self, patience: float) -> None:
        self._consumption.close()
        if self._route_changed in self._client.routes.changed:
            self._client.routes.changed.remove(self._route_changed)
        await self._rebalancer.stop_pulling()
        await self._consumption.stop(patience)
        await self._rebalancer.give_all_back()
        await self._client.unregister_consumer(self.group)
        await shared_clients.release(self._client)
        logger.info("%r", self)

    # What the client and brokers ask of it

    def heartbeat_data(self) -> ConsumerData:
        """Group, model and subscriptions, as brokers want them."""
        return ConsumerData(
            group_name=self.group,
            consume_type=self._CONSUME_TYPE,
            message_model=bodies.MessageModel(self.settings.message_model.value),
            consume_from_where=bodies.ConsumeFromWhere(self.settings.consume_from_where.value),
            subscription_data_set=list(self._subscriptions.values()),
        )

    def subscribed_topics(self) -> Collection[str]:
        """Topics it reads from, a push consumer's retry topic among them."""
        return self._subscriptions

    def rebalance_soon(self) -> None:
        """Divide the queues anew now."""
        self._rebalancer.soon()

    async def persist_offsets(self) -> None:
        """Commit what is settled."""
        await self._offsets.persist(self._rebalancer.assigned())

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on in these queues of the topic from these offsets."""
        if self._life.running:
            await self._rebalancer.restart_at(
                {queue: at for queue, at in offsets.items() if queue.topic == topic}
            )

    def known_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """The offsets as this member knows them."""
        return {queue: offset for queue, offset in self._offsets.snapshot().items() if queue.topic == topic}

    def running_info(self, name_servers: Sequence[str]) -> ConsumerRunningInfo:
        """What this consumer looks like from inside."""
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
        """Consume this message now, outside of any queue, and tell what came of it."""
