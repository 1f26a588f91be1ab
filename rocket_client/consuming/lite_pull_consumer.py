"""The lite pull consumer: the application polls for messages, and may seek and commit.

::

    subscribe    the group's members share the topics' queues, as push consumers do
    assign       the consumer reads exactly these queues, even if other members read them too
    poll         returns the next messages of one queue; the messages of earlier polls now count as consumed
    commit       commits at once, by default the consumed messages; `auto_commit` does so periodically
    seek         sets the offset of the queue's next poll
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from types import TracebackType

from rocket_client.consuming.consume_polled import PolledConsumption
from rocket_client.consuming.group_consumer import GroupConsumer
from rocket_client.consuming.membership import Membership
from rocket_client.consuming.send_back import DEFAULT_MAX_RECONSUME_TIMES, SendBack, fate_of_rejected
from rocket_client.consuming.shares import AssignedQueues, Shares
from rocket_client.core.subscription import ALL, tag_subscription
from rocket_client.errors import (
    ClientStateError,
    IllegalOffsetError,
    QueueNotAssignedError,
    UnreadableBodyError,
)
from rocket_client.settings import LitePullConsumerSettings
from rocket_remoting.wire.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumeMessageResult,
    ConsumerData,
    ConsumeType,
)
from rocket_remoting.wire.message import MessageExt, MessageQueue

logger = logging.getLogger(__name__)


class LitePullConsumer(GroupConsumer[LitePullConsumerSettings]):
    """A member of a consumer group that polls. Subscribe or assign, then start, then poll from one task.

    `subscribe` and `subscribe_sql` raise a `ClientStateError` if queues are assigned.

    Args:
        group: The group's name. The members that subscribe share the messages.
        settings: Name servers, message model, commits, limits.
        transport: The transport of connections; TCP by default.
        clock: The clock of timestamps; the system clock by default.
    """

    _CONSUME_TYPE = ConsumeType.CONSUME_ACTIVELY
    _consumption: PolledConsumption
    _returns: SendBack | None
    _assigned_queues: AssignedQueues | None = None
    _committing: asyncio.Task[None] | None = None

    # Subscriptions and assigned queues

    def _checked_topic(self, topic: str) -> str:
        """Return the topic of a new subscription as brokers know it.

        Raises:
            ClientStateError: The consumer has assigned queues.
            ValueError: The topic's name is illegal.
        """
        if self._assigned_queues is not None:
            raise ClientStateError(repr(self), "limited to assigned queues", "do not subscribe it as well")
        return super()._checked_topic(topic)

    def assign(self, queues: Iterable[MessageQueue], expression: str | None = ALL) -> None:
        """Read exactly these queues from now on, even if other members read them too.

        Args:
            queues: The queues; they replace those assigned before.
            expression: Tags such as ``"TagA || TagB"``; ``"*"`` or None for all messages.

        Raises:
            ClientStateError: The consumer has subscriptions.
            ValueError: The expression names no tag.
        """
        if self._assigned_queues is None and self._subscriptions:
            raise ClientStateError(repr(self), "subscribed to topics", "do not assign queues to it as well")
        self._assigned_queues = self._assigned_queues or AssignedQueues()
        self._assigned_queues.queues = frozenset(map(self._namespace.wrap_queue, queues))
        self._subscriptions.clear()
        for topic in {queue.topic for queue in self._assigned_queues.queues}:
            self._put_subscription(tag_subscription(topic, expression, self._next_version()))
        self._subscriptions_changed()

    # Life

    async def start(self) -> None:
        """Join the group, and return when this member's queues of the existing topics are being pulled.

        Raises:
            ClientStateError: The consumer was started before, or has neither subscriptions nor assigned queues.
            GroupInUseError: Another consumer of the group has the same `instance_name`.
            NameServersUnreachableError: No name server answers.
            ResponseError: A broker does not accept an SQL92 expression of the subscriptions.
        """
        if not self._subscriptions:
            raise ClientStateError(repr(self), "without a subscription", "call subscribe or assign first")
        self._life.begin()
        await self._join()

    def _membership(self) -> Membership:
        return Membership(
            client=self._client,
            group=self.group,
            namespace=self._namespace,
            settings=self.settings,
            offsets=self._offsets,
            subscriptions=self._subscriptions,
            gate=self._gate,
            arrivals=self._arrivals,
            bodies=self._bodies,
            polls=True,
            posts_subscription=True,
        )

    def _make_consumption(self, member: Membership) -> PolledConsumption:
        self._returns = self._send_back()
        return PolledConsumption(self.settings, self._offsets, self._gate, self._bodies, self._reject)

    async def _reject(self, message: MessageExt, error: UnreadableBodyError) -> None:
        """Send a message whose body cannot be decompressed to the dead letter topic; drop it in broadcasting."""
        fate = fate_of_rejected(self._returns)
        logger.error("group %s: a message is not returned by the poll: %s. %s", self.group, error, fate)
        if self._returns is not None:
            await self._returns.dead_letter(message, error)

    def _shares(self, member: Membership) -> Shares:
        return self._assigned_queues or super()._shares(member)

    async def _begin(self) -> None:
        await super()._begin()
        if self.settings.auto_commit:
            interval = self.settings.auto_commit_interval.total_seconds()
            self._committing = self._client.every(interval, interval, self._commit_consumed, "commit")

    async def _commit_consumed(self) -> None:
        self._consumption.update_offsets(self._rebalancer.queues())
        await self.persist_offsets()

    async def shutdown(self) -> None:
        """Leave the group; with `auto_commit`, commit the messages of all polls, the last one included."""
        if self._life.running:
            self._consumption.settle()
        await self._stop()

    async def _stop(self) -> None:
        if self._life.end():
            if self.settings.auto_commit:
                self._consumption.update_offsets(self._rebalancer.queues())
            self._start_leaving(self._leave(timeout=0))
        await self._wait_until_left()

    async def _leave(self, timeout: float) -> None:
        if self._committing is not None:
            self._committing.cancel()
        await super()._leave(timeout)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.shutdown()
        else:  # the messages of the last poll may not be consumed: do not commit them
            await self._stop()

    # Polling

    async def poll(self, timeout: float | None = None) -> list[MessageExt]:
        """Return the next messages of one queue; the messages of the poll before now count as consumed.

        Args:
            timeout: Seconds to wait for messages; `poll_timeout` by default. 0 returns only messages pulled already.

        Returns:
            At most `pull_batch_size` messages; an empty list if none came in time.

        Raises:
            ClientStateError: The consumer is not running.
            SendError: No broker stored the dead letter of a message whose body cannot be decompressed.
        """
        self._life.require_running()
        self._consumption.settle()
        seconds = self.settings.poll_timeout.total_seconds() if timeout is None else timeout
        return await self._consumption.poll(seconds)

    async def commit(self, queues: Collection[MessageQueue] | Mapping[MessageQueue, int] | None = None) -> None:
        """Commit the messages of the polls so far, or given offsets.

        A failure is logged, not raised; the next commit includes the offset again. Queues that are not assigned to this
        member are ignored.

        Args:
            queues: The queues to commit; None for all assigned queues. A mapping gives the offsets to commit: each is
                the offset behind the last consumed message.

        Raises:
            ClientStateError: The consumer is not running.
        """
        self._life.require_running()
        assigned = self._rebalancer.assigned()
        if isinstance(queues, Mapping):
            offsets = {self._namespace.wrap_queue(queue): offset for queue, offset in queues.items()}
            wanted = assigned & offsets.keys()
            for queue in wanted:
                self._offsets.update(queue, offsets[queue])
        else:
            self._consumption.settle()
            wanted = assigned if queues is None else frozenset(map(self._namespace.wrap_queue, queues))
            self._consumption.update_offsets(
                process_queue for process_queue in self._rebalancer.queues() if process_queue.message_queue in wanted
            )
        await self._offsets.persist(wanted)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's committed offset in the queue; None if the group has committed none.

        Raises:
            ClientStateError: The consumer is not running.
            RemotingError: No broker was found, or it did not answer, or it refused.
        """
        return await self._offsets.fetch(self._broker_queue(queue))

    # Position

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue the queue at `offset`; its messages that were pulled and not polled yet are dropped.

        The messages of the last poll count as consumed.

        Raises:
            ClientStateError: The consumer is not running.
            QueueNotAssignedError: The queue is not assigned to this member.
            IllegalOffsetError: The offset is below the queue's minimum or above its maximum.
            RemotingError: No broker was found, or it did not answer, or it refused.
        """
        least, most = await self.min_offset(queue), await self.max_offset(queue)
        if not least <= offset <= most:
            raise IllegalOffsetError(queue, offset, least, most)
        self._consumption.settle()
        if not await self._rebalancer.seek(self._broker_queue(queue), offset):
            raise QueueNotAssignedError(queue, self.group)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue the queue at its oldest message; raise as `seek` does."""
        await self.seek(queue, await self.min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue the queue behind its newest message; raise as `seek` does."""
        await self.seek(queue, await self.max_offset(queue))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop pulling the queues; polls skip them."""
        self._gate.pause(map(self._namespace.wrap_queue, queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Pull and poll the queues again after `pause`."""
        self._gate.resume(map(self._namespace.wrap_queue, queues))
        if self._life.running:
            self._consumption.wake()

    @property
    def paused(self) -> frozenset[MessageQueue]:
        """The paused queues."""
        return frozenset(map(self._namespace.unwrap_queue, self._gate.paused))

    # Failed messages

    async def send_back(
        self,
        message: MessageExt,
        delay_level: int = 0,
        *,
        max_reconsume_times: int = DEFAULT_MAX_RECONSUME_TIMES,
        cause: BaseException | str | None = None,
    ) -> None:
        """Send a failed message to ``%RETRY%<group>`` for a later delivery, or to the dead letter topic.

        Args:
            message: A polled message.
            delay_level: The broker's delay level; 0 for 3 + the redeliveries so far, -1 for a dead letter at once.
            max_reconsume_times: Redeliveries before the message becomes a dead letter.
            cause: Why the message failed; the message gets it as properties.

        Raises:
            ClientStateError: The consumer is not running, or is broadcasting and has no retry topic.
            SendError: No broker stored the message.
        """
        self._life.require_running()
        if self._returns is None:
            raise ClientStateError(repr(self), "broadcasting", "there is no retry topic: handle the message yourself")
        await self._returns.retry(message, delay_level, max_reconsume_times, cause)

    # Requests of brokers

    def heartbeat_data(self) -> ConsumerData:
        """Return the group's part of a heartbeat; without subscriptions if queues are assigned."""
        data = super().heartbeat_data()
        if self._assigned_queues is not None:
            data.subscription_data_set = []
        return data

    async def consume_directly(self, message: MessageExt) -> ConsumeMessageDirectlyResult:
        """Return CR_RETURN_NULL: this consumer has no listener."""
        return ConsumeMessageDirectlyResult(
            consume_result=ConsumeMessageResult.CR_RETURN_NULL, remark=f"consumer {self.client_id} polls"
        )
