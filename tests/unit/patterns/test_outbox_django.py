"""The outbox in transactions of Django, on the same database as SQLAlchemy's engine."""

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from django.db import transaction
from sqlalchemy import create_engine

from streamkit import StreamApplication
from streamkit.patterns.outbox import Outbox, OutboxError
from streamkit.patterns.outbox.django import django_send
from streamkit.patterns.outbox.tables import PRODUCER_TABLES
from streamkit.patterns.table_schema import sql_script
from tests.unit.patterns.django_connection import django_on


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    """An outbox whose database Django has too; its application is not started."""
    path = tmp_path / "shop.db"
    connection = sqlite3.connect(path)
    connection.executescript(sql_script("sqlite", PRODUCER_TABLES))
    connection.close()
    app = StreamApplication(
        config_location="optional:/none", properties={"spring.cloud.stream.output-bindings": "orders"}
    )
    engine = create_engine(f"sqlite:///{path}")
    with django_on("sqlite3", str(path)):
        yield Outbox(app, engine, "orders")
    engine.dispose()


def test_message_is_sent_after_the_commit_and_never_after_a_roll_back(outbox: Outbox) -> None:
    with outbox._app.test() as test:
        with transaction.atomic():
            django_send(outbox, "orders", {"number": 1}, id="1")
        with suppress(RuntimeError), transaction.atomic():
            django_send(outbox, "orders", {"number": 2}, id="2")
            raise RuntimeError
        test.advance(seconds=2)
        assert [each.payload for each in test.output("orders").receive_all(dict)] == [{"number": 1}]


def test_send_outside_of_a_transaction_is_refused(outbox: Outbox) -> None:
    with pytest.raises(OutboxError, match=r"transaction\.atomic"):
        django_send(outbox, "orders", {"number": 1})
