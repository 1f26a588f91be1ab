"""Consumes messages: they are pulled and pushed into a listener, for as long as the consumer runs.

::

    subscribe, listen, start
         └─> Rebalancer ── one PullLoop per queue ──> ProcessQueue ──> ConcurrentConsumption
                 └── OffsetStore <── smallest unsettled offset ──┘     or OrderlyConsumption ──> SendBack
"""

import asyncio
import logging
from collections.abc import Collection

from rocket_client.consuming.consume_concurrently import ConcurrentConsumption
from rocket_client.consuming.consume_orderly import OrderlyConsumption
from rocket_client.consuming.group_consumer import GroupConsumer
from rocket_client.consuming.listener import (
    ConcurrentListener,
    ConsumeContext,
    OrderlyListener,
    Reject,
    RetryLater,
    Room,
    Success,
    Suspend,
)
from rocket_client.consuming.locks import QueueLocks
from rocket_client.consuming.membership import UNLIMITED_SPAN, Membership
from rocket_client.consuming.pulling import Consumption
from rocket_client.core.process_queue import ProcessQueue
from rocket_client.core.subscription import ALL, tag_subscription
from rocket_client.errors import ClientStateError
from rocket_client.settings import PushConsumerSettings
from rocket_remoting.clock import Clock
from rocket_remoting.transports.transport import Transport
from rocket_remoting.wire.bodies import ConsumeMessageDirectlyResult, ConsumeMessageResult, ConsumeType
from rocket_remoting.wire.message import MessageExt
from rocket_remoting.wire.topics import retry_topic

logger = logging.getLogger(__name__)

_FIRST_LOCK_RENEWAL = 1.0


class PushConsumer(GroupConsumer[PushConsumerSettings]):
    """A member of a consumer group. Subscribe, give it a listener, start it.

    Args:
        group: Its name; in clustering the members share the messages, and must subscribe to the same.
        settings: Name servers, message model, concurrency, limits.
        transport: TCP unless given.
        clock: Where stamps come from; the machine's unless given.
    """

    _CONSUME_TYPE = ConsumeType.CONSUME_PASSIVELY

    def __init__(
        self,
        group: str,
        settings: PushConsumerSettings,
        *,
        transport: Transport | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(group, settings, transport=transport, clock=clock)
        self._concurrent: ConcurrentListener | None = None
        self._orderly: OrderlyListener | None = None
        self._room: Room | None = None
        self._lock_renewal: asyncio.Task[None] | None = None

    # What and how

    def listen_concurrently(self, listener: ConcurrentListener, room: Room | None = None) -> None:
        """Messages go to this listener, several calls at once; only while there is room, where some is given."""
        self._life.require_not_started("give it a listener")
        self._concurrent, self._orderly, self._room = listener, None, room

    def listen_orderly(self, listener: OrderlyListener, room: Room | None = None) -> None:
        """Messages go to this listener, one call at a time in each queue, in its order.

        Calls begin only while there is room, where some is given, and then only under a lock that still counts.
        """
        self._life.require_not_started("give it a listener")
        self._concurrent, self._orderly, self._room = None, listener, room

    # Life

    async def start(self) -> None:
        """The consumer has its share of the queues of all topics that exist, and pulls them.

        Raises:
            ClientStateError: It was started before, or has no listener or no subscription.
            GroupInUseError: Another consumer of the group has the same `instance_name`.
            NameServersUnreachableError: No name server answers.
            ResponseError: A broker cannot filter by an SQL92 expression that was subscribed to.
        """
        if self._concurrent is None and self._orderly is None:
            raise ClientStateError(
                repr(self), "without a listener", "call listen_concurrently or listen_orderly first"
            )
        if not self._subscriptions:
            raise ClientStateError(repr(self), "without a subscription", "call subscribe first")
        self._life.begin()
        if self._clustering:
            self._take_over(tag_subscription(retry_topic(self.group), ALL, self._version))
        await self._join()

    async def _begin(self) -> None:
        await super()._begin()
        if self._orderly is not None and self._clustering:
            interval = self.settings.lock_interval.total_seconds()
            self._lock_renewal = self._client.every(
                _FIRST_LOCK_RENEWAL, interval, self._rebalancer.renew_locks, "renew locks"
            )

    def _membership(self) -> Membership:
        settings = self.settings
        return Membership(
            client=self._client,
            group=self.group,
            namespace=self._namespace,
            settings=settings,
            offsets=self._offsets,
            subscriptions=self._subscriptions,
            gate=self._gate,
            bodies=self._bodies,
            max_span=UNLIMITED_SPAN if self._is_orderly else settings.consume_concurrently_max_span,
            posts_subscription=settings.post_subscription_when_pull,
        )

    def _make_consumption(self, member: Membership) -> Consumption:
        send_back = self._send_back()
        if self._orderly is not None:
            lock = self._lock_again if self._clustering else None
            return OrderlyConsumption(member, self.settings, self._orderly, send_back, lock, room=self._room)
        assert self._concurrent is not None
        return ConcurrentConsumption(
            member, self.settings, self._concurrent, send_back, self._assigned_process_queues, room=self._room
        )

    def _locks(self) -> QueueLocks | None:
        if self._orderly is None or not self._clustering:
            return None
        return QueueLocks(self._client.requests, self.group, self._client.client_id)

    def _assigned_process_queues(self) -> Collection[ProcessQueue]:
        return self._rebalancer.queues()

    async def _lock_again(self, process_queue: ProcessQueue) -> bool:
        return await self._rebalancer.lock_again(process_queue)

    async def shutdown(self, timeout: float | None = None) -> None:
        """Listener calls under way have ended, what they settled is committed, the group's others take over.

        Who is cancelled here only stops waiting for that; a further call waits again.

        Args:
            timeout: Seconds to wait for calls under way, which are cancelled then; by default
                `await_termination`.
        """
        if self._life.end():
            patience = self.settings.await_termination.total_seconds() if timeout is None else timeout
            self._begin_to_leave(self._leave(patience))
        await self._has_left()

    async def _leave(self, patience: float) -> None:
        if self._lock_renewal is not None:
            self._lock_renewal.cancel()
        await super()._leave(patience)

    def suspend(self) -> None:
        """No further messages are pulled; those here already are still consumed."""
        self._gate.close()

    def resume(self) -> None:
        """Messages are pulled again."""
        self._gate.open()
        if self._life.running:
            self._rebalancer.soon()

    @property
    def is_suspended(self) -> bool:
        """Whether `suspend` holds."""
        return not self._gate.is_open

    # What brokers ask of it

    @property
    def _concurrency(self) -> int:
        return self.settings.concurrency or 0

    @property
    def _is_orderly(self) -> bool:
        return self._orderly is not None

    async def consume_directly(self, message: MessageExt) -> ConsumeMessageDirectlyResult:
        """Call the listener with this message, outside of any queue, and tell what it said."""
        message.topic = self.origin_topic(message)
        orderly = self._is_orderly
        context = ConsumeContext(self.group, message.queue, orderly=orderly)
        result = ConsumeMessageDirectlyResult(order=orderly)
        begun = self._clock.now_ms()
        unpacked = await self._bodies.unpack([message])
        try:
            if unpacked.error is not None:
                raise unpacked.error
            said: object = None
            if self._orderly is not None:
                said = await self._orderly(unpacked.messages, context)
            elif self._concurrent is not None:
                said = await self._concurrent(unpacked.messages, context)
        except Exception as error:
            logger.warning(
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
        finally:
            self._bodies.release(unpacked.room)
        result.spent_time_mills = self._clock.now_ms() - begun
        return result
