"""Consumer bindings in batch mode: several messages of one queue are one call."""

import asyncio
import logging
from collections.abc import Sequence

from binders.inmemory.consumer import ConcurrentMember, OrderedMember
from binders.inmemory.group import Delivery, GroupQueue
from streamkit.binder.binder import BatchReceiver, BindingState
from streamkit.binder.calls import next_batch
from streamkit.binder.settlement import RETRY, Accept, RejectMessage, Retry, Settlement

logger = logging.getLogger(__name__)


class ConcurrentBatchBinding(ConcurrentMember[BatchReceiver]):
    """Hands over one batch after the other."""

    async def _work(self) -> None:
        while self._state is BindingState.RUNNING and self._permits.free > 0:
            queue = self._turns.next()
            if queue is None:
                return
            deliveries = next_batch(queue.waiting, self._delivery.batch_size)
            for _ in deliveries:
                queue.waiting.popleft()
            try:
                settlements = await _received(self._receiver, deliveries, self._binding)
            except asyncio.CancelledError:
                self._group.give_back(queue, deliveries)
                raise
            for delivery, settlement in zip(deliveries, settlements, strict=True):
                if not isinstance(settlement, Accept):
                    self._carry_out(delivery, settlement)
            await asyncio.sleep(0)


class OrderedBatchBinding(OrderedMember[BatchReceiver]):
    """Hands over one batch after the other; what is retried is at the head of its queue again."""

    async def _handle(self, queue: GroupQueue) -> None:
        deliveries = next_batch(queue.waiting, self._delivery.batch_size)
        settlements = await _received(self._receiver, deliveries, self._binding)
        retried: list[Delivery] = []
        pause = 0.0
        for delivery, settlement in zip(deliveries, settlements, strict=True):
            queue.waiting.popleft()
            if isinstance(settlement, Retry):
                pause = max(pause, self._delivery.pause_before(settlement, delivery.redeliveries))
                delivery.redeliveries += 1
                retried.append(delivery)
            elif isinstance(settlement, RejectMessage):
                self._bury(delivery, settlement)
        if retried:
            queue.waiting.extendleft(reversed(retried))
            await self._calls.suspend(pause)


async def _received(
    receiver: BatchReceiver, deliveries: Sequence[Delivery], binding: str
) -> Sequence[Settlement]:
    messages = [delivery.message for delivery in deliveries]
    try:
        return await receiver.receive_batch(messages, [delivery.redeliveries for delivery in deliveries])
    except Exception:
        logger.exception("The receiver of binding %r raised; its messages are retried", binding)
        return [RETRY] * len(deliveries)
