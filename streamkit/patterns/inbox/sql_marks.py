"""Marks in a table of a database, in the transaction of the listener: the effect and its mark are committed together.

::

    claim     BEGIN; INSERT the mark            unique: a second run waits in no query, its mark is busy or done
    listener  works in the same session         a parameter Annotated[AsyncSession, InboxSession()]
    commit    COMMIT                            effect and mark, or neither

How a claim does not wait for the transaction of another run, which has inserted the same mark and is still open:

    PostgreSQL   the INSERT happens only if pg_try_advisory_xact_lock gives the mark's lock
    MariaDB      innodb_lock_wait_timeout is 0 for the INSERT
    SQLite       has one writer at a time: the INSERT waits for any other one as the driver's `timeout` says
    others       the INSERT waits as the database says
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Executor
from typing import Any, ClassVar, TypeVar

from sqlalchemy import (
    BigInteger,
    Column,
    CursorResult,
    Delete,
    Dialect,
    MetaData,
    Select,
    String,
    Table,
    delete,
    insert,
    select,
    text,
)
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker

from streamkit.messaging.cause import kind_and_text
from streamkit.patterns.inbox.claim_rounds import WITHOUT_WAITING, claim_in_rounds, claimed_or_abandoned
from streamkit.patterns.inbox.marks import INBOX_TABLE, SHOWN, Claim, Mark, MarkStore, lock_number
from streamkit.patterns.inbox.refusals import interfered, is_locked
from streamkit.patterns.inbox.uninterrupted_calls import call_to_its_end
from streamkit.patterns.storable_text import storable

__all__ = ["SqlMarks", "inbox_table"]

logger = logging.getLogger(__name__)

R = TypeVar("R")


def inbox_table(metadata: MetaData, name: str = INBOX_TABLE) -> Table:
    """Return the table of marks, added to the metadata of an application's tables.

    Args:
        metadata: The metadata, such as ``Base.metadata``; Alembic's autogenerate finds the table there.
        name: The table's name.
    """
    return Table(
        name,
        metadata,
        Column("mark", String(64), primary_key=True, comment="SHA-256 of scope and key"),
        Column("made_at", BigInteger, nullable=False, index=True, comment="milliseconds since 1970"),
        Column("scope", String(SHOWN), nullable=False, comment="the listener: its group and binding"),
        Column("message_key", String(SHOWN), nullable=False, comment="the beginning of the key"),
    )


class SqlMarks(MarkStore):
    """Marks in a table of PostgreSQL, MariaDB, SQLite or another database of SQLAlchemy's."""

    has_sessions: ClassVar[bool] = True

    def __init__(
        self, sessions: "async_sessionmaker[AsyncSession] | sessionmaker[Session]", table: Table | None = None
    ) -> None:
        """Make a store; the table must exist when the first message arrives.

        Args:
            sessions: Makes the sessions, one for each message: ``async_sessionmaker(engine)`` for listeners that are
                `async def`, ``sessionmaker(engine)`` for those that are `def`.
            table: The table that :func:`inbox_table` has returned; one with its default name if not given.
        """
        self.is_async = isinstance(sessions, async_sessionmaker)
        self._sessions = sessions
        self._table = inbox_table(MetaData()) if table is None else table

    async def claim(
        self, marks: Sequence[Mark], *, now_ms: int, expired_ms: int, threads: Callable[[], Executor]
    ) -> Claim:
        """Claim marks; see :meth:`MarkStore.claim`.

        Raises:
            SQLAlchemyError: The database cannot be reached, or refuses.
        """
        work = _Work(self._sessions(), threads)
        outcome = await claimed_or_abandoned(
            marks, lambda wanted: work(self._claim, wanted, now_ms, expired_ms), work.abandon
        )
        return _SqlClaim(self._table, work, *outcome)

    def _claim(
        self, session: Session, wanted: dict[str, Mark], now_ms: int, expired_ms: int
    ) -> Collection[Mark] | None:
        """Insert the marks in a transaction that stays open; see `claim_in_rounds`."""
        return claim_in_rounds(
            wanted,
            insert=lambda marks: self._insert(session, marks, now_ms),
            known=lambda marks: self._known(session, marks, expired_ms),
            roll_back=session.rollback,
            errors=DBAPIError,
            reason=lambda error: error.orig,
        )

    def _insert(self, session: Session, marks: dict[str, Mark], now_ms: int) -> bool:
        """Insert marks; return False if one is there, or another run is about to insert it."""
        table = self._table
        rows = [
            {
                "mark": digest,
                "made_at": now_ms,
                "scope": storable(mark.scope, SHOWN),
                "message_key": storable(mark.key, SHOWN),
            }
            for digest, mark in marks.items()
        ]
        dialect = session.connection().dialect
        if dialect.name == "postgresql":
            for digest in marks:
                if not session.scalar(text("SELECT pg_try_advisory_xact_lock(:lock)"), {"lock": lock_number(digest)}):
                    return False
        try:
            if _is_mariadb(dialect):
                values = ", ".join(f":{name}" for name in rows[0])
                # A colon would begin a parameter.
                quoted = dialect.identifier_preparer.format_table(table).replace(":", r"\:")
                inserted = f"INSERT INTO {quoted} ({', '.join(rows[0])}) VALUES ({values})"
                session.execute(text(WITHOUT_WAITING + inserted), rows)
            else:
                # One statement: psycopg's pipeline for several ones logs a warning if one of them fails.
                statement = insert(table) if len(rows) == 1 else insert(table).values(rows)
                session.execute(statement, rows[0] if len(rows) == 1 else None)
        except IntegrityError:
            return False
        return True

    def _known(self, session: Session, marks: Iterable[str], expired_ms: int) -> tuple[set[str], set[str]]:
        """Return those of the marks that are in the table, and those that were, but had expired and are deleted now."""
        table = self._table
        rows = _executed(session, select(table.c.mark, table.c.made_at).where(table.c.mark.in_(list(marks)))).all()
        session.rollback()
        expired = {mark for mark, made_ms in rows if made_ms < expired_ms}
        if expired:
            _executed(session, delete(table).where(table.c.mark.in_(expired), table.c.made_at < expired_ms))
            session.commit()
        return {mark for mark, _ in rows} - expired, expired

    async def clean_up(self, *, expired_ms: int, limit: int, threads: Callable[[], Executor]) -> int:
        """Delete up to ``limit`` marks made before ``expired_ms``; return their number.

        Raises:
            SQLAlchemyError: The database cannot be reached, or refuses.
        """
        work = _Work(self._sessions(), threads)
        try:
            return await work(self._delete_expired, expired_ms, limit)
        finally:
            await work.abandon()

    def _delete_expired(self, session: Session, expired_ms: int, limit: int) -> int:
        table = self._table
        oldest = select(table.c.mark).where(table.c.made_at < expired_ms).order_by(table.c.made_at).limit(limit)
        try:
            expired = list(_executed(session, oldest).scalars())
            session.rollback()
            if expired:
                _executed(session, delete(table).where(table.c.mark.in_(expired), table.c.made_at < expired_ms))
                session.commit()
        except DBAPIError as error:
            if is_locked(error.orig) or interfered(error.orig):  # the next clean-up deletes them
                return 0
            raise
        return len(expired)

    def __repr__(self) -> str:
        return f"<SqlMarks in {self._table.fullname}>"


class _Work:
    """Runs functions of a session where the session belongs: on the loop, or on a thread."""

    def __init__(self, session: AsyncSession | Session, threads: Callable[[], Executor]) -> None:
        self.session = session
        self._threads = threads

    async def __call__(self, function: Callable[..., R], *arguments: Any) -> R:
        """Call ``function(session, *arguments)``."""
        session = self.session
        if isinstance(session, AsyncSession):
            return await session.run_sync(function, *arguments)
        return await call_to_its_end(self._threads(), function, session, *arguments)

    async def abandon(self) -> None:
        """Roll back and close the session; an error is logged."""
        try:
            await self(_rolled_back)
        except (SQLAlchemyError, RuntimeError) as error:  # RuntimeError: the threads are closed
            logger.warning("A transaction of the inbox could not be rolled back: %s", kind_and_text(error))


def _rolled_back(session: Session) -> None:
    try:
        session.rollback()
    finally:
        session.close()


class _SqlClaim(Claim):
    def __init__(
        self, table: Table, work: _Work, claimed: Collection[Mark], done: Collection[Mark], busy: Collection[Mark]
    ) -> None:
        super().__init__(claimed, done, busy, work.session)
        self._table = table
        self._work = work

    async def commit(self, done: Collection[Mark]) -> None:
        """Commit the transaction: what the listener did in it, and the marks that are in ``done``.

        Raises:
            SQLAlchemyError: The database refused, or the answer is lost: then a later delivery finds out.
        """
        dropped = [mark.digest for mark in self.claimed if mark not in done]
        try:
            await self._work(self._commit, dropped)
        except BaseException:
            await self._work.abandon()
            raise

    def _commit(self, session: Session, dropped: list[str]) -> None:
        if dropped:
            session.execute(delete(self._table).where(self._table.c.mark.in_(dropped)))
        if session.connection().dialect.name == "postgresql":
            # Fails if the listener has caught the error of a statement: COMMIT would roll back without an error.
            session.execute(text("SELECT 1"))
        session.commit()
        session.close()

    async def abandon(self) -> None:
        """Roll the transaction back."""
        if self.claimed:
            await self._work.abandon()


def _is_mariadb(dialect: Dialect) -> bool:
    return bool(getattr(dialect, "is_mariadb", False))


def _executed(session: Session, statement: "Select[*tuple[Any, ...]] | Delete") -> "CursorResult[*tuple[Any, ...]]":
    """Execute a statement; on MariaDB it fails instead of waiting for a lock, as a SELECT may at `SERIALIZABLE`."""
    connection = session.connection()
    if not _is_mariadb(connection.dialect):
        return connection.execute(statement)
    compiled = statement.compile(dialect=connection.dialect, compile_kwargs={"literal_binds": True})
    return connection.exec_driver_sql(f"{WITHOUT_WAITING}{compiled}")
