"""A session's transaction that messages are added to."""

from collections.abc import Mapping
from typing import Final, Protocol

from sqlalchemy import event
from sqlalchemy.orm import Session, SessionTransaction

from streamkit.listeners.listener import BindingName
from streamkit.patterns.outbox.errors import OutboxError
from streamkit.patterns.outbox.listening import notify_at_commit
from streamkit.patterns.outbox.tables import ProducerMessage

__all__ = ["Enlistment"]

_INFO: Final = "streamkit_outbox"


class RowMaker(Protocol):
    """The part of an outbox that an enlistment uses."""

    @property
    def notifies(self) -> bool:
        """Whether commits notify the relays of other processes."""
        ...

    def row(
        self,
        output: BindingName,
        payload: object,
        headers: Mapping[str, object] | None = None,
        *,
        key: str | None = None,
        id: str | None = None,  # noqa: A002
    ) -> ProducerMessage:
        """Return the row of a message."""
        ...

    def wake(self, output: str) -> None:
        """Make the relay look for rows."""
        ...


class Enlistment:
    """Adds messages to a session until its transaction ends, and wakes the relays when it commits.

    Attributes:
        is_ended: Whether the transaction has ended.
    """

    def __init__(self, session: Session, outbox: RowMaker) -> None:
        self.is_ended = False
        self._session = session
        self._outbox = outbox
        self._topics: set[str] = set()
        self._is_committed = False
        event.listen(session, "before_commit", self._before_commit)
        event.listen(session, "after_commit", self._after_commit)
        event.listen(session, "after_transaction_end", self._after_end)

    @classmethod
    def of(cls, session: Session, outbox: RowMaker) -> "Enlistment":
        """Return the enlistment of a session, which has one however often it is enlisted."""
        known: dict[int, Enlistment] = session.info.setdefault(_INFO, {})
        found = known.get(id(outbox))
        if found is None:
            found = known[id(outbox)] = cls(session, outbox)
        found.is_ended = False
        return found

    def send(
        self,
        output: BindingName,
        payload: object,
        headers: Mapping[str, object] | None = None,
        *,
        key: str | None = None,
        id: str | None = None,  # noqa: A002
    ) -> str:
        """Add a message to the transaction; see :meth:`streamkit.patterns.outbox.Outbox.send`.

        Raises:
            OutboxError: The transaction has ended.
        """
        if self.is_ended:
            raise OutboxError("the session's transaction has ended: call outbox.enlist(session) in the next one")
        row = self._outbox.row(output, payload, headers, key=key, id=id)
        self._session.add(row)
        self._topics.add(row.topic)
        return row.msgid

    def _before_commit(self, session: Session) -> None:
        """Add to the transaction, on PostgreSQL, that its commit notifies the relays of other processes."""
        if self._topics and self._outbox.notifies:
            bind = session.get_bind(ProducerMessage)
            if bind.dialect.name == "postgresql":
                notify_at_commit(session, self._topics)

    def _after_commit(self, _: Session) -> None:
        self._is_committed = True

    def _after_end(self, _: Session, transaction: SessionTransaction) -> None:
        if transaction.parent is not None:
            return
        topics, self._topics = self._topics, set()
        is_committed, self._is_committed = self._is_committed, False
        self.is_ended = True
        if is_committed:
            for topic in topics:
                self._outbox.wake(topic)
