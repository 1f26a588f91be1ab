"""A log that is copied from a master's: bytes are written as they arrive, and records get their entries.

::

    first                    end             copied
    | record | record | record | part of a reco |  zeros
    └── entries, visible ──────┘

Slices of a master's log may begin and end within a record. So bytes are written up to `copied`, and whole records move
`end`. A slave that connects again begins at `end`; the part of a record behind it is cut off.

What arrives is checked as far as a log can be: each record names its own offset, has the checksum of its body, and
fits into its file. A log that fails a check is another one than the master's, or the files have another size.
"""

from collections.abc import Callable, Generator

from rocket_broker.store.checkpoint import Mark
from rocket_broker.store.errors import LogMismatch
from rocket_broker.store.mapped_file import MappedFile
from rocket_broker.store.reput import Block, Entered, Reput
from rocket_broker.store.store_files import StoreFiles
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.record import BLANK_MAGIC, RecordHeader, body_crc32, peek_record, read_size_and_magic
from rocket_remoting.wire.topics import DELETIONS_TOPIC

__all__ = ["Replica"]

_SIZE_AND_MAGIC = 8


class Replica:
    """The copy of a master's log, in an open store that accepts no messages.

    Args:
        files: The files of the store.
        entered: Called for messages in the step in which they become visible.
        deleted: Called when queues were deleted, because the log records a topic's deletion.
    """

    def __init__(self, files: StoreFiles, entered: Entered, deleted: Callable[[], None]) -> None:
        self._files = files
        self._log = files.log
        self._deleted = deleted
        # Earlier messages of a queue than the first that is copied are not in this log.
        self._reput = Reput(files, makes_queues_from=0, checks_bodies=True, entered=entered, reads_back=False)

    @property
    def end(self) -> int:
        """The offset behind the last whole record: the log is copied from here on."""
        return self._log.end

    def begin(self) -> int:
        """Cut off the part of a record that was copied last; return the offset from which on the log is needed.

        Raises:
            OSError: The disk refused.
        """
        self._log.drop_part()
        return self._log.end

    def write(self, offset: int, data: memoryview) -> None:
        """Write bytes of the master's log, behind those that were written before.

        Raises:
            LogMismatch: The bytes do not belong there.
            StoreFull: The disk has no room; nothing has changed.
            OSError: The next file could not be made, or the disk refused.
        """
        begins = not self._log.files.files
        self._log.copy(offset, data)
        if begins and offset:
            # Recovery takes files before the mark as missing ones, unless it knows that the log begins here.
            self._files.checkpoint.set_mark(Mark(offset), self._files.checkpoint.deletions_from)

    def dispatch(self) -> Generator[None, None, None]:
        """Make the entries of the records that are whole, and yield after each record or block of records.

        Raises:
            LogMismatch: The bytes are not a record of a log with these files.
            StoreFull: The disk has no room. The record is dispatched by the next call, as with OSError.
            OSError: A file could not be made.
        """
        log = self._log
        while (file := log.files.file_at(log.end)) is not None:
            position = log.end - file.base
            if file.size - position < _SIZE_AND_MAGIC:
                raise LogMismatch(log.end, "the file has no room for a blank there, so the files have other sizes")
            data = file.open()[: min(log.copied - file.base, file.size)]
            if len(data) - position < _SIZE_AND_MAGIC:
                return
            if self._reput.dispatch_block(data, position, log.end, self._publish) is not None:
                yield
                continue
            size, magic = read_size_and_magic(data[position : position + _SIZE_AND_MAGIC])
            if not 0 < size <= file.size - position:
                raise LogMismatch(log.end, "no record begins there")
            if size > len(data) - position:
                return
            if magic == BLANK_MAGIC:
                if size != file.size - position:
                    raise LogMismatch(log.end, "the blank there ends before the file, so the files have other sizes")
                log.end_file(file)
            else:
                self._dispatch(self._record(data, position, file))
            yield

    def _record(self, data: memoryview, position: int, file: MappedFile) -> RecordHeader:
        try:
            record = peek_record(data, position)
        except RemoteProtocolError as e:
            raise LogMismatch(self._log.end, str(e)) from e
        if record.commit_log_offset != file.base + position:
            raise LogMismatch(self._log.end, f"the record there says it is at {record.commit_log_offset}")
        body = data[record.body_position : record.body_position + record.body_length]
        if body_crc32(body) != record.body_crc:
            raise LogMismatch(self._log.end, "the body of the record there is damaged")
        return record

    def _publish(self, block: Block) -> None:
        self._log.end += block.size
        self._log.commit(self._log.end, block.last_record, block.last_timestamp)

    def _dispatch(self, record: RecordHeader) -> None:
        log = self._log
        before = log.end, log.committed, log.last_record, log.last_timestamp
        log.end += record.total_size
        log.commit(log.end, record.commit_log_offset, record.store_timestamp)
        try:
            self._reput.dispatch(record)
        except BaseException:
            log.end, log.committed, log.last_record, log.last_timestamp = before
            raise
        if record.topic == DELETIONS_TOPIC:
            self._deleted()
