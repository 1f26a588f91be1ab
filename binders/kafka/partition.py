"""A partition that is this member's, and how far its messages are settled.

The consumer's thread and the application's loop share it without a lock: each attribute is written by one of them only,
and what the other reads of it is one number.

Whether calls may begin is the loop's to say, so that none begins between its last look and a commit. The thread only
asks for it, in the order in which the group decides (`hold`, `release`, `lose`)::

    state   new calls   a settlement   on hold   on release   on lose   since
    OURS    begin       counts         HELD      -            LOST      it was assigned, or assigned again
    HELD    wait        counts         -         OURS         LOST      it may go to another member
    LOST    never       is in vain     -         -            -         it is another member's

Every `hold` is followed by a `release` or a `lose`, since a rebalance ends with either. A partition that is `HELD` or
`LOST` and has no call under way is quiet: its position moves no more.
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


class Tenure(Enum):
    """Whose a partition is."""

    OURS = "ours"
    HELD = "held"
    LOST = "lost"


@dataclass(slots=True, eq=False)
class Delivery:
    """A record on its way to the receiver.

    Attributes:
        partition: Where it comes from.
        record: The record.
        redeliveries: How often it was given back.
    """

    partition: "AssignedPartition"
    record: Record
    redeliveries: int = 0


class AssignedPartition:
    """One partition, from its assignment until it goes to another member.

    Attributes:
        key: Topic and number.
        waiting: The loop's: deliveries nobody has begun with, in their order.
        is_busy: The loop's: whether a task goes through it in order.
        tenure: The loop's: whether calls may begin.
        calls: The loop's: how many calls are under way.
        position: The loop's: every offset before it is settled; what is to be committed.
        transacted: The loop's: the position that a transaction has committed, with what its call has sent.
        settled: The loop's: how many records are settled.
        settled_size: The loop's: how many bytes they had.
        handed: The thread's: how many records it handed over.
        handed_size: The thread's: how many bytes they had.
        fetched: The thread's: the offset of the next record it will get.
        committed: The thread's: what the group has committed.
        is_full: The thread's: whether it gets no more until some are settled.
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
        self.tenure = Tenure.OURS
        self.calls = 0
        # Offsets that were handed over and are not settled, ascending, with the sizes of their records.
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
        """How many records were handed over and are not settled."""
        return self.handed - self.settled

    @property
    def size_in_flight(self) -> int:
        """How many bytes were handed over and are not settled."""
        return self.handed_size - self.settled_size

    def lag(self, end: int) -> int:
        """How many messages are not settled, where the next one will have the offset `end`."""
        return max(0, end - self.position) if self.has_begun else 0

    @property
    def is_due(self) -> bool:
        """Whether there is something to commit; what a transaction has committed would only take the next one back."""
        return self.position not in (_NEVER, self.committed, self.transacted)

    # The thread's

    def begin(self, offset: int) -> None:
        """Say where it begins, before anything is handed over."""
        if self.fetched == _NEVER:
            self.fetched = offset
            self.position = offset

    @property
    def has_begun(self) -> bool:
        """Whether it is known where it begins."""
        return self.fetched != _NEVER

    @property
    def is_quiet(self) -> bool:
        """Whether no call is under way and none begins."""
        return self.tenure is not Tenure.OURS and self.calls == 0

    # The loop's

    @property
    def may_begin(self) -> bool:
        """Whether calls may begin."""
        return self.tenure is Tenure.OURS

    @property
    def is_lost(self) -> bool:
        """Whether another member has it, so that nothing of it counts any more."""
        return self.tenure is Tenure.LOST

    def hold(self) -> None:
        """Begin no more calls, for now."""
        if self.tenure is Tenure.OURS:
            self.tenure = Tenure.HELD

    def release(self) -> None:
        """Begin calls again."""
        if self.tenure is Tenure.HELD:
            self.tenure = Tenure.OURS

    def lose(self) -> None:
        """Begin no call ever again."""
        self.tenure = Tenure.LOST

    def take(self, records: Sequence[Record]) -> None:
        """Have records wait to be handled."""
        if records[0].offset < self._next:  # somebody moved the group back
            self.settled += len(self._open)
            self.settled_size += sum(self._open.values())
            self._open.clear()
            self.waiting.clear()
            self.position = records[0].offset
        self._open.update((record.offset, record_size(record)) for record in records)
        self._next = records[-1].offset + 1
        self.waiting.extend(Delivery(self, record) for record in records)

    def settle(self, offset: int) -> None:
        """Say that a record is done with."""
        size = self._open.pop(offset, None)
        if size is not None:
            self.settled += 1
            self.settled_size += size
            self.position = next(iter(self._open), self._next)

    def pass_to(self, offset: int) -> None:
        """Say that between what was handed over, all of which is settled, and this offset there is no message."""
        if not self._open:
            self._next = self.position = max(self.position, offset)

    def __repr__(self) -> str:
        return f"<AssignedPartition {self.key.topic}-{self.key.partition} {self.in_flight} in flight>"
