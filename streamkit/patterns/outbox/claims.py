"""Claims on lanes: which relay sends the rows of a lane, and until when.

A claim has a token. Whoever wants to record what the broker has answered locks the lanes that still have the token: a
relay that was stopped for longer than its lease finds other tokens there, and records nothing. Locks of the database
last for single transactions only; nothing is locked while messages are sent.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import (
    BigInteger,
    BindParameter,
    Connection,
    Integer,
    SmallInteger,
    String,
    bindparam,
    func,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.exc import IntegrityError

from streamkit.patterns.outbox.tables import LANES, PRODUCER_TABLES, Lane

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
_ROW, _LANE = PRODUCER_TABLES[0].c, PRODUCER_TABLES[1].c
_EARLIER = PRODUCER_TABLES[0].alias("earlier")
_TOPIC: BindParameter[str] = bindparam("topic_", type_=String)
_NOW_MS: BindParameter[int] = bindparam("now_", type_=BigInteger)
_TOKEN: BindParameter[str] = bindparam("token_", type_=String)
_LANES: BindParameter[int] = bindparam("lanes_", type_=SmallInteger, expanding=True)
_LIMIT: BindParameter[int] = bindparam("limit_", type_=Integer)

# Statements are made once: to make one takes SQLAlchemy longer than to run it.
_BLOCKED = select(_EARLIER.c.message_key).where(
    _EARLIER.c.topic == _TOPIC,
    _EARLIER.c.pending == 1,
    _EARLIER.c.due_time > _NOW_MS,
    _EARLIER.c.message_key.is_not(None),
)
"""The keys of rows that wait after a failure: later rows of these keys wait with them."""
_DUE = (
    _ROW.topic == _TOPIC,
    _ROW.pending == 1,
    # The sum keeps databases from the index of times: they would sort the whole backlog for each round.
    _ROW.due_time + 0 <= _NOW_MS,
    _ROW.message_key.is_(None) | _ROW.message_key.not_in(_BLOCKED),
)
_TAKEN = select(_LANE.lane).where(_LANE.topic == _TOPIC, _LANE.claimed_until > _NOW_MS)
_WAITING = select(_ROW.lane).where(*_DUE, _ROW.lane.not_in(_TAKEN)).order_by(_ROW.id).limit(_LIMIT)
_FREE = (_LANE.topic == _TOPIC, _LANE.lane.in_(_LANES), _LANE.claimed_until <= _NOW_MS)
_LOCK_FREE = select(_LANE.lane).where(*_FREE).with_for_update(skip_locked=True)
_CLAIM = update(PRODUCER_TABLES[1]).where(*_FREE).values(claim=_TOKEN, claimed_until=bindparam("until_"))
_HELD = select(_LANE.lane).where(_LANE.topic == _TOPIC, _LANE.claim == _TOKEN)
_LOCK_HELD = _HELD.with_for_update()
_ROWS = (
    select(_ROW.id, _ROW.msgid, _ROW.lane, _ROW.message_key, _ROW.body, _ROW.headers, _ROW.send_times)
    .where(*_DUE, _ROW.lane.in_(_LANES))
    .order_by(_ROW.id)
    .limit(_LIMIT)
)
"""The attributes of a `ClaimedRow`."""
_FREED: dict[str, object] = {"claim": None, "claimed_until": 0}
_RELEASE = update(PRODUCER_TABLES[1]).where(_LANE.topic == _TOPIC, _LANE.claim == _TOKEN).values(_FREED)
_RELEASE_SOME = _RELEASE.where(_LANE.lane.in_(_LANES))
_NEXT_DUE = select(func.min(_ROW.due_time)).where(_ROW.topic == _TOPIC, _ROW.pending == 1)

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
    given: dict[str, object] = {"topic_": topic, "now_": now, "token_": token, "limit_": limit}
    wanted = list(dict.fromkeys(connection.scalars(_WAITING, given)))[:_MOST_LANES]
    if not wanted:
        return Claim(token, [])
    lanes = list(connection.scalars(_LOCK_FREE, {**given, "lanes_": wanted}))
    # The condition again: databases without SKIP LOCKED have locked nothing.
    claimed = connection.execute(_CLAIM, {**given, "lanes_": lanes, "until_": now + lease}).rowcount
    if claimed != len(lanes):
        lanes = list(connection.scalars(_HELD, given))
    # Read after the claim: what the relay before has recorded is seen, its failures too.
    rows = [ClaimedRow(*row) for row in connection.execute(_ROWS, {**given, "lanes_": lanes})]
    unused = set(lanes).difference(row.lane for row in rows)
    if unused:
        connection.execute(_RELEASE_SOME, {**given, "lanes_": list(unused)})
    return Claim(token, rows)


def held_lanes(connection: Connection, topic: str, token: str) -> Collection[int]:
    """Lock and return the lanes that still have the token: the transaction may record what was sent from them."""
    return set(connection.scalars(_LOCK_HELD, {"topic_": topic, "token_": token}))


def release(connection: Connection, topic: str, token: str) -> None:
    """Release the lanes of a claim, so that another relay may claim them."""
    connection.execute(_RELEASE, {"topic_": topic, "token_": token})


def seconds_until_due(connection: Connection, topic: str, now: int) -> float | None:
    """Return the seconds until the next row of a topic is due, 0 or less if one is, or None if no row is pending."""
    due: int | None = connection.scalar(_NEXT_DUE, {"topic_": topic})
    return None if due is None else (due - now) / 1000
