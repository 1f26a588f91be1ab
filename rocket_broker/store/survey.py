"""The contents and the damage of a store that no broker has open (`surveyor`)."""

from dataclasses import dataclass, field

from rocket_broker.store.log_scan import Damage

__all__ = ["NoteOfDeletion", "Survey"]


@dataclass(frozen=True, slots=True)
class NoteOfDeletion:
    """A damaged record of a topic's deletion. Its queue entry still has its place and its topic.

    Attributes:
        offset: The offset of the record in the log.
        number: Its number in its queue.
        topic: The deleted topic.
    """

    offset: int
    number: int
    topic: str


@dataclass(slots=True)
class Survey:
    """The contents and the damage of a store.

    Attributes:
        first: Offset of the commit log's first byte.
        end: Offset behind the commit log's last record.
        records: Messages in the log, including those of the broker's own topics.
        gaps: Places that an earlier repair skipped.
        damages: Bytes of the log that hold no record, or a record with a damaged head.
        torn_at: After a crash: offset at which the next start cuts the log off; -1 if it does not.
        behind_tear: Complete records behind that offset: the next start loses them, a repair keeps them.
        damaged_properties: Offsets of records with damaged properties: no UTF-8, or a sector of zeros. Such a message
            is delivered with the rest of its properties.
        log_short_of: Offset that the log had reached when the checkpoint was written; 0 if the log still reaches it.
        short_files: Names of the log's files that were cut short.
        missing_files: Names of files that are missing between others of the log.
        strange_files: Files in the directories of log and queues that belong to neither. No broker starts with them.
        odd_queue_files: Files of consume queues that have a wrong size. No broker starts with them.
        queue_file_size: Size that the files of the queues should have, in bytes.
        queue_file_size_is_certain: Whether that size is confirmed by names of files, is the usual one, or was given by
            the broker's settings. Otherwise all files may have been cut to one size.
        queues: Number of consume queues.
        entries: Queue entries that lead to their message.
        missing_entries: Messages without their queue entry, or with a wrong one.
        missing: The first 100 of these messages: topic, queue id and queue offset.
        late_entries: Messages whose queue entry the next start makes.
        early_entries: Queue entries that the next start removes: after a power failure the log lacks their messages.
        foreign_entries: Other queue entries that do not lead to a message of their queue.
        lost: Messages in bytes that are damaged, or were before an earlier repair, as far as offsets and entries of
            their queues show.
        lost_messages: The first 100 of these messages: topic, queue id and queue offset.
        deleted: Messages that are in no queue because they were deleted with their topic.
        deleted_topics: How many of these messages each topic has.
        late_deletions: Topics whose queues the next start deletes: the broker was killed during the deletion.
        damaged_deletions: Damaged records of a topic's deletion.
        index_files: Number of index files.
        short_index_files: Names of the index files that have a wrong size.
        short_timer_files: Files of the timers that have a wrong size.
        queue_messages: Messages that are in a queue, or should be.
        keyed_messages: Messages that are indexed by a key, or should be.
        counts: Queues whose next message must have an offset that no message in the log shows: topic, queue id, offset.
        topics: Topics that have messages in a queue, or had.
        deletions_from: Offset from which on the log records each deletion of a topic; earlier messages may be of
            brokers that do not record deletions.
        unnoted_deletions: Queues that were deleted although the log does not record it: topic and queue id.
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
    deletions_from: int = 0
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
