"""The sender's side of confirmations: it asks the consumer what became of old messages.

::

    sender                                              consumer
    rows not consumed or failed, older than a minute
        ids of the rows, with the key `outbox-check`  ─▶  the topic itself
        the topic `<topic>-check`                     ◀─  {id: status}, null for an id it does not know
    null: the message is sent again
    others: the status is copied

A question carries its time, and the answer repeats it. An answer counts for a row only if the question was asked after
the row was last sent, so it may arrive after later questions: it may take longer than `check-after`.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from sqlalchemy import Connection, select, update

from streamkit.clock import current_clock
from streamkit.errors import BinderError
from streamkit.messaging.headers import CONTENT_TYPE, KEY
from streamkit.messaging.message import Message
from streamkit.patterns.outbox.database import Database
from streamkit.patterns.outbox.settings import OutboxProperties
from streamkit.patterns.outbox.status import OPEN, MessageStatus
from streamkit.patterns.outbox.tables import ProducerMessage

if TYPE_CHECKING:
    from streamkit.application import StreamApplication

__all__ = ["CHECK", "CHECK_KEY", "Reconciliation", "answers_to"]

logger = logging.getLogger(__name__)

CHECK_KEY: Final = "outbox-check"
"""The key of questions: other messages of the topic have other keys."""
CHECK: Final = "outbox_check"
"""The header of questions and answers: when the question was asked, in milliseconds since 1970, as text."""

_MOST_QUESTIONS = 20


def answers_to(topic: str) -> str:
    """Return the name of the topic for the consumer's answers."""
    return f"{topic}-check"


class Reconciliation:
    """Asks about the rows of one topic."""

    def __init__(self, app: "StreamApplication", topic: str, database: Database, properties: OutboxProperties) -> None:
        self._app = app
        self._topic = topic
        self._database = database
        self._properties = properties

    async def ask(self, now: int) -> bool:
        """Ask the consumer about some rows that are older than `check-after`; return whether more of them may wait."""
        before = now - round(self._properties.check_after.total_seconds() * 1000)
        for _ in range(_MOST_QUESTIONS):
            ids = await self._database.run(partial(self._pick, before=before, now=now))
            if not ids:
                return False
            headers = {KEY: CHECK_KEY, CHECK: str(now), CONTENT_TYPE: "application/json"}
            try:
                await self._app.channel(self._topic).asend(Message(json.dumps(ids).encode(), headers))
            except BinderError as error:
                logger.warning("Cannot ask the consumer of %r; it is asked later: %s", self._topic, error)
                return False
        return True

    def _pick(self, connection: Connection, *, before: int, now: int) -> Sequence[str]:
        """Note the time of the question at the rows that it is about, and return their ids."""
        old = select(ProducerMessage.id).where(
            ProducerMessage.topic == self._topic,
            ProducerMessage.message_status.in_(map(str, OPEN)),
            ProducerMessage.create_time <= before,
            ProducerMessage.pending.is_(None),
            ProducerMessage.sent_time <= before,
            ProducerMessage.check_time <= before,
        )
        ids = list(connection.scalars(old.order_by(ProducerMessage.id).limit(self._properties.check_size)))
        if not ids:
            return []
        asked = update(ProducerMessage).where(ProducerMessage.id.in_(ids), ProducerMessage.check_time <= before)
        connection.execute(asked.values(check_time=now))
        named = select(ProducerMessage.msgid).where(
            ProducerMessage.topic == self._topic, ProducerMessage.id.in_(ids), ProducerMessage.check_time == now
        )
        return list(connection.scalars(named.order_by(ProducerMessage.id)))

    async def take(self, asked: int, statuses: Mapping[str, str | None]) -> None:
        """Record the consumer's answer.

        Args:
            asked: When the question was asked, in milliseconds since 1970.
            statuses: The names of statuses by message id; None for a message that the consumer does not know.
        """
        now, most = current_clock().now_ms(), self._properties.max_send_times
        await self._database.run(
            lambda connection: take_answer(connection, self._topic, asked, statuses, now=now, most=most)
        )


def take_answer(
    connection: Connection, topic: str, asked: int, statuses: Mapping[str, str | None], *, now: int, most: int
) -> None:
    """Copy the statuses to the rows, and send messages again that the consumer does not know, up to `most` times.

    Rows that were sent after the question was asked are left as they are: the answer is about an earlier send.
    """
    waiting = (
        ProducerMessage.pending.is_(None),
        ProducerMessage.message_status.in_(map(str, OPEN)),
        ProducerMessage.sent_time < asked,
    )
    rows = connection.execute(
        select(ProducerMessage.id, ProducerMessage.msgid, ProducerMessage.send_times).where(
            ProducerMessage.topic == topic, ProducerMessage.msgid.in_(statuses), *waiting
        )
    )
    known = {str(each) for each in MessageStatus}
    for id_, msgid, send_times in rows.all():
        values: dict[str, object] = {"update_time": now}
        status = statuses[msgid]
        if status is None:
            values["send_times"] = send_times + 1
            if send_times + 1 >= most:
                values["message_status"] = str(MessageStatus.CONFIRMATION_RETRIES_EXCEEDED)
                values["last_error"] = f"the consumer does not know the message after {send_times + 1} send(s)"
            else:
                values |= {"pending": 1, "due_time": 0}
        elif status in known:
            values["message_status"] = status
        else:
            logger.warning("The consumer of %r gives message %r the unknown status %r", topic, msgid, status)
            continue
        # The conditions again: another answer may have come meanwhile.
        connection.execute(update(ProducerMessage).where(ProducerMessage.id == id_, *waiting).values(values))
