"""The local store of an application: an SQLite file with the messages that could not be sent.

    kept   number INTEGER PRIMARY KEY, binding, order_key, kept_ms, headers, payload

``PRAGMA application_id`` tells a local store from other files of SQLite, and ``PRAGMA user_version`` is its format.

The file has a write-ahead log, and each transaction is flushed to the disk before `add` returns (``synchronous=FULL``).
Calls of one moment share a transaction. SQLite was measured beside LMDB, in messages of 500 bytes per second on an SSD:
800 against 270 with a flush for each message, 29,000 against 30,000 with a flush for each hundred; so SQLite, which
comes with Python.

One thread works on the file. The process holds the file's lock as long as it is open: two processes that send the same
messages would send them twice.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, TypeAlias, TypeVar

from streamkit.errors import ConfigurationError
from streamkit.patterns.local_store.kept_message import KeptMessage

__all__ = ["MEMORY", "LocalStore", "Row"]

R = TypeVar("R")

MEMORY: Final = ":memory:"
"""The path of a store that lives in memory."""

Row: TypeAlias = tuple[str, str | None, int, bytes, bytes | None]
"""A message to keep: its binding, order key, time in milliseconds since 1970, headers, and payload if it has one."""

_APPLICATION: Final = 0x534B4C53
"""The id of local stores among the files of SQLite: `SKLS`."""
_FORMAT: Final = 1
"""The version of the file's format; it grows when the table changes."""
_HINTS: Final = {
    "locked": "another process has it open; give each one a file of its own",
    "unable to open": "create its directory, which the process must be able to write",
    "readonly": "the process must be able to write the file and its directory",
    "malformed": "the file is damaged; move it away to start with an empty one",
    "not a database": "this is another file, or a damaged one; move it away to start with an empty one",
}
"""What to do about an error, by a part of SQLite's text."""

_SIZE: Final = "length(headers) + coalesce(length(payload), 0)"
_SCHEMA: Final = """
CREATE TABLE kept (
    number INTEGER PRIMARY KEY AUTOINCREMENT, binding TEXT NOT NULL, order_key TEXT, kept_ms INTEGER NOT NULL,
    headers BLOB NOT NULL, payload BLOB
)
"""


class LocalStore:
    """Messages in a file, until `close`.

    Attributes:
        path: The file, or `MEMORY`.
        count: The number of its messages, those being written included.
        size: The bytes of its messages.
    """

    def __init__(self, path: str) -> None:
        """Open or create a file.

        Raises:
            ConfigurationError: It cannot be opened, is damaged or is not a local store, or another process has it open.
        """
        self.path = path
        self._connection, self.count, self.size = _opened(path)
        self._thread = ThreadPoolExecutor(1, "local store")
        self._waiting: list[tuple[Row, asyncio.Future[int]]] = []
        self._writing: asyncio.Task[None] | None = None

    def kept(self, binding: str) -> list[KeptMessage]:
        """Return the messages of a binding, in their order; called when the application starts.

        Raises:
            ConfigurationError: The file is damaged.
        """
        statement = f"SELECT number, order_key, kept_ms, {_SIZE} FROM kept WHERE binding = ? ORDER BY number"
        try:
            return [KeptMessage(*row) for row in self._connection.execute(statement, [binding])]
        except sqlite3.Error as error:
            raise _unusable(self.path, str(error)) from error

    async def add(self, row: Row) -> int:
        """Keep a message, and return its number when it is on the disk.

        Raises:
            sqlite3.Error: It could not be written, as on a full disk; nothing is kept.
        """
        size = len(row[3]) + len(row[4] or b"")
        self.count, self.size = self.count + 1, self.size + size
        written: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append((row, written))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="write to the local store")
        try:
            return await written
        except Exception:
            self.count, self.size = self.count - 1, self.size - size
            raise

    async def _write(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                try:
                    numbers = await self._on_thread(self._insert, [row for row, _ in batch])
                except Exception as error:  # raised to the callers, who would wait for ever otherwise
                    for _, written in batch:
                        written.set_exception(error)
                else:
                    for (_, written), number in zip(batch, numbers, strict=True):
                        written.set_result(number)
        finally:
            self._writing = None

    def _insert(self, rows: Sequence[Row]) -> list[int]:
        with self._transaction() as connection:
            numbers = [connection.execute(_INSERT, row).lastrowid for row in rows]
        return [number for number in numbers if number is not None]

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:  # SQLite ends it itself after some errors
                connection.execute("ROLLBACK")
            raise

    async def read(self, messages: Sequence[KeptMessage]) -> list[tuple[bytes, bytes | None]]:
        """Return the headers of each message, and its payload, None if it has none."""
        select = "SELECT headers, payload FROM kept WHERE number = ?"

        def read() -> list[tuple[bytes, bytes | None]]:
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
            with self._transaction() as connection:
                connection.executemany("DELETE FROM kept WHERE number = ?", [[each.number] for each in messages])

        await self._on_thread(remove)

    async def _on_thread(self, function: Callable[..., R], *arguments: object) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def close(self) -> None:
        """Wait for the writes under way, and close the file."""
        self._thread.shutdown()
        self._connection.close()

    def __repr__(self) -> str:
        return f"<LocalStore {self.path!r} of {self.count}>"


_INSERT: Final = "INSERT INTO kept (binding, order_key, kept_ms, headers, payload) VALUES (?, ?, ?, ?, ?)"


def _opened(path: str) -> tuple[sqlite3.Connection, int, int]:
    """Open a file, or create it; return the connection, the number of messages and their bytes.

    Raises:
        ConfigurationError: It cannot be opened, is damaged or is not a local store, or another process has it open.
    """
    connection: sqlite3.Connection | None = None
    try:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("BEGIN IMMEDIATE")
        _prepare(connection, path)
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        return connection, *connection.execute(f"SELECT count(*), coalesce(sum({_SIZE}), 0) FROM kept").fetchone()
    except BaseException as error:
        if connection is not None:
            connection.close()
        if isinstance(error, sqlite3.Error):
            raise _unusable(path, str(error)) from error
        raise


def _prepare(connection: sqlite3.Connection, path: str) -> None:
    """Create the table in a file that is empty; a file of another kind is left as it is.

    Raises:
        ConfigurationError: The file is not a local store, or another version of streamkit has made it.
    """
    [application] = connection.execute("PRAGMA application_id").fetchone()
    [form] = connection.execute("PRAGMA user_version").fetchone()
    if (application, form) == (_APPLICATION, _FORMAT):
        return
    if application == _APPLICATION:
        raise _unusable(
            path,
            f"its format is {form}, and this version of streamkit reads {_FORMAT}: send what it keeps with the "
            "version that has written it",
        )
    if connection.execute("SELECT 1 FROM sqlite_master").fetchone() is not None:
        raise _unusable(path, "it is a database of something else: give the local store a file of its own")
    connection.execute(_SCHEMA)
    connection.execute(f"PRAGMA application_id={_APPLICATION}")
    connection.execute(f"PRAGMA user_version={_FORMAT}")


def _unusable(path: str, reason: str) -> ConfigurationError:
    hint = next((f": {hint}" for part, hint in _HINTS.items() if part in reason), "")
    return ConfigurationError(f"the local store {path} cannot be opened: {reason}{hint}")
