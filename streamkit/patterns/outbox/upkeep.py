"""The work of a relay between its rounds: it deletes old rows, runs roll-backs and asks consumers.

Each run does a limited part of it, so that messages do not wait long.
"""

from collections.abc import Awaitable, Callable

from sqlalchemy import Connection, delete, or_, select

from streamkit.patterns.outbox.database import Database
from streamkit.patterns.outbox.status import OPEN, MessageStatus
from streamkit.patterns.outbox.tables import ProducerMessage

__all__ = ["Upkeep", "delete_old"]

_AT_ONCE = 1000


class Upkeep:
    """The tasks of one topic beside sending.

    Attributes:
        pause: Seconds after which it is to run again at the latest; None if that does not matter.
    """

    def __init__(
        self,
        topic: str,
        database: Database,
        *,
        retention: int,
        compensate: Callable[[], Awaitable[bool]] | None,
        reconcile: Callable[[int], Awaitable[bool]] | None,
        check_interval: int,
    ) -> None:
        """Prepare the tasks; times are milliseconds.

        Args:
            topic: The topic.
            database: The database.
            retention: The age from which rows that are done are deleted.
            compensate: Runs some of the roll-backs that are asked for, and returns whether more wait; None if the topic
                has none.
            reconcile: Asks the consumer about some rows, given the time, and returns whether more wait; None if the
                consumer does not confirm.
            check_interval: The time between two searches for old rows and for unconfirmed ones.
        """
        self._topic = topic
        self._database = database
        self._retention = retention
        self._compensate = compensate
        self._reconcile = reconcile
        self._interval = check_interval
        self.pause = None if reconcile is None else check_interval / 1000
        self._next = 0
        self._may_ask = self._may_delete = False

    async def run(self, now: int) -> bool:
        """Do a part of what is due; return whether more of it waits."""
        is_more = self._compensate is not None and await self._compensate()
        if now >= self._next:
            self._next = now + self._interval
            self._may_ask = self._may_delete = True
        if self._may_ask:
            self._may_ask = self._reconcile is not None and await self._reconcile(now)
        if self._may_delete:
            before, is_confirmed = now - self._retention, self._reconcile is not None
            deleted = await self._database.run(
                lambda connection: delete_old(connection, self._topic, before, is_confirmed=is_confirmed)
            )
            self._may_delete = deleted == _AT_ONCE
        return is_more or self._may_ask or self._may_delete


def delete_old(connection: Connection, topic: str, before: int, *, is_confirmed: bool) -> int:
    """Delete rows that are done and were last changed before a time; return their number, at most 1,000.

    Args:
        connection: A transaction.
        topic: The topic.
        before: The time.
        is_confirmed: Whether the consumer confirms: rows are done only then. Otherwise sent rows are done.
    """
    done = [
        ProducerMessage.message_status == str(MessageStatus.CONSUMED),
        (ProducerMessage.message_status == str(MessageStatus.ROLLED_BACK))
        & ProducerMessage.compensated_time.is_not(None),
    ]
    if not is_confirmed:
        done.append(ProducerMessage.message_status.in_(map(str, OPEN)) & ProducerMessage.sent_time.is_not(None))
    old = select(ProducerMessage.id).where(
        ProducerMessage.topic == topic,
        ProducerMessage.create_time < before,  # implied by the next condition, and in an index
        ProducerMessage.update_time < before,
        ProducerMessage.pending.is_(None),
        or_(*done),
    )
    ids = list(connection.scalars(old.limit(_AT_ONCE)))
    if ids:
        connection.execute(delete(ProducerMessage).where(ProducerMessage.id.in_(ids)))
    return len(ids)
