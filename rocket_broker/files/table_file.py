"""A table of the broker in a JSON file of its own, replaced as a whole.

::

    topics.json       what counts; always there and whole once it has been written
    topics.json.bak   what it was before the last change
    topics.json.tmp   the next one, while it is being written

A reader never sees a half-written file: the new content is complete under another name before it takes the
old one's place. Should the file be damaged all the same, the backup is read and a warning says so, as
Apache's brokers do. The backup is on the disk: of file systems that keep names before contents a power failure
would else leave two empty files.
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
from rocket_broker.files.private_files import make_private_directory, open_private
from rocket_remoting.wire.errors import RemotingError

__all__ = ["TableFile"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

INDENT_UP_TO = 64 * 1024
"""Bytes of JSON. A table of ten thousand topics is written at each change, and nobody reads it."""


class TableFile:
    """One table's file.

    Args:
        path: The file; its directory is made when it is first written.
        durable: Wait at each write until the disk has it: then it survives the machine, not only the process.
    """

    def __init__(self, path: Path, *, durable: bool = False) -> None:
        self.path = path
        self.backup = path.with_name(path.name + ".bak")
        self._temporary = path.with_name(path.name + ".tmp")
        self._durable = durable
        self._is_damaged = False
        self._is_synced = False  # as far as is known
        self._writing = threading.Lock()
        self._given = self._written = 0

    def load(self, decode: Callable[[bytes], T]) -> T | None:
        """Return the table as ``decode`` makes it, or None when it was never written.

        Raises:
            DamagedTable: Neither the file nor its backup holds a table.
            TableUnreadable: The file system refuses to read the file, and says nothing about what is in it.
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
                if isinstance(e, OSError) and e.errno != errno.EIO:
                    raise TableUnreadable(path, e) from e
                problems.append(str(e))
        if problems == ["it is missing", "it is missing"]:
            return None
        raise DamagedTable(self.path, problems[0], problems[1])

    def write(self, content: bytes) -> None:
        """Replace the file by the JSON, indented for people while that is cheap; the old one becomes the backup.

        Raises:
            OSError: It cannot be written, as on a full disk; the file is what it was.
        """
        self._given += 1
        self._write([content], self._given, self._durable)

    async def write_and_sync(self, pieces: Sequence[bytes]) -> None:
        """As `write`, in a thread, and on the disk when this returns. What is given to `write` meanwhile counts.

        For tables that are written again and again: a file system that keeps the new name before the content would
        have the file and its backup empty after a power failure.

        Args:
            pieces: The JSON, in pieces.

        Raises:
            OSError: As `write`.
        """
        self._given += 1
        await asyncio.to_thread(self._write, pieces, self._given, True)

    def _write(self, pieces: Sequence[bytes], number: int, durable: bool) -> None:
        if sum(map(len, pieces)) <= INDENT_UP_TO:
            pieces = [msgspec.json.format(b"".join(pieces), indent=1)]
        with self._writing:
            if number < self._written:
                return
            try:
                self._replace(pieces, durable)
            except OSError as e:
                e.filename = e.filename or str(
                    self._temporary
                )  # a write that fails does not say of which file
                raise
            self._written = number

    def _replace(self, pieces: Sequence[bytes], durable: bool) -> None:
        make_private_directory(self.path.parent)
        is_good = self.path.exists() and not self._is_damaged
        if is_good and not self._is_synced:
            self._sync()
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

    def _sync(self) -> None:
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
        self._is_synced = True

    def _back_up(self) -> None:
        """Give the present content the backup's name too: the file itself is never missing."""
        link = self.path.with_name(self.path.name + ".lnk")
        link.unlink(missing_ok=True)
        try:
            os.link(self.path, link)
        except OSError:  # a file system without links
            with open_private(link, "wb") as copy:
                shutil.copymode(self.path, link)
                copy.write(self.path.read_bytes())
        link.replace(self.backup)
