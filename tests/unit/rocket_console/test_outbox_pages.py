"""The pages of an outbox over HTTP, on a database in a file: lists, filters, one message, resend and roll-back."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import Engine, insert, select, update

from rocket_console.command import console as command
from rocket_console.pages.outbox import OutboxPages
from rocket_console.tables.stored_table_view import MOST_ROWS
from streamkit.patterns.outbox.database import Database
from streamkit.patterns.outbox.operator_database import database_at
from streamkit.patterns.outbox.status import MessageStatus
from streamkit.patterns.outbox.tables import PRODUCER_TABLES
from tests.unit.rocket_console.browser import Browser, RunningConsole, text_of

HOSTILE = "<script>alert(1)</script>\u202e"
TABLE = PRODUCER_TABLES[0]
OVER = "CONFIRMATION_RETRIES_EXCEEDED"


def row(number: int, status: MessageStatus = MessageStatus.NOT_CONSUMED, **values: object) -> dict[str, Any]:
    """Return a row of the outbox."""
    return {
        "id": number,
        "msgid": f"o-{number}",
        "topic": "orders",
        "body": b'{"cake": "sacher"}',
        "headers": '{"id": "x", "contentType": "application/json"}',
        "lane": 0,
        "message_status": str(status),
        "create_time": 1_700_000_000_000 + number,
        "update_time": 1_700_000_000_000 + number,
        "send_times": 0,
        "due_time": 0,
        "check_time": 0,
        "sent_time": None,
        "last_error": None,
        "message_key": None,
    } | values


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A database with a message of each status to `orders`, 100 to `invoices`, and one that is hostile."""
    database = database_at(f"sqlite:///{tmp_path_factory.mktemp('outbox') / 'shop.db'}")
    engine = database.engine
    assert isinstance(engine, Engine)
    with engine.begin() as connection:
        TABLE.metadata.create_all(connection)
        rows = [row(number, status) for number, status in enumerate(MessageStatus, 1)]
        rows += [row(number, topic="invoices", msgid=f"i-{number}") for number in range(100, 200)]
        hostile = {"msgid": HOSTILE, "last_error": HOSTILE, "body": HOSTILE.encode(), "message_key": HOSTILE}
        rows.append(row(7, topic="hostile", headers=json.dumps({HOSTILE: HOSTILE}), **hostile))
        connection.execute(insert(TABLE), rows)
    yield engine
    engine.dispose()


@pytest.fixture(scope="module")
def console(name_server: str, engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    """A console with the outbox, a password for viewers and one for operators."""
    sections = (OutboxPages(Database(engine)).section,)
    settings: dict[str, Any] = {"viewer_password": "v", "operator_password": "o", "more_sections": sections}
    with RunningConsole(name_server, tmp_path_factory.mktemp("console"), **settings) as console:
        yield console


@contextmanager
def logged_in(console: RunningConsole, password: str) -> Iterator[Browser]:
    """Yield a browser whose user has logged in."""
    with Browser(console) as browser:
        token = browser.get("/login").text.split('name="csrf" value="')[1].split('"')[0]
        assert browser.post("/login", data={"csrf": token, "password": password}).status_code == 303
        yield browser


@pytest.fixture
def browser(console: RunningConsole) -> Iterator[Browser]:
    """An operator."""
    with logged_in(console, "o") as browser:
        yield browser


def ids(browser: Browser, query: str = "") -> list[str]:
    """Return the ids of all messages that an address lists."""
    return [each["id"] for each in browser.get(f"/outbox?{query}&export=messages.json").json()]


def statuses(engine: Engine, *numbers: int) -> list[str]:
    with engine.connect() as connection:
        found = connection.execute(select(TABLE.c.message_status).where(TABLE.c.id.in_(numbers)).order_by(TABLE.c.id))
        return list(found.scalars())


def test_messages_are_searched_by_id_status_and_topic(browser: Browser) -> None:
    """All that were ever put in, also those that no broker has stored; each search has its address."""
    assert len(ids(browser)) == 107
    assert ids(browser, "messages.q=o-3") == ["o-3"]
    assert ids(browser, "messages.q=O-3") == []
    assert len(ids(browser, "messages.q=i-1")) == 100
    assert ids(browser, "messages.status=CONSUMED") == ["o-2"]
    assert ids(browser, "messages.topic=orders&messages.status=ROLLED_BACK") == ["o-6"]
    assert ids(browser, "messages.topic=orders&messages.order=id") == [f"o-{number}" for number in range(1, 7)]
    assert "expected one of NOT_CONSUMED, CONSUMED" in browser.facts("/outbox?messages.status=LOST", 400)


def test_the_database_sorts_and_pages(browser: Browser) -> None:
    """A page beyond the last one is the last one; unknown values come last in both orders."""
    text = browser.facts("/outbox")
    assert "1 to 50 of 107" in text
    assert "shop.db" in text
    assert "101 to 107 of 107" in browser.facts("/outbox?messages.page=99")
    assert 'class="short bad">CONFIRMATION_RETRIES_EXCEEDED' in browser.page("/outbox?messages.topic=orders")
    assert "page 2 of 6" in browser.facts("/outbox?messages.page=2&messages.rows=20")
    for order in ("key", "-key", "sent_at", "pending", "error", "-created_at", "topic", "send_times"):
        found = ids(browser, f"messages.order={order}")
        assert len(found) == 107
        if order.endswith("key"):
            assert found[0].startswith("<script>")
    assert ids(browser, "messages.order=number")[:2] == ["o-1", "o-2"]
    lines = browser.get("/outbox?messages.topic=orders&export=messages.csv").text.splitlines()
    assert lines[0].startswith("id,topic,status,")
    assert len(lines) == 7
    assert "No row matches the filter" in browser.facts("/outbox?messages.q=absent")


def test_more_rows_than_pages_have_are_told(browser: Browser, engine: Engine) -> None:
    """Those that are not shown are found with a filter."""
    with engine.begin() as connection:
        connection.execute(insert(TABLE), row(1_000, topic="many"))
        columns = [column.name for column in TABLE.columns if column.name not in ("id", "msgid")]
        names = ", ".join(columns)
        connection.exec_driver_sql(
            "with recursive numbers(n) as (select 1001 union all select n + 1 from numbers"
            f" where n < {1_000 + MOST_ROWS})"
            f" insert into producer_msg (id, msgid, {names}) select n, 'o-' || n, {names} from numbers"
            " join producer_msg on id = 1000"
        )
    try:
        text = browser.facts("/outbox?messages.page=200")
        assert "More than 10,000 messages match" in text
        assert "9951 to 10000 of 10000" in text
    finally:
        with engine.begin() as connection:
            connection.execute(TABLE.delete().where(TABLE.c.topic == "many"))


def test_a_message_has_its_body_headers_and_history(browser: Browser) -> None:
    """JSON with indents; times in their order."""
    text = browser.facts("/outbox/messages/5")
    assert "CONFIRMATION_RETRIES_EXCEEDED" in text
    assert '"cake": "sacher"' in text
    assert 'contentType "application/json"' in text
    assert "The sender's transaction inserted the message." in text
    assert "there is no message number 5000 in the outbox" in browser.facts("/outbox/messages/5000", 404)
    assert "expected whole numbers" in browser.facts(f"/outbox/messages/{'9' * 30}", 400)


def test_hostile_messages_are_text(browser: Browser) -> None:
    """Their ids, keys, headers, errors and bodies."""
    for page in ("/outbox", "/outbox?messages.topic=hostile", "/outbox/messages/7"):
        html = browser.page(page)
        assert "<script>alert" not in html
        assert "\u202e" not in html
    assert unescape(html).count("<script>alert(1)</script>\\u202e") > 5


def test_ticked_messages_are_sent_again_and_rolled_back(
    browser: Browser, console: RunningConsole, engine: Engine
) -> None:
    """Only those over a limit, after a preview that changes nothing; the audit log has them."""
    assert 'name="row" value="5"' in browser.page("/outbox?messages.topic=orders")
    assert 'name="row" value="1"' not in browser.page("/outbox?messages.topic=orders")
    preview = browser.page("/outbox/resend?row=1&row=4&row=5")
    assert "Messages: 2 Messages that were ticked: 3." in text_of(preview)
    assert statuses(engine, 4, 5) == ["CONSUMPTION_RETRIES_EXCEEDED", OVER]
    token = preview.split('name="csrf" value="')[1].split('"')[0]
    sent = browser.post("/outbox/resend", data={"csrf": token, "rows": "4", "count": "1"})
    assert "Messages changed: 1 of 1." in browser.facts(sent.headers["location"])
    assert statuses(engine, 4, 5) == ["NOT_CONSUMED", OVER]
    again = browser.post("/outbox/resend", data={"csrf": token, "rows": "4 5", "count": "2"})
    assert "Messages changed: 1 of 2. The others are not over a limit any more." in browser.facts(
        again.headers["location"]
    )
    reset(engine, 4, 5)
    assert "A message that is rolled back cannot be sent again." in browser.facts("/outbox/roll-back?row=4")
    assert browser.post("/outbox/roll-back", data={"csrf": token, "rows": "4 5"}).status_code == 303
    assert statuses(engine, 4, 5) == ["ROLLED_BACK", "ROLLED_BACK"]
    reset(engine, 4, 5)
    assert browser.post("/outbox/roll-back", data={"csrf": "x", "rows": "4"}).status_code == 403
    lines = [json.loads(line) for line in console.audit_log.read_text().splitlines()]
    made = [
        (line["action"], line["answer"], line["names"])
        for line in lines
        if line["role"] == "operator" and line["names"].get("rows") in ("4", "4 5")
    ]
    assert made == [
        ("outbox.resend", "done", {"count": "1", "rows": "4"}),
        ("outbox.resend", "done", {"count": "2", "rows": "4 5"}),
        ("outbox.roll-back", "done", {"rows": "4 5"}),
        ("outbox.roll-back", "refused", {"rows": "4"}),
    ]


def reset(engine: Engine, *numbers: int) -> None:
    """Set messages over the limit again."""
    with engine.begin() as connection:
        connection.execute(update(TABLE).where(TABLE.c.id.in_(numbers)).values(message_status=OVER))


def test_all_that_match_a_filter_are_changed_in_steps(browser: Browser, engine: Engine) -> None:
    """A step changes what its preview shows, 500 messages at most."""
    assert "Messages: 0" in browser.facts("/outbox/resend?all=yes&topic=invoices")
    assert "no message is chosen" in browser.facts("/outbox/resend", 400)
    with engine.begin() as connection:
        many = [row(number, MessageStatus(OVER), topic="many") for number in range(2_000, 2_600)]
        connection.execute(insert(TABLE), many)
    try:
        preview = browser.page("/outbox/resend?all=yes&topic=many&status=CONFIRMATION_RETRIES_EXCEEDED")
        assert "Messages: 500 Messages that match, too, but are not part of this step: 100." in text_of(preview)
        fields = {name: preview.split(f'name="{name}" value="')[1].split('"')[0] for name in ("csrf", "rows", "count")}
        sent = browser.post("/outbox/resend", data=fields)
        assert "Messages changed: 500 of 500." in browser.facts(sent.headers["location"])
        assert "Messages: 100" in browser.facts("/outbox/resend?all=yes&topic=many")
        assert browser.post("/outbox/resend", data=fields | {"rows": "1 " * 501}).status_code == 400
    finally:
        with engine.begin() as connection:
            connection.execute(TABLE.delete().where(TABLE.c.topic == "many"))


def test_viewers_change_nothing(console: RunningConsole, engine: Engine) -> None:
    """They see no boxes and no buttons, and their forms are refused."""
    with logged_in(console, "v") as viewer:
        for page in ("/outbox", "/outbox/messages/5", "/outbox/resend?row=5"):
            html = viewer.page(page)
            assert 'type="checkbox"' not in html, page
            assert "Send again</button>" not in html, page
            assert "/outbox/roll-back" not in html, page
        assert viewer.post("/outbox/resend", data={"rows": "5"}).status_code == 403
    assert statuses(engine, 5) == [OVER]


def test_errors_of_the_database_say_what_to_do(name_server: str, tmp_path: Path) -> None:
    """Without the tables."""
    database = database_at(f"sqlite:///{tmp_path}/empty.db")
    sections = (OutboxPages(database).section,)
    with RunningConsole(name_server, tmp_path, more_sections=sections) as console, Browser(console) as browser:
        text = browser.facts("/outbox", 502)
        assert "no such table: producer_msg; `streamkit outbox schema` prints the statements" in text
        assert "SELECT" not in text
    database.engine.dispose()


@pytest.mark.parametrize("url", ["unknown://shop:secret@db/shop", "shop:secret@db"])
def test_a_wrong_url_is_told_without_its_password(url: str, name_server: str) -> None:
    """Before the console starts."""
    result = CliRunner().invoke(command, ["--name-server", name_server, "--outbox", url])
    assert result.exit_code == 1
    assert "database" in result.output
    assert "secret" not in result.output
