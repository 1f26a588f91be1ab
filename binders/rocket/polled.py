"""A polled source: a lite pull consumer of `rocket_client` that commits the offsets of settled messages.

::

    poll      returns the next message of the client's last poll; if none is left, the client polls again
    settle    Accept: nothing is sent; Requeue: sent to %RETRY%group, which the source subscribes to;
              Reject: sent to %DLQ%group
    commit    every persist-consumer-offset-interval and at the stop: the smallest offset that is not settled
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial

from binders.rocket.client_settings import redelivery_limit
from binders.rocket.consumer import lag_behind, retry_level, to_framework
from binders.rocket.groups import subscribe
from rocket_client import LitePullConsumer
from rocket_client.connection.client import cancel
from rocket_client.consuming.send_back import DEAD_LETTER
from rocket_remoting import RemotingError
from rocket_remoting.wire.message import MessageExt, MessageQueue
from rocket_remoting.wire.topics import retry_topic
from streamkit.binder.binder import BindingState, ConsumerDestination, PolledMessage, PolledSource
from streamkit.settlement import Accept, Reject, Requeue, Settlement

logger = logging.getLogger(__name__)


class _Progress:
    """The offsets of one queue that are polled but not settled, and the offset to commit."""

    def __init__(self) -> None:
        # Offsets that were polled and are not settled, ascending.
        self._open: dict[int, None] = {}
        self._next = 0

    def begin(self, offset: int) -> None:
        if offset < self._next:  # the queue was assigned again and starts at the committed offset
            self._open.clear()
        # Offsets of a queue ascend, so the first key of `_open` is the smallest unsettled offset.
        self._open[offset] = None
        self._next = offset + 1

    def settle(self, offset: int) -> None:
        self._open.pop(offset, None)

    @property
    def position(self) -> int:
        """The offset to commit: all messages before this offset are settled."""
        return next(iter(self._open), self._next)


class RocketPolledSource(PolledSource):
    """The membership of a polled binding in its group.

    Attributes:
        consumer: The lite pull consumer of `rocket_client`.
    """

    def __init__(
        self,
        destination: ConsumerDestination,
        consumer: LitePullConsumer,
        delete_group: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.consumer = consumer
        self._binding = destination.binding
        self._delivery = destination.delivery
        self._delete_group = delete_group
        self._state = BindingState.STOPPED
        self._waiting: deque[MessageExt] = deque()
        self._progress: dict[MessageQueue, _Progress] = {}
        self._polling = asyncio.Lock()
        self._committing: asyncio.Task[None] | None = None
        consumer.on_rebalance(self._rebalanced)
        subscribe(consumer, destination)
        if not self._delivery.broadcast:
            consumer.subscribe(retry_topic(consumer.group))

    @property
    def state(self) -> BindingState:
        """The state of the source: running, paused or stopped."""
        return self._state

    @property
    def binding(self) -> str:
        """The binding's name."""
        return self._binding

    async def lag(self) -> int:
        """Return the number of messages in this member's queues that are not polled, or polled and not settled.

        Raises:
            RemotingError: The brokers cannot be reached, or refuse.
        """
        mine = self.consumer.positions
        settled = {queue: each.position for queue, each in self._progress.items() if queue in mine}
        return await lag_behind(self.consumer, mine | settled)

    async def start(self) -> None:
        """Join the group and start to fetch messages for polls.

        Raises:
            RemotingError: The brokers cannot be reached, or refuse.
        """
        await self.consumer.start()
        self._committing = asyncio.create_task(self._commit_regularly(), name=f"commit of {self._binding}")
        self._state = BindingState.RUNNING

    async def pause(self) -> None:
        """Stop fetching until `resume`; polls fetch no new messages."""
        self.consumer.pause(self.consumer.assigned)
        self._state = BindingState.PAUSED

    async def resume(self) -> None:
        """Start fetching again."""
        self.consumer.resume(self.consumer.paused)
        self._state = BindingState.RUNNING

    async def stop(self, timeout: float) -> None:
        """Commit the settled offsets and leave the group; delete it at the brokers if it is anonymous.

        Args:
            timeout: Not used: the source calls no handlers that it could wait for.
        """
        if self._state is BindingState.STOPPED:
            return
        self._state = BindingState.STOPPED
        try:
            if self._committing is not None:
                await cancel([self._committing])
            await self._commit()
        finally:  # also if the stop is cancelled: the group must not wait until the member times out
            await self.consumer.shutdown()
        if self._delete_group is not None:
            await self._delete_group()

    async def poll(self) -> PolledMessage | None:
        """Return the next message; wait for it up to `pull.poll-timeout-millis`, then return None."""
        if not self._waiting:
            async with self._polling:
                # Asked again: another poll may have held the lock and taken messages in, or the source may have been
                # stopped.
                if not self._waiting and self._state is BindingState.RUNNING:
                    self._take_in(await self.consumer.poll())
        while self._waiting:
            message = self._waiting.popleft()
            queue = _queue_of(message)
            # A rebalance may have moved the queue while the message waited here; its new member delivers the message.
            if queue in self.consumer.assigned:
                return self._polled(queue, message)
        return None

    def _rebalanced(self, topic: str, queues: frozenset[MessageQueue], mine: frozenset[MessageQueue]) -> None:
        """Forget the progress of queues that other members have now: a commit from here would overwrite theirs."""
        for queue in [queue for queue in self._progress if queue.topic == topic and queue not in mine]:
            del self._progress[queue]

    def _take_in(self, messages: list[MessageExt]) -> None:
        for message in messages:
            self._progress.setdefault(_queue_of(message), _Progress()).begin(message.queue_offset)
        self._waiting.extend(messages)

    def _polled(self, queue: MessageQueue, message: MessageExt) -> PolledMessage:
        message.topic = self.consumer.origin_topic(message)
        settle = partial(self._settle, queue, message)
        return PolledMessage(to_framework(message), message.reconsume_times, settle)

    async def _settle(self, queue: MessageQueue, message: MessageExt, settlement: Settlement) -> None:
        # The source has committed for the last time or is about to: the message is delivered again.
        if self._state is BindingState.STOPPED:
            return
        try:
            await self._carry_out(message, settlement)
        except Exception as error:  # on any error the message stays unsettled and is polled again
            logger.warning(
                "Binding %r: message %s could not be sent back and is polled again: %s",
                self._binding,
                message.msg_id,
                error,
                exc_info=not isinstance(error, RemotingError),
            )
            message.topic = queue.topic
            message.reconsume_times += 1
            self._waiting.append(message)
            return
        progress = self._progress.get(queue)
        if progress is not None:
            progress.settle(message.queue_offset)

    async def _carry_out(self, message: MessageExt, settlement: Settlement) -> None:
        if isinstance(settlement, Accept):
            return
        level, cause = DEAD_LETTER, settlement.cause
        if isinstance(settlement, Requeue):
            level = retry_level(self._delivery, settlement)
        elif isinstance(settlement, Reject):
            cause = settlement.cause or settlement
        await self.consumer.send_back(message, level, max_reconsume_times=redelivery_limit(self._delivery), cause=cause)

    async def _commit_regularly(self) -> None:
        interval = self.consumer.settings.persist_consumer_offset_interval.total_seconds()
        while True:
            await asyncio.sleep(interval)
            await self._commit()

    async def _commit(self) -> None:
        """Commit the position of each queue; a commit that fails is repeated with the next one."""
        await self.consumer.commit({queue: each.position for queue, each in self._progress.items()})

    def __repr__(self) -> str:
        return f"<RocketPolledSource {self._binding!r} {self._state.value}>"


def _queue_of(message: MessageExt) -> MessageQueue:
    return MessageQueue(message.topic, message.broker_name, message.queue_id)
