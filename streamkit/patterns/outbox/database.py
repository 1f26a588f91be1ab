"""The database of an outbox, for synchronous and asynchronous engines alike.

Statements are written once, as functions of a connection. An asynchronous engine runs them on the loop, a synchronous
one in a thread.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final, TypeVar

from sqlalchemy import Connection, Engine, Table, create_engine, event, pool
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.schema import CreateIndex, CreateTable

__all__ = ["Database", "clock_held", "engine_in_memory"]

T = TypeVar("T")

_WITH_LEVELS: Final = ("postgresql", "mysql", "mariadb")


class Database:
    """Runs functions in transactions of their own.

    Attributes:
        engine: SQLAlchemy's engine.
    """

    def __init__(self, engine: Engine | AsyncEngine) -> None:
        self.engine = engine

    @property
    def dialect(self) -> str:
        """The database's name: `postgresql`, `mysql`, `mariadb` or `sqlite`."""
        return self.engine.dialect.name

    @property
    def is_in_memory(self) -> bool:
        """Whether only this process can change the data."""
        return self.dialect == "sqlite" and self.engine.url.database in (None, "", ":memory:")

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Call `work` in a transaction and commit; roll back if it raises. Each statement sees what is committed then.

        Cancelling the caller does not stop a thread: its transaction ends as it would have.
        """
        if isinstance(self.engine, Engine):
            return await asyncio.to_thread(self._run, self.engine, work)
        with clock_held():
            async with self.engine.connect() as connection:
                if self.dialect in _WITH_LEVELS:
                    await connection.execution_options(isolation_level="READ COMMITTED")
                async with connection.begin():
                    return await connection.run_sync(work)

    def run_sync(self, work: Callable[[Connection], T]) -> T:
        """Do the same in this thread, which may block.

        Raises:
            TypeError: The engine is asynchronous.
        """
        if not isinstance(self.engine, Engine):
            raise TypeError("an asynchronous engine cannot be used by blocking code")
        return self._run(self.engine, work)

    async def close_memory(self) -> None:
        """Close the connections of an asynchronous database in memory: they belong to the loop that ends now."""
        if self.is_in_memory and isinstance(self.engine, AsyncEngine):
            with clock_held():
                await self.engine.dispose()

    def _run(self, engine: Engine, work: Callable[[Connection], T]) -> T:
        with engine.connect() as connection:
            if self.dialect in _WITH_LEVELS:
                connection.execution_options(isolation_level="READ COMMITTED")
            with connection.begin():
                return work(connection)


def clock_held() -> AbstractContextManager[None]:
    """Stop virtual time, if the loop's is virtual: drivers work on sockets and threads that it does not know."""
    hold: Callable[[], AbstractContextManager[None]] | None = getattr(asyncio.get_running_loop(), "hold", None)
    return nullcontext() if hold is None else hold()


@contextmanager
def engine_in_memory(*tables: Table, asynchronous: bool) -> Iterator[Engine | AsyncEngine]:
    """Yield an engine whose database is in this process's memory and has `tables`.

    There is one connection, which transactions take in turns.
    """
    one = {"pool_size": 1, "max_overflow": 0, "pool_timeout": 5}
    made: Engine | AsyncEngine
    if asynchronous:
        made = create_async_engine("sqlite+aiosqlite://", poolclass=pool.AsyncAdaptedQueuePool, **one)
    else:
        options = {"check_same_thread": False}
        made = create_engine("sqlite://", poolclass=pool.QueuePool, connect_args=options, **one)
    engine = made if isinstance(made, Engine) else made.sync_engine

    statements = [str(CreateTable(table).compile(dialect=engine.dialect)) for table in tables]
    for index in (index for table in tables for index in table.indexes):
        statements.append(str(CreateIndex(index).compile(dialect=engine.dialect)))

    @event.listens_for(engine, "connect")
    def make_tables(connection: DBAPIConnection, _: object) -> None:
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement)
        cursor.close()

    try:
        yield made
    finally:
        if isinstance(made, Engine):
            made.dispose()
