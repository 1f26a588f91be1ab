"""Marks in Django's database, in the transaction of the listener."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner
from django.db import IntegrityError, connection, transaction

from streamkit import StreamApplication
from streamkit.errors import ConfigurationError
from streamkit.patterns.inbox import DjangoMarks
from streamkit.patterns.inbox.commands import inbox
from tests.unit.patterns.django_connection import django_on


@pytest.fixture(autouse=True)
def database(tmp_path: Path) -> Iterator[None]:
    """A database with the printed table of marks, and one for effects."""
    with django_on("sqlite3", str(tmp_path / "shop.db")), connection.cursor() as cursor:
        for statement in CliRunner().invoke(inbox, ["schema", "--database", "sqlite"]).output.split(";"):
            cursor.execute(statement)
        cursor.execute("CREATE TABLE effects (number INTEGER UNIQUE)")
        yield


def make_app(**inbox: str) -> StreamApplication:
    """Return an application with an input `orders` and marks in Django's database."""
    settings = {f"streamkit.inbox.{key.replace('_', '-')}": value for key, value in inbox.items()}
    app = StreamApplication(
        config_location="optional:/none",
        properties={"spring.cloud.stream.bindings.orders.group": "g", "streamkit.inbox.store": "marks", **settings},
    )
    app.register("marks", DjangoMarks())
    return app


def insert(number: int) -> None:
    """Make an effect."""
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO effects VALUES (%s)", [number])


def rows(statement: str) -> list[object]:
    """Return the first column of what a statement finds."""
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return [row[0] for row in cursor.fetchall()]


def test_effect_and_mark_are_committed_together() -> None:
    """A run that fails leaves neither; the next attempt leaves both, and runs what waits for the commit."""
    app = make_app()
    calls: list[int] = []
    committed: list[int] = []

    @app.stream_listener("orders", idempotent_by="payload.id")
    def book(order: dict[str, int]) -> None:
        calls.append(order["id"])
        transaction.on_commit(lambda: committed.append(order["id"]))
        with transaction.atomic():
            insert(order["id"])
        if len(calls) == 1:
            raise ValueError("no")

    with app.test() as test:
        for number in (1, 1, 2):
            test.input("orders").send({"id": number})
            test.settle()
        test.advance(minutes=1)
    assert calls == [1, 1, 2]
    assert sorted(committed) == [1, 2]
    assert rows("SELECT number FROM effects ORDER BY number") == [1, 2]
    assert rows("SELECT message_key FROM streamkit_inbox ORDER BY message_key") == ["1", "2"]


def test_run_that_has_caught_an_error_of_the_database_fails() -> None:
    """Django rolls such a transaction back, so the message must not be marked as handled."""
    app = make_app()

    @app.stream_listener("orders", idempotent_by="payload.id")
    def book(order: dict[str, int]) -> None:
        insert(1)
        with suppress(IntegrityError), transaction.atomic(savepoint=False):  # as models do it
            insert(1)

    with app.test() as test:
        test.input("orders").send({"id": 1})
        test.settle()
    assert rows("SELECT number FROM effects") == []
    assert rows("SELECT mark FROM streamkit_inbox") == []


def test_expired_marks_are_deleted_and_their_messages_handled_again() -> None:
    app = make_app(expiry="1h", clean_up_interval="2h")
    calls: list[int] = []

    @app.stream_listener("orders", idempotent_by="payload.id")
    def book(order: dict[str, int]) -> None:
        calls.append(order["id"])

    with app.test() as test:
        for number, minutes in ((1, 0), (2, 70), (1, 0), (1, 70), (3, 0)):
            test.input("orders").send({"id": number})
            test.settle()
            test.advance(minutes=minutes)
    assert calls == [1, 2, 1, 3]
    assert rows("SELECT message_key FROM streamkit_inbox") == ["3"]


def test_async_def_is_refused_at_the_start() -> None:
    """Its ORM works on other threads, outside of the transaction."""
    app = make_app()

    @app.stream_listener("orders", idempotent_by="payload.id")
    async def book(order: dict[str, int]) -> None: ...

    with pytest.raises(ConfigurationError, match="write the listener as a def"), app.test():
        raise AssertionError("started")


def test_revision_of_alembic_has_the_table_by_its_name() -> None:
    printed = CliRunner().invoke(inbox, ["schema", "--alembic", "--table", "handled"]).output
    assert "op.create_table('handled'" in printed
    assert "op.drop_table('handled')" in printed


def test_async_def_behind_a_def_is_not_run() -> None:
    """It would run on the loop, outside of the transaction: its effects would stay if the mark is rolled back."""
    app = make_app()

    async def book(order: dict[str, int]) -> None:
        insert(order["id"])

    @app.stream_listener("orders", idempotent_by="payload.id")
    def decorated(order: dict[str, int]) -> object:
        return book(order)

    with app.test() as test:
        test.input("orders").send({"id": 1})
        test.advance(hours=5)
        reason = str(test.dead_letters("orders").receive().headers["FAILURE_MESSAGE"])
    assert "book, which would run on the loop" in reason
    assert "write what the listener decorates as a def" in reason
    assert rows("SELECT number FROM effects") == []
    assert rows("SELECT mark FROM streamkit_inbox") == []
