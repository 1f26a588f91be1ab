"""Drivers call the receiver for binders whose client makes no calls itself: in order, or as permits allow.

::

    source (a queue or partition) ─▶ driver ─▶ ReceiverCall ─▶ receiver
                                       │ Accept     Settler.accept
                                       │ Reject     Settler.reject
                                       │ Requeue    ordered: the message returns to the head of its source,
                                       │                     and the source waits for the redelivery delay
                                       │            concurrent: Settler.redeliver
                                       ▼
    if a call fails, or carrying out its settlement fails, the driver logs the error and requeues the messages

A driver belongs to one member of a group. A rebalance may move a source to another member at any time. So a driver
calls `Settler.may_begin` before each call. A call that is in flight when its source moves is finished by the old
member.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any, Final, Generic, TypeVar

from streamkit.binder.binder import ConsumerDestination
from streamkit.binder.calls import Calls, Redelivered, Source, Turns, next_batch
from streamkit.binder.receiver_calls import ReceiverCall
from streamkit.settlement import ACCEPT, Accept, Reject, Requeue, Settlement

__all__ = ["ConcurrentDriver", "Driver", "OrderedDriver", "Settler"]

logger = logging.getLogger(__name__)

# A task whose handlers never wait would block the loop, so it yields to the loop after this number of messages.
_RUN: Final = 100

S = TypeVar("S", bound=Source[Any])
D = TypeVar("D", bound=Redelivered)


class Settler(ABC, Generic[S, D]):
    """Carries out settlements in the binder's system, and says which sources this member may handle."""

    @abstractmethod
    def may_begin(self, source: S) -> bool:
        """Return whether calls with messages of ``source`` may begin in this member now."""

    @abstractmethod
    def accept(self, delivery: D) -> None:
        """Carry out an `Accept`."""

    @abstractmethod
    async def reject(self, delivery: D, rejected: Reject) -> None:
        """Carry out a `Reject`: put the message into the dead letters.

        Args:
            delivery: The message.
            rejected: The settlement, with its reason.
        """

    @abstractmethod
    def redeliver(self, delivery: D, pause: float, wake: Callable[[S], None]) -> None:
        """Carry out a `Requeue` in concurrent mode: deliver the message again later.

        Args:
            delivery: The message; it is no longer in its source.
            pause: Seconds until the next delivery.
            wake: To be called with the source of this member into which the message has been put again.
        """

    @abstractmethod
    def place(self, delivery: D) -> str:
        """Return the name of a message in logs, such as its topic, partition and offset."""

    def give_back(self, source: S, deliveries: Sequence[D]) -> None:
        """Put the messages of a cancelled call back into ``source``."""

    def leave(self, source: S) -> None:
        """Note that the ordered driver has no call of ``source`` in flight: its new member may begin."""

    def close(self) -> None:
        """Deliver nothing again: messages that wait for `redeliver` stay unsettled."""


class Driver(ABC, Generic[S, D]):
    """Calls the receiver for one member of a group.

    A driver calls nothing until `wake` is called with a source.
    """

    def __init__(
        self,
        destination: ConsumerDestination,
        settler: Settler[S, D],
        call_receiver: ReceiverCall[D],
        *,
        size: int = 1,
        window: int = 1 << 30,
    ) -> None:
        """Make a driver.

        Args:
            destination: The destination of the consumer binding.
            settler: Carries out settlements.
            call_receiver: Calls the receiver.
            size: The largest number of deliveries in one call.
            window: The largest number of calls in concurrent mode, including calls that wait for their next attempt.
        """
        self._binding = destination.binding
        self._terms = destination.delivery
        self._permits = destination.permits
        self._settler = settler
        self._call_receiver = call_receiver
        self._size = size
        self._window = window
        self._is_running = True
        self._calls = Calls(self._binding)

    @abstractmethod
    def wake(self, source: S) -> None:
        """Begin calls with the messages of ``source``: it has new messages, or it may begin now."""

    def recall(self, source: S) -> None:
        """Cancel the call of a source that this member loses, if the call still waits for a permit."""

    def pause(self) -> None:
        """Begin no calls until `resume`."""
        self._is_running = False

    def resume(self, sources: Sequence[S]) -> None:
        """Begin calls again with the waiting messages of ``sources``."""
        self._is_running = True
        for source in sources:
            if source.waiting and self._settler.may_begin(source):
                self.wake(source)

    def interrupt(self) -> None:
        """Begin no more calls, and end the waits for redeliveries; calls in flight go on."""
        self._is_running = False
        self._settler.close()

    async def finish(self, timeout: float) -> None:
        """Wait ``timeout`` seconds for the calls in flight, then cancel them."""
        await self._calls.finish(timeout)

    def _requeued(self, deliveries: Sequence[D], error: Exception) -> Sequence[Settlement]:
        """Log a call that failed; return the settlements of its deliveries."""
        place = self._settler.place(deliveries[0])
        logger.error("Binding %r failed to handle %s, and will handle it again", self._binding, place, exc_info=error)
        return [Requeue("the call failed unexpectedly", cause=error)] * len(deliveries)

    async def _carry_out(self, delivery: D, settlement: Settlement) -> float | None:
        """Carry out a settlement; return the seconds until the next delivery, or None if there is none."""
        try:
            if isinstance(settlement, Requeue):
                return self._terms.pause_before(settlement, delivery.redeliveries)
            if isinstance(settlement, Reject):
                await self._settler.reject(delivery, settlement)
        except Exception as error:  # a binder may raise any exception, and the source must go on
            return self._unsettled(delivery, error)
        return self._accept(delivery) if isinstance(settlement, Accept) else None

    def _accept(self, delivery: D) -> float | None:
        """Carry out an `Accept`; return None, or after a failure the seconds until the next delivery."""
        try:
            self._settler.accept(delivery)
        except Exception as error:  # as above
            return self._unsettled(delivery, error)
        return None

    def _unsettled(self, delivery: D, error: Exception) -> float:
        place = self._settler.place(delivery)
        logger.error(
            "Binding %r could not carry out the settlement of %s, and will deliver it again",
            self._binding,
            place,
            exc_info=error,
        )
        return self._terms.pause_before(Requeue(), delivery.redeliveries)


class OrderedDriver(Driver[S, D]):
    """Makes one call at a time for each source; a message leaves its source when it is settled.

    ::

        waiting  [ a  b  c ]     call(a) ─▶ Accept     [ b  c ]       call(b) follows at once
                   ▲ head                ─▶ Requeue    [ a  b  c ]    call(a) follows after the redelivery delay
    """

    def __init__(
        self,
        destination: ConsumerDestination,
        settler: Settler[S, D],
        call_receiver: ReceiverCall[D],
        *,
        size: int = 1,
        window: int = 1 << 30,
    ) -> None:
        super().__init__(destination, settler, call_receiver, size=size, window=window)
        self._drives: dict[S, asyncio.Task[object] | None] = {}
        self._recalled: set[S] = set()

    def wake(self, source: S) -> None:
        """Begin calls with the messages of ``source``: it has new messages, or it may begin now."""
        if not source.is_busy and self._is_running and self._settler.may_begin(source):
            # Set here and not in the task, which runs later: a second `wake` before that would start a second task,
            # and two calls of the source would run at once.
            source.is_busy = True
            self._calls.begin(self._drive(source))

    def recall(self, source: S) -> None:
        """Cancel the call of a source that this member loses, if the call still waits for a permit."""
        task = self._drives.get(source)
        if task is not None and self._permits.recall(task):
            self._recalled.add(source)

    def interrupt(self) -> None:
        """Begin no more calls; a message that waits for its next delivery stays at the head of its source."""
        super().interrupt()
        self._calls.end_suspensions()

    async def _drive(self, source: S) -> None:
        self._drives[source] = asyncio.current_task()
        handled = 0
        try:
            while source.waiting and self._is_running and self._settler.may_begin(source):
                deliveries = next_batch(source.waiting, self._size)
                source.calls += 1
                try:
                    # The call counts until its settlements are carried out: Kafka's rebalance waits until `calls` is
                    # 0, then commits the position.
                    pause = await self._call(source, deliveries)
                finally:
                    source.calls -= 1
                # Not counted as a call, so a rebalance does not wait for the redelivery delay. If the task is
                # cancelled here, the message is at the head of its source.
                if pause is not None:
                    await self._calls.suspend(pause)
                handled += len(deliveries)
                if handled >= _RUN:
                    handled = 0
                    await asyncio.sleep(0)
        finally:
            # First of all: while the source is busy, neither this member's `wake` nor the new member's driver begins
            # a call.
            source.is_busy = False
            del self._drives[source]
            if source in self._recalled:
                self._recalled.remove(source)
                self.wake(source)  # the source may have come back to this member meanwhile
            self._settler.leave(source)

    async def _call(self, source: S, deliveries: Sequence[D]) -> float | None:
        """Make one call with the messages at the head; return the seconds to wait before the next call, or None."""
        try:
            settlements = await self._call_receiver(deliveries)
            if len(settlements) != len(deliveries):
                raise _count_error(deliveries, settlements)
        except Exception as error:  # a binder may raise any exception, and the source must go on
            settlements = self._requeued(deliveries, error)
        # Nothing has left the source so far, so a receiver's call that is cancelled leaves its messages at the head.
        waiting = source.waiting
        requeued: list[D] = []
        longest = 0.0
        for delivery, settlement in zip(deliveries, settlements, strict=True):
            pause = await self._carry_out(delivery, settlement)
            if pause is not None:
                longest = max(longest, pause)
                delivery.redeliveries += 1
                requeued.append(delivery)
            # The message is still at the head, unless the group's offset was reset during the call.
            if waiting and waiting[0] is delivery:
                waiting.popleft()
        # `extendleft` reverses what it adds; the messages keep their order.
        waiting.extendleft(reversed(requeued))
        return longest if requeued else None


class ConcurrentDriver(Driver[S, D]):
    """Makes as many calls at once as there are permits, with the sources in turn.

    A message leaves its source when its call begins. A requeued message is delivered again by `Settler.redeliver`, so
    it holds back no other message.
    """

    def __init__(
        self,
        destination: ConsumerDestination,
        settler: Settler[S, D],
        call_receiver: ReceiverCall[D],
        *,
        size: int = 1,
        window: int = 1 << 30,
    ) -> None:
        super().__init__(destination, settler, call_receiver, size=size, window=window)
        self._turns = Turns[S](
            self._permits,
            may_begin=settler.may_begin,
            room=self._room,
            start_worker=lambda: self._calls.begin(self._work()),
        )
        if type(self).wake is ConcurrentDriver.wake:
            self.wake = self._turns.wake  # type: ignore[method-assign]  # saves a call for each message

    def wake(self, source: S) -> None:
        """Begin calls with the messages of ``source``: it has new messages, or it may begin now."""
        self._turns.wake(source)

    def interrupt(self) -> None:
        """Begin no more calls, and end the waits for redeliveries; calls in flight go on."""
        super().interrupt()
        self._turns.close()

    def _room(self) -> int:
        return self._window - len(self._calls) if self._is_running else 0

    async def _work(self) -> None:
        handled, size, permits, turns = 0, self._size, self._permits, self._turns
        task, context = asyncio.current_task(), copy_context()
        assert task is not None
        while True:
            taken = turns.take(size) if self._is_running and permits.free > 0 else None
            if taken is None:
                # A new worker handles the next message if a listener has set context variables, or has swallowed a
                # cancellation.
                if task.cancelling() or copy_context() != context or (parked := turns.park()) is None:
                    return
                try:
                    if not await parked:
                        return
                except asyncio.CancelledError:
                    turns.leave(parked)
                    raise
                handled = 0
                continue
            source, deliveries = taken
            source.calls += 1
            try:
                try:
                    settlements = await self._call_receiver(deliveries)
                    if len(settlements) != len(deliveries):
                        raise _count_error(deliveries, settlements)
                except asyncio.CancelledError:
                    # In contrast to ordered mode the messages have left their source. In memory these are the only
                    # references to them.
                    self._settler.give_back(source, deliveries)
                    raise
                except Exception as error:  # a binder may raise any exception, and the source must go on
                    settlements = self._requeued(deliveries, error)
                for delivery, settlement in zip(deliveries, settlements, strict=True):
                    # Most messages are accepted; `_accept` saves the coroutine of `_carry_out`.
                    pause = (
                        self._accept(delivery) if settlement is ACCEPT else await self._carry_out(delivery, settlement)
                    )
                    if pause is not None:
                        self._settler.redeliver(delivery, pause, self.wake)
                    del delivery
            finally:
                source.calls -= 1
            handled += len(deliveries)
            del taken, source, deliveries, settlements  # otherwise a parked worker would keep the messages
            if handled >= _RUN:
                handled = 0
                await asyncio.sleep(0)


def _count_error(deliveries: Sequence[object], settlements: Sequence[Settlement]) -> ValueError:
    return ValueError(f"{len(settlements)} settlement(s) for {len(deliveries)} message(s)")
