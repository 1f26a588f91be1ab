"""The file system of the store. Tests replace it by one that loses what was not synced.

The store relies on two promises only:

- bytes written to a map survive the death of this process, and after `FileSystem.sync` a crash of the machine;
- a write to blocks that `FileSystem.allocate` has reserved succeeds. Files are made sparse, and a write to a hole of a
  map kills the process with SIGBUS if the disk is full. So holes are filled before they are written to, and a full
  disk is an `OSError` that the caller can handle. (A copy-on-write file system such as btrfs or ZFS may break this
  promise; no system call can keep it there.)
"""

import errno
import fcntl
import mmap
import os
import resource
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Protocol

from rocket_broker.files.private_files import FILE_MODE, make_private_directory
from rocket_broker.store.errors import StoreLocked

__all__ = ["MAP_PAGE_SIZE", "PAGE_SIZE", "SECTOR_SIZE", "FileLock", "FileSystem", "OsFileSystem"]

PAGE_SIZE = 4096
"""The unit of settings that count pages, as in Apache's broker."""
SECTOR_SIZE = 512
"""Bytes that a disk writes completely or not at all; many disks do so with more."""
MAP_PAGE_SIZE = max(PAGE_SIZE, mmap.PAGESIZE)
"""Bytes of a page of a map. A write to a map needs space for the whole page."""
APACHES_SIGNATURE = b"lock"
"""What Apache's DefaultMessageStore (4.9.7 and 5.3.3) writes into the lock file when it opens a store."""
SIGNATURE = b"skit"
"""What our store writes over Apache's signature."""

_KEEP_SIZE, _PUNCH_HOLE = 0x1, 0x2
"""Linux's flags of fallocate."""
_MANY_FILES = 500
"""Number of files from which on it is faster to sync the whole file system."""
_FEWEST_MAPS = 16
"""Enough for the end of the log, an index, the timers' files and some queues. With fewer maps, files would be mapped
again and again."""
_MOST_MAPS = 16_384
"""A quarter of Linux's default limit for a process (vm.max_map_count)."""


class FileLock(Protocol):
    """A lock that is held until it is released."""

    @property
    def is_apaches(self) -> bool:
        """Whether Apache's broker has opened the store since `sign`: its signature is in the locked file."""

    def sign(self) -> None:
        """Write our signature into the locked file, and wait until it is on the disk."""

    def release(self) -> None:
        """Release the lock."""


class FileSystem(Protocol):
    """The operations that the store needs of a file system. Errors are `OSError`, as those of the operating system."""

    def make_directory(self, path: Path) -> None:
        """Make a directory and missing parents, closed to other users."""

    def names(self, path: Path) -> list[str]:
        """Return the names in a directory, sorted; none if there is no directory."""

    def size(self, path: Path) -> int | None:
        """Return a file's size, None if there is no file."""

    def modified_ms(self, path: Path) -> int:
        """Return when a file was last written, in milliseconds since 1970; 0 if there is none."""

    def create(self, path: Path, size: int) -> None:
        """Make a sparse file of zeros, closed to other users.

        There must be no file of this name.
        """

    def map(self, path: Path, ordered_to: int = 0) -> memoryview:
        """Map a whole file for reading and writing; it stays mapped as long as a view of it is alive.

        Args:
            path: The file.
            ordered_to: Bytes before this are read in order, and may be read ahead. From here on pages are
                touched one by one, and reading megabytes of zeros ahead would only block the broker.
        """

    def map_to_read(self, path: Path) -> memoryview:
        """Map a whole file for reading only, as a read-only file system requires."""

    def allocate(self, path: Path, start: int, length: int) -> None:
        """Reserve space on the disk for the bytes from ``start`` on; they keep their values."""

    def read(self, path: Path, start: int, length: int) -> bytes:
        """Return bytes without mapping them: even reading a hole of a map may need space on the disk."""

    def write(self, path: Path, start: int, data: memoryview) -> None:
        """Write bytes that have space without mapping them; readers of maps see them. May be called from any thread."""

    def read_data(self, path: Path, most: int) -> bytes | None:
        """Return a file's bytes up to the last one that is not zero; None if they are more than ``most``."""

    def data_end(self, path: Path) -> int:
        """Return the end of the last page with data; behind it the file has only zeros."""

    def clear(self, path: Path, start: int) -> None:
        """Make sure that the bytes from ``start`` to the file's end are zeros, on the disk too.

        No reader may use these bytes. Their space may be freed.
        """

    def sync(self, path: Path) -> None:
        """Wait until a file's bytes and its name, or a directory's names, are on the disk; from any thread."""

    def sync_all(self, paths: Sequence[Path]) -> None:
        """Call `sync` for many files, or sync the whole file system."""

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there, or an empty directory; views of the file stay readable."""

    def lock(self, path: Path) -> FileLock:
        """Lock a directory, or a file, which is made if it is missing.

        Raises:
            StoreLocked: Another process or store has the lock.
        """

    def most_maps(self) -> int:
        """Return how many files may be mapped at once."""

    def used_percent(self, path: Path) -> float:
        """Return the used percentage of the disk of a directory, which need not exist, of the space available to this
        user."""


class OsFileSystem:
    """The operating system's files (Linux, macOS)."""

    def __init__(self) -> None:
        self._unsynced_directories: set[Path] = set()

    def make_directory(self, path: Path) -> None:
        self._unsynced_directories.update(made.parent for made in make_private_directory(path))

    def names(self, path: Path) -> list[str]:
        try:
            return sorted(os.listdir(path))  # noqa: PTH208 - a path for each of ten thousand names takes time
        except (FileNotFoundError, NotADirectoryError):
            return []

    def size(self, path: Path) -> int | None:
        try:
            return path.stat().st_size
        except FileNotFoundError:
            return None

    def modified_ms(self, path: Path) -> int:
        try:
            return path.stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return 0

    def create(self, path: Path, size: int) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        try:
            os.ftruncate(descriptor, size)
        except OSError:
            path.unlink()
            raise
        finally:
            os.close(descriptor)
        self._unsynced_directories.add(path.parent)

    def map(self, path: Path, ordered_to: int = 0) -> memoryview:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            mapped = mmap.mmap(descriptor, 0)
        finally:
            os.close(descriptor)
        start = ordered_to - ordered_to % -mmap.PAGESIZE
        if start < len(mapped):
            mapped.madvise(mmap.MADV_RANDOM, start)
        return memoryview(mapped)  # unmapped when the last view is released: a closed map cannot be read

    def map_to_read(self, path: Path) -> memoryview:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
        finally:
            os.close(descriptor)

    def allocate(self, path: Path, start: int, length: int) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            _allocate(descriptor, start, length)
        finally:
            os.close(descriptor)

    def read(self, path: Path, start: int, length: int) -> bytes:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(descriptor, length, start)
        finally:
            os.close(descriptor)

    def write(self, path: Path, start: int, data: memoryview) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            while data:
                written = os.pwrite(descriptor, data, start)
                data, start = data[written:], start + written
        finally:
            os.close(descriptor)

    def read_data(self, path: Path, most: int) -> bytes | None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            end = _data_end(descriptor)
            return os.pread(descriptor, end, 0) if end <= most else None
        finally:
            os.close(descriptor)

    def data_end(self, path: Path) -> int:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            end = _data_end(descriptor)
            return min(end - end % -MAP_PAGE_SIZE, os.fstat(descriptor).st_size)
        finally:
            os.close(descriptor)

    def clear(self, path: Path, start: int) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            page_end = min(size, start - start % -MAP_PAGE_SIZE)
            rest = os.pread(descriptor, page_end - start, start)
            # After an orderly stop there are only zeros: then no fsync is needed.
            if rest.strip(b"\0") or _data_end(descriptor) > page_end:
                _make_zeros(descriptor, start, size)
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync(self, path: Path) -> None:
        _sync(path)
        self._unsynced_directories.discard(path)
        if not self._unsynced_directories:  # as nearly always, and to walk up the parents takes longer than the rest
            return
        for directory in path.parents:
            if directory in self._unsynced_directories:
                # Removed first: a file that is made while the sync runs adds it again.
                self._unsynced_directories.discard(directory)
                try:
                    _sync(directory)
                except OSError:
                    self._unsynced_directories.add(directory)
                    raise

    def sync_all(self, paths: Sequence[Path]) -> None:
        if len(paths) < _MANY_FILES or sys.platform != "linux":
            for path in paths:
                self.sync(path)
            return
        # Taken before the sync: a file that another thread makes meanwhile may be missing on the disk
        # afterwards.
        directories = set(self._unsynced_directories)
        synced: set[int] = set()
        for path in paths:
            try:
                device = path.stat().st_dev
                if device not in synced:
                    _sync_file_system(path)
                    synced.add(device)
            except FileNotFoundError:
                pass  # removed meanwhile: nothing is left to sync
        self._unsynced_directories -= directories

    def remove(self, path: Path) -> None:
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
        self._unsynced_directories.discard(path)
        self._unsynced_directories.add(path.parent)

    def lock(self, path: Path) -> FileLock:
        return _OsDirectoryLock(path) if path.is_dir() else _OsFileLock(path)

    def most_maps(self) -> int:
        # Each Python map keeps a file descriptor. Maps use a quarter of the limit; connections use up to half.
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return _MOST_MAPS if limit == resource.RLIM_INFINITY else max(_FEWEST_MAPS, min(_MOST_MAPS, limit // 4))

    def used_percent(self, path: Path) -> float:
        disk = os.statvfs(next(parent for parent in (path, *path.absolute().parents) if parent.exists()))
        used = disk.f_blocks - disk.f_bfree
        return 100 * used / max(1, used + disk.f_bavail)

    def __repr__(self) -> str:
        return "OsFileSystem()"


class _OsFileLock:
    """Two locks on one file: Java's kind keeps Apache's broker out, the other a store of this process."""

    _held: ClassVar[set[tuple[int, int]]] = set()
    """Device and inode of the files that this process has locked."""

    def __init__(self, path: Path) -> None:
        # A lock of fcntl ends when its process closes any descriptor of the file, so a locked file is not opened again.
        with suppress(FileNotFoundError):
            if _inode(path.stat()) in self._held:
                raise StoreLocked(path)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            # Java's FileLock is a lock of fcntl, and Apache's DefaultMessageStore locks byte 0. Such a lock
            # does not exclude a child of this process that has inherited the descriptor: hence flock.
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as e:
            os.close(self._descriptor)
            if e.errno in (errno.EAGAIN, errno.EACCES):
                raise StoreLocked(path) from None
            raise
        self._inode = _inode(os.fstat(self._descriptor))
        self._held.add(self._inode)

    @property
    def is_apaches(self) -> bool:
        return os.pread(self._descriptor, len(APACHES_SIGNATURE), 0) == APACHES_SIGNATURE

    def sign(self) -> None:
        os.pwrite(self._descriptor, SIGNATURE, 0)
        os.fsync(self._descriptor)

    def release(self) -> None:
        os.close(self._descriptor)
        self._held.discard(self._inode)


class _OsDirectoryLock:
    """A lock on a directory itself, without a lock file in it."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            if e.errno == errno.EAGAIN:
                os.close(self._descriptor)
                raise StoreLocked(path, "storePathCommitLog") from None
            # A network file system may support locks of files only.

    @property
    def is_apaches(self) -> bool:
        return False

    def sign(self) -> None:
        raise IsADirectoryError(errno.EISDIR, "a directory cannot be signed")

    def release(self) -> None:
        os.close(self._descriptor)


def _inode(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _allocate(descriptor: int, start: int, length: int) -> None:
    if sys.platform != "darwin":
        try:
            os.posix_fallocate(descriptor, start, length)
            return
        except OSError as e:
            if e.errno != errno.EOPNOTSUPP:
                raise
    # Without such a call, writing the existing bytes again has the same effect.
    os.pwrite(descriptor, os.pread(descriptor, length, start), start)


def _data_end(descriptor: int) -> int:
    """Return the end of the last data of a sparse file; its size if the file system can't tell."""
    end = 0
    try:
        while True:
            end = os.lseek(descriptor, os.lseek(descriptor, end, os.SEEK_DATA), os.SEEK_HOLE)
    except OSError as e:
        if e.errno != errno.ENXIO:  # there is no data behind
            raise
    return end


def _make_zeros(descriptor: int, start: int, end: int) -> None:
    """Turn a file's last bytes into a hole."""
    import ctypes

    fallocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
    if fallocate is not None:
        offsets = (ctypes.c_int64(start), ctypes.c_int64(end - start))
        if fallocate(descriptor, _PUNCH_HOLE | _KEEP_SIZE, *offsets) == 0:
            return
        number = ctypes.get_errno()
        if number not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINTR):
            raise OSError(number, os.strerror(number))
    # No such call, or a signal interrupted it. A process that is killed between these two calls leaves a short file,
    # which no store takes for one of its own.
    os.ftruncate(descriptor, start)
    os.ftruncate(descriptor, end)


def _sync_file_system(path: Path) -> None:
    """Sync the whole file system of a file: one wait instead of one for each file."""
    import ctypes

    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # Linux before 5.8 does not report write errors here.
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(descriptor)


def _sync(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # removed meanwhile: nothing is left to sync
    try:
        if sys.platform == "darwin":  # macOS: fsync stops at the drive's own cache
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        else:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
