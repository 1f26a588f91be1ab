"""Stamps of files, which show that a file has changed without reading it."""

from pathlib import Path
from typing import TypeAlias

__all__ = ["FileStamp", "file_stamp"]

FileStamp: TypeAlias = tuple[int, int, int]
"""Time of the last change in nanoseconds, size in bytes, and inode."""


def file_stamp(file: Path) -> FileStamp | None:
    """Return the stamp of a file, which differs after the file was replaced or rewritten; None for a missing file."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
