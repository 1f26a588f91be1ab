"""The journal of a table: the changes since the table's file was last written.

::

    topics.json        the whole table, written again a little later
    topics.json.log    {"table":{…}}                      version of the table's file that the lines continue
                       {"version":{…},"entry":{…}}        an entry that was added or changed since
                       {"version":{…},"removed":"name"}   an entry that was removed since

Writing a table takes time for each of its entries, and there may be tens of thousands. So a change of a large table
only appends lines here, and the table is written in steps, once for all changes of two seconds. A small table is
written at each change, since Apache's brokers, which can start on the same store, do not read this file.

A line applies if its version is newer than that of the table's file. So lines that the file has already do no harm if
the broker is killed before they are dropped. No line applies if another broker has written the file since. An
incomplete last line, of a killed broker or a full disk, belongs to a change that was never acknowledged; the next line
begins after a line end.
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
"""Maximum number of entries of a small table, which is written at each change in at most 1.5 ms."""

NO_TABLE = DataVersion(timestamp=0, counter=-1)
"""The version of a table whose file does not exist."""


class Change(NamedTuple, Generic[B]):
    """A change in a line of the journal.

    Attributes:
        version: The table's version after the change.
        entry: The entry that was added or changed; None if an entry was removed.
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
    """The journal of one table.

    Args:
        table: The table's file; the journal's name adds ``.log``.
        durable: Whether each change waits for the disk.
    """

    def __init__(self, table: Path, *, durable: bool = False) -> None:
        self.path = table.with_name(table.name + ".log")
        self._durable = durable
        self._changed = asyncio.Event()
        self._since_begin: list[bytes] = []
        self._tables = [NO_TABLE]  # versions: of the file, and during a merge of the file that replaces it

    def note(
        self,
        save: Callable[[], None],
        size: int,
        version: DataVersion,
        entries: Iterable[Body] = (),
        *,
        removed: Iterable[str] = (),
    ) -> None:
        """Write the table's file if the table is small; append the changes to the journal otherwise.

        Args:
            save: Writes the table's file, between `begin_merge` and `end_merge`.
            size: Number of the table's entries.
            version: The table's version after the changes.
            entries: The entries that were added or changed.
            removed: The names of the entries that were removed.

        Raises:
            OSError: Writing failed. The change stays in memory, and the table's file is written as soon as possible.
        """
        if size > SMALL:
            self.append(version, entries, removed=removed)
            return
        try:
            save()
        except OSError:
            self.note_change()
            raise

    def append(self, version: DataVersion, entries: Iterable[Body] = (), *, removed: Iterable[str] = ()) -> None:
        """Append changes under one version of the table; they are in the journal when this returns.

        Raises:
            OSError: Writing failed. The changes stay in memory, and the table's file is written as soon as possible.
        """
        head = b'{"version":' + encode_body(version)
        lines = [head + b',"entry":' + encode_body(entry) + b"}\n" for entry in entries]
        lines += [head + b',"removed":' + msgspec.json.encode(name) + b"}\n" for name in removed]
        # Both come before the append, which may fail: then the next merge writes the change to the table's
        # file.
        self.note_change()
        self._since_begin += lines
        self._append(lines)

    def note_change(self) -> None:
        """Schedule a write of the table's file; add no line to the journal."""
        self._changed.set()

    def read(self, after: DataVersion, type_: type[B]) -> list[Change[B]]:
        """Return the changes newer than the version ``after`` of the table's file, to be applied by the caller.

        Returns:
            The changes in their order; none if another broker has written the file since.
        """
        changes: list[Change[B]] = []
        tables: list[DataVersion] = []
        self._tables = [after]
        try:
            lines = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return changes
        # Behind the last line end there is nothing, or the beginning of a line that was never acknowledged.
        for line in lines[:-1]:
            try:
                read = msgspec.json.decode(line, type=_Line)
                if read.table is not None:
                    tables.append(read.table)
                elif read.version is not None and read.version.counter > after.counter:
                    entry = decode_body(bytes(read.entry), type_) if bytes(read.entry) else None
                    changes.append(Change(read.version, entry, read.removed))
            except (msgspec.MsgspecError, RemotingError) as e:
                logger.warning("%s: skipped a line: %s", self.path, e)
        if changes:
            self._changed.set()
        if changes and _is_written_by_others(after, tables):
            logger.warning(
                "%s: skipped %d change(s): another broker has written the table since", self.path, len(changes)
            )
            return []
        return changes

    def begin_merge(self, version: DataVersion) -> None:
        """Note that the table's file is about to be written with all changes up to now.

        Later changes may or may not be in the file.

        Args:
            version: The version of the table that is written.

        Raises:
            OSError: The journal cannot be written.
        """
        if self.path.exists():
            # Written before the table's file is replaced. After a kill, `read` finds the version of the old
            # file or of the new one here. Without this line it would take the new file for another broker's
            # and skip later changes.
            self._append([_table_line(version)])
        # The first version stays: if writing the table fails, its file still has that one.
        self._tables = [self._tables[0], version]
        self._since_begin.clear()
        self._changed.clear()

    def end_merge(self) -> None:
        """Drop the lines whose changes are in the table's file now.

        Raises:
            OSError: The journal cannot be written; it keeps its lines.
        """
        self._tables = self._tables[-1:]
        if not self._since_begin:
            self.path.unlink(missing_ok=True)
            return
        # Changes since `begin_merge` may be missing in the table's file, so their lines stay, in a new
        # journal.
        fresh = self.path.with_name(self.path.name + ".tmp")
        with open_private(fresh, "wb") as file:
            shutil.copymode(self.path, fresh)
            file.writelines([*map(_table_line, self._tables), *self._since_begin])
            self._sync(file)
        fresh.replace(self.path)

    def merge(self, save: Callable[[], None]) -> None:
        """Write the table's file if there are changes; if that fails, for example on a full disk, keep the journal.

        Args:
            save: Writes the table's file, between `begin_merge` and `end_merge`.
        """
        if self._changed.is_set():
            try:
                save()
            except OSError as e:
                self._keep(e)

    async def merge_periodically(self, write: Callable[[], Awaitable[None]]) -> None:
        """Write the table's file two seconds after changes; runs until cancelled.

        Args:
            write: Writes the table's file, between `begin_merge` and `end_merge`.
        """
        while True:
            await self._changed.wait()
            await asyncio.sleep(MERGE_SECONDS)
            try:
                await write()
            except OSError as e:
                self._keep(e)
            except asyncio.CancelledError:
                # `begin_merge` has cleared the event, but the file may not have been replaced: the next merge
                # must write it.
                self._changed.set()
                raise

    def _keep(self, error: OSError) -> None:
        self._changed.set()
        logger.error("could not merge %s into the table, trying again: %s", self.path, error)

    def _append(self, lines: Sequence[bytes]) -> None:
        make_private_directory(self.path.parent)
        with open_private(self.path, "a+b") as file:
            begin = b"\n" if _ends_amid_a_line(file) else b""
            heads = () if file.tell() else map(_table_line, self._tables)
            file.write(begin + b"".join([*heads, *lines]))  # in one write: after a kill the file has all lines or none
            self._sync(file)

    def _sync(self, file: BinaryIO) -> None:
        if self._durable:
            file.flush()
            os.fsync(file.fileno())


def _table_line(version: DataVersion) -> bytes:
    return b'{"table":' + encode_body(version) + b"}\n"


def _is_written_by_others(table: DataVersion, ours: Sequence[DataVersion]) -> bool:
    """Return whether another broker has written the table since our lines began.

    The table may also be our own backup, which has a smaller counter than the first of our lines.
    """
    return bool(ours) and table not in ours and table.counter >= ours[0].counter


def _ends_amid_a_line(file: BinaryIO) -> bool:
    if not file.tell():
        return False
    file.seek(-1, os.SEEK_END)
    return file.read(1) != b"\n"
