"""Marks in SQLite, in the transaction of the listener."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from sqlalchemy import Column, Engine, Integer, MetaData, Table, create_engine, insert, select
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker

from streamkit import StreamApplication
from streamkit.errors import ConfigurationError
from streamkit.patterns.inbox import InboxSession, MarkStore, SqlMarks, inbox_table

PROGRAM = Path(__file__).parent / "killed_application.py"
METADATA = MetaData()
MARKS = inbox_table(METADATA, "marks")
EFFECTS = Table("effects", METADATA, Column("order_id", Integer))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """An empty database."""
    engine = create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    METADATA.create_all(engine)
    yield engine
    engine.dispose()


def make_app(store: MarkStore, **inbox: str) -> StreamApplication:
    """Return an application with an input `orders` and a store of marks."""
    settings = {f"streamkit.inbox.{key.replace('_', '-')}": value for key, value in inbox.items()}
    app = StreamApplication(
        config_location="optional:/none",
        properties={"spring.cloud.stream.bindings.orders.group": "g", "streamkit.inbox.store": "marks", **settings},
    )
    app.register("marks", store)
    return app


def test_effect_and_mark_are_committed_together(engine: Engine) -> None:
    """A run that fails leaves neither; the next attempt leaves both."""
    app = make_app(SqlMarks(sessionmaker(engine), MARKS))
    calls: list[int] = []

    @app.stream_listener("orders", idempotent_by="payload.id")
    def book(order: dict[str, int], session: Annotated[Session, InboxSession()]) -> None:
        calls.append(order["id"])
        session.execute(insert(EFFECTS).values(order_id=order["id"]))
        if len(calls) == 1:
            raise ValueError("no")

    with app.test() as test:
        for number in (1, 1, 2):
            test.input("orders").send({"id": number})
            test.settle()
        test.advance(minutes=1)
    with engine.connect() as connection:
        assert sorted(connection.scalars(select(EFFECTS.c.order_id))) == [1, 2]
        marks = connection.execute(select(MARKS.c.scope, MARKS.c.message_key).order_by(MARKS.c.message_key)).all()
    assert marks == [("g/orders", "1"), ("g/orders", "2")]


def test_expired_marks_are_deleted_in_slices(engine: Engine) -> None:
    """By the messages that come after the interval."""
    app = make_app(SqlMarks(sessionmaker(engine), MARKS), expiry="1h", clean_up_slice="2")

    @app.stream_listener("orders", idempotent_by="payload.id")
    def book(order: dict[str, int]) -> None: ...

    def count() -> int:
        with engine.connect() as connection:
            return len(connection.execute(select(MARKS)).all())

    with app.test() as test:
        counts = []
        for number in range(6):
            test.input("orders").send({"id": number})
            test.settle()
            counts.append(count())
            test.advance(minutes=0 if number < 3 else 70)
    assert counts == [1, 2, 3, 4, 3, 2]


async def asynchronous(order: dict[str, int], session: Annotated[Any, InboxSession()]) -> None: ...
def synchronous(order: dict[str, int], session: Annotated[Any, InboxSession()]) -> None: ...


@pytest.mark.parametrize(
    ("listener", "sessions", "error"),
    [
        (asynchronous, sessionmaker(), r"is an async def, .*SqlMarks\(async_sessionmaker\(engine\)\)"),
        (synchronous, async_sessionmaker[AsyncSession](), r"is a def, .*SqlMarks\(sessionmaker\(engine\)\)"),
    ],
)
def test_session_of_the_other_kind_is_an_error_at_the_start(listener: Any, sessions: Any, error: str) -> None:
    """A `def` cannot await, and an `async def` must not block."""
    app = make_app(SqlMarks(sessions))
    app.stream_listener("orders", idempotent_by="payload.id")(listener)
    with pytest.raises(ConfigurationError, match=error), app.test():
        raise AssertionError("started")


@pytest.mark.promise
def test_process_may_be_killed_at_any_point(tmp_path: Path) -> None:
    """The effect happens once; a result that was sent before the kill comes again with the same id."""
    done = subprocess.run([sys.executable, PROGRAM, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "before the effect: [9, 0] effects=1 marks=1 results=1 ids=1",
        "after the effect: [9, 0] effects=1 marks=1 results=1 ids=1",
        "after the result was sent: [9, 0] effects=1 marks=1 results=2 ids=1",
        "before the commit: [9, 0] effects=1 marks=1 results=2 ids=1",
        "after the commit: [9, 0] effects=1 marks=1 results=1 ids=1",
        "before the acknowledgment: [9, 0] effects=1 marks=1 results=1 ids=1",
        "nowhere: [0, 0] effects=1 marks=1 results=1 ids=1",
    ]
