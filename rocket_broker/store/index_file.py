"""A file of the index: a chained hash table.

::

    index/20240229135959123          named by the local time it was made

    pos  size  header
      0     8  store timestamp of the first message       40 bytes, then 4 for each slot,
      8     8  store timestamp of the last                then 20 for each entry
     16     8  commit log offset of the first
     24     8  commit log offset of the last
     32     4  slots in use
     36     4  number of the next entry; the first is 1, entry 0 is never used

    slot     | number of its newest entry 4 |             0: none
    entry    | hash 4 | commit log offset 8 | seconds since the header's first timestamp 4 | older entry 4 |

A key's slot is the remainder of its hash by the number of slots. All numbers are big-endian.
"""

import struct
import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rocket_broker.store.files import SECTOR_SIZE
from rocket_broker.store.mapped_file import MappedFile, OpenMaps
from rocket_broker.store.state import IndexState

if TYPE_CHECKING:
    from rocket_native import IndexPlace, LogBlock, Run

__all__ = ["EntryCheck", "IndexFile", "IndexSearch", "StoreTime", "file_size"]

EntryCheck = Callable[[int, int], bool]
"""Given an entry's hash and commit log offset, returns whether there is a message with such a key."""

StoreTime = Callable[[int], int | None]
"""Given a commit log offset, returns the store timestamp of the message there; None if there is no message."""

_HEADER = struct.Struct(">qqqqii")
_SLOT = struct.Struct(">i")
_ENTRY = struct.Struct(">iqii")
_CHUNK_BITS = 16
_MOST_SECONDS = 2**31 - 1
_EARLIEST, _LATEST = -(2**63), 2**63 - 1
# Two megabytes of entries: a file has 20 million entries with Apache's default settings.
_ENTRIES_IN_ONE_GO = 100_000
_ENTRIES_A_STEP = 1_000


Steps = Generator[None, None, None]


class IndexSearch:
    """A search for a key.

    Attributes:
        found: Commit log offsets of messages that may have the key.
        left: The number of entries that may still be read. They include entries of other keys in the same slot, and,
            in a search for older messages, all newer ones with the key.
    """

    __slots__ = ("found", "left")

    def __init__(self, most_entries: int) -> None:
        self.found: list[int] = []
        self.left = most_entries

    @property
    def is_complete(self) -> bool:
        """Whether all entries of the key were read, or as many messages found as were wanted."""
        return self.left > 0


def file_size(slots: int, entries: int) -> int:
    """Return the size in bytes of a file with these numbers of slots and entries."""
    return _HEADER.size + slots * _SLOT.size + entries * _ENTRY.size


class IndexFile(IndexState):
    """One file of the index.

    Attributes:
        file: The file.
        begin_timestamp: Store timestamp of its first message.
        end_timestamp: Store timestamp of its last message.
        begin_offset: Commit log offset of its first message.
        end_offset: Commit log offset of its last message.
        slots_used: Slots that have entries.
        count: Number of the next entry.
        slots: The number of all slots.
        chunks_allocated: A byte for each part of ``1 << chunk_bits`` bytes up to the last slot; 0 if it has no space.
        chunk_bits: The size of a part.
    """

    file: MappedFile
    chunks_allocated: bytearray

    def __init__(self, path: Path, slots: int, entries: int, maps: OpenMaps) -> None:
        self.slots = slots
        self._capacity = entries
        self._entries_start = _HEADER.size + slots * _SLOT.size
        self.file = MappedFile(path, 0, file_size(slots, entries), maps)
        self.file.allocated = self._entries_start
        # Slots are written anywhere in their part of the file, so room for them is made chunk by chunk.
        self.chunk_bits = _CHUNK_BITS
        self.chunks_allocated = bytearray((self._entries_start >> _CHUNK_BITS) + 1)
        self.begin_timestamp = self.end_timestamp = 0
        self.begin_offset = self.end_offset = 0
        self.slots_used = 0
        self.count = 1
        self._prepared: memoryview | None = None  # stays mapped until `put`, whatever other maps are needed

    def load(self) -> None:
        """Read the header."""
        header = _HEADER.unpack(self.file.read(0, _HEADER.size))
        self.begin_timestamp, self.end_timestamp, self.begin_offset, self.end_offset = header[:4]
        # A damaged header may have any number. Apache's IndexHeader (5.3.3) counts on from it and wraps around; here it
        # must not outgrow its field.
        self.slots_used = min(max(header[4], 0), self.slots)
        # A file that has no entry yet has a header of zeros.
        self.count = min(max(header[5], 1), self._capacity)
        self.file.written_to(self._position(self.count))

    def begins_behind(self, offset: int) -> bool:
        """Return whether it was begun at or behind an offset of the log, or so late that its header says nothing
        yet."""
        return self.count == 1 or self.begin_offset >= offset

    def has_room(self, number: int) -> bool:
        """Return whether `number` entries can be added."""
        return self.count + number <= self._capacity

    @property
    def room(self) -> int:
        """The number of entries for which the file has room."""
        return self._capacity - self.count

    def prepare(self, hashes: list[int], held: int = 0) -> None:
        """Make room for entries, behind `held` held ones, so that `put` cannot fail.

        Raises:
            StoreFull: The disk has no room.
        """
        chunks = [self._slot_position(key_hash) >> _CHUNK_BITS for key_hash in hashes]
        self._make_room(chunks, held + len(hashes))

    def room_for(self, run: "Run | LogBlock") -> "IndexPlace | None":
        """Return the file's bytes, and what the native core needs to add entries; None if the file is full.

        Raises:
            StoreFull: The disk has no room. Nothing has changed.
        """
        file, count, marks = self.file, run.key_count, self.chunks_allocated
        if self.count + count > self._capacity:
            return None
        chunks = run.parts_without_space(self.slots, marks, _CHUNK_BITS)
        end = self._entries_start + (self.count + count) * _ENTRY.size
        view = file.view
        if view is None or chunks or not marks[0] or end > file.allocated:  # the header is in the first chunk
            view, self._prepared = self._make_room(chunks, count), None
        file.used = True
        return view, self.slots, self.begin_timestamp, self.begin_offset, self.slots_used, self.count

    def _make_room(self, chunks: Iterable[int], entries: int) -> memoryview:
        # `put` also writes the header, which is in the first chunk.
        self._prepare_chunk(0)
        for chunk in chunks:
            self._prepare_chunk(chunk)
        end = self._position(self.count + entries)
        if end > self.file.allocated:
            self.file.allocate(end, end - self._entries_start)
        self._prepared = self.file.open()
        return self._prepared

    def put(self, hashes: list[int], offset: int, timestamp: int) -> None:
        """Add an entry for each hash, right after `prepare`."""
        view, self._prepared = self._prepared, None
        if view is None:
            raise AssertionError("prepare() comes first")
        for key_hash in hashes:
            self._put(view, key_hash, offset, timestamp)
        self._write_header(view)

    def _seconds(self, timestamp: int) -> int:
        """Return a time as entries store it: seconds since the header's first timestamp."""
        return min(max((timestamp - self.begin_timestamp) // 1000, 0), _MOST_SECONDS)

    def _put(self, view: memoryview, key_hash: int, offset: int, timestamp: int) -> None:
        """Add an entry; a reader sees it when it is complete."""
        number = self.count
        if number == 1:
            self.begin_timestamp, self.begin_offset = timestamp, offset
        slot_position = self._slot_position(key_hash)
        older: int = _SLOT.unpack_from(view, slot_position)[0]
        # A kill between slot and header leaves a slot with this number or a later one. Apache's IndexFile.putKey
        # (5.3.3) lets an entry with the slot's number point to itself, and its search stops there.
        if not 0 < older < number:
            older = 0
            self.slots_used += 1
        # The entry is written before the slot that leads to it, as by IndexFile.putKey (5.3.3).
        _ENTRY.pack_into(view, self._position(number), key_hash, offset, self._seconds(timestamp), older)
        _SLOT.pack_into(view, slot_position, number)
        self.count = number + 1
        self.end_timestamp, self.end_offset = timestamp, offset

    def _write_header(self, view: memoryview) -> None:
        _HEADER.pack_into(
            view,
            0,
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_offset,
            self.end_offset,
            self.slots_used,
            self.count,
        )

    def overlaps(self, begin: int, end: int) -> bool:
        """Return whether messages stored between two times may be in this file."""
        return begin <= self.end_timestamp and end >= self.begin_timestamp

    def find(self, key_hash: int, limit: int, begin: int, end: int, search: "IndexSearch") -> Steps:
        """Find commit log offsets under a hash, newest first, of messages stored between two times.

        Yields about twice a millisecond; the search counts the entries that are read.
        """
        view = self.file.readable()
        found = search.found
        number = self._newest(view, key_hash)
        last = self.count
        while 0 < number < last and len(found) < limit:
            entry_hash, offset, seconds, older = _ENTRY.unpack_from(view, self._position(number))
            timestamp = self.begin_timestamp + seconds * 1000  # rounded down
            if timestamp + 999 < begin:
                break
            if entry_hash == key_hash and timestamp <= end:
                found.append(offset)
            last, number = number, older  # a chain points to older entries only, so it cannot be a circle
            search.left -= 1
            if not search.left % _ENTRIES_A_STEP:
                if search.left <= 0:
                    break
                yield

    def cut(self, trusted_to: int, is_right: EntryCheck, stored_at: StoreTime) -> None:
        """Remove the entries of messages at or behind an offset of the log, after a crash.

        Any recently written sector may be missing, so slots that point to removed entries are set to the newest entry
        that is left in them. An entry that crosses a sector border may be there in part. Afterwards there are only
        zeros behind the last entry.
        """
        view = self.file.open()
        numbers = range(1, self.count)
        keep = 1 + bisect_left(numbers, True, key=lambda number: not self._is_trusted(view, number, trusted_to))
        if self._is_in_two_sectors(keep - 1) and not is_right(*_ENTRY.unpack_from(view, self._position(keep - 1))[:2]):
            keep -= 1
        slots = _ints(self.file.read(_HEADER.size, self._entries_start - _HEADER.size))
        lost = {slot for slot, number in enumerate(slots) if number >= keep} if max(slots) >= keep else set()
        newest = self._newest_of(lost, view, keep)
        for slot, number in newest.items():
            _SLOT.pack_into(view, _HEADER.size + slot * _SLOT.size, number)
        self.slots_used = len(slots) - slots.count(0) - sum(number == 0 for number in newest.values())
        self._end_with(view, keep, stored_at)

    def _is_in_two_sectors(self, number: int) -> bool:
        return number > 0 and self._position(number) % SECTOR_SIZE > SECTOR_SIZE - _ENTRY.size

    def _newest_of(self, slots: set[int], view: memoryview, end: int) -> dict[int, int]:
        """Return the number of the newest entry before ``end`` of each of the slots, 0 where there is none."""
        newest = dict.fromkeys(slots, 0)
        modulus = self.slots
        for start in range(1, end if slots else 1, _ENTRIES_IN_ONE_GO):
            stop = min(end, start + _ENTRIES_IN_ONE_GO)
            hashes = _ints(view[self._position(start) : self._position(stop)])[:: _ENTRY.size // 4]
            for number, key_hash in enumerate(hashes, start):
                if key_hash % modulus in newest:
                    newest[key_hash % modulus] = number
        return newest

    def _end_with(self, view: memoryview, count: int, stored_at: StoreTime) -> None:
        self.count = count
        if count == 1:
            self.end_timestamp, self.end_offset = self.begin_timestamp, self.begin_offset
        else:
            _, offset, seconds, _ = _ENTRY.unpack_from(view, self._position(count - 1))
            if offset != self.end_offset:  # otherwise the header is right, and an entry has the time in seconds only
                timestamp = stored_at(offset)
                latest = self.begin_timestamp + seconds * 1000 + 999
                latest = max(_EARLIEST, min(latest, _LATEST))  # a damaged file has any numbers
                self.end_timestamp, self.end_offset = latest if timestamp is None else timestamp, offset
        self._write_header(view)
        # When other messages get the offsets of lost ones, the entries of the lost ones would look right.
        self.file.clear(self._position(count))

    def _is_trusted(self, view: memoryview, number: int, trusted_to: int) -> bool:
        entry = _ENTRY.unpack_from(view, self._position(number))
        return any(entry) and self.begin_offset <= entry[1] < trusted_to

    def _newest(self, view: memoryview, key_hash: int) -> int:
        """Return the number of the newest entry in a hash's slot, without touching a hole of the map."""
        position = self._slot_position(key_hash)
        if not self.chunks_allocated[position >> _CHUNK_BITS]:
            view, position = memoryview(self.file.read(position, _SLOT.size)), 0
        (number,) = _SLOT.unpack_from(view, position)
        return int(number)

    def _prepare_chunk(self, chunk: int) -> None:
        if not self.chunks_allocated[chunk]:
            start = chunk << _CHUNK_BITS
            self.file.allocate_range(start, min(start + (1 << _CHUNK_BITS), self.file.size))
            self.chunks_allocated[chunk] = 1

    def _slot_position(self, key_hash: int) -> int:
        return _HEADER.size + key_hash % self.slots * _SLOT.size

    def _position(self, number: int) -> int:
        return self._entries_start + number * _ENTRY.size

    def __repr__(self) -> str:
        return f"IndexFile({self.file.path.name}, {self.count - 1} entries)"


def _ints(data: "bytes | memoryview") -> "array[int]":
    """Return big-endian numbers of four bytes."""
    numbers = array("i", bytes(data))
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers
