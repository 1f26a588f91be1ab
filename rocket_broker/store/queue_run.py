"""The messages of one queue as the log has them, and the entries of the queue that are not theirs."""

from dataclasses import dataclass, field

from rocket_remoting.wire.record import RecordHeader

__all__ = ["MOST_DETAILS", "OtherEntries", "QueueRun"]

MOST_DETAILS = 100
"""So many of the messages of each kind of trouble are named; all are counted."""
_FOREVER = 2**63 - 1


@dataclass(slots=True)
class QueueRun:
    """The messages of a queue since its topic was made last, in the order of the log.

    Attributes:
        low: Number of the first message.
        first_offset: Where that is in the log.
        high: Number that the next message should have.
        last_offset: Where the last message is in the log.
        count: How many they are.
        led: How many have an entry that leads to them.
        entries: How many have the right entry.
        late: How many of the last ones have none.
        untrusted: How many have not, of those whose entries the next start makes anew in any case.
        without: Numbers of some that have not.
        gaps: Numbers between them that no message has.
        doubt: Where the last message is, and the number that it should have had, if no entry leads to it.
    """

    low: int
    first_offset: int
    high: int = 0
    last_offset: int = 0
    count: int = 0
    led: int = 0
    entries: int = 0
    late: int = 0
    untrusted: int = 0
    without: list[int] = field(default_factory=list)
    gaps: list[range] = field(default_factory=list)
    doubt: tuple[int, int] | None = None

    def add(self, record: RecordHeader, *, is_led: bool, is_right: bool) -> None:
        number = record.queue_offset
        self.doubt = None if is_led else (record.commit_log_offset, self.high)
        if self.count and number > self.high:
            self.gaps.append(range(self.high, number))
        self.high = number + 1
        self.last_offset = record.commit_log_offset
        self.count += 1
        self.led += is_led
        self.entries += is_right
        if not is_right and len(self.without) < MOST_DETAILS:
            self.without.append(number)

    @property
    def missing(self) -> int:
        return self.count - self.entries - self.late - self.untrusted


@dataclass(slots=True)
class OtherEntries:
    """What the entries of a queue turned out to be.

    Attributes:
        run: The queue's messages in the log; None if there are none.
        low: Number of the first entry whose message is, or was, in the log.
        end: Number behind the last entry that once was right.
        early: Entries that lead behind the log's end.
        deleted: Entries of deleted messages.
        foreign: Entries that are none of a message.
    """

    run: QueueRun | None
    low: int = _FOREVER
    end: int = 0
    early: int = 0
    deleted: int = 0
    foreign: int = 0

    def take(self, number: int, *, is_early: bool = False) -> None:
        """Count an entry as that of a message which is in the log, or was."""
        self.low = min(self.low, number)
        self.end = max(self.end, number + 1)
        if not is_early:
            self.foreign += self.early  # entries of messages that come before others' are no early ones
            self.early = 0
