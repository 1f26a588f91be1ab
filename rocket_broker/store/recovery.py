"""Open a store, after an orderly stop or after a crash.

1.  The lock file is locked, and the directory of the log, which may be elsewhere, so that only this process has the
    store open.
2.  If there is no abort file, the broker stopped in order. The abort file is made.
3.  The checkpoint is read: its mark, and Apache's timestamps.
4.  The commit log's files are found.
5.  The *trusted* part of the log is found, which is known to be on the disk with all that was derived from it: up to
    the mark, if the mark was made for this log. Without a mark Apache's broker wrote the store. Then after an orderly
    stop all is trusted, and after a crash everything before the last file that was begun before the checkpoint's
    timestamps.
6.  The consume queues are opened. Entries of messages that are not trusted are removed, and after a crash entries that
    the disk wrote in part.
7.  The index is opened in the same way.
8.  The log is read from the end of the trusted part, or from the last message with a queue entry or index entry if
    later trusted messages lack theirs. In a store that Apache's broker stopped in order, it is read from the third-last
    file, and if the directory of the queues is missing, from its beginning. Missing queue and index entries are made,
    record by record, as long as records are whole and their checksums right.
9.  Everything behind the last whole record is cut off, from the log and from queues and index. After a crash the log
    behind the trusted part is written once more: a flush may have failed on it, and the next flush would not report
    that.
10. Each queue begins with its first message that the log still has.
11. The checkpoint gets a mark, if it has no correct one. If Apache's broker had the store open since, the checkpoint
    says that the log need not contain the deletions of topics before its end.
12. Apache's signature in the lock file is replaced by ours. This comes last: before step 11 the checkpoint does not
    tell what Apache's broker may have done.

A message that was acknowledged after a flush is before the mark or is whole, so it is found. A message that the crash
has torn is cut off with all behind it; none of these was acknowledged after a flush. Queues and index have exactly the
messages of the log, except those of topics whose deletion the log records (`deletion`).
"""

import logging
from collections.abc import Callable
from contextlib import suppress

import msgspec

from rocket_broker.store.checkpoint import Mark
from rocket_broker.store.commit_log import LogWalk, is_blank
from rocket_broker.store.consume_queue import ConsumeQueue
from rocket_broker.store.files import FileLock
from rocket_broker.store.reput import Block, Reput
from rocket_broker.store.store_files import StoreFiles
from rocket_remoting.clock import Clock
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.properties import decode_stored_properties
from rocket_remoting.wire.record import RecordHeader, peek_record

__all__ = ["Recovery", "RecoveryReport"]

logger = logging.getLogger(__name__)

_EVERYTHING = 2**63 - 1
_REPORT_EVERY_MS = 5_000
_RECORDS_BETWEEN_LOOKS = 1_000
_FILES_READ = 3
"""Number of the last files that are read after an orderly stop, as Apache's brokers do."""


class RecoveryReport(msgspec.Struct):
    """The findings and actions of opening a store.

    Attributes:
        ended_in_order: Whether the last broker was stopped, not killed.
        trusted_to: Offset of the log before which everything was known to be on the disk.
        read_from: Offset from which the log was read.
        end: The end of the log.
        records: Whole records read.
        torn: What was behind the end and was cut off; empty if nothing was.
        files_deleted: Files of the log behind its end.
        queues: Consume queues.
        entries_taken_back: Queue entries of messages that the log does not have.
        entries_added: Queue entries made from the log.
        messages_indexed: Messages whose keys were indexed again.
        milliseconds: The duration.
    """

    ended_in_order: bool = True
    trusted_to: int = 0
    read_from: int = 0
    end: int = 0
    records: int = 0
    torn: str = ""
    files_deleted: int = 0
    queues: int = 0
    entries_taken_back: int = 0
    entries_added: int = 0
    messages_indexed: int = 0
    milliseconds: int = 0

    def __str__(self) -> str:
        how = "stopped in order" if self.ended_in_order else "killed"
        if self == RecoveryReport(milliseconds=self.milliseconds):
            return f"the store is empty; {self.milliseconds} ms"
        parts = [
            f"the broker before was {how}",
            f"read {self.records} message(s) from {self.read_from} to the end at {self.end}",
            f"{self.queues} queue(s); entries: {self.entries_taken_back} taken back, {self.entries_added} added",
            f"{self.messages_indexed} message(s) indexed",
        ]
        if self.torn:
            parts.append(f"cut off a torn end ({self.torn})")
        if self.files_deleted:
            parts.append(f"deleted {self.files_deleted} file(s) behind the end")
        return "; ".join(parts) + f"; {self.milliseconds} ms"


class Recovery:
    """Opens the parts of a store. When `run` returns, they agree with the log.

    Attributes:
        locks: The locks that are held.
    """

    def __init__(self, files: StoreFiles, clock: Clock, on_progress: Callable[[], object]) -> None:
        self.locks: list[FileLock] = []
        self._files = files
        self._clock = clock
        self._on_progress = on_progress
        self._report = RecoveryReport()
        self._reported_ms = 0
        self._leaves_no_trace = False  # but the abort file

    def run(self) -> RecoveryReport:
        """Open the store.

        Raises:
            StoreError: It is locked, corrupt, of other settings, or the disk is full.
            OSError: The file system refuses something else.
        """
        begin = self._reported_ms = self._clock.now_ms()
        report, log, queues, checkpoint = (
            self._report,
            self._files.log,
            self._files.queues,
            self._files.checkpoint,
        )
        settings, file_system = self._files.settings, self._files.file_system
        # 1.
        # Apache's broker (5.3.3) locks only the file in the root. Two roots may name one directory of the log
        # (storePathCommitLog), so that directory is locked as well.
        for directory, locked in (
            (settings.root, settings.lock_path),
            (settings.commit_log_path, settings.commit_log_path),
        ):
            file_system.make_directory(directory)
            self.locks.append(file_system.lock(locked))
        # 2.
        aborted = file_system.size(settings.abort_path) is not None
        if not aborted:
            file_system.create(settings.abort_path, 0)
            self._leaves_no_trace = True
            file_system.sync(settings.abort_path)
        # 3.
        checkpoint.load()
        # A broker that stops in order has written the checkpoint. So a log beside a missing or blank one was
        # not stopped in order, even if there is no abort file.
        report.ended_in_order = not aborted and not (
            checkpoint.is_blank and file_system.names(settings.commit_log_path)
        )
        # 4.
        mark = checkpoint.mark
        report.files_deleted = log.load(_EVERYTHING if mark is None else mark.offset)
        # 5.
        if mark is not None and not self._fits(mark):
            logger.error(
                "%s: the log ends before %d, where it ended according to the checkpoint, or is another log",
                settings.commit_log_path,
                mark.offset,
            )
            mark = None
        report.trusted_to = self._trusted_to(mark)
        # 6.
        has_queues = file_system.size(settings.consume_queue_path) is not None
        file_system.make_directory(settings.consume_queue_path)
        report.entries_taken_back = queues.load(report.trusted_to)
        if not report.ended_in_order:
            self._take_back_torn_entries()
        # 7.
        self._files.index.load()
        if mark is not None or not log.files.files:
            self._files.index.cut(
                report.trusted_to, self._has_key, self._stored_at, after_crash=not report.ended_in_order
            )
        # Without a mark only times are known. As Apache's IndexService.load (5.3.3), delete the files of the
        # index with messages that are newer than the checkpoint's index timestamp; step 8 makes their entries
        # again.
        elif not report.ended_in_order:
            self._files.index.remove_newer(checkpoint.index_timestamp)
        # 8.
        # From here on entries are made and the log is cut. If that fails half-way, the next start must not
        # take the store for one that was stopped in order, so the abort file stays.
        self._leaves_no_trace = False
        # If the whole directory of the queues is missing, all queues are made again. If a single queue of
        # trusted messages is missing, the queue was deleted, and stays deleted (`Reput.makes_queues_from`).
        report.read_from = self._read_from(mark) if has_queues else log.first
        self._read(mark, makes_queues_from=report.trusted_to if has_queues else log.first)
        # 9.
        self._cut()
        if not report.ended_in_order:
            log.write_again(report.trusted_to)
        # 10.
        for queue in queues:
            queue.correct_min_offset(log.first)
        # 11.
        # What was read, and what `write_again` wrote, is in the page cache only: the first flush must include
        # all of the log behind the trusted part.
        log.flushed = min(report.trusted_to, log.end)
        self._set_mark(mark)
        # 12.
        self._sign()
        report.queues = len(queues)
        report.milliseconds = self._clock.now_ms() - begin
        logger.log(logging.INFO if report.ended_in_order else logging.WARNING, "%s: %s", settings.root, report)
        return report

    def _set_mark(self, mark: Mark | None) -> None:
        """Write a mark if the checkpoint has none, and from where on the log records deletions."""
        log, checkpoint, report = self._files.log, self._files.checkpoint, self._report
        # Apache's broker may have deleted topics, up to the present end, without a record in the log.
        is_own = mark is not None and not self.locks[0].is_apaches
        deletions_from = min(checkpoint.deletions_from, log.end) if is_own else log.end
        if self._files.settings.is_replica:
            deletions_from = _EVERYTHING  # the log may be that of Apache's broker, now and later
        if mark is None:
            # After a crash nothing is known to be on the disk before the first flush, so the new mark vouches
            # for nothing.
            is_whole = report.ended_in_order
            mark = Mark(log.end, log.last_record, self._files.queues.max_physical) if is_whole else Mark(log.first)
            checkpoint.set_mark(mark, deletions_from)
        elif deletions_from != checkpoint.deletions_from:
            checkpoint.set_mark(mark, deletions_from)

    def _sign(self) -> None:
        store_lock = self.locks[0]
        if store_lock.is_apaches:
            try:
                store_lock.sign()
            except OSError as e:  # the next start only takes this broker's messages for Apache's, too
                logger.warning("%s: cannot be written: %s", self._files.settings.lock_path, e.strerror)

    def give_up(self) -> None:
        """Close a store that could not be opened; until step 8 a store that was stopped in order stays so."""
        if self._leaves_no_trace:
            with suppress(OSError):  # the next start only reads more than necessary
                self._files.file_system.remove(self._files.settings.abort_path)
        self._files.close()
        for lock in self.locks:
            lock.release()

    def _fits(self, mark: Mark) -> bool:
        """Return whether the log is the one that the mark was made for, and still reaches to it."""
        if mark.offset == self._files.log.first or self._ends_at(mark):
            return True
        walk = LogWalk(self._files.log, mark.offset, check_crc=True, after_crash=False)
        if next(iter(walk), None) is None:
            return False
        path = self._files.settings.commit_log_path
        logger.error("%s: the message at %d is damaged", path, mark.last_record)
        return True

    def _ends_at(self, mark: Mark) -> bool:
        """Return whether the last record before the mark is there, and ends there."""
        file = self._files.log.files.file_at(mark.last_record)
        if file is None:
            return False
        try:
            record = peek_record(file.data(), mark.last_record - file.base)
        except RemoteProtocolError:
            return False
        # `LogWalk` steps over a blank. So a mark may be the first offset behind a file, and the last record
        # before the mark ends where the blank of that file begins.
        end = mark.last_record + record.total_size
        return record.commit_log_offset == mark.last_record and (
            mark.offset == end or (mark.offset == file.base + file.size and is_blank(file, end))
        )

    def _trusted_to(self, mark: Mark | None) -> int:
        files = self._files.log.files.files
        if mark is not None or not files:
            return mark.offset if mark is not None else 0
        if self._report.ended_in_order:
            return _EVERYTHING
        # As Apache's CommitLog.isMappedFileMatchedRecover (5.3.3, without messageIndexSafe): messages of
        # earlier files were stored before the first message of this file, so the checkpoint's timestamps hold
        # for them.
        for file in reversed(files):
            try:
                record = peek_record(file.data())
            except RemoteProtocolError:
                continue
            if 0 < record.store_timestamp <= self._files.checkpoint.recovery_timestamp:
                return file.base
        return files[0].base

    def _take_back_torn_entries(self) -> None:
        """Remove the last entry of a queue if only a part of the entry reached the disk, and it looks like a trusted
        one."""
        for queue in self._files.queues:
            entry = queue.last_if_doubtful()
            if entry is not None and not self._is_whole(queue, entry):
                queue.cut_to(queue.max_offset - 1)
                self._report.entries_taken_back += 1

    def _is_whole(self, queue: ConsumeQueue, last: tuple[int, int, int]) -> bool:
        """Return whether a queue's last entry matches its message, which may be gone from the log."""
        log = self._files.log
        if last[0] < log.first:
            # The message was deleted with its file. Only the order can show a torn entry: offsets ascend in a
            # queue.
            return last[0] > queue.entry_size_at(queue.max_offset - 2)[0]
        record = log.record_at(last[0])
        return record is not None and _leads_there(queue, last, peek_record(record))

    def _has_key(self, key_hash: int, offset: int) -> bool:
        """Return whether the log has, or may have had, a message with such a key at an offset."""
        # The message was deleted with its file, so nothing contradicts the entry.
        if offset < self._files.log.first:
            return True
        record = self._files.log.record_at(offset)
        if record is None:
            return False
        header = peek_record(record)
        return key_hash in self._files.index.hashes_of(header.topic, decode_stored_properties(header.properties))

    def _stored_at(self, offset: int) -> int | None:
        """Return the store timestamp of the message at an offset, or None."""
        record = self._files.log.record_at(offset)
        return peek_record(record).store_timestamp if record is not None else None

    def _read_from(self, mark: Mark | None) -> int:
        log, queues = self._files.log, self._files.queues
        start = self._report.trusted_to
        if start == _EVERYTHING:
            files = log.files.files
            start = files[max(0, len(files) - _FILES_READ)].base
        # `max_physical` is that of the queue with the newest message. If another queue lacks earlier entries,
        # a gap before the queue's next message shows that, and `Reput` reads the whole log.
        is_complete = not len(queues) if mark is None else queues.max_physical >= mark.entries_to
        if not is_complete:
            start = min(start, queues.max_physical)
        if self._index_is_short():
            start = min(start, self._files.index.end_offset)
        return max(log.first, start)

    def _index_is_short(self) -> bool:
        """Return whether index files are missing that had messages."""
        found, wanted = self._files.index.end_timestamp, self._files.checkpoint.index_timestamp
        return self._files.settings.message_index_enable and found < wanted

    def _read(self, mark: Mark | None, makes_queues_from: int) -> None:
        """Read the log to its end and make missing entries."""
        log, report = self._files.log, self._report
        log.last_timestamp = self._files.checkpoint.log_timestamp
        if mark is not None:
            log.last_record = mark.last_record
        reput = Reput(self._files, makes_queues_from, checks_bodies=self._files.settings.check_crc_on_recover)
        report.end = self._read_whole_records(report.read_from, reput)
        if mark is not None and report.end < mark.offset:
            # Records that were whole on the disk are damaged. They are lost, but not the records behind them.
            logger.error("%s at %d: %s", self._files.settings.commit_log_path, report.end, report.torn)
            report.end = self._read_whole_records(mark.offset, reput)
        report.entries_added = reput.entries_added
        report.messages_indexed = reput.messages_indexed

    def _read_whole_records(self, start: int, reput: Reput) -> int:
        """Read up to the first record that is not whole and return where that is."""
        report = self._report

        def take(data: memoryview, position: int, offset: int) -> int:
            block = reput.dispatch_block(data, position, offset, publish)
            return block.size if block is not None else 0

        def publish(block: Block) -> None:
            self._read_to(walk.end, block.messages, block.last_record, block.last_timestamp)

        walk = LogWalk(
            self._files.log,
            start,
            check_crc=self._files.settings.check_crc_on_recover,
            after_crash=not report.ended_in_order,
            take=take,
        )
        for record in walk:
            reput.dispatch(record)
            self._read_to(walk.end, 1, record.commit_log_offset, record.store_timestamp)
        report.torn = walk.torn
        return walk.end

    def _read_to(self, reached: int, count: int, last_record: int, last_timestamp: int) -> None:
        """Count records that were read and dispatched."""
        log, report = self._files.log, self._report
        before = report.records
        report.records += count
        if report.records // _RECORDS_BETWEEN_LOOKS > before // _RECORDS_BETWEEN_LOOKS:
            self._report_progress(reached)
        # Reading may begin before the mark. The last record before the mark stays the last one until a later
        # one is read.
        if last_record > log.last_record:
            log.last_record, log.last_timestamp = last_record, last_timestamp

    def _report_progress(self, reached: int) -> None:
        """Log the progress of reading the log from time to time: it may take minutes."""
        now = self._clock.now_ms()
        if now - self._reported_ms >= _REPORT_EVERY_MS:
            self._reported_ms = now
            self._on_progress()
            first, end = self._report.read_from, self._files.log.files.end
            logger.info(
                "%s: opening the store, read %d of at most %d MiB of the commit log",
                self._files.settings.root,
                (reached - first) >> 20,
                (end - first) >> 20,
            )

    def _cut(self) -> None:
        """Cut off everything behind the last whole record."""
        end = self._report.end
        # A later message may get the numbers and offsets of those that are cut off. An entry that stayed
        # would lead to that message.
        self._report.files_deleted += self._files.log.cut(end)
        for queue in self._files.queues:
            self._report.entries_taken_back += queue.cut(end)
        self._files.index.cut(end, self._has_key, self._stored_at)


def _leads_there(queue: ConsumeQueue, entry: tuple[int, int, int], record: RecordHeader) -> bool:
    """Return whether the queue's last entry is that of a record."""
    return (record.topic, record.queue_id, record.queue_offset, record.total_size) == (
        queue.topic,
        queue.queue_id,
        queue.max_offset - 1,
        entry[1],
    )
