"""`streamkit outbox` on a database in a file, and the schema that it prints."""

import json
import sqlite3
from pathlib import Path

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from click.testing import CliRunner
from sqlalchemy import create_engine, inspect
from sqlalchemy.schema import CreateTable

from streamkit.patterns.outbox.administration import SLICE, Selection, resend
from streamkit.patterns.outbox.commands import outbox
from streamkit.patterns.outbox.tables import CONSUMER_TABLES, PRODUCER_TABLES
from streamkit.patterns.table_schema import DATABASES, alembic_migration, sql_script

ROW = """
    insert into producer_msg (msgId, message_status, topic, body, headers, lane, create_time, update_time, send_times,
                              due_time, check_time)
    values (?, ?, 'orders', x'7b7d', '{"id": "x"}', 0, 1000, 1000, 2, 0, 0)
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The URL of a database with a message over its limit and one that is not."""
    connection = sqlite3.connect(tmp_path / "shop.db")
    with connection:
        connection.executescript(sql_script("sqlite", PRODUCER_TABLES))
        connection.execute(ROW, ["o-1", "CONFIRMATION_RETRIES_EXCEEDED"])
        connection.execute(ROW, ["o-2", "NOT_CONSUMED"])
    connection.close()
    return f"sqlite:///{tmp_path}/shop.db"


def run(url: str, *arguments: str, fails: bool = False) -> str:
    """Return what the command prints."""
    result = CliRunner().invoke(outbox, [*arguments], env={"STREAMKIT_OUTBOX_URL": url, "COLUMNS": "200"})
    assert (result.exit_code != 0) is fails, result.output
    return result.output


def status(url: str, id_: str) -> str:
    return str(json.loads(run(url, "show", id_, "--json"))["status"])


def test_list_and_show(url: str) -> None:
    assert "CONFIRMATION_RETRIES_EXCEEDED" in run(url, "list")
    [line] = run(url, "list", "--status", "NOT_CONSUMED", "--json").splitlines()
    assert json.loads(line)["id"] == "o-2"
    assert json.loads(run(url, "show", "o-1", "--json"))["body"] == "{}"
    assert len(run(url, "list", "--summary", "--json").splitlines()) == 2


def test_dry_run_changes_nothing(url: str) -> None:
    assert "Would send again 1 message(s)." in run(url, "resend", "o-1", "--dry-run")
    assert status(url, "o-1") == "CONFIRMATION_RETRIES_EXCEEDED"


def test_resend_and_rollback(url: str) -> None:
    assert "1 message(s) sent again." in run(url, "resend", "--topic", "orders", "--yes")
    assert status(url, "o-1") == "NOT_CONSUMED"
    told = run(url, "rollback", "o-2", "--yes", fails=True)
    assert "message o-2 to orders is NOT_CONSUMED: only messages over a limit" in told


def test_many_messages_are_sent_again_in_slices(url: str) -> None:
    """One transaction does not lock a whole topic, and the table does not list it."""
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    with connection:
        connection.executemany(ROW, [[f"many-{number}", "CONSUMPTION_RETRIES_EXCEEDED"] for number in range(2 * SLICE)])
    connection.close()
    told = run(url, "resend", "--topic", "orders", "--dry-run")
    assert f"Would send again {2 * SLICE + 1} message(s). The table shows the first 50." in told
    assert len(told.splitlines()) < 60
    engine = create_engine(url)
    with engine.begin() as connected:
        assert len(resend(connected, Selection(topic="orders"), 0)) == SLICE
    engine.dispose()
    lines = run(url, "resend", "--topic", "orders", "--yes", "--json").splitlines()
    assert len(lines) == SLICE + 1
    assert len(run(url, "list", "--status", "NOT_CONSUMED", "--limit", "5000", "--json").splitlines()) == 2 * SLICE + 2


def test_password_of_the_database_is_not_printed() -> None:
    for url in ("unknown://shop:secret@db/shop", "shop:secret@db"):
        told = run(url, "list", fails=True)
        assert "secret" not in told
        assert "database" in told


def test_missing_tables_are_told_with_what_creates_them(tmp_path: Path) -> None:
    told = run(f"sqlite:///{tmp_path}/empty.db", "list", fails=True)
    assert "no such table: producer_msg; `streamkit outbox schema` prints the statements" in told


def test_rollback_marks_the_row(url: str) -> None:
    run(url, "rollback", "o-1", "--yes")
    assert status(url, "o-1") == "ROLLED_BACK"


def test_unknown_message_is_named(url: str) -> None:
    assert "there is no message o-9 in the outbox" in run(url, "show", "o-9", fails=True)


@pytest.mark.parametrize("database", DATABASES)
def test_schema_names_the_columns_of_the_tables(database: str) -> None:
    printed = run("", "schema", "--database", database)
    for name in ("producer_msg", "consumer_msg", "msgid", "message_status", "create_time", "update_time", "send_times"):
        assert name in printed


@pytest.mark.parametrize("dialect", ["mysql", "mariadb"])
def test_ids_are_compared_with_case(dialect: str) -> None:
    """Also in tables that SQLAlchemy creates, whichever name the URL has."""
    engine = create_engine(f"{dialect}+pymysql://shop@db/shop")
    for table in (*PRODUCER_TABLES, *CONSUMER_TABLES):
        assert "utf8mb4_bin" in str(CreateTable(table).compile(engine))
    assert "utf8mb4_bin" in run("", "schema", "--database", "mariadb")


def test_revision_of_alembic_makes_the_same_tables() -> None:
    names: dict[str, object] = {}
    exec(alembic_migration((*PRODUCER_TABLES, *CONSUMER_TABLES)), names)
    engine = create_engine("sqlite://")
    with engine.begin() as connection, Operations.context(MigrationContext.configure(connection)):
        names["upgrade"]()  # type: ignore[operator]
        made = {each: len(inspect(connection).get_columns(each)) for each in inspect(connection).get_table_names()}
        names["downgrade"]()  # type: ignore[operator]
        assert inspect(connection).get_table_names() == []
    engine.dispose()
    assert made == {"consumer_msg": 4, "producer_lane": 4, "producer_msg": 17}
