"""Consumer bindings: a push consumer of `rocket_client` passes its messages to the framework's receiver."""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Generic, TypeVar

import rocket_client
from binders.rocket.groups import subscribe
from binders.rocket.headers import from_message
from rocket_client import SUCCESS, ConsumeContext, LitePullConsumer, PushConsumer, RetryLater, Success, Suspend
from rocket_client.consuming.listener import ConcurrentOutcome, OrderlyOutcome
from rocket_remoting.wire.message import MessageExt, MessageQueue
from streamkit.binder.binder import (
    BatchReceiver,
    BindingState,
    ConsumerBinding,
    ConsumerDestination,
    Receiver,
)
from streamkit.binder.delivery import Delivery
from streamkit.messaging.headers import MessageHeaders
from streamkit.messaging.message import Message, message_of
from streamkit.settlement import ACCEPT, Accept, Reject, Requeue, Settlement

logger = logging.getLogger(__name__)

R = TypeVar("R")
A = TypeVar("A", RetryLater, Suspend)


class RocketMember(ConsumerBinding, Generic[R]):
    """The membership of a binding in its group; subclasses pass the messages to the receiver.

    Attributes:
        consumer: The push consumer of `rocket_client`.
    """

    def __init__(
        self,
        destination: ConsumerDestination,
        consumer: PushConsumer,
        receiver: R,
        delete_group: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._destination = destination
        self.consumer = consumer
        self._receiver = receiver
        self._delivery = destination.delivery
        self._state = BindingState.STOPPED
        self._delete_group = delete_group
        subscribe(consumer, destination)
        if self._delivery.ordered:
            consumer.listen_orderly(self._handle_in_order, destination.permits)
        else:
            consumer.listen_concurrently(self._handle, destination.permits)

    @property
    def state(self) -> BindingState:
        """The state of the binding: running, paused or stopped."""
        return self._state

    @property
    def binding(self) -> str:
        """The binding's name."""
        return self._destination.binding

    async def lag(self) -> int:
        """Return the number of unsettled messages in this member's queues.

        Raises:
            RemotingError: The brokers cannot be reached, or refuse.
        """
        return await lag_behind(self.consumer, self.consumer.positions)

    async def start(self) -> None:
        """Join the group and start to receive messages.

        Raises:
            RemotingError: The brokers cannot be reached, or refuse.
        """
        await self.consumer.start()
        self._state = BindingState.RUNNING

    async def pause(self) -> None:
        """Stop pulling until `resume`; the consumer stays in the group and keeps its queues."""
        self.consumer.suspend()
        self._state = BindingState.PAUSED

    async def resume(self) -> None:
        """Start pulling again."""
        self.consumer.resume()
        self._state = BindingState.RUNNING

    async def stop(self, timeout: float) -> None:
        """Leave the group; delete it at the brokers if it is anonymous.

        Args:
            timeout: How long calls in flight may take to finish and be committed, in seconds.
        """
        if self._state is BindingState.STOPPED:
            return
        self._state = BindingState.STOPPED
        await self.consumer.shutdown(timeout)
        if self._delete_group is not None:
            await self._delete_group()

    @abstractmethod
    async def _handle(
        self, messages: list[MessageExt], context: ConsumeContext
    ) -> ConcurrentOutcome | Sequence[ConcurrentOutcome]:
        """Pass messages to the receiver; other messages of the queue do not wait for them."""

    @abstractmethod
    async def _handle_in_order(
        self, messages: list[MessageExt], context: ConsumeContext
    ) -> OrderlyOutcome | Sequence[OrderlyOutcome]:
        """Pass messages to the receiver; the messages behind them in the queue wait for the outcome."""

    def _retry_later(self, requeue: Requeue) -> RetryLater:
        return RetryLater(retry_level(self._delivery, requeue), requeue.cause)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._destination.binding!r} {self._state.value}>"


class RocketConsumerBinding(RocketMember[Receiver]):
    """A consumer binding whose receiver takes single messages."""

    async def _handle(self, messages: list[MessageExt], context: ConsumeContext) -> ConcurrentOutcome:
        (message,) = messages
        return _outcome(await self._receiver(to_framework(message), message.reconsume_times), self._retry_later)

    async def _handle_in_order(self, messages: list[MessageExt], context: ConsumeContext) -> OrderlyOutcome:
        (message,) = messages
        return _outcome(await self._receiver(to_framework(message), message.reconsume_times), _suspension)


class RocketBatchBinding(RocketMember[BatchReceiver]):
    """A consumer binding whose receiver takes batches; the messages of a batch are from one queue."""

    async def _handle(
        self, messages: list[MessageExt], context: ConsumeContext
    ) -> Success | Sequence[ConcurrentOutcome]:
        return _outcomes(await self._settle(messages), self._retry_later)

    async def _handle_in_order(
        self, messages: list[MessageExt], context: ConsumeContext
    ) -> Success | Sequence[OrderlyOutcome]:
        return _outcomes(await self._settle(messages), _suspension)

    async def _settle(self, messages: Sequence[MessageExt]) -> Sequence[Settlement]:
        return await self._receiver.receive_batch(
            [to_framework(message) for message in messages],
            [message.reconsume_times for message in messages],
        )


async def lag_behind(consumer: PushConsumer | LitePullConsumer, positions: Mapping[MessageQueue, int]) -> int:
    """Return how many messages the queues have from these positions on, by asking the brokers where the queues end.

    Raises:
        RemotingError: The brokers cannot be reached, or refuse.
    """
    ends = await asyncio.gather(*map(consumer.max_offset, positions))
    return sum(max(0, end - position) for end, position in zip(ends, positions.values(), strict=True))


def to_framework(message: MessageExt) -> Message[bytes]:
    """Return the framework's message for a received message."""
    return message_of(bytes(message.body), MessageHeaders.adopt(from_message(message)))


def retry_level(delivery: Delivery, requeue: Requeue) -> int:
    """Return the delay level with which a message is sent back; 0: the number of redeliveries so far decides."""
    if requeue.after is None:
        # For level 0 the broker uses 3 + reconsumeTimes (Apache's AbstractSendMessageProcessor). -1 turns off
        # redelivery after failures, which `after_failure` has rejected already; a Requeue by the listener or after
        # `consume-timeout` is still delivered again.
        return max(delivery.redelivery_level, 0)
    return delay_level_for(requeue.after, delivery.delay_levels)


def delay_level_for(delay: timedelta, levels: Sequence[timedelta]) -> int:
    """Return the number, from 1, of the shortest level that is at least `delay`, or of the last level.

    Args:
        delay: The delay that was asked for.
        levels: The durations of the delay levels, ascending.
    """
    # Rounded up, so that a message never comes earlier than the listener asked for.
    for level, duration in enumerate(levels, start=1):
        if duration >= delay:
            return level
    return len(levels)


def _outcome(settlement: Settlement, again: Callable[[Requeue], A]) -> Success | rocket_client.Reject | A:
    """Return the client's outcome for a settlement; ``again`` makes that of a message to be redelivered."""
    if isinstance(settlement, Accept):
        return SUCCESS
    if isinstance(settlement, Reject):
        return rocket_client.Reject(settlement.cause or settlement)
    return again(settlement)


def _outcomes(
    settlements: Sequence[Settlement], again: Callable[[Requeue], A]
) -> Success | Sequence[Success | rocket_client.Reject | A]:
    """Return the client's outcomes for the settlements of a batch: one for all messages if all are accepted."""
    if all(settlement is ACCEPT for settlement in settlements):
        return SUCCESS
    return [_outcome(settlement, again) for settlement in settlements]


def _suspension(requeue: Requeue) -> Suspend:
    return Suspend(None if requeue.after is None else requeue.after.total_seconds(), requeue.cause)
