"""The queries and changes of the rows of an outbox by operators."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, RowMapping, Select, func, select, update

from streamkit.patterns.outbox.errors import OutboxError
from streamkit.patterns.outbox.listening import notify_at_commit
from streamkit.patterns.outbox.status import OVER_LIMITS, MessageStatus
from streamkit.patterns.outbox.tables import PRODUCER_TABLES, ProducerMessage

__all__ = [
    "COLUMNS",
    "SLICE",
    "OutboxRow",
    "Selection",
    "count_over_limits",
    "count_rows",
    "list_rows",
    "resend",
    "roll_back",
    "show_row",
    "topic_counts",
    "topics_of",
]


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """A row as commands show it.

    Attributes:
        number: Its place in the order in which rows were inserted.
        checked_at: When the consumer was last asked about it; None if it was not asked.
        headers: Its headers, and its body as it is sent; both only of a row that is shown alone.
    """

    number: int
    topic: str
    id: str
    status: str
    key: str | None
    created_at: datetime
    updated_at: datetime
    sent_at: datetime | None
    send_times: int
    checked_at: datetime | None
    pending: bool
    compensated_at: datetime | None
    error: str | None
    headers: dict[str, object] | None = None
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class TopicCount:
    """The number of rows of a topic with one status.

    Attributes:
        pending: How many of them still have to be sent.
    """

    topic: str
    status: str
    rows: int
    pending: int


@dataclass(frozen=True, slots=True)
class Selection:
    """The conditions that select rows; those that are None or empty do not apply.

    Attributes:
        id_start: Only rows whose id begins with this text.
        numbers: Only rows with these places in the order of insertion.
        after: The number of the last row of the slice before: only rows inserted later are meant.
    """

    topic: str | None = None
    statuses: Collection[MessageStatus] = ()
    ids: Collection[str] = ()
    id_start: str | None = None
    numbers: Collection[int] = ()
    after: int | None = None

    def applied(self, statement: Select[*tuple[Any, ...]]) -> Select[*tuple[Any, ...]]:
        """Return the statement with the conditions."""
        if self.topic is not None:
            statement = statement.where(ProducerMessage.topic == self.topic)
        if self.statuses:
            statement = statement.where(ProducerMessage.message_status.in_(map(str, self.statuses)))
        if self.ids:
            statement = statement.where(ProducerMessage.msgid.in_(self.ids))
        if self.id_start:
            # LIKE would compare without case on some databases.
            statement = statement.where(func.substr(ProducerMessage.msgid, 1, len(self.id_start)) == self.id_start)
        if self.numbers:
            statement = statement.where(ProducerMessage.id.in_(self.numbers))
        if self.after is not None:
            statement = statement.where(ProducerMessage.id > self.after)
        return statement


_TABLE = PRODUCER_TABLES[0]
_LISTED = [column for column in _TABLE.columns if column.name not in ("body", "headers")]
_NAMED = [_TABLE.c.msgid, _TABLE.c.topic, _TABLE.c.message_status]
_OVER = ProducerMessage.message_status.in_(map(str, OVER_LIMITS))
SLICE: Final = 500
"""The most rows that one transaction changes: relays and senders do not wait long for its locks."""

_ROW = _TABLE.c
COLUMNS: Final[Mapping[str, ColumnElement[Any]]] = {
    "number": _ROW.id,
    "id": _ROW.msgid,
    "topic": _ROW.topic,
    "status": _ROW.message_status,
    "key": _ROW.message_key,
    "created_at": _ROW.create_time,
    "updated_at": _ROW.update_time,
    "sent_at": _ROW.sent_time,
    "send_times": _ROW.send_times,
    "pending": func.coalesce(_ROW.pending, 0),
    "error": _ROW.last_error,
}
"""The columns by which rows are sorted, by the names of an `OutboxRow`."""


def topic_counts(connection: Connection) -> Sequence[TopicCount]:
    """Return the numbers of rows by topic and status."""
    counted = (
        select(
            ProducerMessage.topic,
            ProducerMessage.message_status,
            func.count(),
            func.count(ProducerMessage.pending),
        )
        .group_by(ProducerMessage.topic, ProducerMessage.message_status)
        .order_by(ProducerMessage.topic, ProducerMessage.message_status)
    )
    return [TopicCount(*row) for row in connection.execute(counted)]


def topics_of(connection: Connection, most: int) -> Sequence[str]:
    """Return the topics that have rows, sorted; the first of them if there are more than `most`.

    Each topic takes one lookup in an index, however many rows it has.
    """
    found: list[str] = []
    while len(found) < most:
        first = select(func.min(ProducerMessage.topic))
        if found:
            first = first.where(ProducerMessage.topic > found[-1])
        topic = connection.execute(first).scalar()
        if topic is None:
            break
        found.append(topic)
    return found


def count_rows(connection: Connection, selection: Selection, most: int) -> int:
    """Return the number of selected rows; `most` if there are more."""
    some = selection.applied(select(ProducerMessage.id)).limit(most).subquery()
    return int(connection.execute(select(func.count()).select_from(some)).scalar_one())


def list_rows(
    connection: Connection, selection: Selection, limit: int, *, order: str = "-number", skip: int = 0
) -> Sequence[OutboxRow]:
    """Return rows without bodies and headers.

    Args:
        connection: The connection.
        selection: Which rows.
        limit: The most rows.
        order: One of `COLUMNS`, with a `-` in front for the largest value first. Rows without a value come last.
        skip: The number of rows to leave out at the beginning.
    """
    column = COLUMNS[order.removeprefix("-")]
    in_order = [column.is_(None), column.desc() if order.startswith("-") else column.asc(), ProducerMessage.id.desc()]
    if column is _ROW.id:  # the primary key alone, so that databases read no more rows than they return
        in_order = in_order[1:2]
    found = selection.applied(select(*_LISTED)).order_by(*in_order).limit(limit).offset(skip)
    return [_row(each, is_whole=False) for each in connection.execute(found).mappings()]


def show_row(connection: Connection, selection: Selection) -> OutboxRow:
    """Return one row with its body and headers.

    Raises:
        OutboxError: There is no such row, or several topics have one.
    """
    found = connection.execute(selection.applied(select(_TABLE)).limit(2)).mappings().all()
    if not found:
        named = [*selection.ids, *(f"number {number}" for number in selection.numbers)]
        raise OutboxError(f"there is no message {', '.join(named)} in the outbox")
    if len(found) > 1:
        topics = " and ".join(sorted(row["topic"] for row in found))
        raise OutboxError(f"topics {topics} each have a message {', '.join(selection.ids)}: name the topic")
    return _row(found[0], is_whole=True)


def count_over_limits(connection: Connection, selection: Selection) -> int:
    """Return the number of selected rows that are over a limit.

    Raises:
        OutboxError: A row that is named by its id is missing or not over a limit.
    """
    _refuse_others(connection, selection)
    counted = selection.applied(select(func.count(ProducerMessage.id))).where(_OVER)
    return int(connection.execute(counted).scalar_one())


def resend(connection: Connection, selection: Selection, now: int, *, dry_run: bool = False) -> Sequence[OutboxRow]:
    """Send rows again that are over a limit: their status is NOT_CONSUMED, and their sends are counted anew.

    Returns:
        The first `SLICE` rows, as they were; the next slice begins after the last one.

    Raises:
        OutboxError: A row that is named by its id is missing or not over a limit.
    """
    again = {
        "message_status": str(MessageStatus.NOT_CONSUMED),
        "send_times": 0,
        "pending": 1,
        "due_time": 0,
        "update_time": now,
    }
    rows = _changed(connection, selection, again, dry_run=dry_run)
    if not dry_run and connection.dialect.name == "postgresql":
        notify_at_commit(connection, {row.topic for row in rows})
    return rows


def roll_back(connection: Connection, selection: Selection, now: int, *, dry_run: bool = False) -> Sequence[OutboxRow]:
    """Mark rows that are over a limit as rolled back; the application that relays them undoes the sender's work.

    Returns:
        The first `SLICE` rows, as they were; the next slice begins after the last one.

    Raises:
        OutboxError: A row that is named by its id is missing or not over a limit.
    """
    gone = {"message_status": str(MessageStatus.ROLLED_BACK), "pending": None, "update_time": now}
    return _changed(connection, selection, gone, dry_run=dry_run)


def _changed(
    connection: Connection, selection: Selection, values: Mapping[str, object], *, dry_run: bool
) -> Sequence[OutboxRow]:
    """Change one slice of the rows that are over a limit, and return it as it was."""
    if selection.after is None:
        _refuse_others(connection, selection)
    found = selection.applied(select(*_LISTED)).where(_OVER).order_by(ProducerMessage.id).limit(SLICE)
    rows = [
        _row(each, is_whole=False)
        for each in connection.execute(found if dry_run else found.with_for_update()).mappings()
    ]
    if rows and not dry_run:
        changed = update(ProducerMessage).where(ProducerMessage.id.in_([row.number for row in rows]), _OVER)
        connection.execute(changed.values(values))
    return rows


def _refuse_others(connection: Connection, selection: Selection) -> None:
    """Check the rows that are named by their ids."""
    if not selection.ids:
        return
    found = connection.execute(selection.applied(select(*_NAMED))).all()
    missing = set(selection.ids).difference(row.msgid for row in found)
    if missing:
        raise OutboxError(f"there is no message {', '.join(sorted(missing))} in the outbox")
    over = sorted(map(str, OVER_LIMITS))
    for row in found:
        if row.message_status not in over:
            raise OutboxError(
                f"message {row.msgid} to {row.topic} is {row.message_status}: only messages over a limit "
                f"({' or '.join(over)}) are sent again or rolled back"
            )


def _row(row: RowMapping, *, is_whole: bool) -> OutboxRow:
    return OutboxRow(
        number=row["id"],
        topic=row["topic"],
        id=row["msgid"],
        status=row["message_status"],
        key=row["message_key"],
        created_at=_required_time(row["create_time"]),
        updated_at=_required_time(row["update_time"]),
        sent_at=_time(row["sent_time"]),
        send_times=row["send_times"],
        checked_at=_time(row["check_time"] or None),
        pending=row["pending"] == 1,
        compensated_at=_time(row["compensated_time"]),
        error=row["last_error"],
        headers=json.loads(row["headers"]) if is_whole else None,
        body=row["body"] if is_whole else None,
    )


def _required_time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _time(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else _required_time(milliseconds)
