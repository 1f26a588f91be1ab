"""Files and directories that only the user of the broker or name server can open.

Messages, tables and settings may hold secrets, so what the servers create is closed to others, whatever the umask of
the process allows. The modes stand here and are given at each creation: a umask would change the files of the whole
process, and an embedded broker shares its process with an application. Files that exist keep their modes.
"""

import os
from pathlib import Path
from typing import BinaryIO, Literal

__all__ = ["DIRECTORY_MODE", "FILE_MODE", "make_private_directory", "open_private", "sync_directory"]

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700


def open_private(path: Path, mode: Literal["wb", "a+b"]) -> BinaryIO:
    """Open a file to write to, as `open` does; a file that is missing is created for its owner only.

    Raises:
        OSError: It cannot be opened or created.
    """
    return open(path, mode, opener=_private)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


def make_private_directory(path: Path) -> list[Path]:
    """Create a directory and those above it where they are missing; return the ones that were created.

    Raises:
        OSError: One of them cannot be created, or is a file.
    """
    if path.is_dir():
        return []
    created = make_private_directory(path.parent)
    path.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
    return [*created, path]


def sync_directory(path: Path) -> None:
    """Wait until the names in a directory are on the disk.

    Raises:
        OSError: The disk refused.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
