"""The sender's side of confirmations: it asks the consumer what became of old messages.

::

    sender                                              consumer
    rows not consumed or failed, older than a minute
        ids of the rows, with the key `outbox-check`  ─▶  the topic itself
        the topic `<topic>-check`                     ◀─  {id: status} of the ids it knows
    ids it does not know: the message is sent again
    others: the status is copied
"""

import json
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import uuid4

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
"""The header of questions and answers with the question's id."""

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
            question = str(uuid4())
            ids = await self._database.run(partial(self._pick, question=question, before=before, now=now))
            if not ids:
                return False
            headers = {KEY: CHECK_KEY, CHECK: question, CONTENT_TYPE: "application/json"}
            try:
                await self._app.channel(self._topic).asend(Message(json.dumps(ids).encode(), headers))
            except BinderError as error:
                logger.warning("Cannot ask the consumer of %r; it is asked later: %s", self._topic, error)
                return False
        return True

    def _pick(self, connection: Connection, *, question: str, before: int, now: int) -> Sequence[str]:
        """Note the question at the rows that it is about, and return their ids."""
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
        connection.execute(asked.values(check_id=question, check_time=now))
        named = select(ProducerMessage.msgid).where(
            ProducerMessage.topic == self._topic, ProducerMessage.id.in_(ids), ProducerMessage.check_id == question
        )
        return list(connection.scalars(named.order_by(ProducerMessage.id)))

    async def take(self, question: str, statuses: Mapping[str, str]) -> None:
        """Take the consumer's answer: the statuses by id of the messages that it knows.

        Args:
            question: The id of the question.
            statuses: The names of statuses by message id.
        """
        now, most = current_clock().now_ms(), self._properties.max_send_times
        await self._database.run(
            lambda connection: take_answer(connection, self._topic, question, statuses, now=now, most=most)
        )


def take_answer(
    connection: Connection, topic: str, question: str, statuses: Mapping[str, str], *, now: int, most: int
) -> None:
    """Copy the statuses to the rows of a question, and send the others again, up to `most` times; do so once."""
    rows = connection.execute(
        select(ProducerMessage.id, ProducerMessage.msgid, ProducerMessage.send_times).where(
            ProducerMessage.topic == topic,
            ProducerMessage.check_id == question,
            ProducerMessage.pending.is_(None),
            ProducerMessage.message_status.in_(map(str, OPEN)),
        )
    )
    known = {str(each) for each in MessageStatus}
    for id_, msgid, send_times in rows.all():
        values: dict[str, object] = {"check_id": None, "update_time": now}
        status = statuses.get(msgid)
        if status is None:
            values["send_times"] = send_times + 1
            if send_times + 1 >= most:
                values["message_status"] = str(MessageStatus.CONFIRMATION_RETRIES_EXCEEDED)
                values["last_error"] = f"the consumer does not know the message after {send_times + 1} sends"
            else:
                values |= {"pending": 1, "due_time": 0}
        elif status in known:
            values["message_status"] = status
        else:
            logger.warning("The consumer of %r gives message %r the unknown status %r", topic, msgid, status)
            continue
        same = update(ProducerMessage).where(ProducerMessage.id == id_, ProducerMessage.check_id == question)
        connection.execute(same.values(values))
