"""Who is called with what a partition has: one call after the other, or as many as there are permits.

Both drivers call the framework's receiver with one message or with a batch (`Hand`), and carry out what comes back:
what is done moves its partition's position, what is rejected goes to the dead letters first, what is retried waits
here: its offset is not passed, so that it comes again to whoever has the partition after a crash.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from binders.kafka.dead_letter import DeadLetters, place
from binders.kafka.headers import from_record
from binders.kafka.partition import AssignedPartition, Delivery
from binders.kafka.records import Unreadable
from streamkit.binder.binder import BatchReceiver, ConsumerDestination, Receiver
from streamkit.binder.calls import Calls, Turns, next_batch
from streamkit.binder.settlement import RETRY, RejectMessage, Retry, Settlement
from streamkit.messaging.headers import MessageHeaders
from streamkit.messaging.message import NO_PAYLOAD, Message

logger = logging.getLogger(__name__)

# A worker whose handlers never wait lets the loop go on after so many calls.
_RUN: Final = 100

Hand: TypeAlias = Callable[[Sequence[Delivery]], Coroutine[object, None, Sequence[Settlement]]]
"""Has deliveries handled, and returns what becomes of each."""
Settled: TypeAlias = Callable[[AssignedPartition], None]
"""Told that something of a partition is settled."""


def to_framework(delivery: Delivery, binding: str, group: str | None) -> Message[bytes] | RejectMessage:
    """The framework's message of a record; of one that cannot be read, its rejection."""
    record = delivery.record
    try:
        if isinstance(record.value, Unreadable):
            raise record.value.error
        payload = NO_PAYLOAD if record.value is None else record.value
        return Message(payload, MessageHeaders.adopt(from_record(record, group)))
    except Exception as error:  # whatever it is, the next delivery of it would fail, too
        logger.warning("Binding %r rejects %s: %s", binding, place(record), error)
        return RejectMessage(str(error), error)


def one_by_one(receiver: Receiver, binding: str, group: str | None) -> Hand:
    """Hand over one delivery."""

    async def hand(deliveries: Sequence[Delivery]) -> Sequence[Settlement]:
        (delivery,) = deliveries
        message = to_framework(delivery, binding, group)
        if isinstance(message, RejectMessage):
            return [message]
        try:
            return [await receiver(message, delivery.redeliveries)]
        except Exception:
            logger.exception("The receiver of binding %r raised; its message is retried", binding)
            return [RETRY]

    return hand


def in_batches(receiver: BatchReceiver, binding: str, group: str | None) -> Hand:
    """Hand over several deliveries at once; what cannot be read is rejected, the receiver gets the others."""

    async def hand(deliveries: Sequence[Delivery]) -> Sequence[Settlement]:
        messages: list[Message[bytes]] = []
        redeliveries: list[int] = []
        rejected: dict[int, Settlement] = {}
        for number, delivery in enumerate(deliveries):
            message = to_framework(delivery, binding, group)
            if isinstance(message, RejectMessage):
                rejected[number] = message
            else:
                messages.append(message)
                redeliveries.append(delivery.redeliveries)
        received = iter(await receive(messages, redeliveries) if messages else ())
        return [rejected.get(number) or next(received) for number in range(len(deliveries))]

    async def receive(
        messages: Sequence[Message[bytes]], redeliveries: Sequence[int]
    ) -> Sequence[Settlement]:
        try:
            return await receiver.receive_batch(messages, redeliveries)
        except Exception:
            logger.exception("The receiver of binding %r raised; its messages are retried", binding)
            return [RETRY] * len(messages)

    return hand


@dataclass(frozen=True, slots=True)
class Work:
    """What a driver needs.

    Attributes:
        destination: What its member is bound to.
        hand: Calls the receiver.
        size: How many deliveries a call takes at most.
        dead_letters: Where rejected messages go.
        on_settled: Told what a call settled.
    """

    destination: ConsumerDestination
    hand: Hand
    size: int
    dead_letters: DeadLetters
    on_settled: Settled


class Redeliveries:
    """Deliveries that wait to come again, in any order."""

    def __init__(self, wake: Callable[[AssignedPartition], None]) -> None:
        """Make it empty; `wake` is told of a partition that has one of them again."""
        self._wake = wake
        self._timers: set[asyncio.TimerHandle] = set()

    def add(self, delivery: Delivery, pause: float) -> None:
        """Have a delivery wait in its partition again, after so many seconds."""
        timer: asyncio.TimerHandle

        def again() -> None:
            self._timers.discard(timer)
            delivery.partition.waiting.append(delivery)
            self._wake(delivery.partition)

        delivery.redeliveries += 1
        timer = asyncio.get_running_loop().call_later(pause, again)
        self._timers.add(timer)

    def cancel(self) -> None:
        """Leave them all unsettled."""
        for timer in self._timers:
            timer.cancel()


class Driver(ABC):
    """Calls handlers for one member of a group."""

    def __init__(self, work: Work) -> None:
        self._binding = work.destination.binding
        self._terms = work.destination.delivery
        self._permits = work.destination.permits
        self._hand = work.hand
        self._size = work.size
        self._dead_letters = work.dead_letters
        self._on_settled = work.on_settled
        self._is_running = True
        self._calls = Calls(self._binding)

    @abstractmethod
    def wake(self, partition: AssignedPartition) -> None:
        """There is something in ``partition``."""

    def recall(self, partition: AssignedPartition) -> None:  # noqa: B027 - calls that begin with a permit wait for none
        """End the call of a partition that has to begin no more, if it waits for its handler still."""

    def interrupt(self) -> None:
        """Begin no more calls, and end what only waits."""
        self._is_running = False

    async def finish(self, timeout: float) -> None:
        """Wait for the calls under way; those that outlast `timeout` seconds are cancelled."""
        await self._calls.finish(timeout)

    async def _handed(self, deliveries: Sequence[Delivery]) -> Sequence[tuple[Delivery, Settlement]]:
        """Make a call; returns what becomes of each delivery. If the call goes wrong, they are all retried."""
        try:
            return list(zip(deliveries, await self._hand(deliveries), strict=True))
        except Exception:  # whatever it is, the partition must not stop
            logger.exception(
                "Binding %r could not hand over %s: retried", self._binding, place(deliveries[0].record)
            )
            return [(delivery, RETRY) for delivery in deliveries]

    async def _carried_out(self, delivery: Delivery, settlement: Settlement) -> float | None:
        """Settle a delivery; returns in how many seconds it comes again, if it does. If this goes wrong, it does."""
        try:
            if isinstance(settlement, Retry):
                return self._terms.pause_before(settlement, delivery.redeliveries)
            await self._end(delivery, settlement)
        except Exception:  # as above
            logger.exception("Binding %r could not settle %s: retried", self._binding, place(delivery.record))
            return self._terms.pause_before(RETRY, delivery.redeliveries)
        return None

    async def _end(self, delivery: Delivery, settlement: Settlement) -> None:
        """Carry out that a message is done, or a dead letter."""
        partition = delivery.partition
        if isinstance(settlement, RejectMessage) and not partition.is_lost:
            await self._dead_letters.keep(delivery.record, settlement)
        partition.settle(delivery.record.offset)
        self._on_settled(partition)


class OrderedDriver(Driver):
    """One call in flight per partition; a message leaves its partition when it is settled."""

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self._drives: dict[AssignedPartition, asyncio.Task[object] | None] = {}
        self._recalled: set[AssignedPartition] = set()

    def wake(self, partition: AssignedPartition) -> None:
        """There is something in ``partition``."""
        if not partition.is_busy and self._is_running and partition.may_begin:
            partition.is_busy = True
            self._calls.begin(self._drive(partition))

    def recall(self, partition: AssignedPartition) -> None:
        """End the call of a partition that has to begin no more, if it waits for its handler still."""
        task = self._drives.get(partition)
        if task is not None and self._permits.recall(task):
            self._recalled.add(partition)

    def interrupt(self) -> None:
        """Begin no more calls; a message that waits for its next delivery stays at its partition's head."""
        super().interrupt()
        self._calls.end_suspensions()

    async def _drive(self, partition: AssignedPartition) -> None:
        self._drives[partition] = asyncio.current_task()
        calls = 0
        try:
            while partition.waiting and self._is_running and partition.may_begin:
                partition.calls += 1
                try:
                    pause = await self._call(partition)
                finally:
                    partition.calls -= 1
                if pause is not None:
                    await self._calls.suspend(pause)
                calls += 1
                if calls % _RUN == 0:
                    await asyncio.sleep(0)
        finally:
            partition.is_busy = False
            del self._drives[partition]
            if partition in self._recalled:
                self._recalled.remove(partition)
                self.wake(partition)  # it may have been released since

    async def _call(self, partition: AssignedPartition) -> float | None:
        """Make one call with what is at the head; returns how long to wait before the next one."""
        deliveries = next_batch(partition.waiting, self._size)
        retried: list[Delivery] = []
        longest = 0.0
        for delivery, settlement in await self._handed(deliveries):
            pause = await self._carried_out(delivery, settlement)
            if pause is not None:
                longest = max(longest, pause)
                delivery.redeliveries += 1
                retried.append(delivery)
            # Unless the group was moved back meanwhile, what was called is at the head still.
            if partition.waiting and partition.waiting[0] is delivery:
                partition.waiting.popleft()
        partition.waiting.extendleft(reversed(retried))
        return longest if retried else None


class ConcurrentDriver(Driver):
    """As many calls as there are permits, the partitions taking turns; those that failed come back later."""

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self._redeliveries = Redeliveries(self.wake)
        self._turns = Turns[AssignedPartition](
            self._permits,
            may_begin=lambda partition: partition.may_begin,
            room=self._room,
            start_worker=lambda: self._calls.begin(self._work()),
        )

    def wake(self, partition: AssignedPartition) -> None:
        """There is something in ``partition``."""
        self._turns.wake(partition)

    def interrupt(self) -> None:
        """Begin no more calls; what waits for its next delivery stays unsettled."""
        super().interrupt()
        self._turns.close()
        self._redeliveries.cancel()

    def _room(self) -> int:
        return self._permits.free if self._is_running else 0

    async def _work(self) -> None:
        calls = 0
        while self._is_running and self._permits.free > 0:
            partition = self._turns.next()
            if partition is None:
                return
            partition.calls += 1
            try:
                await self._call(partition)
            finally:
                partition.calls -= 1
            calls += 1
            if calls % _RUN == 0:
                await asyncio.sleep(0)

    async def _call(self, partition: AssignedPartition) -> None:
        """Make one call with what is at the head."""
        deliveries = next_batch(partition.waiting, self._size)
        for _ in deliveries:
            partition.waiting.popleft()
        for delivery, settlement in await self._handed(deliveries):
            pause = await self._carried_out(delivery, settlement)
            if pause is not None and self._is_running:
                self._redeliveries.add(delivery, pause)
