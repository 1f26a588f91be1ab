"""The index of messages by key. `index_file` draws its files.

A message is indexed under ``topic#key`` for its unique key and each of its keys; the hash is Java's, made
non-negative. Two keys can have one hash, so callers must compare the keys of the messages found.
"""

from collections.abc import Generator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rocket_broker.settings.store_settings import StoreSettings
from rocket_broker.store.errors import FileSizeMismatch
from rocket_broker.store.index_file import EntryCheck, IndexFile, IndexSearch, StoreTime
from rocket_broker.store.mapped_file import MappedFile, OpenMaps
from rocket_broker.store.state import IndexState
from rocket_remoting.wire.java_hash import java_hash
from rocket_remoting.wire.properties import PROPERTY_KEYS, PROPERTY_UNIQUE_KEY

if TYPE_CHECKING:
    from rocket_native import IndexHeader, IndexPlace, LogBlock, Run

__all__ = ["NO_FILE", "Index"]

_SIZE_SETTINGS = "maxHashSlotNum or maxIndexNum"
NO_FILE = IndexState()
"""What stands for the last file while there is none: it has no room."""


class Index:
    """All files of the index; entries are added to the last.

    Attributes:
        files: The files, oldest first.
        dirty: Files with changes that are not on the disk yet.
        held: Entries that are made when their messages are committed (`committing`).
    """

    def __init__(self, settings: StoreSettings, maps: OpenMaps) -> None:
        self._settings = settings
        self._maps = maps
        self.files: list[IndexFile] = []
        self.dirty: set[IndexFile] = set()
        self.held = 0

    def load(self) -> None:
        """Find the files.

        Raises:
            FileSizeMismatch: A file was made with other settings.
        """
        self.files = []
        file_system = self._maps.file_system
        for name in file_system.names(self._settings.index_path):
            index_file = self._file(name)
            size = file_system.size(index_file.file.path)
            if size == 0:
                index_file.file.remove()
                continue
            if size != index_file.file.size:
                raise FileSizeMismatch(index_file.file.path, size or 0, index_file.file.size, _SIZE_SETTINGS)
            index_file.load()
            self.files.append(index_file)

    @property
    def end_offset(self) -> int:
        """The commit log offset of the last indexed message, -1 if there is none."""
        file = self.files[-1] if self.files else None
        return -1 if file is None or (file.count == 1 and file.end_offset == 0) else file.end_offset

    @property
    def end_timestamp(self) -> int:
        """The store timestamp of the last indexed message."""
        return self.files[-1].end_timestamp if self.files else 0

    def hashes(self, topic: str, unique_key: str, keys: str) -> list[int]:
        """Return the hashes of a message's keys, of at most as many keys as a file has entries."""
        hashes = [_key_hash(topic, key) for key in keys.split(" ") if key] if keys else []
        if unique_key:
            hashes.insert(0, _key_hash(topic, unique_key))
        # The entries of a message are all in one file. `max_index_num` counts entry 0, which is never used.
        del hashes[self._settings.max_index_num - 1 :]
        return hashes

    def hashes_of(self, topic: str, properties: Mapping[str, str]) -> list[int]:
        """Return the hashes of a message with these properties."""
        return self.hashes(topic, properties.get(PROPERTY_UNIQUE_KEY, ""), properties.get(PROPERTY_KEYS, ""))

    def has_room(self, hashes: list[int]) -> bool:
        """Return whether the last file has entries left for hashes, behind those that are held."""
        return not self.files or self.files[-1].has_room(self.held + len(hashes))

    @property
    def room(self) -> int:
        """The number of entries for which the last file has room; 0 if there is no file."""
        return self.files[-1].room if self.files else 0

    def prepare(self, hashes: list[int], now_ms: int, held: int = 0) -> None:
        """Make room for the entries of a message, behind those that are held, so that `put` cannot fail.

        Raises:
            StoreFull: The disk has no room. Nothing has changed, as with OSError.
            OSError: The next file could not be made.
        """
        if hashes:
            if not self.files or not self.files[-1].has_room(held + len(hashes)):
                self._add_file(now_ms)
            self.files[-1].prepare(hashes, held)

    def put(self, hashes: list[int], offset: int, timestamp: int) -> None:
        """Index a message under the hashes of its keys, right after `prepare`."""
        if hashes:
            file = self.files[-1]
            file.put(hashes, offset, timestamp)
            self.dirty.add(file)

    def room_for(self, run: "Run | LogBlock", now_ms: int) -> "IndexPlace | None":
        """Return the last file and what the native core needs to add entries; None if the file is full.

        Raises:
            StoreFull: The disk has no room. Nothing has changed, as with OSError.
            OSError: The first file could not be made.
        """
        if not self.files:
            self._add_file(now_ms)
        return self.files[-1].room_for(run)

    def appended(self, header: "IndexHeader") -> None:
        """Take over the header of the last file, to whose place the native core has added entries."""
        file = self.files[-1]
        (
            file.begin_timestamp,
            file.end_timestamp,
            file.begin_offset,
            file.end_offset,
            file.slots_used,
            file.count,
        ) = header
        self.dirty.add(file)

    def find(  # noqa: PLR0917 - as `MessageStore.find`
        self, topic: str, key: str, limit: int, begin: int, end: int, search: IndexSearch
    ) -> Generator[None, None, None]:
        """Find messages with a key stored between two times, newest first, in steps."""
        key_hash = _key_hash(topic, key)
        for file in reversed(list(self.files)):
            if file not in self.files:  # deleted meanwhile, with all older ones
                break
            if file.overlaps(begin, end):
                yield from file.find(key_hash, limit, begin, end, search)
            if file.begin_timestamp < begin or len(search.found) >= limit or not search.is_complete:
                break
            yield

    def cut(self, trusted_to: int, is_right: EntryCheck, stored_at: StoreTime, *, after_crash: bool = False) -> None:
        """Remove the entries of messages at or behind an offset of the log.

        After a crash the header of the last file may be older than its slots, so the slots are checked in any case.
        """
        while self.files and self.files[-1].begins_behind(trusted_to):
            file = self.files.pop()
            self.dirty.discard(file)
            file.file.remove()
        if self.files and (after_crash or self.files[-1].end_offset >= trusted_to):
            self.files[-1].cut(trusted_to, is_right, stored_at)
            self.dirty.add(self.files[-1])

    def remove_newer(self, timestamp: int) -> None:
        """Delete the files with messages stored after a time."""
        for file in [file for file in self.files if file.end_timestamp > timestamp]:
            self.files.remove(file)
            file.file.remove()

    def take_before(self, offset: int) -> list[MappedFile]:
        """Take out the files whose messages are all before an offset of the log, but never the last file."""
        taken = []
        while len(self.files) > 1 and self.files[0].end_offset < offset:
            file = self.files.pop(0)
            self.dirty.discard(file)
            file.file.close()
            taken.append(file.file)
        return taken

    def _add_file(self, now_ms: int) -> None:
        name = _file_name(now_ms)
        last = self.files[-1].file.path.name if self.files else ""
        if last.isdecimal() and name <= last:  # the clock was set back, or this is the same millisecond
            name = f"{int(last) + 1:017d}"
        index_file = self._file(name)
        self._maps.create(index_file.file.path, index_file.file.size)
        if self.files:  # as in Apache's broker: until the file has entries it begins where the last one ends
            index_file.begin_offset = index_file.end_offset = self.files[-1].end_offset
            index_file.begin_timestamp = index_file.end_timestamp = self.files[-1].end_timestamp
        self.files.append(index_file)

    def _file(self, name: str) -> IndexFile:
        settings = self._settings
        return IndexFile(settings.index_path / name, settings.max_hash_slot_num, settings.max_index_num, self._maps)

    def __repr__(self) -> str:
        return f"Index({len(self.files)} files)"


def _key_hash(topic: str, key: str) -> int:
    # Java's Math.abs(Integer.MIN_VALUE) is negative; IndexFile.indexKeyHashMethod (5.3.3) uses 0 instead.
    value = abs(java_hash(f"{topic}#{key}"))
    return value if value < 0x8000_0000 else 0


def _file_name(now_ms: int) -> str:
    moment = datetime.fromtimestamp(now_ms // 1000, tz=UTC).astimezone()
    return f"{moment:%Y%m%d%H%M%S}{now_ms % 1000:03d}"
