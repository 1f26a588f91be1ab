"""What a relay does when it has nothing to send: old rows are deleted, roll-backs run, consumers are asked."""

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
        compensate: Callable[[], Awaitable[None]] | None,
        reconcile: Callable[[int], Awaitable[None]] | None,
        check_interval: int,
    ) -> None:
        """Prepare the tasks; times are milliseconds.

        Args:
            topic: The topic.
            database: The database.
            retention: The age from which rows that are done are deleted.
            compensate: Runs the roll-backs that are asked for; None if the topic has none.
            reconcile: Asks the consumer, given the time; None if the consumer does not confirm.
            check_interval: The time between two looks for old rows and for unconfirmed ones.
        """
        self._topic = topic
        self._database = database
        self._retention = retention
        self._compensate = compensate
        self._reconcile = reconcile
        self._interval = check_interval
        self.pause = None if reconcile is None else check_interval / 1000
        self._next = 0

    async def run(self, now: int) -> None:
        """Do what is due."""
        if self._compensate is not None:
            await self._compensate()
        if now < self._next:
            return
        self._next = now + self._interval
        if self._reconcile is not None:
            await self._reconcile(now)
        is_confirmed = self._reconcile is not None
        await self._database.run(
            lambda connection: delete_old(connection, self._topic, now - self._retention, is_confirmed=is_confirmed)
        )


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
        ProducerMessage.update_time < before,
        ProducerMessage.pending.is_(None),
        or_(*done),
    )
    ids = list(connection.scalars(old.limit(_AT_ONCE)))
    if ids:
        connection.execute(delete(ProducerMessage).where(ProducerMessage.id.in_(ids)))
    return len(ids)
