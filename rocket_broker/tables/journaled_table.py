"""A table of named entries in one of Apache's JSON files: the topics or the consumer groups of a broker.

Every change is written to a file before the call returns, and then reported to the listeners. A small table's file is
replaced at each change. A change of a large table is appended to its journal (`TableJournal`), and the file is replaced
a little later, in steps.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Generic, TypeVar

from rocket_broker.files.table_file import TableFile
from rocket_broker.files.table_journal import NO_TABLE, TableJournal
from rocket_broker.limits.owner_quota import OwnerQuota
from rocket_broker.limits.refusal import Refusal
from rocket_broker.loop.loop_steps import collected, run_in_steps
from rocket_broker.settings.broker_settings import BrokerSettings, FlushDiskType
from rocket_remoting.clock import Clock
from rocket_remoting.wire.bodies import Body, DataVersion, LongBody, encode_in_pieces
from rocket_remoting.wire.codes import ResponseCode

__all__ = ["JournaledTable"]

logger = logging.getLogger(__name__)

C = TypeVar("C", bound=Body)
T = TypeVar("T")

_MOST_LOGGED = 20
"""Entries of one request that are logged: logging an entry takes as long as creating it."""


class JournaledTable(ABC, Generic[C]):
    """The entries of one table by name, with the table's file and journal.

    Attributes:
        data_version: The version of the table, which each change increments.
        journal: The changes since the file was written.
        on_change: Called after each change of the table.
    """

    _KIND: ClassVar[str]
    """What an entry is, for log lines."""
    _LIMIT: ClassVar[str]
    """The key of the setting that limits the number of entries."""
    _STANDARD_JSON: ClassVar[bool]
    """Whether the JSON has all names in quotes."""
    _type: type[C]

    def __init__(
        self, settings: BrokerSettings, clock: Clock, *, file: str, configs: dict[str, C], quota: OwnerQuota
    ) -> None:
        """Create the table with its predefined entries; `load` reads the file.

        Args:
            settings: The broker's settings.
            clock: Wall-clock time, for the version of the table.
            file: The name of the file.
            configs: The predefined entries, which every broker has.
            quota: Counts the entries by their owners.
        """
        self.on_change: list[Callable[[], None]] = []
        self.data_version = DataVersion(timestamp=clock.now_ms(), counter=0)
        self._settings = settings
        self._clock = clock
        durable = settings.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._file = TableFile(settings.config_dir / file, durable=durable)
        self.journal = TableJournal(self._file.path, durable=durable)
        self._configs = configs
        self._quota = quota
        self._owners: dict[str, str] = {}

    @abstractmethod
    def body(self) -> LongBody:
        """Return the whole present table in the form of the file and of answers to tools."""

    @abstractmethod
    def _decoded(self, data: bytes) -> tuple[Mapping[str, C], DataVersion]:
        """Return the entries and the version in a file."""

    @abstractmethod
    def _name_of(self, config: C) -> str:
        """Return an entry's name."""

    @abstractmethod
    def _limit(self) -> int:
        """Return the maximum number of entries."""

    @abstractmethod
    def _unknown(self, name: str) -> str:
        """Return the text for a name without an entry."""

    def load(self) -> bool:
        """Read the file and the journal; entries of the file replace predefined ones.

        Returns:
            True if there was a file, or a journal with changes that are in no file yet.

        Raises:
            DamagedTable: The file and its backup are both unreadable.
            TableUnreadable: The file system refuses to read the file.
        """
        stored = self._file.load(self._decoded)
        if stored is not None:
            configs, self.data_version = stored
            self._configs.update(configs)
        changes = self.journal.read(self.data_version if stored else NO_TABLE, self._type)
        for change in changes:
            if change.entry is not None:
                self._configs[self._name_of(change.entry)] = change.entry
            else:
                self._configs.pop(change.removed, None)
            self.data_version = change.version
        return stored is not None or bool(changes)

    async def take_over(self, data: bytes) -> None:
        """Replace all entries by those of a master's table, which has another version; the file is written later.

        Args:
            data: The master's table in the form of `body`.

        Raises:
            ValueError: The data is no such table, as is RemotingError.
        """
        configs, version = await asyncio.to_thread(self._decoded, data)
        if version != self.data_version:
            self._replace_all(configs, version)

    def take_over_entries(self, entries: Iterable[C]) -> None:
        """Replace all entries by those of a master, which gives no version; the file is written later."""
        configs = {self._name_of(entry): entry for entry in entries}
        if configs != self._configs:
            self._replace_all(configs, self.data_version.next(self._clock.now_ms()))

    def _replace_all(self, configs: Mapping[str, C], version: DataVersion) -> None:
        self._configs.clear()
        self._configs.update(configs)
        self.data_version = version
        self.journal.note_change()
        logger.info("took over %d %ss of the master", len(configs), self._KIND)
        self._notify()

    def get(self, name: str) -> C | None:
        """Return the entry; None if there is none of this name."""
        return self._configs.get(name)

    def configs(self) -> Mapping[str, C]:
        """Return all entries by name; a view that callers do not change."""
        return self._configs

    def delete(self, name: str) -> bool:
        """Delete an entry; return whether it existed.

        Raises:
            OSError: The change could not be written. The entry is deleted in memory, and the file is written later.
        """
        if self._configs.pop(name, None) is None:
            return False
        self._quota.count(-1, self._owners.pop(name, ""))
        logger.info("%s %s deleted", self._KIND, name)
        self._note(removed=[name])
        return True

    def save(self) -> None:
        """Write the file in one step. For the start and the stop, when no clients wait.

        Raises:
            OSError: The file cannot be written.
        """
        self.journal.begin_merge(self.data_version)
        self._file.write(b"".join(self._pieces()))
        self.journal.end_merge()

    async def write(self) -> None:
        """Write the file, encoded in steps and written by a thread.

        Raises:
            OSError: The file cannot be written.
        """
        self.journal.begin_merge(self.data_version)
        pieces = collected(self._pieces())
        await self._file.write_and_sync(await run_in_steps(f"encoding the table of {self._KIND}s", pieces))
        self.journal.end_merge()

    def _pieces(self) -> Iterator[bytes]:
        return encode_in_pieces(self.body(), standard_json=self._STANDARD_JSON)

    def _check_capacity(
        self, names: Iterable[str], owner: str, code: ResponseCode = ResponseCode.SYSTEM_ERROR
    ) -> set[str]:
        """Check that new entries fit into the table and the owner's quota.

        Returns:
            The names that have no entry yet.

        Raises:
            Refusal: The entries do not fit.
        """
        new = {name for name in names if name not in self._configs}
        if new and len(self._configs) + len(new) > self._limit():
            raise Refusal(
                code,
                f"{self._unknown(min(new))} and is not created: this broker has {len(self._configs)} {self._KIND}s, "
                f"at most {self._limit()} ({self._LIMIT})",
            )
        self._quota.check(len(new), owner, code=code)
        return new

    def _fitting(self, new: Sequence[T], owner: str) -> Sequence[T]:
        """Return the first of the new entries that fit into the table and the owner's quota."""
        capacity = min(self._limit() - len(self._configs), self._quota.remaining(owner))
        return new[: max(0, capacity)]

    def _own(self, names: Collection[str], owner: str) -> None:
        """Count new entries for their owner's quota."""
        self._quota.count(len(names), owner)
        if owner:
            self._owners.update(dict.fromkeys(names, owner))

    def _put(self, configs: Sequence[C]) -> None:
        """Add or replace entries, as one change.

        Raises:
            OSError: The change could not be written; the entries are changed in memory, and the file is written later.
        """
        if configs:
            self._configs.update((self._name_of(config), config) for config in configs)
            self._note(configs)

    def _note(self, configs: Sequence[C] = (), *, removed: Sequence[str] = ()) -> None:
        self.data_version = self.data_version.next(self._clock.now_ms())
        try:
            self.journal.note(self.save, len(self._configs), self.data_version, configs, removed=removed)
        finally:  # the table has changed in memory even if writing the change failed
            self._notify()

    def _notify(self) -> None:
        for listener in self.on_change:
            listener()

    def _logged(self, entries: Sequence[T]) -> Iterator[T]:
        """Yield the entries of a request that get a log line each, and log the number of the others."""
        yield from entries[:_MOST_LOGGED]
        if len(entries) > _MOST_LOGGED:
            logger.info("and %d %ss more, in the same request", len(entries) - _MOST_LOGGED, self._KIND)

    def __contains__(self, name: str) -> bool:
        return name in self._configs

    def __iter__(self) -> Iterator[str]:
        return iter(self._configs)

    def __len__(self) -> int:
        return len(self._configs)
