"""The files of a store that no broker has open, and which of them are missing or have a wrong size."""

import mmap
import os
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from rocket_broker.settings.store_settings import StoreSettings
from rocket_broker.store.errors import StoreError
from rocket_broker.store.mapped_file import is_passed_over

__all__ = ["StoreLayout", "map_file", "numbered", "size_of"]

_NAME_LENGTH = 20


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """The files of a store, and their expected sizes.

    Attributes:
        root: The store's directory.
        log: The commit log's files, in order.
        log_file_size: Size that each of them should have, in bytes; 0 if there is none.
        queue_file_size: Size that each consume queue file should have, in bytes; 0 if there is none.
        index: The index files, in order.
        log_directory: The directory of the log's files.
    """

    root: Path
    log: tuple[Path, ...]
    log_file_size: int
    queue_file_size: int
    index: tuple[Path, ...]
    log_directory: Path

    @classmethod
    def of(cls, root: Path, commit_log: Path | None = None) -> "StoreLayout":
        """Find the files in a directory. Expected sizes are those of the largest files, or follow from the files'
        names.

        Raises:
            StoreError: There is no store.
        """
        directory = commit_log or root / "commitlog"
        if not directory.is_dir():
            raise StoreError(f"{root} holds no store: there is no directory {directory.name} in it")
        log = numbered(directory)
        queues = [numbered(queue) for queue in _queue_directories(root)]
        return cls(
            root,
            log,
            max(map(size_of, log), default=0),
            _size_by_names(queues) or max((size_of(file) for files in queues for file in files), default=0),
            tuple(sorted((root / "index").glob("[0-9]*"))),
            directory,
        )

    def short_files(self) -> list[Path]:
        """Return the files of the log that are shorter than they should be.

        The last file may be empty, if a broker was killed just after it had made the file.
        """
        sizes = {file: file.stat().st_size for file in self.log}
        short = [file for file, size in sizes.items() if size < self.log_file_size]
        return short[:-1] if short and short[-1] == self.log[-1] and not sizes[short[-1]] else short

    def missing_files(self) -> list[Path]:
        """Return the files that are missing between others of the log."""
        if not self.log or not self.log_file_size:
            return []
        there = {int(file.name) for file in self.log}
        bases = range(min(there), max(there), self.log_file_size)
        return [self.log[0].with_name(f"{base:020d}") for base in bases if base not in there]

    def odd_queue_files(self) -> list[Path]:
        """Return the files of consume queues that have a wrong size, with which no broker starts."""
        return [
            file
            for queue in _queue_directories(self.root)
            for file in numbered(queue)
            if (size := size_of(file)) and (size != self.queue_file_size or int(file.name) % size)
        ]

    def tells_queue_file_size(self) -> bool:
        """Return whether the size of the queues' files is certain: names of files confirm it, or it is the usual one.

        Otherwise all files may have been cut to one size.
        """
        queues = [numbered(queue) for queue in _queue_directories(self.root)]
        usual = StoreSettings(self.root).mapped_file_size_consume_queue
        return self.queue_file_size in {0, usual, _size_by_names(queues)}

    def strange_files(self) -> list[Path]:
        """Return the files in the directories of the log and of the queues that no broker has made."""
        return sorted(
            path
            for directory in (self.log_directory, *_queue_directories(self.root))
            if directory.is_dir()
            for path in directory.iterdir()
            if not is_passed_over(path.name) and not (path.name.isdecimal() and len(path.name) == _NAME_LENGTH)
        )


def numbered(directory: Path) -> tuple[Path, ...]:
    """Return the files of a directory whose names are numbers, in order."""
    return tuple(sorted(path for path in directory.glob("[0-9]*") if path.name.isdecimal()))


def size_of(path: Path) -> int:
    """Return a file's size in bytes; 0 if it has been deleted meanwhile."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def map_file(path: Path) -> memoryview:
    """Map a file to read it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if not os.fstat(descriptor).st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
    finally:
        os.close(descriptor)


def _queue_directories(root: Path) -> list[Path]:
    return sorted(path for path in (root / "consumequeue").glob("*/*") if path.name.isdecimal())


def _size_by_names(queues: Iterable[tuple[Path, ...]]) -> int:
    """Return the size that the names of consecutive files imply; 0 if no files are consecutive."""
    steps = [int(later.name) - int(file.name) for files in queues for file, later in pairwise(files)]
    return min(steps, default=0)
