"""Claims on lanes: who sends the rows of a lane, and until when.

A claim has a token. Whoever wants to record what the broker has answered locks the lanes that still have the token: a
relay that was stopped for longer than its lease finds other tokens there, and records nothing. Locks of the database
last for single transactions only; nothing is locked while messages are sent.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, Update, func, insert, select, text, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import aliased

from streamkit.patterns.outbox.tables import LANES, Lane, ProducerMessage

__all__ = [
    "Claim",
    "ClaimedRow",
    "add_lanes",
    "claim_rows",
    "database_time",
    "held_lanes",
    "release",
    "seconds_until_due",
]

_MOST_LANES = LANES // 2
"""The most lanes of one claim, so that a second relay has work too."""
_COLUMNS = (
    ProducerMessage.id,
    ProducerMessage.msgid,
    ProducerMessage.lane,
    ProducerMessage.message_key,
    ProducerMessage.body,
    ProducerMessage.headers,
    ProducerMessage.send_times,
)
"""The attributes of a `ClaimedRow`."""

_NOW = {
    "postgresql": "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
    "mysql": "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS SIGNED)",
    "mariadb": "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS SIGNED)",
}


@dataclass(frozen=True, slots=True)
class ClaimedRow:
    """A row to send, with the values that a send needs."""

    id: int
    msgid: str
    lane: int
    message_key: str | None
    body: bytes | None
    headers: str
    send_times: int


@dataclass(frozen=True, slots=True)
class Claim:
    """The lanes of one round and their rows.

    Attributes:
        token: Identifies the round.
        rows: The rows to send, in their order.
    """

    token: str
    rows: Sequence[ClaimedRow]


def database_time(connection: Connection) -> int | None:
    """Return the time of a server's clock in milliseconds, one for all relays; None if the database is in a file."""
    statement = _NOW.get(connection.dialect.name)
    return None if statement is None else int(connection.execute(text(statement)).scalar_one())


def add_lanes(connection: Connection, topic: str) -> None:
    """Insert the lanes of a topic, unless another relay has done so."""
    known = set(connection.scalars(select(Lane.lane).where(Lane.topic == topic)))
    missing = [lane for lane in range(LANES) if lane not in known]
    if not missing:
        return
    try:
        with connection.begin_nested():
            rows = [{"topic": topic, "lane": lane, "claim": None, "claimed_until": 0} for lane in missing]
            connection.execute(insert(Lane), rows)
    except IntegrityError:
        pass  # another relay has inserted them at the same time


def claim_rows(connection: Connection, topic: str, token: str, *, now: int, lease: int, limit: int) -> Claim:
    """Claim lanes that have rows to send, and return the claim with these rows.

    Args:
        connection: A transaction.
        topic: The topic.
        token: The claim's token.
        now: The time.
        lease: Milliseconds until another relay may take the lanes over.
        limit: The most rows.
    """
    taken = select(Lane.lane).where(Lane.topic == topic, Lane.claimed_until > now)
    waiting = _due(topic, now).with_only_columns(ProducerMessage.lane).where(ProducerMessage.lane.not_in(taken))
    wanted = list(dict.fromkeys(connection.scalars(waiting.order_by(ProducerMessage.id).limit(limit))))[:_MOST_LANES]
    if not wanted:
        return Claim(token, [])
    free = select(Lane.lane).where(Lane.topic == topic, Lane.lane.in_(wanted), Lane.claimed_until <= now)
    lanes = list(connection.scalars(free.with_for_update(skip_locked=True)))
    # The condition again: databases without SKIP LOCKED have locked nothing.
    mine = update(Lane).where(Lane.topic == topic, Lane.lane.in_(lanes), Lane.claimed_until <= now)
    claimed = connection.execute(mine.values(claim=token, claimed_until=now + lease)).rowcount
    if claimed != len(lanes):
        lanes = list(connection.scalars(select(Lane.lane).where(Lane.topic == topic, Lane.claim == token)))
    # Read after the claim: what the relay before has recorded is seen, its failures too.
    due = _due(topic, now).where(ProducerMessage.lane.in_(lanes)).order_by(ProducerMessage.id).limit(limit)
    rows = [ClaimedRow(*row) for row in connection.execute(due.with_only_columns(*_COLUMNS))]
    unused = set(lanes).difference(row.lane for row in rows)
    if unused:
        connection.execute(_freed(topic, token).where(Lane.lane.in_(unused)))
    return Claim(token, rows)


def held_lanes(connection: Connection, topic: str, token: str) -> Collection[int]:
    """Lock and return the lanes that still have the token: the transaction may record what was sent from them."""
    held = select(Lane.lane).where(Lane.topic == topic, Lane.claim == token)
    return set(connection.scalars(held.with_for_update()))


def release(connection: Connection, topic: str, token: str) -> None:
    """Give the lanes of a claim up."""
    connection.execute(_freed(topic, token))


def seconds_until_due(connection: Connection, topic: str, now: int) -> float | None:
    """Return the seconds until the next row of a topic is due, 0 or less if one is, or None if no row is pending."""
    due: int | None = connection.scalar(
        select(func.min(ProducerMessage.due_time)).where(ProducerMessage.topic == topic, ProducerMessage.pending == 1)
    )
    return None if due is None else (due - now) / 1000


def _freed(topic: str, token: str) -> Update:
    return update(Lane).where(Lane.topic == topic, Lane.claim == token).values(claim=None, claimed_until=0)


def _due(topic: str, now: int) -> Select[Any]:
    """Return the statement for rows that are due. Rows whose key has a row that waits after a failure wait with it."""
    failed = aliased(ProducerMessage)
    blocked = select(failed.message_key).where(
        failed.topic == topic, failed.pending == 1, failed.due_time > now, failed.message_key.is_not(None)
    )
    key = ProducerMessage.message_key
    return select(ProducerMessage).where(
        ProducerMessage.topic == topic,
        ProducerMessage.pending == 1,
        ProducerMessage.due_time <= now,
        key.is_(None) | key.not_in(blocked),
    )
