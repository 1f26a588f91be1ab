"""Makes messages from records, and carries settlements out for the framework's drivers.

An accepted message moves its partition's position. A rejected message is written to the dead letters before the
position moves. A requeued message waits in this process; its offset stays unsettled, so that after a crash the
partition's next member gets the message.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TypeAlias

from binders.kafka.dead_letter import DeadLetters, place
from binders.kafka.headers import from_record
from binders.kafka.partition import AssignedPartition, Delivery
from binders.kafka.unreadable import Unreadable
from streamkit.binder.drivers import Settler
from streamkit.binder.failure_log import fate_of_rejected
from streamkit.messaging.headers import MessageHeaders
from streamkit.messaging.message import NO_PAYLOAD, Message
from streamkit.settlement import Reject

logger = logging.getLogger(__name__)

Settled: TypeAlias = Callable[[AssignedPartition], None]
"""A function that is called when a message of a partition has been settled."""
Wake: TypeAlias = Callable[[AssignedPartition], None]
"""A function that is called when a partition has a waiting message again."""


def to_framework(delivery: Delivery, binding: str, group: str | None, letters: str | None) -> Message[bytes] | Reject:
    """Return the framework's message for a record, or a rejection if the record cannot be read.

    Args:
        delivery: The record.
        binding: The binding's name, for logs.
        group: The group's name, for the headers.
        letters: The topic of the binding's dead letters, for logs; None if rejected messages are lost.
    """
    record = delivery.record
    try:
        if isinstance(record.value, Unreadable):
            raise record.value.error
        payload = NO_PAYLOAD if record.value is None else record.value
        return Message(payload, MessageHeaders.adopt(from_record(record, group)))
    except Exception as error:  # any error: the next delivery of the record would fail too
        logger.error(
            "Binding %r gives up the record at %s, which cannot be read: %s. %s",
            binding,
            place(record),
            error,
            fate_of_rejected(letters),
        )
        return Reject(str(error), cause=error)


class Redeliveries:
    """Requeued deliveries, each of which waits for its pause to end."""

    def __init__(self) -> None:
        self._timers: set[asyncio.TimerHandle] = set()
        self._is_closed = False

    def add(self, delivery: Delivery, pause: float, wake: Wake) -> None:
        """Put a delivery back into its partition after a pause.

        Args:
            delivery: The delivery.
            pause: The pause in seconds.
            wake: Called when the delivery is back in its partition.
        """
        if self._is_closed:
            return
        timer: asyncio.TimerHandle

        def again() -> None:
            self._timers.discard(timer)
            # The partition may be lost by now: then no call begins, and its new member gets the record, whose offset
            # is unsettled.
            delivery.partition.waiting.append(delivery)
            wake(delivery.partition)

        delivery.redeliveries += 1
        timer = asyncio.get_running_loop().call_later(pause, again)
        self._timers.add(timer)

    def close(self) -> None:
        """Cancel all waiting redeliveries and ignore further ones; their messages stay unsettled."""
        self._is_closed = True
        for timer in self._timers:
            timer.cancel()


class PartitionSettler(Settler[AssignedPartition, Delivery]):
    """Carries out the settlements of messages in one member's partitions."""

    def __init__(self, dead_letters: DeadLetters, on_settled: Settled) -> None:
        """Make a settler.

        Args:
            dead_letters: Keeps rejected messages.
            on_settled: Called with the partition of each message that is settled.
        """
        self._dead_letters = dead_letters
        self._on_settled = on_settled
        self._redeliveries = Redeliveries()

    def may_begin(self, source: AssignedPartition) -> bool:
        """Return whether calls of a partition may begin: this member has it, and no rebalance holds it."""
        return source.may_begin

    def accept(self, delivery: Delivery) -> None:
        """Settle the record's offset, which may move the partition's position."""
        partition = delivery.partition
        partition.settle(delivery.record.offset)
        self._on_settled(partition)

    async def reject(self, delivery: Delivery, rejected: Reject) -> None:
        """Write a dead letter, then settle the offset. If another member has the partition now, write none.

        Raises:
            BinderError: The dead letters were closed before the letter was written.
        """
        if not delivery.partition.is_lost:
            await self._dead_letters.keep(delivery.record, rejected)
        self.accept(delivery)

    def redeliver(self, delivery: Delivery, pause: float, wake: Wake) -> None:
        """Put a message back into its partition after a pause, in seconds."""
        self._redeliveries.add(delivery, pause, wake)

    def place(self, delivery: Delivery) -> str:
        """Return topic, partition and offset of a delivery as text for logs."""
        return place(delivery.record)

    def close(self) -> None:
        """Cancel redeliveries; messages that wait for their next delivery stay unsettled."""
        self._redeliveries.close()
