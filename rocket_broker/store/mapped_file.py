"""Files of one size that are read and written through maps, and the order in which maps are given back.

A `MappedFileQueue` is what the commit log and each consume queue are made of::

    directory/00000000000000000000      bytes            0 …   size - 1
    directory/00000000000000006000      bytes         size … 2·size - 1
              └ offset of its first byte, 20 digits

The first files may have been deleted; between the first and the last none is missing.
"""

import errno
from collections import deque
from pathlib import Path

from rocket_broker.store.errors import NO_ROOM, FileSizeMismatch, StoreCorrupt, StoreFull
from rocket_broker.store.files import MAP_PAGE_SIZE, FileSystem

__all__ = ["MappedFile", "MappedFileQueue", "OpenMaps", "is_passed_over"]

_LARGEST_ALLOCATION = 1024 * 1024
_SMALL = 16 * 1024
_TOO_MANY_MAPS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class OpenMaps:
    """The files that are mapped now: of ten thousand queues only those in use.

    When `limit` is reached, the map that was made first and not used since the last look is given up. Views
    of it that are still with a reader stay valid: the map goes when the last of them does.
    """

    def __init__(self, file_system: FileSystem, limit: int = 0) -> None:
        self.file_system = file_system
        self.limit = limit or file_system.most_maps()
        self._mapped: deque[MappedFile] = deque()

    def create(self, path: Path, size: int) -> None:
        """Make a file of zeros, and its directory if that is missing.

        Raises:
            StoreFull: The disk has no room.
            OSError: It could not be made for another reason.
        """
        try:
            self.file_system.make_directory(path.parent)
            self.file_system.create(path, size)
        except OSError as e:
            if e.errno in NO_ROOM:
                raise StoreFull(path) from e
            raise

    def open(self, file: "MappedFile") -> memoryview:
        """Map a file; `file.view` is set."""
        while len(self._mapped) >= self.limit:
            self._give_up_one()
        try:
            view = self.file_system.map(file.path, file.ordered_to)
        except OSError as e:
            if e.errno not in _TOO_MANY_MAPS or not self._mapped:
                raise
            for _ in range(max(1, len(self._mapped) // 2)):
                self._give_up_one()
            view = self.file_system.map(file.path, file.ordered_to)
        file.view = view
        self._mapped.append(file)
        return view

    def close(self, file: "MappedFile") -> None:
        """Give a file's map up."""
        if file.view is not None:
            file.view = None
            self._mapped.remove(file)

    def close_all(self) -> None:
        """Give all maps up: their files are closed, but for those of views that are still with a reader."""
        while self._mapped:
            self._mapped.popleft().view = None

    def __len__(self) -> int:
        return len(self._mapped)

    def _give_up_one(self) -> None:
        while True:
            file = self._mapped.popleft()
            if not file.used:
                file.view = None
                return
            file.used = False
            self._mapped.append(file)


class MappedFile:
    """One file.

    Attributes:
        path: The file.
        base: Offset of its first byte in its queue.
        size: Its size.
        view: Its bytes while it is mapped, else None: `open` maps it.
        used: Set by whoever uses `view`, so that the map stays.
        ordered_to: Bytes before this are read in order; see `FileSystem.map`.
        allocated: Bytes up to here have room on the disk: a write beyond may kill the process (`files`).
    """

    __slots__ = ("allocated", "base", "maps", "ordered_to", "path", "size", "used", "view")

    def __init__(self, path: Path, base: int, size: int, maps: OpenMaps) -> None:
        self.path = path
        self.base = base
        self.size = size
        self.maps = maps
        self.view: memoryview | None = None
        self.used = False
        self.ordered_to = 0
        self.allocated = 0

    def close(self) -> None:
        """Give the map up; views of it stay readable."""
        self.maps.close(self)

    def open(self) -> memoryview:
        """Return the file's bytes; the map is kept while it is in use."""
        self.used = True
        return self.view if self.view is not None else self.maps.open(self)

    def readable(self) -> memoryview:
        """Return the file's bytes to read, also where the file system allows no writes.

        Such a map is the caller's alone: `view` can always be written to.
        """
        try:
            return self.open()
        except OSError as e:
            if e.errno != errno.EROFS:
                raise
            return self.maps.file_system.map_to_read(self.path)

    def read(self, start: int, length: int) -> bytes:
        """Return some of the bytes without mapping them (`FileSystem.read`)."""
        return self.maps.file_system.read(self.path, start, length)

    def data(self) -> memoryview:
        """Return the bytes up to where the file has only zeros, to read: no hole is touched (`FileSystem.read`)."""
        if self.view is None:  # of ten thousand queues with little in each, mapping them is what takes time
            data = self.maps.file_system.read_data(self.path, _SMALL)
            if data is not None:
                return memoryview(data)
        return self.open()[: self.maps.file_system.data_end(self.path)]

    def allocate(self, end: int, ahead: int) -> None:
        """Make sure that writes up to ``end`` succeed, and ``ahead`` of it within reason: this should be rare.

        Raises:
            StoreFull: The disk has no room. Nothing has changed.
        """
        if end <= self.allocated:
            return
        ahead = min(ahead, _LARGEST_ALLOCATION)
        try:
            self.allocated = self.allocate_range(self.allocated, max(end, self.allocated + ahead))
        except StoreFull:  # a nearly full disk may have room for what is needed
            self.allocated = self.allocate_range(self.allocated, end)

    def allocate_range(self, start: int, end: int) -> int:
        """Make sure that writes from ``start`` to ``end`` succeed, wherever that is; return to where they do.

        Raises:
            StoreFull: The disk has no room.
        """
        start -= start % MAP_PAGE_SIZE
        end = min(end - end % -MAP_PAGE_SIZE, self.size)
        try:
            self.maps.file_system.allocate(self.path, start, end - start)
        except OSError as e:
            if e.errno in NO_ROOM:
                raise StoreFull(self.path) from e
            raise
        return end

    def written_to(self, position: int) -> None:
        """Take note that the file's first bytes were written before: they have room, what follows may not."""
        self.allocated = position - position % MAP_PAGE_SIZE

    def clear(self, start: int) -> None:
        """Make the bytes from ``start`` on zeros, on the disk too."""
        self.maps.file_system.clear(self.path, start)
        self.written_to(start)

    def remove(self) -> None:
        """Delete the file for good: no crash brings it back. Views of it stay readable."""
        self.close()
        self.maps.file_system.remove(self.path)
        self.maps.file_system.sync(self.path.parent)

    def __repr__(self) -> str:
        return f"MappedFile({str(self.path)!r}, size={self.size})"


class MappedFileQueue:
    """Files of one size, one after the other.

    Attributes:
        directory: Where they are; made with the first of them.
        file_size: Size of each.
        setting: The setting that gives the size, for errors.
        files: The files, by offset.
    """

    __slots__ = ("directory", "file_size", "files", "maps", "setting")

    def __init__(self, directory: Path, file_size: int, maps: OpenMaps, setting: str) -> None:
        self.directory = directory
        self.file_size = file_size
        self.maps = maps
        self.setting = setting
        self.files: list[MappedFile] = []

    @property
    def first(self) -> int:
        """Offset of the first byte, 0 when there is no file."""
        return self.files[0].base if self.files else 0

    @property
    def end(self) -> int:
        """Offset behind the last byte of the last file, 0 when there is no file."""
        return self.files[-1].base + self.file_size if self.files else 0

    def load(self, doubtful_from: int | None = None) -> int:
        """Find the files; return how many were deleted because they were empty, or behind a missing one.

        Args:
            doubtful_from: All files that begin before this offset were on the disk. Later ones may have
                vanished in a crash, and those behind them are worth nothing. None: that may be any of them.

        Raises:
            StoreCorrupt: A name is not an offset, or a file is missing that was on the disk.
            FileSizeMismatch: A file has not the size the settings say.
        """
        self.files = []
        deleted = 0
        for name in self.maps.file_system.names(self.directory):
            if not is_passed_over(name):
                deleted += not self._load_file(name, doubtful_from)
        return deleted

    def _load_file(self, name: str, doubtful_from: int | None) -> bool:
        """Take a file for one of these, or delete it and return False."""
        path = self.directory / name
        if not (name.isdecimal() and len(name) == 20 and int(name) % self.file_size == 0):
            raise StoreCorrupt(path, 0, f"no file of this store: names are multiples of {self.file_size}")
        base = int(name)
        expected = self.end if self.files else base if doubtful_from is None else min(base, doubtful_from)
        if base != expected and doubtful_from is not None and expected < doubtful_from:
            raise StoreCorrupt(self.directory / f"{expected:020d}", 0, "this file is missing")
        file = MappedFile(path, base, self.file_size, self.maps)
        size = self.maps.file_system.size(path) or 0
        if size == 0 or base != expected:
            file.remove()
            return False
        if size != self.file_size:
            raise FileSizeMismatch(path, size, self.file_size, self.setting)
        self.files.append(file)
        return True

    def file_at(self, offset: int) -> MappedFile | None:
        """Return the file that holds an offset."""
        files = self.files
        if not files:
            return None
        index = (offset - files[0].base) // self.file_size
        return files[index] if 0 <= index < len(files) else None

    def add(self, base: int) -> MappedFile:
        """Make the file that begins at ``base``.

        Raises:
            StoreFull: The disk has no room.
            OSError: It could not be made for another reason.
        """
        path = self.directory / f"{base:020d}"
        self.maps.create(path, self.file_size)
        file = MappedFile(path, base, self.file_size, self.maps)
        self.files.append(file)
        return file

    def cut(self, end: int) -> int:
        """Clear what lies behind ``end`` and delete the files that begin there; return how many."""
        removed = 0
        while self.files and self.files[-1].base >= end:
            self.files.pop().remove()
            removed += 1
        if self.files and end < self.end:
            self.files[-1].clear(end - self.files[-1].base)
        return removed

    def take_first(self) -> MappedFile:
        """Take the oldest file out, to be removed by any thread, and return it."""
        file = self.files.pop(0)
        file.close()
        return file

    def remove_first(self) -> None:
        """Remove the oldest file; it is still one of these if that fails."""
        self.files[0].remove()
        del self.files[0]

    def between(self, start: int, end: int) -> list[Path]:
        """Return the files that hold some of the bytes from ``start`` to ``end``."""
        return [file.path for file in self.files if file.base < end and file.base + self.file_size > start]

    def __repr__(self) -> str:
        return f"MappedFileQueue({str(self.directory)!r}, {len(self.files)} files of {self.file_size})"


def is_passed_over(name: str) -> bool:
    """Whether a name is nobody's mistake: a hidden one, or that of a directory which disks of their own have."""
    return name.startswith(".") or name == "lost+found"
