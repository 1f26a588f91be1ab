"""A consumer binding: a push consumer of `rocket_client` whose messages go to the framework's receiver."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from binders.rocket.headers import from_message
from rocket_client import ConsumeContext, PushConsumer, Reject, RetryLater, Success, Suspend
from rocket_remoting.message import MessageExt
from streamkit.binder.binder import BindingState, ConsumerBinding, ConsumerDestination, Receiver
from streamkit.binder.delivery import Delivery
from streamkit.binder.settlement import Accept, RejectMessage, Retry, Settlement
from streamkit.messaging.headers import MessageHeaders
from streamkit.messaging.message import Message

log = logging.getLogger(__name__)

_SUCCESS = Success()


class RocketConsumerBinding(ConsumerBinding):
    """One binding's membership in its group."""

    def __init__(
        self,
        destination: ConsumerDestination,
        consumer: PushConsumer,
        receiver: Receiver,
        forget_group: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._destination = destination
        self._consumer = consumer
        self._receiver = receiver
        self._delivery = destination.delivery
        self._state = BindingState.STOPPED
        self._forget_group = forget_group
        expression = self._delivery.tags or "*"
        for topic in destination.name.split(","):
            consumer.subscribe(topic.strip(), expression)
        if self._delivery.ordered:
            consumer.listen_orderly(self._handle_in_order)
        else:
            consumer.listen_concurrently(self._handle)

    @property
    def state(self) -> BindingState:
        """Running, paused or stopped."""
        return self._state

    async def start(self) -> None:
        """Join the group; messages arrive from now on."""
        await self._consumer.start()
        self._state = BindingState.RUNNING

    async def pause(self) -> None:
        """Pull nothing more until `resume`; the group and its queues are kept."""
        self._consumer.suspend()
        self._state = BindingState.PAUSED

    async def resume(self) -> None:
        """Pull again."""
        self._consumer.resume()
        self._state = BindingState.RUNNING

    async def stop(self, timeout: float) -> None:
        """Leave the group; calls in flight get `timeout` seconds to finish and be committed."""
        if self._state is BindingState.STOPPED:
            return
        self._state = BindingState.STOPPED
        await self._consumer.shutdown(timeout)
        if self._forget_group is not None:
            await self._forget_group()

    async def _handle(
        self, messages: list[MessageExt], context: ConsumeContext
    ) -> Success | RetryLater | Reject:
        (message,) = messages
        settlement = await self._settle(message)
        if isinstance(settlement, Accept):
            return _SUCCESS
        if isinstance(settlement, RejectMessage):
            return Reject(_cause(settlement))
        return RetryLater(self._level(settlement), settlement.cause)

    async def _handle_in_order(
        self, messages: list[MessageExt], context: ConsumeContext
    ) -> Success | Suspend | Reject:
        (message,) = messages
        settlement = await self._settle(message)
        if isinstance(settlement, Accept):
            return _SUCCESS
        if isinstance(settlement, RejectMessage):
            return Reject(_cause(settlement))
        return Suspend(
            None if settlement.after is None else settlement.after.total_seconds(), settlement.cause
        )

    async def _settle(self, message: MessageExt) -> Settlement:
        headers = MessageHeaders.adopt(from_message(message))
        return await self._receiver(Message(bytes(message.body), headers), message.reconsume_times)

    def _level(self, retry: Retry) -> int:
        if retry.after is None:
            return max(self._delivery.redelivery_level, 0)
        return level_of(retry.after, self._delivery.delay_levels)

    def __repr__(self) -> str:
        return f"<RocketConsumerBinding {self._destination.binding!r} {self._state.value}>"


def level_of(delay: timedelta, levels: Sequence[timedelta]) -> int:
    """The shortest delay level that is not shorter than `delay`; the longest one where none is."""
    for level, duration in enumerate(levels, start=1):
        if duration >= delay:
            return level
    return len(levels)


def redelivery_limit(delivery: Delivery) -> int:
    """`maxReconsumeTimes` of the client, so that no broker gives up before the framework does."""
    limit = delivery.redelivery_limit
    return -1 if limit is None else limit


def _cause(rejected: RejectMessage) -> BaseException | str:
    return rejected.cause or rejected.reason
