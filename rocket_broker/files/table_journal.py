"""What has changed in a table since its file was last written.

::

    topics.json        the whole table, written anew a little later
    topics.json.log    {"table":{…}}                      the version of the table that is changed
                       {"version":{…},"entry":{…}}        one line for each entry added or changed since
                       {"version":{…},"removed":"name"}   … or removed

Writing a table takes time for each of its entries, and there may be tens of thousands. So a change of a large table
only adds lines here, and the table is written in steps, once for all changes of two seconds. A small table is written
at each change: Apache's brokers, which start on the same store, do not read this file.

A line counts when its version is newer than that of the table that was read: lines that the table has do no harm when
the broker is killed before they are dropped. No line counts when another broker has written the table since. Half a
line, of a killed broker or a full disk, was never answered for: what comes next begins a line of its own.
"""

import asyncio
import logging
import os
import shutil
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, Generic, NamedTuple, TypeVar

import msgspec

from rocket_broker.files.private_files import make_private_directory, open_private
from rocket_remoting.wire.bodies import Body, DataVersion, decode_body, encode_body
from rocket_remoting.wire.errors import RemotingError

__all__ = ["NO_TABLE", "Change", "TableJournal"]

logger = logging.getLogger(__name__)

B = TypeVar("B", bound=Body)

MERGE_SECONDS = 2.0

SMALL = 250
"""Entries of a table that is written at each change, in 1.5 ms at most."""

NO_TABLE = DataVersion(timestamp=0, counter=-1)
"""The version of a table without a file."""


class Change(NamedTuple, Generic[B]):
    """One line.

    Attributes:
        version: The table's version that has the change.
        entry: The entry that was added or changed; None if one was removed.
        removed: The name of the entry that was removed.
    """

    version: DataVersion
    entry: B | None
    removed: str


class _Line(msgspec.Struct):
    table: DataVersion | None = None
    version: DataVersion | None = None
    entry: msgspec.Raw = msgspec.Raw()
    removed: str = ""


class TableJournal:
    """The changes of one table.

    Args:
        table: The table's file; the journal's name is that and ``.log``.
        durable: Wait at each change until the disk has it.
    """

    def __init__(self, table: Path, *, durable: bool = False) -> None:
        self.path = table.with_name(table.name + ".log")
        self._durable = durable
        self._changed = asyncio.Event()
        self._since_begin: list[bytes] = []
        self._tables = [NO_TABLE]  # the version of the file, and of the one that takes its place

    def note(
        self,
        save: Callable[[], None],
        size: int,
        version: DataVersion,
        entries: Iterable[Body] = (),
        *,
        removed: Iterable[str] = (),
    ) -> None:
        """Write a small table; note changes of a large one.

        Args:
            save: Writes the table, between `begin_merge` and `end_merge`.
            size: How many entries the table has.
            version: The table's version that has the changes.
            entries: Those that were added or changed.
            removed: The names of those that were removed.

        Raises:
            OSError: Neither can be written. The table's file gets the changes as soon as it can.
        """
        if size > SMALL:
            self.append(version, entries, removed=removed)
            return
        try:
            save()
        except OSError:
            self.note_change()
            raise

    def append(
        self, version: DataVersion, entries: Iterable[Body] = (), *, removed: Iterable[str] = ()
    ) -> None:
        """Note changes; they are on the disk, under one version of the table, when this returns.

        Raises:
            OSError: They cannot be written. The table gets them all the same, as soon as it can be written.
        """
        head = b'{"version":' + encode_body(version)
        lines = [head + b',"entry":' + encode_body(entry) + b"}\n" for entry in entries]
        lines += [head + b',"removed":' + msgspec.json.encode(name) + b"}\n" for name in removed]
        self.note_change()
        self._since_begin += lines
        self._append(lines)

    def note_change(self) -> None:
        """Have the table written although no line says why."""
        self._changed.set()

    def read(self, after: DataVersion, type_: type[B]) -> list[Change[B]]:
        """Return the changes newer than a version of the table, which has been read; they are still to be merged."""
        changes: list[Change[B]] = []
        tables: list[DataVersion] = []
        self._tables = [after]
        try:
            lines = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return changes
        for line in lines[:-1]:
            try:
                read = msgspec.json.decode(line, type=_Line)
                if read.table is not None:
                    tables.append(read.table)
                elif read.version is not None and read.version.counter > after.counter:
                    entry = decode_body(bytes(read.entry), type_) if bytes(read.entry) else None
                    changes.append(Change(read.version, entry, read.removed))
            except (msgspec.MsgspecError, RemotingError) as e:
                logger.warning("%s: a line is passed over: %s", self.path, e)
        if changes:
            self._changed.set()
        if changes and _is_of_others(after, tables):
            logger.warning(
                "%s: %d changes are passed over: another broker has written the table since",
                self.path,
                len(changes),
            )
            return []
        return changes

    def begin_merge(self, version: DataVersion) -> None:
        """Note that the table begins to be written: it has all changes up to now, and may lack later ones.

        Args:
            version: The table's version that is written.

        Raises:
            OSError: The journal cannot be written.
        """
        if self.path.exists():
            self._append([_table_line(version)])
        self._tables = [self._tables[0], version]
        self._since_begin.clear()
        self._changed.clear()

    def end_merge(self) -> None:
        """Drop the lines that the table has since it was written.

        Raises:
            OSError: The journal cannot be written. It is what it was.
        """
        self._tables = self._tables[-1:]
        if not self._since_begin:
            self.path.unlink(missing_ok=True)
            return
        fresh = self.path.with_name(self.path.name + ".tmp")
        with open_private(fresh, "wb") as file:
            shutil.copymode(self.path, fresh)
            file.writelines([*map(_table_line, self._tables), *self._since_begin])
            self._sync(file)
        fresh.replace(self.path)

    def merge(self, save: Callable[[], None]) -> None:
        """Have the table written if it changed since it was; on a full disk the journal holds on to the changes.

        Args:
            save: Writes the table, between `begin_merge` and `end_merge`.
        """
        if self._changed.is_set():
            try:
                save()
            except OSError as e:
                self._keep(e)

    async def merge_periodically(self, write: Callable[[], Awaitable[None]]) -> None:
        """Have the table written two seconds after changes; runs until cancelled.

        Args:
            write: Writes the table, between `begin_merge` and `end_merge`.
        """
        while True:
            await self._changed.wait()
            await asyncio.sleep(MERGE_SECONDS)
            try:
                await write()
            except OSError as e:
                self._keep(e)
            except asyncio.CancelledError:
                self._changed.set()
                raise

    def _keep(self, error: OSError) -> None:
        self._changed.set()
        logger.error("what is in %s could not be written into the table, trying again: %s", self.path, error)

    def _append(self, lines: Sequence[bytes]) -> None:
        make_private_directory(self.path.parent)
        with open_private(self.path, "a+b") as file:
            begin = b"\n" if _ends_amid_a_line(file) else b""
            heads = () if file.tell() else map(_table_line, self._tables)
            file.write(
                begin + b"".join([*heads, *lines])
            )  # at once: a broker killed meanwhile has all or none
            self._sync(file)

    def _sync(self, file: BinaryIO) -> None:
        if self._durable:
            file.flush()
            os.fsync(file.fileno())


def _table_line(version: DataVersion) -> bytes:
    return b'{"table":' + encode_body(version) + b"}\n"


def _is_of_others(table: DataVersion, ours: Sequence[DataVersion]) -> bool:
    """Return whether others have written the table since those of ours; a backup of ours is older than they are."""
    return bool(ours) and table not in ours and table.counter >= ours[0].counter


def _ends_amid_a_line(file: BinaryIO) -> bool:
    if not file.tell():
        return False
    file.seek(-1, os.SEEK_END)
    return file.read(1) != b"\n"
