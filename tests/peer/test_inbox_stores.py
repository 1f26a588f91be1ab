"""Stores of marks on PostgreSQL, MariaDB and Redis, at the databases' isolation levels."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any, ClassVar

import pymysql
import pytest
import sqlalchemy
from django.db import DatabaseError, connection
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from redis.asyncio import Redis
from sqlalchemy import URL, Engine, MetaData, Table, create_engine, insert, make_url, orm, select
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from streamkit import Message, Requeue
from streamkit.config.pattern_properties import InboxProperties
from streamkit.listeners.advice import AdvisedListener
from streamkit.listeners.listener import Listener
from streamkit.patterns.inbox import DjangoMarks, InboxSession, Mark, MarkStore, RedisMarks, SqlMarks, inbox_table
from streamkit.patterns.inbox.inbox import Inbox
from streamkit.patterns.inbox.message_key import message_key
from tests.properties.inbox_model import InboxModel
from tests.unit.patterns.django_connection import django_on

LEVELS = pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
FEW = settings(
    max_examples=4,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
    phases=[Phase.generate],  # a server makes shrinking slow
)
MESSAGES = 8
COPIES = 4


class SqlModel(InboxModel):
    """The model on a database that lets several runs write."""

    engine: ClassVar[Engine]
    reading: ClassVar[Engine]
    marks: ClassVar[Table]
    table: ClassVar[Table]

    def make_store(self) -> MarkStore:
        """Return an empty store."""
        with self.engine.begin() as connection:
            connection.execute(sqlalchemy.delete(self.marks))
            connection.execute(sqlalchemy.delete(self.table))
        return SqlMarks(orm.sessionmaker(self.engine), self.marks)

    async def add_effect(self, session: Any, key: str) -> None:
        """Add an effect to the transaction of a claim."""
        session.execute(insert(self.table).values(key=key))

    async def effects(self) -> Counter[str]:
        """Return how often each key has had its effect."""
        with self.reading.connect() as connection:
            return Counter(connection.scalars(select(self.table.c.key)))


def tables(engine: Engine, name: str) -> tuple[Table, Table]:
    """Make the table of marks, and one for effects."""
    metadata = MetaData()
    marks = inbox_table(metadata, f"{name}:marks order")  # a name that has to be quoted
    effects = Table(
        f"{name}_effects",
        metadata,
        sqlalchemy.Column("number", sqlalchemy.Integer, primary_key=True),
        sqlalchemy.Column("key", sqlalchemy.String(300)),
    )
    metadata.drop_all(engine)
    metadata.create_all(engine)
    return marks, effects


@LEVELS
def test_postgresql_follows_the_model(postgresql: str, isolation: str) -> None:
    """Claims, failures, expiries and clean-ups in any order give each effect once."""
    follows_the_model(make_url(postgresql).set(drivername="postgresql+psycopg"), isolation)


@LEVELS
def test_mariadb_follows_the_model(mariadb: str, isolation: str) -> None:
    """Claims, failures, expiries and clean-ups in any order give each effect once."""
    follows_the_model(make_url(mariadb).set(drivername="mariadb+pymysql"), isolation)


def test_run_that_has_caught_an_error_fails_at_its_commit(postgresql: str) -> None:
    """PostgreSQL rolls such a transaction back, and says nothing about it; the message must come again."""
    engine = create_engine(make_url(postgresql).set(drivername="postgresql+psycopg"))
    marks, _ = tables(engine, "caught")
    store, mark = SqlMarks(orm.sessionmaker(engine), marks), Mark("g/a", "1")

    async def run() -> None:
        with ThreadPoolExecutor(1) as threads:
            claim = await store.claim([mark], now_ms=60_000, expired_ms=0, threads=lambda: threads)
            assert isinstance(claim.session, orm.Session)
            with suppress(sqlalchemy.exc.DBAPIError):
                claim.session.execute(sqlalchemy.text("SELECT 1 / 0"))
            with pytest.raises(sqlalchemy.exc.DBAPIError):
                await claim.commit([mark])

    asyncio.run(run())
    engine.dispose()


def follows_the_model(url: URL, isolation: str) -> None:
    """Run the state machine on a database."""
    reading = create_engine(url, isolation_level="READ COMMITTED")
    engine = create_engine(url, isolation_level=isolation)
    marks, table = tables(reading, "model")
    locks_others = url.drivername.startswith("mariadb")
    members = {"engine": engine, "reading": reading, "marks": marks, "table": table, "locks_others": locks_others}
    kind = type("Model", (SqlModel,), members)
    try:
        run_state_machine_as_test(kind, settings=FEW)
    finally:
        engine.dispose()
        reading.dispose()


@LEVELS
def test_postgresql_has_each_effect_once(postgresql: str, isolation: str) -> None:
    """Each message comes four times, to four inboxes that know nothing of each other; a third of the runs fail."""
    has_each_effect_once(make_url(postgresql), "postgresql+psycopg", "postgresql+asyncpg", isolation)


@LEVELS
def test_mariadb_has_each_effect_once(mariadb: str, isolation: str) -> None:
    """Each message comes four times, to four inboxes that know nothing of each other; a third of the runs fail."""
    has_each_effect_once(make_url(mariadb), "mariadb+pymysql", "mariadb+aiomysql", isolation)


def has_each_effect_once(url: URL, driver: str, async_driver: str, isolation: str) -> None:
    """Deliver messages to four inboxes of a database."""
    engine = create_engine(url.set(drivername=driver))
    marks, effects = tables(engine, "runs")

    async def effect(session: AsyncSession, key: str) -> None:
        await session.execute(insert(effects).values(key=key))

    async def run() -> None:
        engines = [
            create_async_engine(url.set(drivername=async_driver), isolation_level=isolation, pool_size=MESSAGES)
            for _ in range(COPIES)
        ]
        try:
            await deliver_to([SqlMarks(async_sessionmaker(each), marks) for each in engines], effect)
        finally:
            for each in engines:
                await each.dispose()

    asyncio.run(run())
    with engine.connect() as connection:
        assert Counter(connection.scalars(select(effects.c.key))) == {str(number): 1 for number in range(MESSAGES)}
    engine.dispose()


async def deliver_to(stores: list[MarkStore], effect: Callable[[Any, str], Awaitable[None]]) -> None:
    """Deliver each message to an inbox of each store, at once, again and again until each is accepted."""
    draw = random.Random(7)

    class Call:
        thread = None
        executor: Executor | None = None

        def __init__(self, session: Callable[[], object] | None) -> None:
            self._session = session

        async def __call__(self, message: Message[object]) -> None:
            fails = draw.random() < 0.3
            if self._session is not None:  # a failure rolls it back
                await effect(self._session(), str(message.payload))
            if fails:
                raise ValueError("a failure of the listener")
            if self._session is None:
                await effect(None, str(message.payload))

    def call_of(inbox: Inbox) -> Callable[[], Call]:
        session = inbox.find(InboxSession()) if stores[0].has_sessions else None
        return lambda: Call(session)

    inboxes = [make_inbox(store) for store in stores]
    async with asyncio.TaskGroup() as tasks:
        for number in range(MESSAGES):
            for inbox in inboxes:
                tasks.create_task(accept(inbox, number, call_of(inbox)))


def test_django_has_each_effect_once_on_postgresql(postgresql: str) -> None:
    """Each message comes four times, to four inboxes that know nothing of each other; a third of the runs fail."""
    django_has_each_effect_once(make_url(postgresql), "postgresql", "postgresql+psycopg")


def test_django_has_each_effect_once_on_mariadb(mariadb: str) -> None:
    """Each message comes four times, to four inboxes that know nothing of each other; a third of the runs fail."""
    pymysql.install_as_MySQLdb()
    django_has_each_effect_once(make_url(mariadb), "mysql", "mariadb+pymysql")


def django_has_each_effect_once(url: URL, backend: str, driver: str) -> None:
    """Deliver messages to four inboxes on Django's connections."""
    engine = create_engine(url.set(drivername=driver))
    marks, effects = tables(engine, "django")
    draw = random.Random(7)

    class Call:
        thread = None
        executor: Executor | None = None

        async def __call__(self, message: Message[object]) -> None:
            await asyncio.get_running_loop().run_in_executor(self.executor, self._run, message, draw.random() < 0.3)

        def _run(self, message: Message[object], fails: bool) -> None:
            with connection.cursor() as cursor:
                cursor.execute(
                    f"INSERT INTO {effects.name} ({connection.ops.quote_name('key')}) VALUES (%s)", [message.payload]
                )
            if fails:
                raise ValueError("a failure of the listener")

    async def run() -> None:
        inboxes = [make_inbox(DjangoMarks(table=marks.name), is_async=False) for _ in range(COPIES)]
        async with asyncio.TaskGroup() as tasks:
            for number in range(MESSAGES):
                for inbox in inboxes:
                    tasks.create_task(accept(inbox, number, Call))

    where = {"HOST": url.host, "PORT": url.port, "USER": url.username}
    with django_on(backend, str(url.database), **where):
        asyncio.run(run())
    with engine.connect() as reading:
        assert Counter(reading.scalars(select(effects.c.key))) == {str(number): 1 for number in range(MESSAGES)}
    engine.dispose()


async def accept(inbox: Inbox, number: int, call: Callable[[], Any]) -> None:
    """Deliver a message again and again until it is accepted."""
    while True:
        try:
            await inbox.around(Message(str(number)), call())
            return
        except (ValueError, Requeue):
            pass
        except (sqlalchemy.exc.DBAPIError, DatabaseError):  # what the isolation level refuses, the next attempt does
            pass


def make_inbox(store: MarkStore, *, is_async: bool = True) -> Inbox:
    """Return the inbox of a listener."""
    declared = Listener("orders", idempotent_by="payload")
    listener = AdvisedListener(print, "listener", declared, "orders", "g", False, is_async, no_threads)
    return Inbox(None, listener, message_key("payload", "x"), store, InboxProperties(wait=timedelta(seconds=1)))


def no_threads() -> Any:
    """Return no threads, since coroutines need none."""


class RedisModel(InboxModel):
    """The model on Redis, whose marks expire by the server's clock: here never."""

    url: ClassVar[str]

    def make_store(self) -> MarkStore:
        """Return an empty store."""
        self.client = Redis.from_url(self.url)
        self.runner.run(self.client.flushdb())
        return RedisMarks(self.client)

    def close(self) -> None:
        """Close the connections."""
        self.runner.run(self.client.aclose())

    def let_time_pass(self, milliseconds: int = 0) -> None:
        """Do nothing."""


def test_redis_follows_the_model(redis: str) -> None:
    """Claims and failures in any order give each effect once."""
    run_state_machine_as_test(type("Model", (RedisModel,), {"url": redis}), settings=FEW)


def test_lease_is_renewed_while_its_run_lives_and_ends_after_it(redis: str) -> None:
    """So the message of a killed process is handled by another one."""

    async def run() -> None:
        async with Redis.from_url(redis) as client:
            await client.flushdb()
            store = RedisMarks(client, lease=timedelta(seconds=2))
            mark = Mark("g/a", "1")

            async def claim() -> Any:
                return await store.claim([mark], now_ms=60_000, expired_ms=0, threads=no_threads)

            first = await claim()
            (name,) = await client.keys()
            left = await client.pttl(name)
            while (now := await client.pttl(name)) <= left:  # until it is renewed
                left = now
                await asyncio.sleep(0.01)
            assert (await claim()).busy == {mark}
            first._renewal.cancel()  # as a kill does
            second = await claim()
            while second.busy:  # until the lease has ended
                await asyncio.sleep(0.05)
                second = await claim()
            await second.commit([mark])
            await first.abandon()
            assert (await claim()).done == {mark}

    asyncio.run(run())


def test_redis_has_each_effect_once(redis: str) -> None:
    """Without kills, also there."""
    done: Counter[str] = Counter()

    async def run() -> None:
        async with Redis.from_url(redis) as client:
            await client.flushdb()

            async def effect(session: object, key: str) -> None:
                done[key] += 1

            stores = [RedisMarks(client) for _ in range(COPIES)]
            await deliver_to(list(stores), effect)
            assert len(await client.keys()) == MESSAGES

    asyncio.run(run())
    assert done == {str(number): 1 for number in range(MESSAGES)}
