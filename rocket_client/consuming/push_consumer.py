"""The push consumer: it pulls the messages of its queues and calls a listener with them.

::

    subscribe, listen, start
         └─> Rebalancer ── one PullLoop per queue ──> ProcessQueue ──> ConcurrentConsumption
                 └── OffsetStore <── smallest unsettled offset ──┘     or OrderlyConsumption ──> SendBack
"""

import asyncio
import logging
from collections.abc import Collection
from typing import TypeVar, cast

from rocket_client.consuming.consume_concurrently import ConcurrentConsumption
from rocket_client.consuming.consume_orderly import OrderlyConsumption
from rocket_client.consuming.group_consumer import GroupConsumer
from rocket_client.consuming.listener import (
    Capacity,
    ConcurrentListener,
    ConsumeContext,
    OrderlyListener,
    Reject,
    RetryLater,
    Success,
    Suspend,
)
from rocket_client.consuming.locks import QueueLocks
from rocket_client.consuming.membership import UNLIMITED_SPAN, Membership
from rocket_client.consuming.pulling import Consumption
from rocket_client.consuming.traced_listener import traced
from rocket_client.core.process_queue import ProcessQueue
from rocket_client.core.subscription import ALL, tag_subscription
from rocket_client.errors import ClientStateError
from rocket_client.settings import PushConsumerSettings
from rocket_client.tracing.trace_writer import TraceWriter
from rocket_remoting.wire.bodies import ConsumeMessageDirectlyResult, ConsumeMessageResult, ConsumeType
from rocket_remoting.wire.message import MessageExt
from rocket_remoting.wire.topics import retry_topic

logger = logging.getLogger(__name__)

_FIRST_LOCK_RENEWAL = 1.0

L = TypeVar("L", ConcurrentListener, OrderlyListener)


class PushConsumer(GroupConsumer[PushConsumerSettings]):
    """A member of a consumer group that calls a listener. Subscribe, set the listener, then start.

    Args:
        group: The group's name. In clustering mode the members share the messages, and must have equal subscriptions.
        settings: Name servers, message model, concurrency, limits.
        transport: The transport of connections; TCP by default.
        clock: The clock of timestamps; the system clock by default.
    """

    _CONSUME_TYPE = ConsumeType.CONSUME_PASSIVELY
    _concurrent: ConcurrentListener | None = None
    _orderly: OrderlyListener | None = None
    _capacity: Capacity | None = None
    _lock_renewal: asyncio.Task[None] | None = None
    _traces: TraceWriter | None = None

    # Listeners

    def listen_concurrently(self, listener: ConcurrentListener, capacity: Capacity | None = None) -> None:
        """Set the listener, and call it for several batches at once, in no particular order.

        Args:
            listener: The listener; `rocket_client.consuming.listener` lists its outcomes.
            capacity: The listener's capacity for further calls; calls begin only while some is free. None: no limit
                but `concurrency`.

        Raises:
            ClientStateError: The consumer was started before.
        """
        self._life.require_not_started("give it a listener")
        self._concurrent, self._orderly, self._capacity = listener, None, capacity

    def listen_orderly(self, listener: OrderlyListener, capacity: Capacity | None = None) -> None:
        """Set the listener, and call it for one batch at a time in each queue, in the order of the queue.

        Args:
            listener: The listener; `rocket_client.consuming.listener` lists its outcomes.
            capacity: The listener's capacity for further calls; calls begin only while some is free, and only if the
                queue's lock is then still valid. None: no limit but `concurrency`.

        Raises:
            ClientStateError: The consumer was started before.
        """
        self._life.require_not_started("give it a listener")
        self._concurrent, self._orderly, self._capacity = None, listener, capacity

    # Life

    async def start(self) -> None:
        """Join the group, and return when this member's queues of the existing topics are being pulled.

        Raises:
            ClientStateError: The consumer was started before, or has no listener or no subscription.
            GroupInUseError: Another consumer of the group has the same `instance_name`.
            NameServersUnreachableError: No name server answers.
            ResponseError: A broker does not accept an SQL92 expression of the subscriptions.
        """
        if self._concurrent is None and self._orderly is None:
            raise ClientStateError(repr(self), "without a listener", "call listen_concurrently or listen_orderly first")
        if not self._subscriptions:
            raise ClientStateError(repr(self), "without a subscription", "call subscribe first")
        self._life.begin()
        if self._clustering:
            self._put_subscription(tag_subscription(retry_topic(self.group), ALL, self._version))
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
            arrivals=self._arrivals,
            bodies=self._bodies,
            max_span=UNLIMITED_SPAN if self._is_orderly else settings.consume_concurrently_max_span,
            posts_subscription=settings.post_subscription_when_pull,
        )

    def _make_consumption(self, member: Membership) -> Consumption:
        send_back = self._send_back()
        if self.settings.trace_topic is not None:
            self._traces = TraceWriter(self._client, self.group, self.settings.trace_topic, self.settings)
        if self._orderly is not None:
            lock = self._renew_lock if self._clustering else None
            orderly = self._observed(self._orderly)
            return OrderlyConsumption(member, self.settings, orderly, send_back, lock, capacity=self._capacity)
        assert self._concurrent is not None
        return ConcurrentConsumption(
            member,
            self.settings,
            self._observed(self._concurrent),
            send_back,
            self._assigned_process_queues,
            capacity=self._capacity,
        )

    def _observed(self, listener: L) -> L:
        """Return the listener, with traces and counts of its calls if the settings ask for them."""
        if self._arrivals is not None:
            listener = cast("L", self._arrivals.metered(listener))
        if self._traces is not None:
            client = self._client
            listener = cast("L", traced(listener, self._traces, self._namespace, client.clock, client.unique_ids))
        return listener

    def _locks(self) -> QueueLocks | None:
        if self._orderly is None or not self._clustering:
            return None
        return QueueLocks(self._client.requests, self.group, self._client.client_id)

    def _assigned_process_queues(self) -> Collection[ProcessQueue]:
        return self._rebalancer.queues()

    async def _renew_lock(self, process_queue: ProcessQueue) -> bool:
        return await self._rebalancer.renew_lock(process_queue)

    async def shutdown(self, timeout: float | None = None) -> None:
        """Wait for the listener calls under way, commit the settled offsets, and leave the group.

        Cancelling this call stops the waiting, not the shutdown; a further call waits again.

        Args:
            timeout: Seconds to wait for calls under way before they are cancelled; `await_termination` by default.
        """
        if self._life.end():
            wait = self.settings.await_termination.total_seconds() if timeout is None else timeout
            self._start_leaving(self._leave(wait))
        await self._wait_until_left()

    async def _leave(self, timeout: float) -> None:
        if self._lock_renewal is not None:
            self._lock_renewal.cancel()
        await super()._leave(timeout)

    async def _close_traces(self) -> None:
        if self._traces is not None:
            await self._traces.close()

    def suspend(self) -> None:
        """Stop pulling messages. Messages that were pulled already are still consumed."""
        self._gate.close()

    def resume(self) -> None:
        """Pull messages again after `suspend`."""
        self._gate.open()
        if self._life.running:
            self._rebalancer.request()

    @property
    def is_suspended(self) -> bool:
        """Whether pulling is suspended."""
        return not self._gate.is_open

    # Requests of brokers

    @property
    def _concurrency(self) -> int:
        return self.settings.concurrency or 0

    @property
    def _is_orderly(self) -> bool:
        return self._orderly is not None

    async def consume_directly(self, message: MessageExt) -> ConsumeMessageDirectlyResult:
        """Call the listener with this message, which belongs to no assigned queue, and return the outcome.

        A broker passes on such a request (CONSUME_MESSAGE_DIRECTLY) from mqadmin. The outcome settles nothing.
        """
        message.topic = self.origin_topic(message)
        orderly = self._is_orderly
        context = ConsumeContext(self.group, message.queue, orderly=orderly)
        result = ConsumeMessageDirectlyResult(order=orderly)
        begun = self._clock.now_ms()
        unpacked = await self._bodies.unpack([message])
        try:
            if unpacked.error is not None:
                raise unpacked.error
            outcome: object = None
            if self._orderly is not None:
                outcome = await self._orderly(unpacked.messages, context)
            elif self._concurrent is not None:
                outcome = await self._concurrent(unpacked.messages, context)
        except Exception as error:
            logger.warning(
                "group %s: the listener failed with %r, which an administrator sent directly",
                self.group,
                message,
                exc_info=error,
            )
            result.consume_result, result.remark = ConsumeMessageResult.CR_THROW_EXCEPTION, repr(error)
        else:
            later = isinstance(outcome, RetryLater | Suspend | Reject) or (
                isinstance(outcome, Success) and outcome.ack_index == -1
            )
            result.consume_result = ConsumeMessageResult.CR_LATER if later else ConsumeMessageResult.CR_SUCCESS
        finally:
            self._bodies.release(unpacked.reserved)
        result.spent_time_mills = self._clock.now_ms() - begun
        return result
