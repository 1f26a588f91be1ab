"""A file of lines with a bounded size: when it is full, it becomes ``<name>.1``, and the oldest file is deleted.

::

    audit.log      the newest lines
    audit.log.1    the lines before, …
    audit.log.9    the oldest: the next file that is full replaces it
"""

import errno
import os
from pathlib import Path

from rocket_broker.files.private_files import FILE_MODE, make_private_directory

__all__ = ["RotatedFile"]


class RotatedFile:
    """Appends lines to a file, and keeps a number of full files.

    The file is opened for each line, so that it may be moved or deleted at any time.

    Args:
        path: The newest file. Its directory is created when it is needed.
        max_size: Bytes of a file; a line that would exceed them begins the next file.
        max_files: Number of files, the newest one included; at least 2.
    """

    def __init__(self, path: Path, *, max_size: int, max_files: int) -> None:
        self.path = path
        self._max_size = max_size
        self._max_files = max_files

    def append(self, line: bytes) -> None:
        """Append a line, which has its line end: all of it, or nothing.

        Raises:
            OSError: The file system refuses.
        """
        make_private_directory(self.path.parent)
        file = self._open()
        try:
            size = os.fstat(file).st_size
            if size and size + len(line) > self._max_size:
                os.close(file)
                file = -1
                self._rotate()
                file, size = self._open(), 0
            written = os.write(file, line)
            if written < len(line):
                os.ftruncate(file, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        finally:
            if file >= 0:
                os.close(file)

    def _open(self) -> int:
        return os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)

    def _rotate(self) -> None:
        for number in range(self._max_files - 1, 0, -1):
            newer = self._numbered(number - 1)
            if newer.exists():
                newer.replace(self._numbered(number))

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}") if number else self.path

    def __repr__(self) -> str:
        return f"<RotatedFile {self.path}: {self._max_files} files of {self._max_size} bytes>"
