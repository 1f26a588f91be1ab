"""The messages of one queue in the log, and the queue's entries that do not belong to them."""

from dataclasses import dataclass, field

from rocket_remoting.wire.record import RecordHeader

__all__ = ["MOST_DETAILS", "OtherEntries", "QueueRun"]

MOST_DETAILS = 100
"""Messages that are named for each kind of damage; all are counted."""
_FOREVER = 2**63 - 1


@dataclass(slots=True)
class QueueRun:
    """The messages of a queue since its topic was last made, in the order of the log.

    Attributes:
        low: Number of the first message.
        first_offset: Its offset in the log.
        high: Number that the next message should have.
        last_offset: The offset of the last message in the log.
        count: The number of messages.
        led: The number of messages to which an entry points.
        entries: The number of messages with the right entry.
        late: The number of messages at the end without an entry.
        untrusted: The number of messages without the right entry whose entries the next start makes again in any case.
        without: The numbers of some messages without the right entry.
        gaps: Numbers between them that no message has.
        doubt: The offset of the last message and the number that it should have, if no entry points to it.
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
    """The other entries of a queue, by kind.

    Attributes:
        run: The queue's messages in the log; None if there are none.
        low: Number of the first entry whose message is, or was, in the log.
        end: Number behind the last entry that once was right.
        early: Entries that point behind the log's end.
        deleted: Entries of deleted messages.
        foreign: Entries that belong to no message.
    """

    run: QueueRun | None
    low: int = _FOREVER
    end: int = 0
    early: int = 0
    deleted: int = 0
    foreign: int = 0

    def take(self, number: int, *, is_early: bool = False) -> None:
        """Count an entry of a message that is, or was, in the log."""
        self.low = min(self.low, number)
        self.end = max(self.end, number + 1)
        if not is_early:
            self.foreign += self.early  # an entry before other messages' entries is not early
            self.early = 0
