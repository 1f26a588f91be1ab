"""Stores of marks follow the model: in memory, and in SQLite."""

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import sqlalchemy
from hypothesis import settings
from sqlalchemy import orm

from streamkit.patterns.inbox import MarkStore, MemoryMarks, SqlMarks, inbox_table
from tests.properties.inbox_model import InboxModel


class MemoryModel(InboxModel):
    """The store in memory."""

    def make_store(self) -> MarkStore:
        """Return an empty store."""
        return MemoryMarks()


class SqliteModel(InboxModel):
    """The store in SQLite, which has one writer at a time."""

    locks_others = True

    def make_store(self) -> MarkStore:
        """Return an empty store."""
        self.directory = tempfile.TemporaryDirectory()
        path = Path(self.directory.name) / "marks.db"
        self.engine = sqlalchemy.create_engine(f"sqlite:///{path}", connect_args={"timeout": 0})
        metadata = sqlalchemy.MetaData()
        marks = inbox_table(metadata)
        self.table = sqlalchemy.Table("effects", metadata, sqlalchemy.Column("key", sqlalchemy.String))
        with self.engine.begin() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")  # readers do not wait for the writer
        metadata.create_all(self.engine)
        return SqlMarks(orm.sessionmaker(self.engine), marks)

    async def add_effect(self, session: Any, key: str) -> None:
        """Add an effect to the transaction of a claim."""
        session.execute(sqlalchemy.insert(self.table).values(key=key))

    async def effects(self) -> Counter[str]:
        """Return how often each key has had its effect."""
        with self.engine.connect() as connection:
            return Counter(connection.scalars(sqlalchemy.select(self.table.c.key)))

    def close(self) -> None:
        """Close the database."""
        self.engine.dispose()
        self.directory.cleanup()


class TestMemory(MemoryModel.TestCase):  # type: ignore[name-defined,misc]
    """The store in memory follows the model."""

    settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


class TestSqlite(SqliteModel.TestCase):  # type: ignore[name-defined,misc]
    """The store in SQLite follows the model."""

    settings = settings(max_examples=10, stateful_step_count=25, deadline=None)
