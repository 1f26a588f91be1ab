"""A consumer binding: a push consumer of `rocket_client` whose messages go to the framework's receiver."""

import logging
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Generic, TypeVar

from binders.rocket.groups import subscribe
from binders.rocket.headers import from_message
from rocket_client import ConsumeContext, PushConsumer, Reject, RetryLater, Success, Suspend
from rocket_client.consuming.listener import ConcurrentOutcome, OrderlyOutcome
from rocket_remoting.wire.message import MessageExt
from streamkit.binder.binder import (
    BatchReceiver,
    BindingState,
    ConsumerBinding,
    ConsumerDestination,
    Receiver,
)
from streamkit.binder.delivery import Delivery
from streamkit.binder.settlement import Accept, RejectMessage, Retry, Settlement
from streamkit.messaging.headers import MessageHeaders
from streamkit.messaging.message import Message

logger = logging.getLogger(__name__)

_SUCCESS = Success()


R = TypeVar("R")
A = TypeVar("A", RetryLater, Suspend)


class RocketMember(ConsumerBinding, Generic[R]):
    """One binding's membership in its group; subclasses hand the messages over.

    Attributes:
        consumer: The client's consumer.
    """

    def __init__(
        self,
        destination: ConsumerDestination,
        consumer: PushConsumer,
        receiver: R,
        forget_group: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._destination = destination
        self.consumer = consumer
        self._receiver = receiver
        self._delivery = destination.delivery
        self._state = BindingState.STOPPED
        self._forget_group = forget_group
        subscribe(consumer, destination)
        if self._delivery.ordered:
            consumer.listen_orderly(self._handle_in_order, destination.permits)
        else:
            consumer.listen_concurrently(self._handle, destination.permits)

    @property
    def state(self) -> BindingState:
        """Running, paused or stopped."""
        return self._state

    async def start(self) -> None:
        """Join the group; messages arrive from now on."""
        await self.consumer.start()
        self._state = BindingState.RUNNING

    async def pause(self) -> None:
        """Pull nothing more until `resume`; the group and its queues are kept."""
        self.consumer.suspend()
        self._state = BindingState.PAUSED

    async def resume(self) -> None:
        """Pull again."""
        self.consumer.resume()
        self._state = BindingState.RUNNING

    async def stop(self, timeout: float) -> None:
        """Leave the group; calls in flight get `timeout` seconds to finish and be committed."""
        if self._state is BindingState.STOPPED:
            return
        self._state = BindingState.STOPPED
        await self.consumer.shutdown(timeout)
        if self._forget_group is not None:
            await self._forget_group()

    @abstractmethod
    async def _handle(
        self, messages: list[MessageExt], context: ConsumeContext
    ) -> ConcurrentOutcome | Sequence[ConcurrentOutcome]:
        """Hand messages over that nobody waits for."""

    @abstractmethod
    async def _handle_in_order(
        self, messages: list[MessageExt], context: ConsumeContext
    ) -> OrderlyOutcome | Sequence[OrderlyOutcome]:
        """Hand messages over before those behind them."""

    def _later(self, retry: Retry) -> RetryLater:
        return RetryLater(retry_level(self._delivery, retry), retry.cause)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._destination.binding!r} {self._state.value}>"


class RocketConsumerBinding(RocketMember[Receiver]):
    """Hands over one message after the other."""

    async def _handle(self, messages: list[MessageExt], context: ConsumeContext) -> ConcurrentOutcome:
        (message,) = messages
        return _outcome(await self._receiver(to_framework(message), message.reconsume_times), self._later)

    async def _handle_in_order(self, messages: list[MessageExt], context: ConsumeContext) -> OrderlyOutcome:
        (message,) = messages
        return _outcome(await self._receiver(to_framework(message), message.reconsume_times), _suspension)


class RocketBatchBinding(RocketMember[BatchReceiver]):
    """Hands over the batches the client makes of one queue's messages."""

    async def _handle(
        self, messages: list[MessageExt], context: ConsumeContext
    ) -> Sequence[ConcurrentOutcome]:
        return [_outcome(settlement, self._later) for settlement in await self._settle(messages)]

    async def _handle_in_order(
        self, messages: list[MessageExt], context: ConsumeContext
    ) -> Sequence[OrderlyOutcome]:
        return [_outcome(settlement, _suspension) for settlement in await self._settle(messages)]

    async def _settle(self, messages: Sequence[MessageExt]) -> Sequence[Settlement]:
        return await self._receiver.receive_batch(
            [to_framework(message) for message in messages],
            [message.reconsume_times for message in messages],
        )


def to_framework(message: MessageExt) -> Message[bytes]:
    """The framework's message of one that came."""
    return Message(bytes(message.body), MessageHeaders.adopt(from_message(message)))


def retry_level(delivery: Delivery, retry: Retry) -> int:
    """The delay level a message goes back with; 0 leaves it to the redeliveries so far."""
    if retry.after is None:
        return max(delivery.redelivery_level, 0)
    return level_of(retry.after, delivery.delay_levels)


def level_of(delay: timedelta, levels: Sequence[timedelta]) -> int:
    """The shortest delay level that is not shorter than `delay`; the longest one where none is."""
    for level, duration in enumerate(levels, start=1):
        if duration >= delay:
            return level
    return len(levels)


def _outcome(settlement: Settlement, again: Callable[[Retry], A]) -> Success | Reject | A:
    """What the client is told of a message; ``again`` says it of one that comes again."""
    if isinstance(settlement, Accept):
        return _SUCCESS
    if isinstance(settlement, RejectMessage):
        return Reject(settlement.cause or settlement.reason)
    return again(settlement)


def _suspension(retry: Retry) -> Suspend:
    return Suspend(None if retry.after is None else retry.after.total_seconds(), retry.cause)
