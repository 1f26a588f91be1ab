"""The outbox on PostgreSQL and MariaDB: relays side by side, fenced claims, isolation levels, all drivers."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, delete, func, select
from sqlalchemy import insert as insert_into
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.orm import Session

from streamkit import Message, StreamApplication
from streamkit.events import message_sent
from streamkit.patterns.outbox import OUTBOX_ID, MessageStatus, Outbox
from streamkit.patterns.outbox.administration import (
    COLUMNS,
    Selection,
    count_rows,
    list_rows,
    resend,
    topics_of,
)
from streamkit.patterns.outbox.claims import add_lanes, claim_rows
from streamkit.patterns.outbox.results import Results, Retries
from streamkit.patterns.outbox.tables import CONSUMER_TABLES, PRODUCER_TABLES, Lane, ProducerMessage
from tests.outbox_campaign.stage import ASYNCHRONOUS, BLOCKING, resume, stop
from tests.outbox_campaign.warm_processes import start
from tests.peer.outbox_relay import relay_until_terminated

SETTINGS = {
    "spring.cloud.stream.default-binder": "inmemory",
    "spring.cloud.stream.output-bindings": "orders",
    "streamkit.outbox.poll-interval": "50ms",
    "streamkit.outbox.batch-size": 20,
}
SERVERS = ("postgresql", "mariadb")
RETRIES = Retries(1000, 60_000, 16)
KEYS = 5


def with_driver(url: str, drivers: dict[str, str]) -> str:
    """Return the URL with one of the drivers."""
    return make_url(url).set(drivername=drivers[url.partition(":")[0]]).render_as_string(hide_password=False)


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.peer, id=name) for name in SERVERS], scope="module")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of each database server in turn, whose database has the tables; of an SQLite file, if a test wants it."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('outbox')}/shop.db"
    else:
        url = request.getfixturevalue(f"{request.param}_server")
    engine = create_engine(with_driver(url, BLOCKING))
    for table in (*PRODUCER_TABLES, *CONSUMER_TABLES):
        table.create(engine)
    engine.dispose()
    return url


@pytest.fixture
def engine(server: str) -> Iterator[Engine]:
    """An engine on empty tables."""
    engine = create_engine(with_driver(server, BLOCKING))
    with engine.begin() as connection:
        connection.execute(delete(ProducerMessage))
        connection.execute(delete(Lane))
    yield engine
    engine.dispose()


def insert(outbox: Outbox, engine: Engine, first: int, last: int) -> None:
    """Put messages into the outbox, in transactions of ten, with a few keys in turn."""
    for begin in range(first, last, 10):
        for attempt in range(20):
            try:
                with Session(engine) as session:
                    outbox.enlist(session)
                    for number in range(begin, min(begin + 10, last)):
                        outbox.send("orders", {"number": number}, id=str(number), key=f"k{number % KEYS}")
                    session.commit()
                break
            except DBAPIError:  # a transaction that could not be serialized, or a deadlock
                assert attempt < 19


def in_order(ids: Sequence[str]) -> bool:
    """Return whether the first deliveries of each key are in order."""
    firsts = [int(each) for each in dict.fromkeys(ids)]
    keyed = [[each for each in firsts if each % KEYS == key] for key in range(KEYS)]
    return all(each == sorted(each) for each in keyed)


def is_locked(engine: Engine) -> bool:
    """Return whether a transaction keeps all others from writing, as it does on SQLite."""
    if engine.dialect.name != "sqlite":
        return False
    with closing(sqlite3.connect(str(engine.url.database), timeout=0)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
    return False


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a condition."""
    while not await condition():  # noqa: ASYNC110  # it becomes true in another process
        await asyncio.sleep(0.02)


class Relays:
    """Several applications that relay one outbox, and what they have sent."""

    def __init__(
        self, make: Callable[[], Engine | AsyncEngine], count: int, settings: dict[str, str] | None = None
    ) -> None:
        self.sent: list[str] = []
        self.by: set[int] = set()
        self.engines = [make() for _ in range(count)]
        properties = {**SETTINGS, **(settings or {})}
        self.apps = [StreamApplication(config_location="optional:/none", properties=properties) for _ in range(count)]
        self.outboxes = [Outbox(app, engine, "orders") for app, engine in zip(self.apps, self.engines, strict=True)]
        for app in self.apps:
            message_sent.connect(self._note, sender=app)

    def _note(self, app: object, *, binding: str, message: Message[object]) -> None:
        self.sent.append(str(message.headers[OUTBOX_ID]))
        self.by.add(id(app))

    async def _send_first(self) -> None:
        """Send the message 0 in a transaction of the outbox's own engine."""
        outbox, message = self.outboxes[0], {"number": 0}
        if isinstance(outbox.engine, AsyncEngine):
            async with outbox.transaction():
                outbox.send("orders", message, id="0", key="k0")
        else:
            with outbox.transaction():
                outbox.send("orders", message, id="0", key="k0")

    async def run(self, work: Callable[[], None], expected: int) -> None:
        """Relay while the work is done in a thread, until so many messages are sent."""
        for app in self.apps:
            await app.start()
        try:
            await self._send_first()
            await asyncio.to_thread(work)

            async def all_sent() -> bool:
                return len(self.sent) >= expected

            await until(all_sent)
        finally:
            for app in self.apps:
                await app.stop()
            for engine in self.engines:
                if isinstance(engine, AsyncEngine):
                    await engine.dispose()
                else:
                    engine.dispose()


@pytest.mark.parametrize(
    ("drivers", "level"),
    [(BLOCKING, "SERIALIZABLE"), (ASYNCHRONOUS, None)],
    ids=["blocking-serializable", "asynchronous-default"],
)
def test_relays_side_by_side_send_each_message_once_in_order(
    server: str, engine: Engine, drivers: dict[str, str], level: str | None
) -> None:
    make: Any = create_engine if drivers is BLOCKING else create_async_engine
    relays = Relays(lambda: make(with_driver(server, drivers)), 3)
    sender = engine if level is None else engine.execution_options(isolation_level=level)
    asyncio.run(relays.run(lambda: insert(relays.outboxes[0], sender, 1, 200), 200))
    assert sorted(relays.sent, key=int) == [str(number) for number in range(200)]
    assert in_order(relays.sent)


@pytest.mark.parametrize("server", [pytest.param("postgresql", marks=pytest.mark.peer)], indirect=True)
def test_commit_wakes_the_relay_of_another_process(server: str, engine: Engine) -> None:
    """The sender's outbox knows no relay, and the relay does not look by itself."""
    sender = Outbox(StreamApplication(config_location="optional:/none", properties=SETTINGS), engine, "orders")
    seldom = {"streamkit.outbox.poll-interval": "10h"}
    relays = Relays(lambda: create_async_engine(with_driver(server, ASYNCHRONOUS), pool_size=1), 1, seldom)
    asyncio.run(relays.run(lambda: insert(sender, engine, 1, 11), 11))
    assert in_order(relays.sent)


def test_claim_that_was_taken_over_records_nothing(engine: Engine) -> None:
    outbox = Outbox(StreamApplication(config_location="optional:/none", properties=SETTINGS), engine, "orders")
    insert(outbox, engine, 0, 10)
    with engine.begin() as connection:
        add_lanes(connection, "orders")
        stopped = claim_rows(connection, "orders", "a", now=1000, lease=100, limit=100)
    with engine.begin() as connection:
        assert claim_rows(connection, "orders", "b", now=1050, lease=100, limit=100).rows == []
        taken_over = claim_rows(connection, "orders", "c", now=1100, lease=100, limit=100)
    assert [row.msgid for row in stopped.rows] == [row.msgid for row in taken_over.rows]
    with engine.begin() as connection:
        late = Results(sent=list(stopped.rows[:3]), refused=[(stopped.rows[3], "refused")])
        lost = late.record(connection, "orders", "a", 1200, RETRIES)
        assert [row.msgid for row in lost] == [row.msgid for row in stopped.rows[:3]]
        pending = select(func.count(ProducerMessage.pending), func.sum(ProducerMessage.send_times))
        assert connection.execute(pending).one() == (10, 0)
        assert Results(sent=list(taken_over.rows)).record(connection, "orders", "c", 1200, RETRIES) == []
        assert connection.execute(pending).one() == (0, 0)


def test_operators_search_sort_and_change_rows(engine: Engine) -> None:
    """Ids are compared with case; unknown values come last in both orders; only rows over a limit are changed."""
    over = str(MessageStatus.CONFIRMATION_RETRIES_EXCEEDED)
    with engine.begin() as connection:
        values = {"headers": "{}", "lane": 0, "create_time": 1, "update_time": 1, "due_time": 0}
        for number, (topic, id_) in enumerate([("orders", "o_1"), ("orders", "O_1"), ("invoices", "o%1")]):
            status = over if number else str(MessageStatus.CONSUMED)
            key = {"message_key": "k"} if number == 1 else {}
            new = values | key | {"topic": topic, "msgid": id_, "message_status": status}
            connection.execute(insert_into(ProducerMessage).values(new))
        assert topics_of(connection, 9) == ["invoices", "orders"]
        assert topics_of(connection, 1) == ["invoices"]
        assert [row.id for row in list_rows(connection, Selection(id_start="o_"), 9)] == ["o_1"]
        assert (count_rows(connection, Selection(), 9), count_rows(connection, Selection(), 2)) == (3, 2)
        for name in COLUMNS:
            assert len(list_rows(connection, Selection(), 9, order=name)) == 3
            assert len(list_rows(connection, Selection(), 9, order=f"-{name}", skip=2)) == 1
        for order in ("key", "-key"):
            assert list_rows(connection, Selection(), 1, order=order)[0].id == "O_1"
        numbers = [row.number for row in list_rows(connection, Selection(), 9)]
        assert sorted(row.id for row in resend(connection, Selection(numbers=numbers), 7)) == ["O_1", "o%1"]
        assert list(resend(connection, Selection(numbers=numbers), 7)) == []


def test_open_claim_keeps_others_from_its_keys_and_from_nothing_else(engine: Engine) -> None:
    outbox = Outbox(StreamApplication(config_location="optional:/none", properties=SETTINGS), engine, "orders")
    insert(outbox, engine, 0, 20)
    with engine.begin() as connection:
        add_lanes(connection, "orders")
    with engine.begin() as first, engine.begin() as second:
        one = claim_rows(first, "orders", "a", now=1000, lease=100, limit=2)
        other = claim_rows(second, "orders", "b", now=1000, lease=100, limit=100)
        assert {row.message_key for row in one.rows} == {"k0", "k1"}
        assert not {row.message_key for row in one.rows} & {row.message_key for row in other.rows}
        insert(outbox, engine, 20, 30)  # senders do not wait for relays


@pytest.mark.promise
@pytest.mark.parametrize(
    "server", [pytest.param(name, marks=pytest.mark.peer) for name in (*SERVERS, "sqlite")], indirect=True
)
def test_relay_that_is_stopped_beyond_its_lease_sends_at_most_what_was_under_way_again(
    server: str, engine: Engine, tmp_path: Path
) -> None:

    count = 100
    outbox = Outbox(StreamApplication(config_location="optional:/none", properties=SETTINGS), engine, "orders")
    insert(outbox, engine, 0, count)
    log = tmp_path / "sent"
    log.touch()

    def start_relay() -> BaseProcess:
        url = with_driver(server, ASYNCHRONOUS)
        return start(relay_until_terminated, url, str(log), log=tmp_path / "errors")

    def end_relay(relay: BaseProcess) -> None:
        relay.terminate()
        relay.join()

    async def sent(least: int) -> bool:
        return len(set(log.read_text().split())) >= least

    async def recorded() -> bool:
        with engine.connect() as connection:
            return not connection.scalar(select(func.count(ProducerMessage.pending)))

    first = start_relay()
    try:
        asyncio.run(until(lambda: sent(5)))
        stop(first)
        while is_locked(engine):  # by the stopped relay's transaction
            resume(first)
            stop(first)
        second = start_relay()
        try:
            asyncio.run(until(recorded))
        finally:
            resume(first)
            end_relay(second)
    finally:
        end_relay(first)
    ids = log.read_text().split()
    assert sorted(set(ids), key=int) == [str(number) for number in range(count)]
    assert in_order(ids)
    # Rounds that were not recorded when the relay was stopped: at most one batch.
    assert len(ids) - count <= 40
