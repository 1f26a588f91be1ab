"""The local store of an application: an SQLite file with the messages that could not be sent.

    kept   number INTEGER PRIMARY KEY, binding, order_key, kept_ms, headers, payload

The file has a write-ahead log, and each transaction is flushed to the disk before `add` returns (``synchronous=FULL``).
Calls of one moment share a transaction. SQLite was measured beside LMDB, in messages of 500 bytes per second on an SSD:
800 against 270 with a flush for each message, 29,000 against 30,000 with a flush for each hundred; so SQLite, which
comes with Python.

One thread works on the file. The process holds the file's lock as long as it is open: two processes that send the same
messages would send them twice.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeAlias, TypeVar

from streamkit.errors import ConfigurationError
from streamkit.patterns.local_store.kept_message import KeptMessage

__all__ = ["MEMORY", "LocalStore", "Row"]

R = TypeVar("R")

MEMORY: Final = ":memory:"
"""The path of a store that lives in memory."""

Row: TypeAlias = tuple[str, str | None, int, bytes, bytes]
"""A message to keep: its binding, order key, time in milliseconds since 1970, headers and payload."""

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS kept (
    number INTEGER PRIMARY KEY AUTOINCREMENT, binding TEXT NOT NULL, order_key TEXT, kept_ms INTEGER NOT NULL,
    headers BLOB NOT NULL, payload BLOB NOT NULL
)
"""


class LocalStore:
    """Messages in a file, until `close`.

    Attributes:
        path: The file, or `MEMORY`.
        count: How many messages it holds, those being written included.
        size: Their bytes.
    """

    def __init__(self, path: str) -> None:
        """Open or create a file.

        Raises:
            ConfigurationError: It cannot be opened, or another process has it open.
        """
        self.path = path
        self._connection = self._opened(path)
        self._thread = ThreadPoolExecutor(1, "local store")
        self._waiting: list[tuple[Row, asyncio.Future[int]]] = []
        self._writing: asyncio.Task[None] | None = None
        size = "coalesce(sum(length(headers) + length(payload)), 0)"
        self.count, self.size = self._connection.execute(f"SELECT count(*), {size} FROM kept").fetchone()

    @staticmethod
    def _opened(path: str) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = None
        try:
            connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(_SCHEMA)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            hint = ": another process has it open; give each one a file of its own" if "locked" in str(error) else ""
            raise ConfigurationError(f"the local store {path} cannot be opened: {error}{hint}") from error
        return connection

    def kept(self, binding: str) -> list[KeptMessage]:
        """Return the messages of a binding, in their order; called when the application starts."""
        rows = self._connection.execute(
            "SELECT number, order_key, kept_ms, length(headers) + length(payload) FROM kept WHERE binding = ? "
            "ORDER BY number",
            [binding],
        )
        return [KeptMessage(*row) for row in rows]

    async def add(self, row: Row) -> int:
        """Keep a message, and return its number when it is on the disk.

        Raises:
            sqlite3.Error: It could not be written, as on a full disk; nothing is kept.
        """
        size = len(row[3]) + len(row[4])
        self.count, self.size = self.count + 1, self.size + size
        written: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append((row, written))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="write to the local store")
        try:
            return await written
        except sqlite3.Error:
            self.count, self.size = self.count - 1, self.size - size
            raise

    async def _write(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                try:
                    numbers = await self._on_thread(self._insert, [row for row, _ in batch])
                except sqlite3.Error as error:
                    for _, written in batch:
                        written.set_exception(error)
                else:
                    for (_, written), number in zip(batch, numbers, strict=True):
                        written.set_result(number)
        finally:
            self._writing = None

    def _insert(self, rows: Sequence[Row]) -> list[int]:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            numbers = [connection.execute(_INSERT, row).lastrowid for row in rows]
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return [number for number in numbers if number is not None]

    async def read(self, messages: Sequence[KeptMessage]) -> list[tuple[bytes, bytes]]:
        """Return the headers and the payload of each message."""
        select = "SELECT headers, payload FROM kept WHERE number = ?"

        def read() -> list[tuple[bytes, bytes]]:
            return [self._connection.execute(select, [each.number]).fetchone() for each in messages]

        return await self._on_thread(read)

    async def remove(self, messages: Sequence[KeptMessage]) -> None:
        """Forget messages that were sent or given up.

        Raises:
            sqlite3.Error: It could not be written: they are sent again after the next start.
        """
        self.count -= len(messages)
        self.size -= sum(message.size for message in messages)

        def remove() -> None:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany("DELETE FROM kept WHERE number = ?", [[each.number] for each in messages])
            self._connection.execute("COMMIT")

        await self._on_thread(remove)

    async def _on_thread(self, function: Callable[..., R], *arguments: object) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def close(self) -> None:
        """Finish what is being written, and close the file."""
        self._thread.shutdown()
        self._connection.close()

    def __repr__(self) -> str:
        return f"<LocalStore {self.path!r} of {self.count}>"


_INSERT: Final = "INSERT INTO kept (binding, order_key, kept_ms, headers, payload) VALUES (?, ?, ?, ?, ?)"
