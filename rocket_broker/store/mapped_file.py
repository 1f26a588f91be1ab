"""Files of one size that are read and written through maps, and the order in which maps are closed.

The commit log and each consume queue are a `MappedFileQueue`::

    directory/00000000000000000000      bytes            0 …   size - 1
    directory/00000000000000006000      bytes         size … 2·size - 1
              └ offset of its first byte, 20 digits

The first files may have been deleted; between the first and the last none is missing.
"""

import errno
from collections import deque
from pathlib import Path

from rocket_broker.errors import NO_ROOM
from rocket_broker.store.errors import FileSizeMismatch, StoreCorrupt, StoreFull
from rocket_broker.store.files import MAP_PAGE_SIZE, FileSystem
from rocket_broker.store.state import FileState

__all__ = ["MappedFile", "MappedFileQueue", "OpenMaps", "is_passed_over"]

_LARGEST_ALLOCATION = 1024 * 1024
_SMALL = 16 * 1024
_LONG = 2**63
_TOO_MANY_MAPS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class OpenMaps:
    """The files that are mapped now: of ten thousand queues only those in use.

    When `limit` is reached, the oldest map that was not used since the last check is closed. Views of it stay valid:
    the file is unmapped when the last view is released.
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
            # The process has reached a limit of the system that `limit` does not know, since others use
            # descriptors and maps too. Half of the maps are closed, so that this does not happen again at
            # once.
            for _ in range(max(1, len(self._mapped) // 2)):
                self._give_up_one()
            view = self.file_system.map(file.path, file.ordered_to)
        file.view = view
        self._mapped.append(file)
        return view

    def close(self, file: "MappedFile") -> None:
        """Close a file's map."""
        if file.view is not None:
            file.view = None
            self._mapped.remove(file)

    def close_all(self) -> None:
        """Close all maps; files with views that are still in use are closed with the last view."""
        while self._mapped:
            self._mapped.popleft().view = None

    def __len__(self) -> int:
        return len(self._mapped)

    def _give_up_one(self) -> None:
        # This ends in the second round at the latest: the first one clears `used` of every file.
        while True:
            file = self._mapped.popleft()
            if not file.used:
                file.view = None
                return
            file.used = False
            self._mapped.append(file)


class MappedFile(FileState):
    """One file.

    Attributes:
        path: The file.
        base: Offset of its first byte in its queue.
        size: Its size.
        view: Its bytes while it is mapped, else None: `open` maps it.
        used: Set by each user of `view`, so that the map stays.
        ordered_to: Bytes before this are read in order; see `FileSystem.map`.
        allocated: Bytes up to here have space on the disk. A write beyond may kill the process (`files`).
    """

    __slots__ = ("maps", "ordered_to", "path")

    def __init__(self, path: Path, base: int, size: int, maps: OpenMaps) -> None:
        self.path = path
        self.base = base
        self.size = size
        self.maps = maps
        self.view = None
        self.used = False
        self.ordered_to = 0
        self.allocated = 0

    def close(self) -> None:
        """Close the map; views of it stay readable."""
        self.maps.close(self)

    def open(self) -> memoryview:
        """Return the file's bytes; the map is kept while it is in use."""
        self.used = True
        return self.view if self.view is not None else self.maps.open(self)

    def readable(self) -> memoryview:
        """Return the file's bytes for reading, also on a read-only file system.

        The map belongs to the caller alone: `view` can always be written to.
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
        """Return the bytes up to the last that is not zero, for reading; no hole is touched (`FileSystem.read`)."""
        if self.view is None:  # for ten thousand queues with few messages each, mapping takes most of the time
            data = self.maps.file_system.read_data(self.path, _SMALL)
            if data is not None:
                return memoryview(data)
        return self.open()[: self.maps.file_system.data_end(self.path)]

    def allocate(self, end: int, ahead: int) -> None:
        """Make sure that writes up to ``end`` succeed, and if possible ``ahead`` of it, so that this is called rarely.

        Raises:
            StoreFull: The disk has no room. Nothing has changed.
        """
        if end <= self.allocated:
            return
        ahead = min(ahead, _LARGEST_ALLOCATION)
        try:
            self.allocated = self.allocate_range(self.allocated, max(end, self.allocated + ahead))
        except StoreFull:  # a nearly full disk may have space for the needed bytes
            self.allocated = self.allocate_range(self.allocated, end)

    def allocate_range(self, start: int, end: int) -> int:
        """Make sure that writes from ``start`` to ``end`` succeed, anywhere in the file; return up to where they do.

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
        """Record that the file's first bytes were written before: they have space, the following bytes may not."""
        self.allocated = position - position % MAP_PAGE_SIZE

    def clear(self, start: int) -> None:
        """Clear the bytes from ``start`` on, on the disk too."""
        self.maps.file_system.clear(self.path, start)
        self.written_to(start)

    def remove(self) -> None:
        """Delete the file durably: it does not return after a crash. Views of it stay readable."""
        self.close()
        self.maps.file_system.remove(self.path)
        self.maps.file_system.sync(self.path.parent)

    def __repr__(self) -> str:
        return f"MappedFile({str(self.path)!r}, size={self.size})"


class MappedFileQueue:
    """Files of one size, one after the other.

    Attributes:
        directory: Their directory, which is made with the first file.
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
        """The offset of the first byte, 0 if there is no file."""
        return self.files[0].base if self.files else 0

    @property
    def end(self) -> int:
        """The offset behind the last byte of the last file, 0 if there is no file."""
        return self.files[-1].base + self.file_size if self.files else 0

    def load(self, doubtful_from: int | None = None) -> int:
        """Find the files; return how many were deleted because they were empty, or behind a missing file.

        Args:
            doubtful_from: All files that begin before this offset were on the disk. Later ones may have
                vanished in a crash, and files behind a missing one are deleted. None: any file may be missing.

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
        """Add a file, or delete it and return False."""
        path = self.directory / name
        if not (name.isdecimal() and len(name) == 20 and int(name) % self.file_size == 0 and int(name) < _LONG):
            raise StoreCorrupt(path, 0, f"not a file of this store: names are multiples of {self.file_size}")
        base = int(name)
        # Retention deletes the oldest files first. So the first file may begin anywhere up to
        # `doubtful_from`, and each later file must begin where the one before it ends.
        expected = self.end if self.files else base if doubtful_from is None else min(base, doubtful_from)
        if base != expected and doubtful_from is not None and expected < doubtful_from:
            raise StoreCorrupt(self.directory / f"{expected:020d}", 0, "this file is missing")
        file = MappedFile(path, base, self.file_size, self.maps)
        size = self.maps.file_system.size(path) or 0
        # A kill between making a file and giving it its size leaves an empty file.
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
        # From the last file backwards: a kill in between leaves no gap between files.
        while self.files and self.files[-1].base >= end:
            self.files.pop().remove()
            removed += 1
        if self.files and end < self.end:
            self.files[-1].clear(end - self.files[-1].base)
        return removed

    def take_first(self) -> MappedFile:
        """Take out and return the oldest file, which any thread may then remove."""
        file = self.files.pop(0)
        file.close()
        return file

    def remove_first(self) -> None:
        """Remove the oldest file; if that fails, it stays in the queue."""
        self.files[0].remove()
        del self.files[0]

    def between(self, start: int, end: int) -> list[Path]:
        """Return the files that hold some of the bytes from ``start`` to ``end``."""
        return [file.path for file in self.files if file.base < end and file.base + self.file_size > start]

    def __repr__(self) -> str:
        return f"MappedFileQueue({str(self.directory)!r}, {len(self.files)} files of {self.file_size})"


def is_passed_over(name: str) -> bool:
    """Return whether a name is to be ignored: a hidden file, or the directory `lost+found` of a file system's root."""
    return name.startswith(".") or name == "lost+found"
