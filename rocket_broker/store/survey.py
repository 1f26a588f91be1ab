"""What is in a store that nobody has open, and what is wrong with it (`surveyor`)."""

from dataclasses import dataclass, field

from rocket_broker.store.log_scan import Damage

__all__ = ["NoteOfDeletion", "Survey"]


@dataclass(frozen=True, slots=True)
class NoteOfDeletion:
    """A damaged message that told the deletion of a topic: its queue entry still says where, and of which topic.

    Attributes:
        offset: Where its record was in the log.
        number: Its number in its queue.
        topic: The deleted topic.
    """

    offset: int
    number: int
    topic: str


@dataclass(slots=True)
class Survey:
    """What is in a store, and what is wrong with it.

    Attributes:
        first: Offset of the log's first byte.
        end: Offset behind its last record.
        records: Whole records, but those that an earlier repair made of damaged bytes.
        gaps: Records that an earlier repair made of damaged bytes.
        damages: Bytes of the log that hold no record, or one with a damaged head.
        torn_at: Offset from which on the next start cuts the log off, after a crash; -1 if it does not. A power failure
            leaves damage there, and whole messages behind it, none of which was answered for.
        behind_tear: Whole records behind it: a repair keeps them.
        damaged_properties: Offsets of the records whose properties are damaged so that it shows: they are no UTF-8,
            or lack a sector. Such a message is delivered with what is left of them; no repair knows better.
        log_short_of: Offset that the log reached when the checkpoint was written, if it does not reach there now; else
            0.
        short_files: Names of the log's files that were cut short.
        missing_files: Names of files that should be between others of the log. Neither has those that the next start
            deletes, or makes again, after a crash.
        strange_files: Files among those of log and queues that are none of theirs: no broker starts beside them.
        odd_queue_files: Files of consume queues that have another size than they should: no broker starts with them.
        queue_file_size: Size of the queues' files, in bytes.
        queue_file_size_is_certain: Whether the size is confirmed: else all may have been cut to one size, and only the
            broker's settings tell.
        queues: Consume queues.
        entries: Entries that lead to their message.
        missing_entries: Messages without their entry, or with a wrong one, though later ones have theirs.
        missing: Some of them: topic, queue id and queue offset.
        late_entries: Messages behind the last one that has its entry. The next start makes their entries.
        early_entries: Entries of messages that the log does not have yet, after a power failure. The next start takes
            them back.
        foreign_entries: Other entries that lead to no message of theirs.
        lost: Numbers of queues that no whole message has, though later ones, or entries, show that one had.
        lost_messages: Some of them: topic, queue id and queue offset.
        deleted: Messages of topics that were deleted, or made anew since: they are in no queue.
        deleted_topics: How many of each topic.
        late_deletions: Topics whose deletion the log tells, while their queues are still there. The next start deletes
            them.
        damaged_deletions: Damaged messages that told the deletion of a topic.
        index_files: Files of the index.
        short_index_files: Names of those that have not the size they should.
        short_timer_files: Files of the timers that have not.
        queue_messages: Messages that are in a queue, or should be.
        keyed_messages: Messages that are indexed by a key, or should be.
        counts: The number that the next message of each queue should have, where no message in the log shows it.
        topics: Topics that have messages in a queue, or had.
        unnoted_deletions: Queues that were deleted without a message that tells it.
    """

    first: int = 0
    end: int = 0
    records: int = 0
    gaps: int = 0
    damages: list[Damage] = field(default_factory=list)
    torn_at: int = -1
    behind_tear: int = 0
    damaged_properties: list[int] = field(default_factory=list)
    log_short_of: int = 0
    short_files: list[str] = field(default_factory=list)
    missing_files: list[str] = field(default_factory=list)
    strange_files: list[str] = field(default_factory=list)
    odd_queue_files: list[str] = field(default_factory=list)
    queue_file_size: int = 0
    queue_file_size_is_certain: bool = True
    queues: int = 0
    entries: int = 0
    missing_entries: int = 0
    missing: list[tuple[str, int, int]] = field(default_factory=list)
    late_entries: int = 0
    early_entries: int = 0
    foreign_entries: int = 0
    lost: int = 0
    lost_messages: list[tuple[str, int, int]] = field(default_factory=list)
    deleted: int = 0
    deleted_topics: dict[str, int] = field(default_factory=dict)
    late_deletions: list[str] = field(default_factory=list)
    damaged_deletions: list[NoteOfDeletion] = field(default_factory=list)
    index_files: int = 0
    short_index_files: list[str] = field(default_factory=list)
    short_timer_files: list[str] = field(default_factory=list)
    queue_messages: int = 0
    keyed_messages: int = 0
    counts: list[tuple[str, int, int]] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)
    unnoted_deletions: list[tuple[str, int]] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong that a repair would mend."""
        return not (
            self.short_files
            or self.missing_files
            or self.strange_files
            or self.odd_queue_files
            or self.short_index_files
            or self.short_timer_files
            or self.log_short_of
            or self.missing_entries
            or self.foreign_entries
            or any(not damage.is_end and not 0 <= self.torn_at <= damage.offset for damage in self.damages)
        )
