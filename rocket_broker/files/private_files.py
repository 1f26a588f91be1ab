"""Files and directories that only the user of the broker or name server can open.

Messages, tables and settings may hold secrets. So files that the servers create are closed to other users, even if the
umask of the process would allow more. The modes are given at each creation, since to change the umask would affect the
files of the whole process, and an embedded broker shares its process with an application. Existing files keep their
modes.
"""

import os
from pathlib import Path
from typing import BinaryIO, Literal

__all__ = ["DIRECTORY_MODE", "FILE_MODE", "make_private_directory", "open_private", "sync_directory"]

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700


def open_private(path: Path, mode: Literal["wb", "a+b"]) -> BinaryIO:
    """Open a file for writing, as `open` does; a missing file is created for its owner only.

    Raises:
        OSError: The file cannot be opened or created.
    """
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, FILE_MODE))


def make_private_directory(path: Path) -> list[Path]:
    """Create a directory and its missing parents; return the directories that were created.

    Raises:
        OSError: A directory cannot be created, or a file has its name.
    """
    if path.is_dir():
        return []
    created = make_private_directory(path.parent)
    path.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
    return [*created, path]


def sync_directory(path: Path) -> None:
    """Wait until the names in a directory are on the disk.

    Raises:
        OSError: The file system could not write them.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
