"""Read a store that no broker has open, ours or Apache's, and find its damage. Nothing is changed.

1.  Each queue entry is compared with the record that it points to. If a whole record is that of another message, and
    has no entry as that message, its header is damaged: the checksum covers the body only.
2.  The log is read (`log_scan`), and the messages of each queue are followed: their numbers must be consecutive. A
    topic's messages before the record of its deletion (`deletion`) are deleted. Before `Checkpoint.deletions_from`
    other brokers may have deleted topics without a record: there a number 0 shows that a queue began again.
    A number that fits nowhere is damaged.
3.  Each entry that does not belong to a message is examined: its message is in damaged bytes, or the entry is wrong.

The traces of a kill are not damage, because the next start of a broker repairs them: a torn end of the log, missing
entries, entries of messages that are not in the log yet, and the queues of a topic whose deletion is recorded.
"""

from bisect import bisect_right
from collections.abc import Callable

from rocket_broker.store.checkpoint import Mark, read_mark
from rocket_broker.store.consume_queue import FILLER_SIZE
from rocket_broker.store.deletion import DELETIONS_QUEUE, deleted_topic, deletion_size
from rocket_broker.store.entry_scan import EntryScan, EntrySummary
from rocket_broker.store.files import SECTOR_SIZE
from rocket_broker.store.gap import is_gap
from rocket_broker.store.layout import StoreLayout, size_of
from rocket_broker.store.log_scan import Damage, Progress, read_log
from rocket_broker.store.queue_run import MOST_DETAILS, OtherEntries, QueueRun
from rocket_broker.store.survey import NoteOfDeletion, Survey
from rocket_remoting.wire.java_hash import java_hash
from rocket_remoting.wire.properties import (
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQUE_KEY,
    decode_stored_properties,
)
from rocket_remoting.wire.record import RecordHeader
from rocket_remoting.wire.sys_flag import (
    TRANSACTION_COMMIT,
    TRANSACTION_NOT,
    TRANSACTION_ROLLBACK,
    transaction_value,
)
from rocket_remoting.wire.topics import SCHEDULE_TOPIC

__all__ = ["survey"]

_FOREVER = 2**63 - 1


Queue = tuple[str, int]
"""Topic and queue id."""


def survey(
    layout: StoreLayout,
    progress: Progress | None = None,
    exists: Callable[[str], bool] = lambda topic: True,
    index_file_size: int = 0,
    *,
    is_apaches: bool,
) -> Survey:
    """Read the whole store and return its contents and damage.

    Args:
        layout: The store's files.
        is_apaches: Whether Apache's broker was the last one that opened the store (`FileLock.is_apaches`).
        progress: Called at intervals with the offset of the log that has been reached.
        exists: Returns whether a topic exists.
        index_file_size: Size that the files of the index should have, in bytes; 0: any.
    """
    entries = EntryScan(layout)
    damaged_heads = entries.damaged_heads()
    while True:
        reading = _Reading(layout, entries, exists, damaged_heads, is_apaches=is_apaches)
        found = reading.run(progress)
        if not reading.misplaced:
            break
        # Each further reading leaves out at least one more record, so this ends.
        damaged_heads |= reading.misplaced  # read once more without these records, which have counted so far
    stays_to = found.torn_at if found.torn_at >= 0 else _FOREVER
    found.short_files = [file.name for file in layout.short_files() if size_of(file) or int(file.name) < stays_to]
    found.missing_files = [file.name for file in layout.missing_files() if int(file.name) < stays_to]
    found.strange_files = [str(path) for path in layout.strange_files()]
    found.odd_queue_files = [str(path.relative_to(layout.root)) for path in layout.odd_queue_files()]
    found.queue_file_size = layout.queue_file_size
    found.queue_file_size_is_certain = layout.tells_queue_file_size()
    found.index_files = len(layout.index)
    found.short_index_files = [
        path.name for path in layout.index if index_file_size and size_of(path) not in {0, index_file_size}
    ]
    return found


class _Reading:
    """One reading of the log, and of the entries that do not belong to its messages.

    Attributes:
        misplaced: The offsets of records whose numbers fit nowhere, with the reasons.
    """

    def __init__(
        self,
        layout: StoreLayout,
        entries: EntryScan,
        exists: Callable[[str], bool],
        damaged_heads: dict[int, str],
        *,
        is_apaches: bool,
    ) -> None:
        self.misplaced: dict[int, str] = {}
        self._layout = layout
        self._entries = entries
        self._exists = exists
        self._damaged_heads = damaged_heads
        self._found = Survey()
        self._runs: dict[Queue, QueueRun] = {}
        self._queues_of: dict[str, set[Queue]] = {}
        self._late: list[QueueRun] = []
        self._deleted_at: dict[str, int] = {}
        self._began_anew_at: dict[str, int] = {}
        self._mark, deletions_from = _checkpoint(layout)
        # The log need not have the deletions of Apache's broker, if that opened the store after the mark (`Recovery`).
        self._deletions_from = _FOREVER if is_apaches else deletions_from
        # Our broker writes the checkpoint before it signs the lock file. So the log of a store of ours that has no
        # checkpoint any more may well have all deletions.
        self._has_lost_checkpoint = not is_apaches and not size_of(layout.root / "checkpoint")
        self._was_killed = (layout.root / "abort").exists()
        self._trusted_to = self._mark.offset if self._mark is not None and self._was_killed else _FOREVER
        self._missing_files = [int(path.name) for path in layout.missing_files()]
        self._lost_ranges = [range(base, base + layout.log_file_size) for base in self._missing_files]
        self._notes = [
            (number, *entry)
            for number, _, _ in entries.files.entries(*DELETIONS_QUEUE)
            if (entry := entries.files.entry(*DELETIONS_QUEUE, number)) is not None
        ]

    def run(self, progress: Progress | None) -> Survey:
        found = self._found
        if self._layout.log:
            found.first = found.end = int(self._layout.log[0].name)
        for item in read_log(self._layout, progress=progress):
            offset = item.offset if isinstance(item, Damage) else item[0].commit_log_offset
            while self._missing_files and self._missing_files[0] < offset:
                self._note_tear(self._missing_files.pop(0))
            if isinstance(item, Damage):
                self._note_tear(offset)
                self._take_damage(item)
            else:
                self._take_record(*item)
        if self._mark is not None and self._mark.last_record >= found.end:
            found.log_short_of = self._mark.offset
        self._lost_ranges += [range(d.offset, d.offset + d.length) for d in found.damages]
        self._lost_ranges.sort(key=lambda lost: lost.start)
        self._leave_out_deleted_queues()
        self._count_messages()
        found.deletions_from = min(self._deletions_from, found.end)
        return found

    def _count_messages(self) -> None:
        """Count the messages of the queues, and their missing entries."""
        found, names = self._found, self._entries.names
        for name, run in self._runs.items():
            found.queue_messages += run.count
            found.entries += run.entries
            if name == DELETIONS_QUEUE and not run.led:
                continue  # Apache's brokers before 5.0 delete the queue with any topic; the log records the deletions
            found.missing_entries += run.missing
            found.late_entries += run.late + run.untrusted
            found.missing += ((*name, number) for number in run.without[: run.missing])
        del found.missing[MOST_DETAILS:]
        found.queues = len(names)
        for name in names:
            self._compare(name, self._entries.summaries[name])
        for name in self._runs.keys() - {*names}:
            self._lose(name, self._runs[name].gaps)
        found.topics = sorted({topic for topic, _ in self._runs} | {topic for topic, *_ in found.counts})
        found.late_deletions.sort()

    # The log

    def _take_damage(self, damage: Damage) -> None:
        self._found.damages.append(damage)
        if not damage.is_end:
            self._found.end = damage.offset + damage.length
        for number, offset, size, tags_code in self._notes:
            if offset in damage:
                # The record is unreadable, but its queue entry has the hash of the deleted topic's name and
                # the record's size: together they tell which of the topics was deleted here.
                for topic in [topic for topic in self._queues_of if java_hash(topic) == tags_code]:
                    if deletion_size(topic) == size:
                        self._found.damaged_deletions.append(NoteOfDeletion(offset, number, topic))
                        self._delete(topic, offset)

    def _take_record(self, record: RecordHeader, data: memoryview) -> None:
        found, offset = self._found, record.commit_log_offset
        if offset in self._damaged_heads:
            self._take_damage(Damage(offset, record.total_size, self._damaged_heads[offset], is_end=False))
            return
        found.end = offset + record.total_size
        if is_gap(record):
            found.gaps += 1
            return
        found.records += 1
        if self._lacks_sector(record):
            self._note_tear(offset)
            found.damaged_properties.append(offset)
        elif not _is_text(record.properties):
            found.damaged_properties.append(offset)
        found.behind_tear += found.torn_at >= 0
        properties = decode_stored_properties(record.properties)
        transaction = transaction_value(record.sys_flag)
        if transaction != TRANSACTION_ROLLBACK:
            keys = properties.get(PROPERTY_UNIQUE_KEY, "") + properties.get(PROPERTY_KEYS, "").strip(" ")
            found.keyed_messages += bool(keys)
        if transaction in (TRANSACTION_NOT, TRANSACTION_COMMIT):
            self._place(record, properties.get(PROPERTY_TAGS))
        if (record.topic, record.queue_id) == DELETIONS_QUEUE:
            topic = deleted_topic(data)
            if topic is not None:
                self._delete(topic, offset)

    def _place(self, record: RecordHeader, tags: str | None) -> None:
        """Find the message's place among those of its queue."""
        name, offset = (record.topic, record.queue_id), record.commit_log_offset
        entry = self._entries.files.entry(*name, record.queue_offset)
        is_led = entry is not None and entry[:2] == (offset, record.total_size)
        run = self._runs.get(name)
        if run is not None and record.queue_offset < run.high:
            if not self._explains(record, run, is_led=is_led):
                return
            run = self._runs.get(name)
        if run is None:
            run = self._runs[name] = QueueRun(record.queue_offset, offset)
            self._queues_of.setdefault(record.topic, set()).add(name)
        is_right = is_led and (
            record.topic == SCHEDULE_TOPIC or (entry is not None and entry[2] == (java_hash(tags) if tags else 0))
        )
        run.add(record, is_led=is_led, is_right=is_right)
        if offset < self._trusted_to:
            self._note_lateness(run, is_late=entry is None)
        elif not is_right:
            run.untrusted += 1

    def _explains(self, record: RecordHeader, run: QueueRun, *, is_led: bool) -> bool:
        """Explain a number that the queue has passed already; return whether the number is right.

        Either the queue began again, or the number of the message before is damaged, or the number of this message is.
        """
        name, number, offset = (record.topic, record.queue_id), record.queue_offset, record.commit_log_offset
        is_first = number == 0 and (is_led or offset < self._deletions_from or name == DELETIONS_QUEUE)
        # The message before has no entry that confirms its number. With the number that should have followed
        # in the queue, this message would fit behind it: so the number of the message before is wrong.
        if not is_first and run.doubt is not None and run.doubt[1] <= number:
            self.misplaced[run.doubt[0]] = (
                f"its number does not fit before number {number} of {record.topic} queue {record.queue_id}"
            )
        elif is_first or is_led:
            self._began_anew_at[record.topic] = offset
            self._leave_out(name)
        else:
            self.misplaced[offset] = (
                f"the record says it is number {number} of its queue, whose next number is {run.high}"
            )
            return False
        return True

    def _note_lateness(self, run: QueueRun, *, is_late: bool) -> None:
        """Count a message without an entry as late, until a message has its entry."""
        if is_late:
            if not run.late:
                self._late.append(run)
            run.late += 1
            return
        # A broker makes entries in the order of the log. So once a later message has its entry, the earlier
        # entries are not late but missing.
        for other in self._late:
            other.late = 0
        self._late.clear()

    def _delete(self, topic: str, offset: int) -> None:
        self._deleted_at[topic] = offset
        for name in self._queues_of.pop(topic, ()):
            if name in self._runs:
                self._leave_out(name)

    def _leave_out(self, name: Queue) -> None:
        """Count a queue's messages so far as deleted."""
        count = self._runs.pop(name).count
        self._found.deleted += count
        self._found.deleted_topics[name[0]] = self._found.deleted_topics.get(name[0], 0) + count

    def _note_tear(self, offset: int) -> None:
        """Record the offset at which the next start of a broker cuts the log off, if it does."""
        if self._found.torn_at < 0 and offset >= self._trusted_to:
            self._found.torn_at = offset

    def _lacks_sector(self, record: RecordHeader) -> bool:
        """Return whether a sector of the properties never reached the disk: they hold no zero byte, and it only
        zeros."""
        if b"\0" not in record.properties:
            return False
        end = record.commit_log_offset % self._layout.log_file_size + record.total_size
        start = end - len(record.properties)
        return any(
            not any(record.properties[max(0, sector - start) : sector - start + SECTOR_SIZE])
            for sector in range(start - start % SECTOR_SIZE, end, SECTOR_SIZE)
        )

    # Queues without files

    def _leave_out_deleted_queues(self) -> None:
        """Leave out queues that have no entries because they were deleted, although no record says so."""
        has_entries = {name for name, summary in self._entries.summaries.items() if summary.end}
        for name in sorted(self._runs.keys() - has_entries):
            if self._was_deleted(name, self._runs[name], has_entries):
                self._found.unnoted_deletions.append(name)
                self._leave_out(name)

    def _was_deleted(self, name: Queue, run: QueueRun, has_entries: set[Queue]) -> bool:
        """Return whether a queue without entries was deleted, as far as topics and other queues tell."""
        topic = name[0]
        if not self._exists(topic) or run.last_offset < self._began_anew_at.get(topic, -1):
            return True
        # If all other queues of the topic that have entries begin at number 0 behind this queue's last
        # message, the topic was deleted and made again in between. Or they just got their first messages later, and
        # this queue has lost its files.
        others = [self._runs[other] for other in self._queues_of[topic] & has_entries if other in self._runs]
        return (
            run.last_offset < self._deletions_from
            and not self._has_lost_checkpoint
            and bool(others)
            and all(other.low == 0 and other.first_offset > run.last_offset for other in others)
        )

    # Entries

    def _compare(self, name: Queue, summary: EntrySummary) -> None:
        """Examine the entries of a queue, unless all of them belong to its messages."""
        run = self._runs.get(name)
        if run is not None and (summary.in_log, summary.end) == (run.led, run.high):
            self._lose(name, run.gaps)
            return
        look = OtherEntries(run)
        for number, offset, size in self._entries.files.entries(*name):
            self._look_at(look, name, number, offset, size)
        found = self._found
        found.foreign_entries += look.foreign
        if self._was_killed:
            found.early_entries += look.early
        else:
            found.foreign_entries += look.early
        if look.deleted:
            deleted_at = self._deleted_at.get(name[0], -1)
            if deleted_at >= (self._mark.offset if self._mark is not None else 0):
                if name[0] not in found.late_deletions:
                    found.late_deletions.append(name[0])
            else:
                found.foreign_entries += look.deleted
        if run is None:
            self._lose(name, [range(look.low, look.end)] if look.low < look.end else [])
        else:
            before = range(min(look.low, run.low), run.low)
            self._lose(name, [before, *run.gaps, range(run.high, max(look.end, run.high))])
        if look.end > (run.high if run is not None else 0):
            found.counts.append((*name, look.end))

    def _look_at(self, look: OtherEntries, name: Queue, number: int, offset: int, size: int) -> None:
        is_next = look.end in {0, number}
        if size == FILLER_SIZE or offset < self._found.first:
            if offset < self._deleted_at.get(name[0], -1) and size != FILLER_SIZE:
                look.deleted += 1
            elif is_next:
                look.end = number + 1
        elif (
            look.run is not None
            and offset >= look.run.first_offset
            and self._entries.leads(*name, number, offset, size)
        ):
            look.take(number)
        elif self._is_lost(offset):
            if offset > self._deleted_at.get(name[0], -1):
                look.take(number)
            else:
                look.deleted += 1
        elif offset >= min(self._found.end, self._trusted_to):
            look.early += 1
            if is_next and not self._was_killed:
                look.take(number, is_early=True)
        elif offset < self._deleted_at.get(name[0], -1):
            look.deleted += 1
        else:
            look.foreign += 1

    def _is_lost(self, offset: int) -> bool:
        """Return whether the log is damaged at an offset, or its file is missing."""
        at = bisect_right(self._lost_ranges, offset, key=lambda lost: lost.start)
        return at > 0 and offset in self._lost_ranges[at - 1]

    def _lose(self, name: Queue, gaps: list[range]) -> None:
        found = self._found
        for gap in gaps:
            found.lost += len(gap)
            found.lost_messages += ((*name, number) for number in gap[: MOST_DETAILS - len(found.lost_messages)])


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _checkpoint(layout: StoreLayout) -> tuple[Mark | None, int]:
    """Return the checkpoint's mark, and the offset from which on the log records deletions; none without a mark."""
    path = layout.root / "checkpoint"
    content = path.read_bytes() if path.is_file() else b""
    found = read_mark(content)
    return found if found is not None else (None, _FOREVER)
