"""A partition that is assigned to this member: its unsettled records, and the offset to commit.

The consumer's thread and the application's loop share the object without a lock: only one of them writes each
attribute, and the other reads single numbers.

Only the loop changes the state that lets calls begin, so that no call begins between the thread's check and its commit.
The thread asks the loop for changes in the order of the group's decisions (`hold`, `release`, `lose`)::

    state   new calls   settlements   on hold   on release   on lose   the partition
    OURS    begin       count         HELD      -            LOST      is assigned to this member
    HELD    wait        count         -         OURS         LOST      may be assigned to another member
    LOST    never       are ignored   -         -            -         is assigned to another member

A rebalance ends with a `release` or a `lose` for each `hold`. A partition that is `HELD` or `LOST` and has no call in
flight is quiet: its position does not move.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from binders.kafka.headers import Record
from binders.kafka.record_size import record_size
from kafka import TopicPartition

_NEVER: Final = -1


class Ownership(Enum):
    """Whether this member has a partition, for certain, perhaps or no longer."""

    OURS = "ours"
    HELD = "held"
    LOST = "lost"


@dataclass(slots=True, eq=False)
class Delivery:
    """A record that is to be passed to the receiver.

    Attributes:
        partition: The record's partition.
        record: The record.
        redeliveries: How often the record was requeued.
    """

    partition: "AssignedPartition"
    record: Record
    redeliveries: int = 0


class AssignedPartition:
    """A partition, from its assignment to this member until another member gets it.

    Attributes:
        key: Topic and number of the partition.
        waiting: Written by the loop: the deliveries that wait for a call, in their order.
        is_busy: Written by the loop: whether a task handles the waiting deliveries in order.
        tenure: Written by the loop: whether calls may begin.
        calls: Written by the loop: the number of calls in flight.
        position: Written by the loop: the offset to commit; all records before this offset are settled.
        transacted: Written by the loop: the position that the last transaction has committed.
        settled: Written by the loop: the number of settled records.
        settled_size: Written by the loop: the bytes of the settled records.
        handed: Written by the thread: the number of records passed to the loop.
        handed_size: Written by the thread: the bytes of the records passed to the loop.
        fetched: Written by the thread: the offset of the next record to fetch.
        committed: Written by the thread: the offset that the group has committed.
        is_full: Written by the thread: whether fetching is paused until more records are settled.
    """

    __slots__ = (
        "_next",
        "_open",
        "calls",
        "committed",
        "fetched",
        "handed",
        "handed_size",
        "is_busy",
        "is_full",
        "key",
        "position",
        "settled",
        "settled_size",
        "tenure",
        "transacted",
        "waiting",
    )

    def __init__(self, key: TopicPartition) -> None:
        self.key = key
        self.waiting: deque[Delivery] = deque()
        self.is_busy = False
        self.tenure = Ownership.OURS
        self.calls = 0
        # The sizes of unsettled records in bytes, by offset, ascending.
        self._open: dict[int, int] = {}
        self._next = _NEVER
        self.position = _NEVER
        self.transacted = _NEVER
        self.settled = 0
        self.settled_size = 0
        self.handed = 0
        self.handed_size = 0
        self.fetched = _NEVER
        self.committed = _NEVER
        self.is_full = False

    @property
    def in_flight(self) -> int:
        """The number of unsettled records that were passed to the loop."""
        return self.handed - self.settled

    @property
    def size_in_flight(self) -> int:
        """The bytes of unsettled records that were passed to the loop."""
        return self.handed_size - self.settled_size

    def lag(self, end: int) -> int:
        """Return the number of unsettled messages.

        Args:
            end: The offset that the partition's next message will have.
        """
        return max(0, end - self.position) if self.has_begun else 0

    @property
    def is_due(self) -> bool:
        """Whether the position is neither committed nor committed by a transaction.

        A second commit of a transaction's offset could arrive after that of the next transaction, and take it back.
        """
        return self.position not in (_NEVER, self.committed, self.transacted)

    # Called by the thread

    def begin(self, offset: int) -> None:
        """Set the first offset, unless it is set already; called before records are passed to the loop."""
        if self.fetched == _NEVER:
            self.fetched = offset
            self.position = offset

    @property
    def has_begun(self) -> bool:
        """Whether the first offset is known."""
        return self.fetched != _NEVER

    @property
    def is_quiet(self) -> bool:
        """Whether no call is in flight and none may begin."""
        return self.tenure is not Ownership.OURS and self.calls == 0

    # Called by the loop

    @property
    def may_begin(self) -> bool:
        """Whether calls may begin."""
        return self.tenure is Ownership.OURS

    @property
    def is_lost(self) -> bool:
        """Whether another member has the partition, so that settlements are ignored."""
        return self.tenure is Ownership.LOST

    def hold(self) -> None:
        """Pause the partition: start no calls until `release`."""
        if self.tenure is Ownership.OURS:
            self.tenure = Ownership.HELD

    def release(self) -> None:
        """End the pause of `hold`: calls may start again."""
        if self.tenure is Ownership.HELD:
            self.tenure = Ownership.OURS

    def lose(self) -> None:
        """Start no more calls: the partition belongs to another member now."""
        self.tenure = Ownership.LOST

    def take(self, records: Sequence[Record]) -> None:
        """Add fetched records to those that wait for a call."""
        if records[0].offset < self._next:  # the position was moved back, so the records come again
            self.settled += len(self._open)
            self.settled_size += sum(self._open.values())
            self._open.clear()
            self.waiting.clear()
            self.position = records[0].offset
        # Records come in ascending order, and greater offsets were cleared above: the keys of `_open` keep ascending.
        self._open.update((record.offset, record_size(record)) for record in records)
        self._next = records[-1].offset + 1
        self.waiting.extend(Delivery(self, record) for record in records)

    def settle(self, offset: int) -> None:
        """Settle the record with an offset, and move the position to the smallest unsettled offset."""
        size = self._open.pop(offset, None)
        if size is not None:
            self.settled += 1
            self.settled_size += size
            # The offsets of `_open` ascend, so its first key is the smallest unsettled offset. Greater offsets that
            # are settled already are not committed: after a crash their records are handled again rather than the
            # unsettled one lost.
            self.position = next(iter(self._open), self._next)

    def skip_to(self, offset: int) -> None:
        """Move the position past offsets that have no messages.

        Args:
            offset: The next record's offset at least. The thread names one only while nothing is in flight, and passes
                the records behind it later, so no record is unsettled here.
        """
        self._next = self.position = offset

    def __repr__(self) -> str:
        return f"<AssignedPartition {self.key.topic}-{self.key.partition} {self.in_flight} in flight>"
