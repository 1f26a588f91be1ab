"""Roll-backs of the sender: for rows that a person has given up, in a transaction with the row's mark."""

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Select, Update, select, update
from sqlalchemy.engine import CursorResult, Engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from streamkit.clock import current_clock
from streamkit.listeners.arguments import annotations_of
from streamkit.patterns.outbox.database import Database, clock_held
from streamkit.patterns.outbox.message_row import message_of
from streamkit.patterns.outbox.status import MessageStatus
from streamkit.patterns.outbox.tables import ProducerMessage

if TYPE_CHECKING:
    from streamkit.messaging.converter import CompositeMessageConverter

__all__ = ["Compensation"]

logger = logging.getLogger(__name__)

_AT_ONCE: Final = 100
"""The most rows of one run: messages are not sent meanwhile."""


class Compensation:
    """Calls the function of one topic for each row that is rolled back; row and function share one transaction."""

    def __init__(
        self,
        topic: str,
        function: Callable[[Any, Any], Any],
        database: Database,
        converter: "CompositeMessageConverter",
    ) -> None:
        self._topic = topic
        self._function = function
        self._database = database
        self._after = 0  # the row that this pass tried last
        hints = annotations_of(function)
        first = next(iter(inspect.signature(function).parameters))
        self._read = converter.payload_reader(hints.get(first, bytes), place=f"the roll-back of {topic!r}")

    async def run(self) -> bool:
        """Roll some rows back; return whether more of them wait.

        A row whose function raises is left for the next pass over all rows.
        """
        for _ in range(_AT_ONCE):
            if isinstance(self._database.engine, AsyncEngine):
                is_more = await self._run_one(self._database.engine)
            else:
                is_more = await asyncio.to_thread(self._run_one_in_thread, self._database.engine)
            if not is_more:
                self._after = 0
                return False
        return True

    async def _run_one(self, engine: AsyncEngine) -> bool:
        id_: int | None = None
        try:
            async with AsyncSession(engine, expire_on_commit=False) as session:
                with clock_held():
                    row = await session.scalar(self._next())
                    if row is None:
                        return False
                    id_ = self._after = row.id
                    is_mine = _changes_one(await session.execute(self._mark(id_)))
                if is_mine:
                    await self._function(self._read(message_of(row)), session)
                with clock_held():
                    await session.commit()
        except Exception:  # of the function, too
            if id_ is None:
                raise
            logger.exception("The roll-back of row %d to %r failed; it is tried again", id_, self._topic)
        return True

    def _run_one_in_thread(self, engine: Engine) -> bool:
        id_: int | None = None
        try:
            with Session(engine, expire_on_commit=False) as session:
                row = session.scalar(self._next())
                if row is None:
                    return False
                id_ = self._after = row.id
                if _changes_one(session.execute(self._mark(id_))):
                    self._function(self._read(message_of(row)), session)
                session.commit()
        except Exception:  # of the function, too
            if id_ is None:
                raise
            logger.exception("The roll-back of row %d to %r failed; it is tried again", id_, self._topic)
        return True

    def _next(self) -> Select[ProducerMessage]:
        return (
            select(ProducerMessage)
            .where(
                ProducerMessage.topic == self._topic,
                ProducerMessage.message_status == str(MessageStatus.ROLLED_BACK),
                ProducerMessage.compensated_time.is_(None),
                ProducerMessage.id > self._after,
            )
            .order_by(ProducerMessage.id)
            .limit(1)
            .with_for_update(skip_locked=True)
        )

    @staticmethod
    def _mark(id_: int) -> Update:
        """Mark the row, unless another process has done so; nobody else sees the mark before the commit."""
        unmarked = update(ProducerMessage).where(ProducerMessage.id == id_, ProducerMessage.compensated_time.is_(None))
        return unmarked.values(compensated_time=current_clock().now_ms()).execution_options(synchronize_session=False)


def _changes_one(result: object) -> bool:
    assert isinstance(result, CursorResult)
    return result.rowcount == 1
