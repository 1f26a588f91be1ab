"""Marks in a table of Django's database, in the transaction of the listener: what its models do is committed with them.

A connection of Django's belongs to a thread, so claim, listener and commit run on one thread:

::

    claim     atomic() begins; INSERT the mark     as `SqlMarks` does it, without waiting for another run
    listener  a `def` on the same thread           its models use the connection, inside the transaction
    commit    atomic() ends                        effect and mark, or neither
"""

import logging
import weakref
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Executor
from typing import Any, ClassVar, TypeVar

from django.db import DEFAULT_DB_ALIAS, DatabaseError, IntegrityError, connections, transaction
from django.db.transaction import TransactionManagementError

from streamkit.listeners.listener_threads import ListenerThreads
from streamkit.messaging.cause import kind_and_text
from streamkit.patterns.inbox.claim_rounds import WITHOUT_WAITING, claim_in_rounds, claimed_or_abandoned
from streamkit.patterns.inbox.marks import INBOX_TABLE, SHOWN, Claim, Mark, MarkStore, lock_number
from streamkit.patterns.inbox.refusals import interfered, is_locked
from streamkit.patterns.inbox.uninterrupted_calls import call_to_its_end
from streamkit.patterns.storable_text import storable

__all__ = ["DjangoMarks"]

logger = logging.getLogger(__name__)

R = TypeVar("R")


class DjangoMarks(MarkStore):
    """Marks in a table of a database of Django's, for listeners that are `def`."""

    has_threads: ClassVar[bool] = True
    is_async = False

    def __init__(self, using: str = DEFAULT_DB_ALIAS, table: str = INBOX_TABLE) -> None:
        """Make a store; the table must exist when the first message arrives.

        Args:
            using: The alias of Django's connection.
            table: The table's name; `streamkit inbox schema` prints the statements that create it.
        """
        self._using = using
        self._table = table
        self._idle: list[ListenerThreads] = []
        weakref.finalize(self, _end, self._idle)

    async def claim(
        self, marks: Sequence[Mark], *, now_ms: int, expired_ms: int, threads: Callable[[], Executor]
    ) -> Claim:
        """Claim marks; see :meth:`MarkStore.claim`.

        Raises:
            django.db.DatabaseError: The database cannot be reached, or refuses.
        """
        work = _Work(self._idle, self._using, self._table)
        outcome = await claimed_or_abandoned(
            marks, lambda wanted: work(work.transaction.claim, wanted, now_ms, expired_ms), work.abandon
        )
        return _DjangoClaim(work, *outcome)

    async def clean_up(self, *, expired_ms: int, limit: int, threads: Callable[[], Executor]) -> int:
        """Delete up to ``limit`` marks made before ``expired_ms``; return their number.

        Raises:
            django.db.DatabaseError: The database cannot be reached, or refuses.
        """
        work = _Work(self._idle, self._using, self._table)
        try:
            return await work(work.transaction.delete_expired, expired_ms, limit)
        finally:
            await work.abandon()

    def __repr__(self) -> str:
        return f"<DjangoMarks in {self._table} of {self._using!r}>"


def _end(threads: list[ListenerThreads]) -> None:
    for each in threads:
        each.shutdown(wait=False)


class _Work:
    """Runs functions on one thread, which nothing else uses until `release`."""

    def __init__(self, idle: list[ListenerThreads], using: str, table: str) -> None:
        self._idle = idle
        self.thread = idle.pop() if idle else ListenerThreads(1, "streamkit inbox of Django")
        self.transaction = _Transaction(using, table)

    async def __call__(self, function: Callable[..., R], *arguments: Any) -> R:
        """Call a function on the thread."""
        return await call_to_its_end(self.thread, function, *arguments)

    async def abandon(self) -> None:
        """Roll back, and release the thread; an error is logged."""
        try:
            await self(self.transaction.roll_back)
        except DatabaseError as error:
            logger.warning("A transaction of the inbox could not be rolled back: %s", kind_and_text(error))
        finally:
            self.release()

    def release(self) -> None:
        """Release the thread, which the next claim may use then."""
        self._idle.append(self.thread)


class _Transaction:
    """The transaction of a claim. All methods run on the thread whose connection it uses."""

    def __init__(self, using: str, table: str) -> None:
        self._using = using
        self._table = table
        self._atomic: transaction.Atomic | None = None

    def claim(self, wanted: dict[str, Mark], now_ms: int, expired_ms: int) -> Collection[Mark] | None:
        """Insert the marks in a transaction that stays open; see `claim_in_rounds`."""
        connections[self._using].close_if_unusable_or_obsolete()
        return claim_in_rounds(
            wanted,
            insert=lambda marks: self._insert(marks, now_ms),
            known=lambda marks: self._known(marks, expired_ms),
            roll_back=self._roll_back,
            errors=DatabaseError,
            reason=lambda error: error.__cause__,
        )

    def _insert(self, marks: dict[str, Mark], now_ms: int) -> bool:
        """Insert marks in a new transaction; return False if one is there, or another run is about to insert it."""
        self._begin()
        if connections[self._using].vendor == "postgresql":
            for digest in marks:
                ((is_mine,),) = self._executed("SELECT pg_try_advisory_xact_lock(%s)", [lock_number(digest)])
                if not is_mine:
                    return False
        rows = [
            (digest, now_ms, storable(mark.scope, SHOWN), storable(mark.key, SHOWN)) for digest, mark in marks.items()
        ]
        places = ", ".join(["(%s, %s, %s, %s)"] * len(rows))
        inserted = f"INSERT INTO {self._quoted} (mark, made_at, scope, message_key) VALUES {places}"
        try:
            self._executed(inserted, [value for row in rows for value in row])
        except IntegrityError:
            return False
        return True

    def _known(self, marks: Iterable[str], expired_ms: int) -> tuple[set[str], set[str]]:
        """Return those of the marks that are in the table, and those that were, but had expired and are deleted now."""
        digests = list(marks)
        places = ", ".join(["%s"] * len(digests))
        rows = self._executed(f"SELECT mark, made_at FROM {self._quoted} WHERE mark IN ({places})", digests)
        expired = {mark for mark, made_ms in rows if made_ms < expired_ms}
        self._delete(expired, expired_ms)
        return {mark for mark, _ in rows} - expired, expired

    def delete_expired(self, expired_ms: int, limit: int) -> int:
        """Delete up to ``limit`` marks made before ``expired_ms``; return their number."""
        oldest = f"SELECT mark FROM {self._quoted} WHERE made_at < %s ORDER BY made_at LIMIT %s"
        try:
            expired = [mark for (mark,) in self._executed(oldest, [expired_ms, limit])]
            self._delete(expired, expired_ms)
        except DatabaseError as error:
            if is_locked(error.__cause__) or interfered(error.__cause__):  # the next clean-up deletes them
                return 0
            raise
        return len(expired)

    def _delete(self, marks: Collection[str], expired_ms: int) -> None:
        if marks:
            places = ", ".join(["%s"] * len(marks))
            self._executed(
                f"DELETE FROM {self._quoted} WHERE mark IN ({places}) AND made_at < %s", [*marks, expired_ms]
            )

    def commit(self, dropped: Collection[str]) -> None:
        """Commit without the marks in ``dropped``.

        Raises:
            DatabaseError: The database refused; or the listener has caught an error of the database, after which the
                transaction can only be rolled back.
        """
        connection = connections[self._using]
        if connection.vendor == "postgresql":
            self._executed("SELECT 1", [])  # fails if a statement has failed; COMMIT would roll back without an error
        if connection.needs_rollback:
            raise TransactionManagementError(
                "the listener has caught an error of the database outside of an atomic block of its own, so its "
                "transaction can only be rolled back"
            )
        if dropped:
            places = ", ".join(["%s"] * len(dropped))
            self._executed(f"DELETE FROM {self._quoted} WHERE mark IN ({places})", list(dropped))
        atomic, self._atomic = self._atomic, None
        assert atomic is not None
        atomic.__exit__(None, None, None)
        connection.close_if_unusable_or_obsolete()

    def roll_back(self) -> None:
        """Roll back, if a transaction is open, and close the connection if Django would."""
        try:
            self._roll_back()
        finally:
            connections[self._using].close_if_unusable_or_obsolete()

    def _begin(self) -> None:
        atomic = transaction.Atomic(self._using, savepoint=True, durable=True)
        atomic.__enter__()
        self._atomic = atomic

    def _roll_back(self) -> None:
        atomic, self._atomic = self._atomic, None
        if atomic is not None:
            transaction.set_rollback(True, self._using)
            atomic.__exit__(None, None, None)

    @property
    def _quoted(self) -> str:
        return str(connections[self._using].ops.quote_name(self._table))

    def _executed(self, statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        """Execute a statement and return its rows; on MariaDB it fails instead of waiting for a lock."""
        connection = connections[self._using]
        if getattr(connection, "mysql_is_mariadb", False):
            statement = WITHOUT_WAITING + statement
        with connection.cursor() as cursor:
            cursor.execute(statement, values)
            return list(cursor.fetchall()) if cursor.description else []


class _DjangoClaim(Claim):
    def __init__(self, work: _Work, claimed: Collection[Mark], done: Collection[Mark], busy: Collection[Mark]) -> None:
        super().__init__(claimed, done, busy, executor=work.thread)
        self._work = work

    async def commit(self, done: Collection[Mark]) -> None:
        """Commit the transaction: what the listener did in it, and the marks that are in ``done``.

        Raises:
            django.db.DatabaseError: The database refused, or the answer is lost: then a later delivery finds out.
        """
        dropped = [mark.digest for mark in self.claimed if mark not in done]
        try:
            await self._work(self._work.transaction.commit, dropped)
        except BaseException:
            await self._work.abandon()
            raise
        self._work.release()

    async def abandon(self) -> None:
        """Roll the transaction back."""
        if self.claimed:
            await self._work.abandon()
