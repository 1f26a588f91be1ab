"""A consume queue: the place of each message of one queue in the commit log.

::

    consumequeue/<topic>/<queue id>/00000000000000000000, 00000000000006000000, …

    entry of message n, at byte 20·n:
    | commit log offset 8 | record size 4 | tags code 8 |          big-endian

    tags code   Java's hash of the tags, 0 without; in the schedule topic: when the message is due
    filler      offset 0, size 0x7FFFFFFF, tags code 0: no message has this number (its message was
                deleted before the queue was rebuilt)

The queue is derived from the log: recovery rebuilds missing entries.
"""

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from rocket_broker.settings.store_settings import StoreSettings
from rocket_broker.store.files import SECTOR_SIZE
from rocket_broker.store.mapped_file import MappedFile, MappedFileQueue, OpenMaps
from rocket_broker.store.state import QueueState

__all__ = ["ENTRY", "ENTRY_SIZE", "FILLER_SIZE", "ConsumeQueue"]

ENTRY = struct.Struct(">qiq")
ENTRY_SIZE = ENTRY.size
FILLER_SIZE = 0x7FFFFFFF
_EVERYTHING = 2**63 - 1


class ConsumeQueue(QueueState):
    """One queue of one topic.

    Attributes:
        topic: Its topic.
        queue_id: Its number in the topic.
        files: Its files.
        min_offset: Number of the first message that the commit log still has.
        max_offset: Number of the next message.
        max_physical: End, in the commit log, of the last message that has an entry; -1 if there is none.
        flushed: Entries before this number are on the disk.
        held: Messages from `max_offset` on whose entries are made when they are committed (`committing`).
        tail: The file that the last entries were written into; None if none was since the start.
    """

    __slots__ = (
        "_prepared",
        "files",
        "flushed",
        "held",
        "min_offset",
        "queue_id",
        "topic",
    )

    tail: MappedFile | None

    def __init__(self, topic: str, queue_id: int, settings: StoreSettings, maps: OpenMaps) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.files = MappedFileQueue(
            Path(f"{settings.root}/consumequeue/{topic}/{queue_id}"),  # joining paths takes time with many queues
            settings.mapped_file_size_consume_queue,
            maps,
            "mappedFileSizeConsumeQueue",
        )
        self.min_offset = 0
        self.max_offset = 0
        self.max_physical = -1
        self.flushed = 0
        self.held = 0
        self.tail = None
        self._prepared: memoryview | None = None  # stays mapped until `append`, whatever other maps are needed

    def prepare(self, held: int = 0) -> None:
        """Make room for one more entry, behind those that are held, so that `append` cannot fail.

        Raises:
            StoreFull: The disk has no room. Nothing has changed, as with OSError.
            OSError: The next file could not be made.
        """
        position = (self.max_offset + held) * ENTRY_SIZE
        tail = self.tail
        if tail is None or not tail.base <= position < tail.base + tail.size:
            tail = self._open_tail(position)
        end = position - tail.base + ENTRY_SIZE
        if end > tail.allocated:
            tail.allocate(end, end)
        tail.used = True
        self._prepared = tail.view if tail.view is not None else tail.open()

    def append(self, commit_log_offset: int, size: int, tags_code: int) -> None:
        """Add the entry of the message with the number `max_offset`, right after `prepare`."""
        view, self._prepared = self._prepared, None
        if view is None:
            raise AssertionError("prepare() comes first")
        position = self.max_offset * ENTRY_SIZE % self.files.file_size
        ENTRY.pack_into(view, position, commit_log_offset, size, tags_code)
        self.max_offset += 1
        self.max_physical = commit_log_offset + size

    def room_for(self, count: int) -> tuple[memoryview, int] | None:
        """Return a file's bytes, and where `count` entries go; None if they do not fit into one file.

        Raises:
            StoreFull: The disk has no room. Nothing has changed, as with OSError.
            OSError: The next file could not be made.
        """
        position = self.max_offset * ENTRY_SIZE
        tail = self.tail
        if tail is None or not tail.base <= position < tail.base + tail.size:
            tail = self._open_tail(position)
        position -= tail.base
        end = position + count * ENTRY_SIZE
        if end > tail.size:
            return None
        if end > tail.allocated:
            tail.allocate(end, end)
        tail.used = True
        return tail.view or tail.open(), position

    def appended(self, count: int, max_physical: int) -> None:
        """Count entries that have been written into `room_for` them; the last message ends at `max_physical`."""
        self.max_offset += count
        self.max_physical = max_physical

    def fill_to(self, offset: int) -> None:
        """Fill the numbers below ``offset``, whose messages are gone, with fillers.

        Raises:
            StoreFull: The disk has no room.
        """
        if self.max_offset == 0:  # as in Apache's broker, the queue begins with the file that holds the number
            # ConsumeQueue.fillPreBlank (5.3.3) fills only the first file of a queue. We also fill gaps
            # further on (below), because `entries` finds the entry of a message by its number.
            self.max_offset = self.flushed = offset - offset % (self.files.file_size // ENTRY_SIZE)
            self.min_offset = offset
        while self.max_offset < offset:
            self._append_filler()
        self._find_max_physical(MappedFile.open)

    def keep_count(self, count: int) -> None:
        """Give further messages numbers from ``count`` on: lower numbers belonged to messages that are gone.

        Raises:
            StoreFull: The disk has no room.
        """
        if self.max_offset < count:
            self.fill_to(count - 1)
            self._append_filler()  # also at the beginning of a file: only the file itself records the count on the disk
            self._find_max_physical(MappedFile.open)

    def _append_filler(self) -> None:
        self.prepare()
        self.append(0, FILLER_SIZE, 0)

    def entries(self, offset: int, limit: int) -> Iterator[tuple[int, int, int]]:
        """Return commit log offset, size and tags code of messages: at most ``limit``, and of one file."""
        place = self.place_of(offset, limit)
        if place is None:
            return iter(())
        view, start, end, _ = place
        return ENTRY.iter_unpack(view[start:end])

    def place_of(self, offset: int, limit: int) -> tuple[memoryview, int, int, int] | None:
        """Return where the entries of messages are: at most ``limit``, and of one file.

        Returns:
            The file's bytes, the positions of the first entry and behind the last one, and ``offset``; None if there is
            no such message.
        """
        position = offset * ENTRY_SIZE
        file = self.files.file_at(position)
        if file is None or offset < self.min_offset or offset >= self.max_offset:
            return None
        file.used = True
        end = min(position + limit * ENTRY_SIZE, self.max_offset * ENTRY_SIZE, file.base + file.size)
        return file.view or file.readable(), position - file.base, end - file.base, offset

    def entry(self, offset: int) -> tuple[int, int, int] | None:
        """Return commit log offset, size and tags code of a message, None if there is no entry."""
        return next(self.entries(offset, 1), None)

    def entry_size_at(self, offset: int) -> tuple[int, int]:
        """Return commit log offset and size of any entry, fillers included; for a filler its file is mapped."""
        commit_log_offset, size, _ = self._raw_entry(offset)
        if size == FILLER_SIZE and (file := self.files.file_at(offset * ENTRY_SIZE)) is not None:
            file.open()  # more fillers follow
        return commit_log_offset, size

    def next_file(self, offset: int) -> int:
        """Return the number of the first message in the file behind the one that holds ``offset``."""
        per_file = self.files.file_size // ENTRY_SIZE
        return offset - offset % per_file + per_file

    def load(self, trusted_to: int) -> int:
        """Find the files and the trusted entries; clear the entries behind them and return how many.

        Args:
            trusted_to: Entries of messages before this offset of the commit log were on the disk when the
                broker ended; the others are made again.
        """
        self.files.load()
        data_of = cache(MappedFile.data)
        trusted = self._count(trusted_to, data_of)
        self.min_offset = self.files.first // ENTRY_SIZE
        doubtful = 0
        # A crash may keep a later page of a file and lose an earlier one. The entries behind such a hole
        # would belong to the queue again as soon as new entries close the hole, so they are cleared now.
        if self._has_more(trusted * ENTRY_SIZE, data_of):
            doubtful = max(0, self._count(_EVERYTHING, data_of) - trusted)
            self.files.cut(trusted * ENTRY_SIZE)
        self._end_at(trusted, data_of)
        return doubtful

    def _has_more(self, position: int, data_of: Callable[[MappedFile], memoryview]) -> bool:
        """Return whether anything but zeros is in the files from a position on."""
        if self.files.end <= position:
            return False
        last = self.files.files[-1]
        if last.base > position:
            return True
        rest = bytes(data_of(last)[position - last.base :])
        return rest != bytes(len(rest))

    def _count(self, trusted_to: int, data_of: Callable[[MappedFile], memoryview]) -> int:
        """Return the number after the last of the entries, without a gap, of messages before an offset.

        It is 0 if there are none, whatever the first file is: files before it may have vanished.
        """
        files = self.files.files
        # Offsets of the log ascend within a queue, so the trusted entries come first: bisection looks at few
        # entries, and a start with ten thousand queues stays short.
        number = bisect_left(files, True, key=lambda file: not _is_trusted(data_of(file), 0, trusted_to))
        if number == 0:
            return 0
        data = data_of(files[number - 1])
        return files[number - 1].base // ENTRY_SIZE + bisect_left(
            range(len(data) // ENTRY_SIZE), True, key=lambda n: not _is_trusted(data, n, trusted_to)
        )

    def cut_to(self, max_offset: int) -> None:
        """Remove the entries from a number on."""
        self.files.cut(max_offset * ENTRY_SIZE)
        self._end_at(max_offset, MappedFile.open)

    def _end_at(self, max_offset: int, data_of: Callable[[MappedFile], memoryview]) -> None:
        self.max_offset = max_offset
        self.min_offset = min(self.min_offset, max_offset)
        self.flushed = max_offset
        self.tail = None
        self._find_max_physical(data_of)

    def last_if_doubtful(self) -> tuple[int, int, int] | None:
        """Return the last entry if it crosses a sector border: a crash may have kept one half, so it may point
        anywhere."""
        position = (self.max_offset - 1) * ENTRY_SIZE
        file = self.files.file_at(position)
        if file is None or (position - file.base) % SECTOR_SIZE <= SECTOR_SIZE - ENTRY_SIZE:
            return None
        entry = self._raw_entry(self.max_offset - 1)
        return entry if entry[1] != FILLER_SIZE else None

    def cut(self, commit_log_end: int) -> int:
        """Remove the entries of messages that end behind an offset of the log; return how many."""
        if self.max_physical <= commit_log_end:
            return 0
        keep = self.max_offset
        while keep > self.min_offset and sum(self._raw_entry(keep - 1)[:2]) > commit_log_end:
            keep -= 1
        number = self.max_offset - keep
        if number:
            self.cut_to(keep)
        return number

    def correct_min_offset(self, commit_log_first: int) -> None:
        """Begin with the first message that the log still has, or at the end if there is none."""
        # A filler has offset 0, which would break the ascending order that bisection needs. So the next entry
        # that is not a filler stands for each filler before it.
        low = max(self.files.first // ENTRY_SIZE, self.min_offset)
        numbers = range(low, self.max_offset)
        next_real = _NextReal(self)
        first = low + bisect_left(numbers, True, key=lambda n: next_real(n)[1] >= commit_log_first)
        self.min_offset = next_real(first)[0]

    def take_old_files(self) -> list[MappedFile]:
        """Take out the files without any message that the log still has, but never the last file."""
        taken = []
        # The last file stays even if no message is left: only its name and its entries tell the queue's
        # count.
        while len(self.files.files) > 1 and self.files.files[1].base <= self.min_offset * ENTRY_SIZE:
            taken.append(self.files.take_first())
        return taken

    def give_up_maps(self) -> None:
        """Unmap the files; views of them stay readable."""
        for file in self.files.files:
            file.close()

    def remove(self) -> None:
        """Delete the queue."""
        while self.files.files:
            self.files.remove_first()
        file_system = self.files.maps.file_system
        if file_system.size(self.files.directory) is not None:
            file_system.remove(self.files.directory)
        self.tail = None
        self.min_offset = self.max_offset = self.flushed = 0
        self.max_physical = -1

    def _open_tail(self, position: int) -> MappedFile:
        """Return the file of the next entry; make it if needed."""
        tail = self.files.file_at(position)
        if tail is None:
            tail = self.files.add(position - position % self.files.file_size)
        else:
            tail.written_to(position - tail.base)
        self.tail = tail
        return tail

    def _raw_entry(self, offset: int) -> tuple[int, int, int]:
        file = self.files.file_at(offset * ENTRY_SIZE)
        assert file is not None, "numbers below max_offset are in files"
        position = offset * ENTRY_SIZE - file.base
        entry: tuple[int, int, int] = (
            ENTRY.unpack_from(file.view, position)
            if file.view is not None
            else ENTRY.unpack(file.read(position, ENTRY_SIZE))
        )
        return entry

    def _find_max_physical(self, data_of: Callable[[MappedFile], memoryview]) -> None:
        self.max_physical = -1
        end = self.max_offset * ENTRY_SIZE
        for file in reversed(self.files.files):
            if file.base < end:
                data = data_of(file)
                for position in range(min(end - file.base, file.size) - ENTRY_SIZE, -1, -ENTRY_SIZE):
                    commit_log_offset, size, _ = ENTRY.unpack_from(data, position)
                    if size != FILLER_SIZE:
                        self.max_physical = commit_log_offset + size
                        return

    def __repr__(self) -> str:
        return f"ConsumeQueue({self.topic!r}, {self.queue_id}, {self.min_offset}…{self.max_offset})"


class _NextReal:
    """Finds the first entry at or behind a number that is not a filler; a run of fillers is walked through once."""

    def __init__(self, queue: ConsumeQueue) -> None:
        self._queue = queue
        self._run = range(0)
        self._behind_run = (0, -1)

    def __call__(self, number: int) -> tuple[int, int]:
        """Return that entry's number and commit log offset; if there is none, the queue's end and any log's."""
        queue, at = self._queue, number
        found = (queue.max_offset, _EVERYTHING)
        while at < queue.max_offset:
            if at in self._run:
                at, found = self._run.stop, self._behind_run
                break
            commit_log_offset, size = queue.entry_size_at(at)
            if size != FILLER_SIZE:
                found = (at, commit_log_offset)
                break
            at += 1
        if at > number:
            self._run, self._behind_run = range(number, at), found
        return found


def _is_trusted(data: memoryview, index: int, trusted_to: int) -> bool:
    if (index + 1) * ENTRY_SIZE > len(data):
        return False
    commit_log_offset, size, _ = ENTRY.unpack_from(data, index * ENTRY_SIZE)
    return bool(size == FILLER_SIZE or (size > 0 and 0 <= commit_log_offset < trusted_to))
