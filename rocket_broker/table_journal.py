"""What was added to a table since its file was last written.

::

    topics.json        the whole table, written anew a little later, or with the next change made by hand
    topics.json.log    {"version":{…},"entry":{…}}        one line for each addition since
                       {"version":{…},"entry":{…}}

A producer that makes ten thousand topics would have the whole table written ten thousand times: what appears by
itself is only noted here at first. A line counts when its version is newer than that of the table that was read,
so it does no harm when the broker is killed between writing the table and clearing the journal. Half a line, of a
killed broker or a full disk, was never answered for: what comes next begins a line of its own.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from rocket_broker.private_files import make_private_directory, open_private
from rocket_remoting.bodies import Body, DataVersion, decode_body, encode_body
from rocket_remoting.errors import RemotingError

__all__ = ["TableJournal"]

_log = logging.getLogger(__name__)

B = TypeVar("B", bound=Body)

MERGE_SECONDS = 2.0


class _Line(msgspec.Struct):
    version: DataVersion
    entry: msgspec.Raw


class TableJournal:
    """The additions to one table.

    Args:
        table: The table's file; the journal's name is that and ``.log``.
        durable: Wait at each addition until the disk has it.
    """

    def __init__(self, table: Path, *, durable: bool = False) -> None:
        self.path = table.with_name(table.name + ".log")
        self._table = table
        self._durable = durable
        self._added = asyncio.Event()

    def append(self, version: DataVersion, entries: Iterable[Body]) -> None:
        """Note additions; they are on the disk, under one version of the table, when this returns.

        Raises:
            OSError: They cannot be written.
        """
        head = b'{"version":' + encode_body(version) + b',"entry":'
        lines = [head + encode_body(entry) + b"}\n" for entry in entries]
        self._added.set()  # first: what cannot be noted is to be in the table all the same, as soon as it can
        make_private_directory(self.path.parent)
        with open_private(self.path, "a+b") as file:
            if _ends_amid_a_line(file):
                lines.insert(0, b"\n")
            file.write(b"".join(lines))
            if self._durable:
                file.flush()
                os.fsync(file.fileno())

    def read(self, after: DataVersion, type_: type[B]) -> list[tuple[DataVersion, B]]:
        """Return the additions newer than a version of the table, with their versions; they are still to be merged."""
        additions: list[tuple[DataVersion, B]] = []
        try:
            lines = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return additions
        for line in lines[:-1]:
            try:
                read = msgspec.json.decode(line, type=_Line)
                if read.version.counter > after.counter:
                    additions.append((read.version, decode_body(bytes(read.entry), type_)))
            except (msgspec.MsgspecError, RemotingError) as e:
                _log.warning("%s: a line is passed over: %s", self.path, e)
        if additions:
            self._added.set()
        return additions

    def clear(self) -> None:
        """Forget the additions: the table's file has them."""
        self.path.unlink(missing_ok=True)
        self._added.clear()

    def merge(self, save: Callable[[], None]) -> None:
        """Have the table written if something was added since it was; on a full disk the journal holds on to it."""
        if not self._added.is_set():
            return
        try:
            save()
        except OSError as e:
            _log.error("what is in %s could not be written into the table, trying again: %s", self.path, e)

    async def merge_periodically(self, save: Callable[[], None]) -> None:
        """Have the table written two seconds after additions; runs until cancelled."""
        while True:
            await self._added.wait()
            await asyncio.sleep(MERGE_SECONDS)
            await asyncio.to_thread(_sync, self._table)  # who writes it waits for that: here nobody else does
            self.merge(save)


def _sync(table: Path) -> None:
    with suppress(OSError), table.open("rb") as file:
        os.fsync(file.fileno())


def _ends_amid_a_line(file: BinaryIO) -> bool:
    if not file.tell():
        return False
    file.seek(-1, os.SEEK_END)
    return file.read(1) != b"\n"
