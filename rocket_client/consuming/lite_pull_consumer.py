"""Consumes messages when the application asks for them: `poll`, with the position in its hands.

::

    subscribe    the group's members share the topics' queues, as push consumers do
    assign       exactly these queues, whoever else reads them
    poll         the next messages of one queue; with `auto_commit` those of the polls before count as consumed
    commit       now, what the polls so far returned, or offsets of the application's own
    seek         the next poll of the queue begins there
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from types import TracebackType

from rocket_client.consuming.consume_polled import PolledConsumption
from rocket_client.consuming.group_consumer import GroupConsumer
from rocket_client.consuming.membership import Membership
from rocket_client.consuming.send_back import DEFAULT_MAX_RECONSUME_TIMES, SendBack
from rocket_client.consuming.shares import AssignedQueues, Shares
from rocket_client.core.subscription import ALL, tag_subscription
from rocket_client.errors import (
    ClientStateError,
    IllegalOffsetError,
    QueueNotAssignedError,
    UnreadableBodyError,
)
from rocket_client.settings import LitePullConsumerSettings
from rocket_remoting.clock import Clock
from rocket_remoting.transports.transport import Transport
from rocket_remoting.wire.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumeMessageResult,
    ConsumerData,
    ConsumeType,
)
from rocket_remoting.wire.message import MessageExt, MessageQueue


class LitePullConsumer(GroupConsumer[LitePullConsumerSettings]):
    """A member of a consumer group that polls. Subscribe or assign, start it, and poll from one task.

    Args:
        group: Its name; the members that subscribe share the messages.
        settings: Name servers, message model, commits, limits.
        transport: TCP unless given.
        clock: Where stamps come from; the machine's unless given.
    """

    _CONSUME_TYPE = ConsumeType.CONSUME_ACTIVELY
    _consumption: PolledConsumption
    _returns: SendBack | None

    def __init__(
        self,
        group: str,
        settings: LitePullConsumerSettings,
        *,
        transport: Transport | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(group, settings, transport=transport, clock=clock)
        self._given: AssignedQueues | None = None
        self._committing: asyncio.Task[None] | None = None

    # What

    def subscribe(self, topic: str, expression: str | None = ALL) -> None:
        """The consumer gets its share of the topic's messages with one of the tags: ``"TagA || TagB"``, or ``"*"``.

        Raises:
            ClientStateError: It has queues assigned.
            ValueError: The topic's name is illegal, or the expression names no tag.
        """
        self._require_unassigned()
        super().subscribe(topic, expression)

    def subscribe_sql(self, topic: str, expression: str) -> None:
        """The consumer gets its share of the topic's messages whose properties match the SQL92 expression.

        Raises:
            ClientStateError: It has queues assigned.
            ValueError: The topic's name is illegal, or the expression is blank.
        """
        self._require_unassigned()
        super().subscribe_sql(topic, expression)

    def _require_unassigned(self) -> None:
        if self._given is not None:
            raise ClientStateError(
                repr(self), "one that queues are assigned to", "do not subscribe it as well"
            )

    def assign(self, queues: Iterable[MessageQueue], expression: str | None = ALL) -> None:
        """The consumer reads exactly these queues, from now on and whoever else does.

        Args:
            queues: Instead of those assigned before.
            expression: The tags wanted of them.

        Raises:
            ClientStateError: It has subscriptions.
        """
        if self._given is None and self._subscriptions:
            raise ClientStateError(repr(self), "one that subscribes", "do not assign queues to it as well")
        self._given = self._given or AssignedQueues()
        self._given.queues = frozenset(map(self._namespace.wrap_queue, queues))
        self._subscriptions.clear()
        for topic in {queue.topic for queue in self._given.queues}:
            self._take_over(tag_subscription(topic, expression, self._next_version()))
        self._subscriptions_changed()

    # Life

    async def start(self) -> None:
        """The consumer has its queues, and pulls them.

        Raises:
            ClientStateError: It was started before, or has neither subscription nor queues.
            GroupInUseError: Another consumer of the group has the same `instance_name`.
            NameServersUnreachableError: No name server answers.
            ResponseError: A broker cannot filter by an SQL92 expression that was subscribed to.
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
            bodies=self._bodies,
            polls=True,
            posts_subscription=True,
        )

    def _make_consumption(self, member: Membership) -> PolledConsumption:
        self._returns = self._send_back()
        return PolledConsumption(self.settings, self._offsets, self._gate, self._bodies, self._reject)

    async def _reject(self, message: MessageExt, error: UnreadableBodyError) -> None:
        """Send a message that no poll can return to the dead letters; in broadcasting it is dropped."""
        if self._returns is not None:
            await self._returns.dead_letter(message, error)

    def _shares(self, member: Membership) -> Shares:
        return self._given or super()._shares(member)

    async def _begin(self) -> None:
        await super()._begin()
        if self.settings.auto_commit:
            interval = self.settings.auto_commit_interval.total_seconds()
            self._committing = self._client.every(interval, interval, self._commit_consumed, "commit")

    async def _commit_consumed(self) -> None:
        self._consumption.note(self._rebalancer.queues())
        await self.persist_offsets()

    async def shutdown(self) -> None:
        """The group's others take over; with `auto_commit` all that was polled is committed."""
        if self._life.running:
            self._consumption.settle()
        await self._stop()

    async def _stop(self) -> None:
        if self._life.end():
            if self.settings.auto_commit:
                self._consumption.note(self._rebalancer.queues())
            self._begin_to_leave(self._leave(patience=0))
        await self._has_left()

    async def _leave(self, patience: float) -> None:
        if self._committing is not None:
            self._committing.cancel()
        await super()._leave(patience)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.shutdown()
        else:  # what the last poll returned may not be consumed
            await self._stop()

    # Polling

    async def poll(self, timeout: float | None = None) -> list[MessageExt]:
        """The next messages of one queue, at most `pull_batch_size`; none when none came in time.

        Args:
            timeout: Seconds; `poll_timeout` unless given, 0 for what is here already.
        """
        self._life.require_running()
        self._consumption.settle()
        seconds = self.settings.poll_timeout.total_seconds() if timeout is None else timeout
        return await self._consumption.next(seconds)

    async def commit(
        self, queues: Collection[MessageQueue] | Mapping[MessageQueue, int] | None = None
    ) -> None:
        """What the polls so far returned is committed; a broker that does not take it is logged and asked again.

        Args:
            queues: Only these queues; a mapping gives the offsets to commit, each one behind the last message
                consumed. None: all that are assigned.
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
            self._consumption.note(
                process_queue
                for process_queue in self._rebalancer.queues()
                if process_queue.message_queue in wanted
            )
        await self._offsets.persist(wanted)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The offset the group has committed in the queue; None when it has none."""
        return await self._offsets.fetch(self._known(queue))

    # Position

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """The next poll of the queue begins at that offset; what was pulled from it already is forgotten.

        Raises:
            QueueNotAssignedError: It is not among this member's queues.
            IllegalOffsetError: The queue has no such offset.
        """
        least, most = await self.min_offset(queue), await self.max_offset(queue)
        if not least <= offset <= most:
            raise IllegalOffsetError(queue, offset, least, most)
        self._consumption.settle()
        if not await self._rebalancer.seek(self._known(queue), offset):
            raise QueueNotAssignedError(queue, self.group)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """The next poll of the queue begins with its oldest message."""
        await self.seek(queue, await self.min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """The next poll of the queue begins with the first message that is not stored yet."""
        await self.seek(queue, await self.max_offset(queue))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """The queues are not pulled, and polls pass over them."""
        self._gate.pause(map(self._namespace.wrap_queue, queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """The queues are pulled and polled again."""
        self._gate.resume(map(self._namespace.wrap_queue, queues))
        if self._life.running:
            self._consumption.wake()

    @property
    def paused(self) -> frozenset[MessageQueue]:
        """The queues for which `pause` holds."""
        return frozenset(map(self._namespace.unwrap_queue, self._gate.paused))

    # What failed

    async def send_back(
        self,
        message: MessageExt,
        delay_level: int = 0,
        *,
        max_reconsume_times: int = DEFAULT_MAX_RECONSUME_TIMES,
        cause: BaseException | str | None = None,
    ) -> None:
        """The message will come again, from topic ``%RETRY%<group>``; too often already, it is a dead letter.

        Args:
            message: What was polled.
            delay_level: The broker's delay level; 0 for 3 + the redeliveries so far, -1 for a dead letter at once.
            max_reconsume_times: Redeliveries before it is a dead letter.
            cause: Why; the message tells it from then on.

        Raises:
            ClientStateError: In broadcasting nothing goes back.
            SendError: No broker took it.
        """
        self._life.require_running()
        if self._returns is None:
            raise ClientStateError(repr(self), "broadcasting", "handle what failed yourself")
        await self._returns.retry(message, delay_level, max_reconsume_times, cause)

    # What brokers ask of it

    def heartbeat_data(self) -> ConsumerData:
        """Group, model and subscriptions; of assigned queues others need not know."""
        data = super().heartbeat_data()
        if self._given is not None:
            data.subscription_data_set = []
        return data

    async def consume_directly(self, message: MessageExt) -> ConsumeMessageDirectlyResult:
        """Nothing: there is no listener to give it to."""
        return ConsumeMessageDirectlyResult(
            consume_result=ConsumeMessageResult.CR_RETURN_NULL, remark=f"consumer {self.client_id} polls"
        )
