"""Consumes messages: they are pulled and pushed into a listener, for as long as the consumer runs.

::

    subscribe, listen, start
         └─> Rebalancer ── one PullLoop per queue ──> ProcessQueue ──> ConcurrentConsumption
                 └── OffsetStore <── smallest unsettled offset ──┘     or OrderlyConsumption ──> SendBack
"""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rocket_client import shared_clients
from rocket_client.client import RocketClient
from rocket_client.consume_concurrently import ConcurrentConsumption
from rocket_client.consume_orderly import OrderlyConsumption
from rocket_client.errors import ClientStateError
from rocket_client.inspection import running_info
from rocket_client.listener import (
    ConcurrentListener,
    ConsumeContext,
    OrderlyListener,
    Reject,
    RetryLater,
    Success,
    Suspend,
)
from rocket_client.locks import QueueLocks
from rocket_client.membership import Membership
from rocket_client.offsets import BrokerOffsets, LocalOffsets, OffsetStore
from rocket_client.outgoing import OutgoingMessages
from rocket_client.process_queue import ProcessQueue
from rocket_client.pulling import Consumption
from rocket_client.rebalance import Rebalancer
from rocket_client.send_back import SendBack
from rocket_client.settings import MessageModel, ProducerSettings, PushConsumerSettings
from rocket_client.state import Lifecycle, ServiceState
from rocket_client.subscription import ALL, tag_subscription
from rocket_client.topic_route import TopicRoute
from rocket_remoting import bodies
from rocket_remoting.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumeMessageResult,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumeType,
    SubscriptionData,
)
from rocket_remoting.clock import Clock, SystemClock
from rocket_remoting.message import MessageExt, MessageQueue
from rocket_remoting.properties import PROPERTY_RETRY_TOPIC
from rocket_remoting.topics import (
    DEFAULT_CONSUMER_GROUP,
    is_retry_topic,
    retry_topic,
    validate_group,
    validate_topic,
)
from rocket_remoting.transport import Transport

_LOG = logging.getLogger(__name__)

_FIRST_LOCK_RENEWAL = 1.0


class PushConsumer:
    """A member of a consumer group. Subscribe, give it a listener, start it.

    Args:
        group: Its name; in clustering the members share the messages, and must subscribe to the same.
        settings: Name servers, message model, concurrency, limits.
        transport: TCP unless given.
        clock: Where stamps come from; the machine's unless given.
    """

    def __init__(
        self,
        group: str,
        settings: PushConsumerSettings,
        *,
        transport: Transport | None = None,
        clock: Clock | None = None,
    ) -> None:
        validate_group(group)
        if group == DEFAULT_CONSUMER_GROUP:
            raise ValueError(f"{group} is nobody's own group: choose another name")
        self.group = group
        self.settings = settings
        self._transport = transport
        self._clock = clock or SystemClock()
        self._life = Lifecycle(f"consumer of group {group}")
        self._clustering = settings.message_model is MessageModel.CLUSTERING
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._version = 0
        self._concurrent: ConcurrentListener | None = None
        self._orderly: OrderlyListener | None = None
        self._client: RocketClient
        self._offsets: OffsetStore
        self._consumption: Consumption
        self._rebalancer: Rebalancer
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._lock_renewal: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<PushConsumer {self.group} of {list(self._subscriptions)}, {self._life.state.value}>"

    @property
    def state(self) -> ServiceState:
        """Where in its life it is."""
        return self._life.state

    @property
    def client_id(self) -> str:
        """Under which id brokers know it."""
        self._life.require_running()
        return self._client.client_id

    @property
    def assigned(self) -> frozenset[MessageQueue]:
        """The queues this member has now."""
        return self._rebalancer.assigned() if self._life.running else frozenset()

    @property
    def process_queues(self) -> Collection[ProcessQueue]:
        """What is pulled and not settled, queue by queue."""
        return tuple(self._rebalancer.queues()) if self._life.running else ()

    # What and how

    def subscribe(self, topic: str, expression: str | None = ALL) -> None:
        """The consumer gets messages of the topic with one of the tags: ``"TagA || TagB"``, or ``"*"``.

        Raises:
            ValueError: The topic's name is illegal, or the expression names no tag.
        """
        validate_topic(topic)
        # Brokers take a subscription over only if its version is higher than that of the one they have.
        self._version = max(self._clock.now_ms(), self._version + 1)
        self._subscriptions[topic] = tag_subscription(topic, expression, self._version)
        self._subscriptions_changed()

    def unsubscribe(self, topic: str) -> None:
        """The consumer gets no further messages of the topic."""
        if self._subscriptions.pop(topic, None) is not None:
            self._subscriptions_changed()

    def _subscriptions_changed(self) -> None:
        if self._life.running:
            self._client.spawn(self._announce(), "announce subscriptions")

    async def _announce(self) -> None:
        await self._client.routes.refresh_all(list(self._subscriptions))
        await self._client.heartbeat()
        self._client.search_routes()
        self._rebalancer.soon()

    def listen_concurrently(self, listener: ConcurrentListener) -> None:
        """Messages go to this listener, several calls at once."""
        self._life.require_not_started("give it a listener")
        self._concurrent, self._orderly = listener, None

    def listen_orderly(self, listener: OrderlyListener) -> None:
        """Messages go to this listener, one call at a time in each queue, in the queue's order."""
        self._life.require_not_started("give it a listener")
        self._concurrent, self._orderly = None, listener

    # Life

    async def start(self) -> None:
        """The consumer has its share of the queues of all topics that exist, and pulls them.

        Raises:
            ClientStateError: It was started before, or has no listener or no subscription.
            GroupInUseError: Another consumer of the group has the same `instance_name`.
            NameServersUnreachableError: No name server answers.
        """
        if self._concurrent is None and self._orderly is None:
            raise ClientStateError(
                repr(self), "without a listener", "call listen_concurrently or listen_orderly first"
            )
        if not self._subscriptions:
            raise ClientStateError(repr(self), "without a subscription", "call subscribe first")
        self._life.begin()
        if self._clustering:
            topic = retry_topic(self.group)
            self._subscriptions[topic] = tag_subscription(topic, ALL, self._version)
        self._client = self._acquire()
        self._assemble()
        self._client.register_consumer(self)
        try:
            await self._begin()
        except BaseException:
            await self._leave(patience=0)
            raise
        self._life.succeed()
        _LOG.info("%r started as %s", self, self._client.client_id)

    def _acquire(self) -> RocketClient:
        name = self.settings.instance_name
        if name is None and not self._clustering:
            name = shared_clients.BROADCASTING_INSTANCE
        return shared_clients.acquire(
            self.settings,
            self._transport,
            None if isinstance(self._clock, SystemClock) else self._clock,
            instance_name=name,
            is_free=lambda client: self.group not in client.consumers,
        )

    async def _begin(self) -> None:
        for topic in list(self._subscriptions):
            route = await self._client.routes.refresh(topic)
            if route is None and not is_retry_topic(topic):
                _LOG.warning(
                    "group %s: topic %s does not exist yet; nothing is received from it until it does",
                    self.group,
                    topic,
                )
        await self._client.heartbeat()
        self._consumption.start()
        self._client.routes.changed.append(self._route_changed)
        await self._rebalancer.start()
        self._client.search_routes()
        if self._orderly is not None and self._clustering:
            interval = self.settings.lock_interval.total_seconds()
            self._lock_renewal = self._client.every(
                _FIRST_LOCK_RENEWAL, interval, self._rebalancer.renew_locks, "renew locks"
            )

    def _assemble(self) -> None:
        client = self._client
        send_back: SendBack | None = None
        if self._clustering:
            self._offsets = BrokerOffsets(client.requests, self.group)
            # What came from a broker goes back to it, whatever its size.
            sending = ProducerSettings(name_servers=self.settings.name_servers, max_message_size=1 << 31)
            outgoing = OutgoingMessages(self.group, sending, client.clock, client.unique_ids)
            send_back = SendBack(self.group, client.requests, client.routes, outgoing)
        else:
            self._offsets = LocalOffsets(self._offsets_path())
        member = Membership(
            client=client,
            group=self.group,
            settings=self.settings,
            orderly=self._orderly is not None,
            offsets=self._offsets,
            subscriptions=self._subscriptions,
            resumed=self._resumed,
        )
        locks: QueueLocks | None = None
        if self._orderly is not None:
            if self._clustering:
                locks = QueueLocks(client.requests, self.group, client.client_id)
            lock = self._lock_again if locks is not None else None
            self._consumption = OrderlyConsumption(member, self._orderly, send_back, lock)
        elif self._concurrent is not None:
            self._consumption = ConcurrentConsumption(
                member, self._concurrent, send_back, self._assigned_process_queues
            )
        self._rebalancer = Rebalancer(member, self._consumption, locks)

    def _assigned_process_queues(self) -> Collection[ProcessQueue]:
        return self._rebalancer.queues()

    async def _lock_again(self, process_queue: ProcessQueue) -> bool:
        return await self._rebalancer.lock_again(process_queue)

    def _offsets_path(self) -> Path:
        directory = self.settings.local_offset_store_dir or Path.home() / ".rocketmq_offsets"
        return directory / self._client.client_id / self.group / "offsets.json"

    def _route_changed(self, route: TopicRoute) -> None:
        if route.topic in self._subscriptions:
            self._rebalancer.soon()

    async def shutdown(self, timeout: float | None = None) -> None:
        """Listener calls under way have ended, what they settled is committed, the group's others take over.

        Args:
            timeout: Seconds to wait for calls under way, which are cancelled then; by default
                `await_termination`.
        """
        if self._life.end():
            await self._leave(self.settings.await_termination.total_seconds() if timeout is None else timeout)
            _LOG.info("%r", self)

    async def _leave(self, patience: float) -> None:
        self._consumption.close()
        if self._route_changed in self._client.routes.changed:
            self._client.routes.changed.remove(self._route_changed)
        if self._lock_renewal is not None:
            self._lock_renewal.cancel()
        await self._rebalancer.stop_pulling()
        await self._consumption.stop(patience)
        await self._rebalancer.give_all_back()
        await self._client.unregister_consumer(self.group)
        await shared_clients.release(self._client)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()

    def suspend(self) -> None:
        """No further messages are pulled; those here already are still consumed."""
        self._resumed.clear()

    def resume(self) -> None:
        """Messages are pulled again."""
        self._resumed.set()
        if self._life.running:
            self._rebalancer.soon()

    @property
    def is_suspended(self) -> bool:
        """Whether `suspend` holds."""
        return not self._resumed.is_set()

    # What the client and brokers ask of it

    def heartbeat_data(self) -> ConsumerData:
        """Group, model and subscriptions, as brokers want them."""
        return ConsumerData(
            group_name=self.group,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            message_model=bodies.MessageModel(self.settings.message_model.value),
            consume_from_where=bodies.ConsumeFromWhere(self.settings.consume_from_where.value),
            subscription_data_set=list(self._subscriptions.values()),
        )

    def subscribed_topics(self) -> Collection[str]:
        """Topics it reads from, the group's retry topic among them."""
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
            orderly=self._orderly is not None,
            subscriptions=list(self._subscriptions.values()),
            process_queues=self._rebalancer.queues(),
            offsets=self._offsets.snapshot(),
        )

    async def consume_directly(self, message: MessageExt) -> ConsumeMessageDirectlyResult:
        """Call the listener with this message, outside of any queue, and tell what it said."""
        message.topic = message.properties.get(PROPERTY_RETRY_TOPIC, message.topic)
        orderly = self._orderly is not None
        context = ConsumeContext(self.group, message.queue, orderly=orderly)
        result = ConsumeMessageDirectlyResult(order=orderly)
        begun = self._clock.now_ms()
        try:
            said: object = None
            if self._orderly is not None:
                said = await self._orderly([message], context)
            elif self._concurrent is not None:
                said = await self._concurrent([message], context)
        except Exception as error:
            _LOG.warning(
                "group %s: the listener failed with %r given to it directly",
                self.group,
                message,
                exc_info=error,
            )
            result.consume_result, result.remark = ConsumeMessageResult.CR_THROW_EXCEPTION, repr(error)
        else:
            later = isinstance(said, RetryLater | Suspend | Reject) or (
                isinstance(said, Success) and said.ack_index == -1
            )
            result.consume_result = (
                ConsumeMessageResult.CR_LATER if later else ConsumeMessageResult.CR_SUCCESS
            )
        result.spent_time_mills = self._clock.now_ms() - begun
        return result
