"""A file system in memory that keeps only synced data in a crash, and any part of the rest."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from rocket_broker.store.errors import StoreLocked
from rocket_broker.store.files import APACHES_SIGNATURE, PAGE_SIZE, SECTOR_SIZE, SIGNATURE

_BLANK_PAGE = bytes(PAGE_SIZE)


class Choices(Protocol):
    """Decides what a crash destroys: `random.Random`, or a test that tries every case."""

    def choice(self, candidates: "Sequence[_File | bytes | None]", /) -> "_File | bytes | None":
        """Return one of the candidates."""


class FaultyFileSystem:
    """Files in memory.

    Attributes:
        free_pages: Pages that can still be allocated; None: no limit.
        sync_error: Raised by the next syncs.
        create_error: Raised when the next files are made.
        is_read_only: Whether the system took every write from now on away, after an error of the disk.
        is_unsignable: Whether there is no space for the signature of a lock file.
        unremovable: Files that cannot be removed.
        syncs: Paths synced so far, in order.
        modified: When a file was last written, as a test says; 0 otherwise.
        map_limit: What `most_maps` answers.
        used: What `used_percent` answers.
    """

    def __init__(self) -> None:
        self.free_pages: int | None = None
        self.sync_error: OSError | None = None
        self.create_error: OSError | None = None
        self.is_read_only = self.is_unsignable = False
        self.unremovable: set[Path] = set()
        self.syncs: list[Path] = []
        self.modified: dict[Path, int] = {}
        self.map_limit = 1000
        self.used = 0.0
        self._files: dict[Path, _File] = {}
        self._removed: dict[Path, _File] = {}
        self._directories: set[Path] = set()
        self._locked: set[Path] = set()

    def crash(self, choices: Choices) -> "FaultyFileSystem":
        """Return the file system after a crash; this one must not be used any more."""
        after = FaultyFileSystem()
        after._directories = set(self._directories)
        for path in sorted({*self._files, *self._removed}):
            file, removed = self._files.get(path), self._removed.get(path)
            if file is not None:
                file.check(path)
            candidates = [file] if file is not None and file.is_named else [*dict.fromkeys((file, removed)), None]
            survivor = choices.choice(candidates) if len(candidates) > 1 else candidates[0]
            if isinstance(survivor, _File):
                after._files[path] = survivor.after_crash(choices)
        return after

    def make_directory(self, path: Path) -> None:
        if path not in self._directories:
            self._expect_writable(path)
        self._directories |= {path, *path.parents}

    def is_directory(self, path: Path) -> bool:
        return path in self._directories

    def names(self, path: Path) -> list[str]:
        return sorted(other.name for other in {*self._files, *self._directories} if other.parent == path != other)

    def size(self, path: Path) -> int | None:
        if path in self._directories:
            return PAGE_SIZE
        file = self._files.get(path)
        return len(file.content) if file is not None else None

    def modified_ms(self, path: Path) -> int:
        return self.modified.get(path, 0)

    def create(self, path: Path, size: int) -> None:
        self._expect_writable(path)
        if self.create_error is not None:
            raise self.create_error
        if path in self._files:
            raise FileExistsError(errno.EEXIST, "file exists", str(path))
        if path.parent not in self._directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", str(path.parent))
        self._files[path] = _File(size)

    def map(self, path: Path, ordered_to: int = 0) -> memoryview:
        self._expect_writable(path)
        return memoryview(self._files[path].content)

    def map_to_read(self, path: Path) -> memoryview:
        return memoryview(self._files[path].content).toreadonly()

    def allocate(self, path: Path, start: int, length: int) -> None:
        self._expect_writable(path)
        file = self._files[path]
        pages = set(range(start // PAGE_SIZE, -(-(start + length) // PAGE_SIZE))) - file.allocated
        if self.free_pages is not None:
            if len(pages) > self.free_pages:
                raise OSError(errno.ENOSPC, "no space left on device", str(path))
            self.free_pages -= len(pages)
        file.allocated |= pages

    def read(self, path: Path, start: int, length: int) -> bytes:
        return bytes(self._files[path].content[start : start + length])

    def write(self, path: Path, start: int, data: memoryview) -> None:
        self._expect_writable(path)
        self._files[path].write(start, data)

    def read_data(self, path: Path, most: int) -> bytes | None:
        end = self.data_end(path)
        return self.read(path, 0, end) if end <= most else None

    def data_end(self, path: Path) -> int:
        content = self._files[path].content
        end = len(content.rstrip(b"\0"))
        return min(end - end % -PAGE_SIZE, len(content))

    def clear(self, path: Path, start: int) -> None:
        self._expect_writable(path)
        self._files[path].clear(start)

    def sync(self, path: Path) -> None:
        self._expect_writable(path)
        if self.sync_error is not None:
            if self.sync_error.errno == errno.EIO and path in self._files:
                self._files[path].fail_to_sync()
            raise self.sync_error
        self.syncs.append(path)
        if path in self._files:
            self._files[path].sync(path)
        parents = {path, *path.parents}
        for removed in [removed for removed in self._removed if removed.parent in parents]:
            del self._removed[removed]

    def sync_all(self, paths: Sequence[Path]) -> None:
        for path in paths:
            self.sync(path)

    def remove(self, path: Path) -> None:
        self._expect_writable(path)
        if path in self.unremovable:
            raise PermissionError(errno.EPERM, "operation not permitted", str(path))
        if path in self._directories:
            if self.names(path):
                raise OSError(errno.ENOTEMPTY, "directory not empty", str(path))
            self._directories.remove(path)
        else:
            file = self._files.pop(path, None)
            if file is not None and file.is_named:
                self._removed[path] = file

    def lock(self, path: Path) -> "_Lock":
        if path in self._locked:
            raise StoreLocked(path)
        if path not in self._directories:
            self._files.setdefault(path, _File(0))
        self._locked.add(path)
        return _Lock(self, self._locked, path)

    def most_maps(self) -> int:
        return self.map_limit

    def used_percent(self, path: Path) -> float:
        return self.used

    def _expect_writable(self, path: Path) -> None:
        if self.is_read_only:
            raise OSError(errno.EROFS, "read-only file system", str(path))


class _File:
    """One file.

    Attributes:
        content: What a process sees.
        durable: What is on the disk for sure.
        allocated: Numbers of the pages that have room.
        is_named: Whether its name is on the disk.
        taken_for_written: What was in pages when a sync failed: unless they are written to, none brings them.
    """

    def __init__(self, size: int) -> None:
        self.content = bytearray(size)
        self.durable = bytes(size)
        self.allocated: set[int] = set()
        self.is_named = False
        self.taken_for_written: dict[int, bytes] = {}

    def write(self, start: int, data: memoryview) -> None:
        self.content[start : start + len(data)] = data
        for page in range(start // PAGE_SIZE, -(-(start + len(data)) // PAGE_SIZE)):
            self.taken_for_written.pop(page, None)

    def sync(self, path: Path) -> None:
        self.check(path)
        durable = bytearray(self.content)
        for page, content in list(self.taken_for_written.items()):
            place = slice(page * PAGE_SIZE, page * PAGE_SIZE + PAGE_SIZE)
            if self.content[place] == content:
                durable[place] = self.durable[place]
            else:
                del self.taken_for_written[page]
        self.durable = bytes(durable)
        self.is_named = True

    def fail_to_sync(self) -> None:
        for page, start in enumerate(range(0, len(self.content), PAGE_SIZE)):
            written = bytes(self.content[start : start + PAGE_SIZE])
            if written != self.durable[start : start + PAGE_SIZE]:
                self.taken_for_written[page] = written

    def clear(self, start: int) -> None:
        for page in [page for page in self.taken_for_written if (page + 1) * PAGE_SIZE > start]:
            del self.taken_for_written[page]
        self.content[start:] = bytes(len(self.content) - start)
        self.durable = self.durable[:start] + bytes(len(self.durable) - start)
        self.allocated = {page for page in self.allocated if page * PAGE_SIZE < start}

    def check(self, path: Path) -> None:
        """See that only allocated pages were written to."""
        for page, start in enumerate(range(0, len(self.content), PAGE_SIZE)):
            if page not in self.allocated and not _is_blank(self.content[start : start + PAGE_SIZE]):
                raise AssertionError(f"SIGBUS: page {page} of {path} was written to without room for it")

    def after_crash(self, choices: Choices) -> "_File":
        after = _File(len(self.content))
        after.content[:] = self.durable
        for start in range(0, len(self.content), SECTOR_SIZE):
            written = bytes(self.content[start : start + SECTOR_SIZE])
            if written != self.durable[start : start + SECTOR_SIZE]:
                survivor = choices.choice([self.durable[start : start + SECTOR_SIZE], written])
                assert isinstance(survivor, bytes)
                after.content[start : start + SECTOR_SIZE] = survivor
        for page, start in enumerate(range(0, len(self.content), PAGE_SIZE)):
            if not _is_blank(after.content[start : start + PAGE_SIZE]):
                after.allocated.add(page)
        after.durable = bytes(after.content)
        after.is_named = True
        return after


def _is_blank(page: bytearray) -> bool:
    """Whether a page has zeros only; comparing takes a hundredth of the time of looking at each byte."""
    return page == _BLANK_PAGE[: len(page)]


class _Lock:
    def __init__(self, file_system: "FaultyFileSystem", locked: set[Path], path: Path) -> None:
        self._file_system = file_system
        self._locked = locked
        self._path = path

    @property
    def is_apaches(self) -> bool:
        size = len(APACHES_SIGNATURE)
        return not self._file_system.is_directory(self._path) and (
            self._file_system.read(self._path, 0, size) == APACHES_SIGNATURE
        )

    def sign(self) -> None:
        if self._file_system.is_unsignable:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._file_system.allocate(self._path, 0, len(SIGNATURE))
        self._file_system.write(self._path, 0, memoryview(SIGNATURE))
        self._file_system.sync(self._path)

    def release(self) -> None:
        self._locked.discard(self._path)
