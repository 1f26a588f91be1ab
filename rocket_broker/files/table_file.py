"""A table of the broker in a JSON file of its own, which is replaced as a whole.

::

    topics.json       the present table; once written, always there and complete
    topics.json.bak   the table before the last change
    topics.json.tmp   the next table, while it is being written

A reader never sees a half-written file: the new content is complete under the name .tmp before it replaces the file. If
the file is damaged all the same, the backup is read with a warning, as by Apache's brokers. The backup is flushed to
the disk: some file systems write names before contents, and a power failure could leave both files empty otherwise.
"""

import asyncio
import errno
import logging
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from rocket_broker.errors import DamagedTable, TableUnreadable
from rocket_broker.files.private_files import make_private_directory, open_private, sync_directory
from rocket_remoting.wire.errors import RemotingError

__all__ = ["TableFile"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

INDENT_UP_TO = 64 * 1024
"""Bytes of JSON up to which a table is indented; larger tables are not for people, and written often."""


class TableFile:
    """One table's file.

    Args:
        path: The table's file; its directory is created at the first write.
        durable: Whether each write waits for the disk, so that it survives a power failure and not only a kill.
    """

    def __init__(self, path: Path, *, durable: bool = False) -> None:
        self.path = path
        self.backup = path.with_name(path.name + ".bak")
        self._temporary = path.with_name(path.name + ".tmp")
        self._durable = durable
        self._is_damaged = False
        self._is_synced = False  # False also if unknown
        self._writing = threading.Lock()
        self._given = self._written = 0

    def load(self, decode: Callable[[bytes], T]) -> T | None:
        """Return the table decoded by ``decode``; None if the table was never written.

        Raises:
            DamagedTable: The file and its backup are both unreadable.
            TableUnreadable: The file system refuses to read a file, whose content is unknown then.
        """
        problems: list[str] = []
        for path in (self.path, self.backup):
            try:
                content = path.read_bytes()
                if content.strip():
                    table = decode(content)
                    self._is_damaged = path is self.backup
                    if path is self.backup:
                        logger.warning("%s: read instead of %s (%s)", path, self.path.name, problems[0])
                    return table
                problems.append("it is empty")
            except FileNotFoundError:
                problems.append("it is missing")
            except (OSError, ValueError, RemotingError) as e:
                # A file that cannot be opened now, for lack of rights or descriptors, may be newer than the
                # backup: reading the backup would undo changes. EIO means that the content itself is damaged.
                if isinstance(e, OSError) and e.errno != errno.EIO:
                    raise TableUnreadable(path, e) from e
                problems.append(str(e))
        if problems == ["it is missing", "it is missing"]:
            return None
        raise DamagedTable(self.path, problems[0], problems[1])

    def write(self, content: bytes) -> None:
        """Replace the file by the JSON, indented if it is small; the former content becomes the backup.

        Raises:
            OSError: The file cannot be written, for example on a full disk; it keeps its content. If only its
                directory could not be brought to the disk, the file has the new content.
        """
        self._given += 1
        self._write([content], self._given, self._durable)

    async def write_and_sync(self, pieces: Sequence[bytes]) -> None:
        """Write as `write` does, but in a thread; when this returns, the file is on the disk.

        If `write` is called meanwhile, its later content wins. Tables that are written again and again need the flush:
        on file systems that write names before contents, a power failure could leave the file and its backup empty.

        Args:
            pieces: The JSON, in pieces.

        Raises:
            OSError: The file cannot be written; it keeps its content.
        """
        self._given += 1
        await asyncio.to_thread(self._write, pieces, self._given, True)

    def _write(self, pieces: Sequence[bytes], number: int, durable: bool) -> None:
        if sum(map(len, pieces)) <= INDENT_UP_TO:
            pieces = [msgspec.json.format(b"".join(pieces), indent=1)]
        with self._writing:
            # A later content was written while this one waited for the lock.
            if number < self._written:
                return
            try:
                self._replace(pieces, durable)
            except OSError as e:
                e.filename = e.filename or str(self._temporary)  # a failed write() does not name its file
                raise
            self._written = number

    def _replace(self, pieces: Sequence[bytes], durable: bool) -> None:
        created = make_private_directory(self.path.parent)
        # A damaged file must not replace the backup, from which the table was read.
        is_good = self.path.exists() and not self._is_damaged
        if is_good and not self._is_synced:
            self._sync()
        # The first content has no backup yet, so the file itself must be on the disk before it gets its name.
        durable = durable or not (is_good or self.backup.exists())
        with open_private(self._temporary, "wb") as file:
            if self.path.exists():
                shutil.copymode(self.path, self._temporary)
            file.writelines(pieces)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        if is_good:
            self._back_up()
        self._temporary.replace(self.path)
        self._is_damaged, self._is_synced = False, durable
        if durable:
            # Otherwise the former content may have the name again after a power failure.
            for directory in (self.path.parent, *(each.parent for each in created)):
                sync_directory(directory)

    def _sync(self) -> None:
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
        self._is_synced = True

    def _back_up(self) -> None:
        """Give the present content the backup's name by a link, so that the file itself is never missing."""
        link = self.path.with_name(self.path.name + ".lnk")
        link.unlink(missing_ok=True)
        try:
            os.link(self.path, link)
        except OSError:  # a file system without hard links
            with open_private(link, "wb") as copy:
                shutil.copymode(self.path, link)
                copy.write(self.path.read_bytes())
        link.replace(self.backup)
