"""Reads the files of a store as they are, ours or Apache's, and changes nothing.

::

    read_log        record ─ record ─ damage ─ record ─ … ─ torn end
    survey          every record is in its queue's file at its number, and nothing else is

A record says at which offset of the log it is, so behind damaged bytes the next one is found for certain: its magic
number, and its own place in the field for it.
"""

import mmap
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rocket_broker.store.consume_queue import ENTRY, ENTRY_SIZE, FILLER_SIZE
from rocket_broker.store.derivation import has_possible_number
from rocket_broker.store.errors import StoreError
from rocket_broker.store.files import OsFileSystem
from rocket_broker.store.mapped_file import MappedFile, OpenMaps, is_passed_over
from rocket_remoting.errors import RemoteProtocolError
from rocket_remoting.java_hash import java_hash
from rocket_remoting.properties import PROPERTY_TAGS, decode_stored_properties
from rocket_remoting.record import (
    BLANK_MAGIC,
    MAGIC_V1,
    MAGIC_V2,
    RecordHeader,
    body_crc32,
    peek_record,
    read_size_and_magic,
)
from rocket_remoting.sys_flag import TRANSACTION_COMMIT, TRANSACTION_NOT, transaction_value
from rocket_remoting.topics import SCHEDULE_TOPIC

__all__ = ["Damage", "QueueFiles", "StoreLayout", "Survey", "read_log", "survey"]

_MAGICS = tuple((magic & 0xFFFFFFFF).to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2))
_MAGIC_POSITION = 4
_SMALLEST_BLANK = 8
_NAME_LENGTH = 20
_CHUNK = 1 << 20
_MOST_DETAILS = 100
"""So many of the messages without their entry are named; all are counted."""

_Progress = Callable[[int], None]
"""Called with the offset of the log that has been reached."""


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """Where the files of a store are, and how large.

    Attributes:
        root: The store's directory.
        log: The commit log's files, in order.
        log_file_size: Size of each that was not cut short; 0 when there is none.
        queue_file_size: The same of a consume queue file; 0 when there is none.
        index: The index files, in order.
        log_directory: Where the log's files are.
    """

    root: Path
    log: tuple[Path, ...]
    log_file_size: int
    queue_file_size: int
    index: tuple[Path, ...]
    log_directory: Path

    @classmethod
    def of(cls, root: Path, commit_log: Path | None = None) -> "StoreLayout":
        """Look at a directory.

        Raises:
            StoreError: There is no store.
        """
        directory = commit_log or root / "commitlog"
        if not directory.is_dir():
            raise StoreError(f"{root} holds no store: there is no directory {directory.name} in it")
        log = _numbered(directory)
        queues = filter(_is_number, (root / "consumequeue").glob("*/*/*"))
        return cls(
            root,
            log,
            max(map(_size, log), default=0),
            max(map(_size, queues), default=0),
            tuple(sorted((root / "index").glob("[0-9]*"))),
            directory,
        )

    def short_files(self) -> list[Path]:
        """Return the files of the log that are shorter than others: something cut them.

        The last one may be empty: a broker that was killed when it had just made it leaves that.
        """
        sizes = {file: file.stat().st_size for file in self.log}
        short = [file for file, size in sizes.items() if size < self.log_file_size]
        return short[:-1] if short and short[-1] == self.log[-1] and not sizes[short[-1]] else short

    def strange_files(self) -> list[Path]:
        """Return what lies among the files of the log and of the queues, and is none of theirs."""
        directories = self.log_directory, *filter(_is_number, (self.root / "consumequeue").glob("*/*"))
        return sorted(
            path
            for directory in directories
            if directory.is_dir()
            for path in directory.iterdir()
            if not is_passed_over(path.name)
            and not (path.name.isdecimal() and len(path.name) == _NAME_LENGTH)
        )

    def missing_files(self) -> list[Path]:
        """Return the files of the log that should be between others."""
        if not self.log or not self.log_file_size:
            return []
        there = {int(file.name) for file in self.log}
        bases = range(min(there), max(there), self.log_file_size)
        return [self.log[0].with_name(f"{base:020d}") for base in bases if base not in there]


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of the commit log that hold no record, with records before or behind them.

    Attributes:
        offset: Where they begin in the log.
        length: How many they are.
        reason: What is wrong with what should be there.
        is_end: Whether no record follows: a write was torn there.
    """

    offset: int
    length: int
    reason: str
    is_end: bool


@dataclass(slots=True)
class Survey:
    """What is in a store, and what is wrong with it.

    Attributes:
        first: Offset of the log's first byte.
        end: Offset behind its last record.
        records: Whole records.
        damages: Bytes that hold none.
        damaged_properties: Where the records are whose properties are no UTF-8. They are delivered as Java reads them,
            and no repair knows better.
        short_files: Names of the log's files that were cut short.
        missing_files: Names of files that should be between others of the log.
        strange_files: Files among those of log and queues that are none of theirs: no broker starts beside them.
        queues: Consume queues.
        entries: Entries that lead to their record.
        missing_entries: Messages without their entry, or with a wrong one, though later ones have theirs.
        missing: Some of them: topic, queue id and queue offset.
        late_entries: Messages behind the last one that has its entry: their broker was killed before it made theirs.
        deleted: Messages of topics that were deleted, or made anew since: they have no entries.
        foreign_entries: Entries, among those the log should have records for, without a record.
        index_files: Files of the index.
        short_index_files: Names of those that have not the size they should.
        short_timer_files: Files of the timers that have not.
    """

    first: int = 0
    end: int = 0
    records: int = 0
    damages: list[Damage] = field(default_factory=list)
    damaged_properties: list[int] = field(default_factory=list)
    short_files: list[str] = field(default_factory=list)
    missing_files: list[str] = field(default_factory=list)
    strange_files: list[str] = field(default_factory=list)
    queues: int = 0
    entries: int = 0
    missing_entries: int = 0
    missing: list[tuple[str, int, int]] = field(default_factory=list)
    late_entries: int = 0
    deleted: int = 0
    foreign_entries: int = 0
    index_files: int = 0
    short_index_files: list[str] = field(default_factory=list)
    short_timer_files: list[str] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong that can be repaired.

        What a kill leaves is not: the next start of a broker cuts off a torn end, and makes the entries that are late.
        """
        return not (
            self.short_files
            or self.missing_files
            or self.strange_files
            or self.short_index_files
            or self.short_timer_files
            or self.missing_entries
            or self.foreign_entries
            or any(not damage.is_end for damage in self.damages)
        )


def read_log(
    layout: StoreLayout, *, progress: _Progress | None = None
) -> Iterator[tuple[RecordHeader, memoryview] | Damage]:
    """Yield each whole record with its bytes, and the damage between them, in the order of the log.

    A broker that has the store open may delete files meanwhile: those are left out.
    """
    written = [path for path in layout.log if _size(path)]
    while written and _is_unwritten(_map(written[-1]), 0):  # made ahead of need, as Apache's broker does
        written.pop()
    for path in written:
        try:
            data = _map(path)
        except FileNotFoundError:
            continue
        yield from _read_file(data, int(path.name), is_last=path == written[-1], progress=progress)


@dataclass(slots=True)
class _Expected:
    """What the log says of a queue. Of the messages without an entry, `late` are the last ones."""

    low: int
    high: int = 0
    count: int = 0
    entries: int = 0
    late: int = 0
    without: list[int] = field(default_factory=list)

    def add(self, offset: int, *, has_entry: bool) -> None:
        self.high = max(self.high, offset + 1)
        self.count += 1
        self.entries += has_entry
        if not has_entry and len(self.without) < _MOST_DETAILS:
            self.without.append(offset)

    @property
    def missing_count(self) -> int:
        return self.count - self.entries - self.late

    @property
    def missing(self) -> list[int]:
        return self.without[: self.missing_count]


def survey(
    layout: StoreLayout,
    progress: _Progress | None = None,
    exists: Callable[[str], bool] = lambda topic: True,
    index_file_size: int = 0,
) -> Survey:
    """Read the whole log and compare the queues with it.

    Args:
        layout: The store's files.
        progress: Called now and then.
        exists: Tells whether there is a topic: the log has the messages of those that were deleted, too.
        index_file_size: Size that the files of the index should have; 0: any.
    """
    found = Survey(
        short_files=[file.name for file in layout.short_files()],
        missing_files=[file.name for file in layout.missing_files()],
        strange_files=[str(path) for path in layout.strange_files()],
        index_files=len(layout.index),
        short_index_files=[
            path.name for path in layout.index if index_file_size and _size(path) not in {0, index_file_size}
        ],
    )
    if layout.log:
        found.first = found.end = int(layout.log[0].name)
    queues = QueueFiles(layout.root / "consumequeue", layout.queue_file_size)
    expected: dict[tuple[str, int], _Expected] = {}
    made_anew = set[str]()
    late: list[_Expected] = []
    for item in read_log(layout, progress=progress):
        if isinstance(item, Damage):
            found.damages.append(item)
            continue
        record, _ = item
        found.records += 1
        found.end = record.commit_log_offset + record.total_size
        if not _is_text(record.properties):
            found.damaged_properties.append(record.commit_log_offset)
        if transaction_value(record.sys_flag) in (TRANSACTION_NOT, TRANSACTION_COMMIT):
            key = record.topic, record.queue_id
            if record.queue_offset == 0 and key in expected:
                found.deleted += expected.pop(key).count
                made_anew.add(record.topic)
            of_queue = expected.setdefault(key, _Expected(record.queue_offset))
            entry = queues.entry_of(record)
            of_queue.add(record.queue_offset, has_entry=entry is not None and _leads_to(entry, record))
            _note_lateness(late, of_queue, is_late=entry is None)
    names = queues.names()
    found.queues = len(names)
    for name in expected.keys() - {*names}:
        if name[0] in made_anew or not exists(name[0]):
            found.deleted += expected.pop(name).count
    for name, of_queue in expected.items():
        found.entries += of_queue.entries
        found.missing_entries += of_queue.missing_count
        found.late_entries += of_queue.late
        found.missing += ((*name, offset) for offset in of_queue.missing)
    del found.missing[_MOST_DETAILS:]
    for name in names:
        of_queue = expected.get(name, _Expected(0))
        lost = of_queue.high - of_queue.low - of_queue.count  # of messages in damaged bytes
        found.foreign_entries += max(0, queues.count(name, found.first) - of_queue.count - lost)
    return found


def _note_lateness(late: list[_Expected], of_queue: _Expected, *, is_late: bool) -> None:
    """Count a message without an entry as late, until one has its entry. `late` are the queues with late messages."""
    if is_late:
        if not of_queue.late:
            late.append(of_queue)
        of_queue.late += 1
        return
    for other in late:
        other.late = 0
    late.clear()


class QueueFiles:
    """The consume queues' files, read as they are.

    Args:
        root: The directory of the queues.
        file_size: Size of a file.
    """

    def __init__(self, root: Path, file_size: int) -> None:
        self._root = root
        self._file_size = file_size
        self._maps = OpenMaps(_ReadOnlyFileSystem())
        self._files: dict[tuple[str, int, int], MappedFile | None] = {}

    def names(self) -> list[tuple[str, int]]:
        """Return topic and queue id of each queue that has a directory."""
        return sorted(
            (path.parent.name, int(path.name)) for path in self._root.glob("*/*") if _is_number(path)
        )

    def entry_of(self, record: RecordHeader) -> tuple[int, int, int] | None:
        """What stands at the record's number in its queue: log offset, size, tags code; None if nothing does."""
        if not self._file_size:
            return None
        position = record.queue_offset * ENTRY_SIZE
        base = position - position % self._file_size
        file = self._file(record.topic, record.queue_id, base)
        if file is None:
            return None
        entry: tuple[int, int, int] = ENTRY.unpack_from(file.view or file.open(), position - base)
        return entry if entry[1] else None

    def count(self, name: tuple[str, int], log_first: int) -> int:
        """Return how many entries of a queue lead to the log from an offset on."""
        count = 0
        for path in _numbered(self._root / name[0] / str(name[1])):
            file = self._file(*name, int(path.name))
            if file is not None:
                for offset, size, _ in ENTRY.iter_unpack(_entries(file)):
                    if size == 0:
                        break
                    count += offset >= log_first and size != FILLER_SIZE
        return count

    def _file(self, topic: str, queue_id: int, base: int) -> MappedFile | None:
        key = topic, queue_id, base
        if key not in self._files:
            path = self._root / topic / str(queue_id) / f"{base:020d}"
            whole = path.is_file() and path.stat().st_size == self._file_size
            self._files[key] = MappedFile(path, base, self._file_size, self._maps) if whole else None
        file = self._files[key]
        if file is not None:
            file.used = True
        return file


class _ReadOnlyFileSystem(OsFileSystem):
    def map(self, path: Path, ordered_to: int = 0) -> memoryview:
        return _map(path)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _map(path: Path) -> memoryview:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
    finally:
        os.close(descriptor)


def _entries(file: MappedFile) -> memoryview:
    data = file.data()
    return data[: len(data) - len(data) % ENTRY_SIZE]


def _leads_to(entry: tuple[int, int, int], record: RecordHeader) -> bool:
    """Whether a queue entry is the record's."""
    offset, size, tags_code = entry
    if (offset, size) != (record.commit_log_offset, record.total_size):
        return False
    return record.topic == SCHEDULE_TOPIC or tags_code == _tags_code(record)


def _tags_code(record: RecordHeader) -> int:
    tags = decode_stored_properties(record.properties).get(PROPERTY_TAGS)
    return java_hash(tags) if tags else 0


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _read_file(
    data: memoryview, base: int, *, is_last: bool, progress: _Progress | None
) -> Iterator[tuple[RecordHeader, memoryview] | Damage]:
    position, size = 0, len(data)
    while position < size:
        if progress is not None:
            progress(base + position)
        item = _record_at(data, position, base)
        if not isinstance(item, str):
            record = item
            yield record, data[position : position + record.total_size]
            position += record.total_size
            continue
        if _is_blank(data, position) or (is_last and _is_unwritten(data, position)):
            return
        behind = _next_record(data, position + 1, base)
        yield Damage(base + position, (behind or size) - position, item, is_last and behind is None)
        if behind is None:
            return
        position = behind


def _record_at(data: memoryview, position: int, base: int) -> RecordHeader | str:
    """Return the record at a position, or why there is none."""
    try:
        record = peek_record(data, position)
    except RemoteProtocolError as e:
        return str(e)
    if record.commit_log_offset != base + position:
        return f"the record says it is at {record.commit_log_offset}"
    if not has_possible_number(record):
        return f"the record says it is number {record.queue_offset} of its queue"
    body = data[record.body_position : record.body_position + record.body_length]
    if body_crc32(body) != record.body_crc:
        return "the body does not agree with its check sum"
    return record


def _next_record(data: memoryview, start: int, base: int) -> int | None:
    """Return where the next whole record begins, None if none does in this file."""
    whole = data.obj
    assert isinstance(whole, mmap.mmap), "files are read through maps"
    found = [
        first for magic in _MAGICS if (first := _first_record(whole, data, magic, start, base)) is not None
    ]
    return min(found, default=None)


def _first_record(whole: mmap.mmap, data: memoryview, magic: bytes, start: int, base: int) -> int | None:
    at = whole.find(magic, start + _MAGIC_POSITION)
    while at >= 0:
        if not isinstance(_record_at(data, at - _MAGIC_POSITION, base), str):
            return at - _MAGIC_POSITION
        at = whole.find(magic, at + 1)
    return None


def _is_blank(data: memoryview, position: int) -> bool:
    left = len(data) - position
    return left < _SMALLEST_BLANK or read_size_and_magic(data, position) == (left, BLANK_MAGIC)


def _is_unwritten(data: memoryview, position: int) -> bool:
    """Whether only zeros follow."""
    return all(
        not bytes(data[start : start + _CHUNK]).strip(b"\0") for start in range(position, len(data), _CHUNK)
    )


def _numbered(directory: Path) -> tuple[Path, ...]:
    return tuple(sorted(path for path in directory.glob("[0-9]*") if _is_number(path)))


def _is_number(path: Path) -> bool:
    return path.name.isdecimal()
