"""The pages of delayed messages over HTTP, on the bundled broker: what waits, delivering it now, cancelling it."""

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from rocket_admin.delayed_messages import level_delays
from rocket_client import Producer, ProducerSettings
from rocket_remoting import Message
from tests.unit.rocket_console.browser import Browser, RunningConsole

HOUR_MS = 3_600_000


@pytest.fixture(scope="module", autouse=True)
def waiting(name_server: str) -> None:
    """A message of a delay level and five timed ones, all for topic `orders`."""

    async def send() -> None:
        async with Producer("senders", ProducerSettings(name_servers=name_server)) as producer:
            await producer.send(Message("orders", b"in two hours", keys="level", delay_level=18))
            for number in range(5):
                timed = Message("orders", f"<script>{number}</script>".encode(), keys=f"timed-{number}")
                timed.deliver_at_ms = int(time.time() * 1000) + (number + 1) * HOUR_MS
                await producer.send(timed)

    asyncio.run(send())


def listed(browser: Browser) -> Mapping[str, Mapping[str, str]]:
    """Return the rows of the list by the keys of the messages."""
    return {row["keys"]: row for row in browser.get("/delayed?export=delayed.json").json()}


def ids(browser: Browser) -> Mapping[str, str]:
    """Return what the boxes of the list send, by the keys of the messages."""
    rows = browser.page("/delayed").split("<tr>")[2:]
    boxes = {row.split('name="row" value="')[1].split('"')[0]: row for row in rows if 'name="row"' in row}
    return {key: box for key in listed(browser) for box, row in boxes.items() if f">{key}<" in row}


def test_delayed_messages_are_listed(browser: Browser) -> None:
    """With the topic that they wait for; only timed ones can be chosen."""
    rows = listed(browser)
    assert rows["level"]["kind"] == "level 18"
    assert rows["timed-4"]["kind"] == "timed"
    assert {row["topic"] for row in rows.values()} == {"orders"}
    assert rows["timed-3"]["due"] < rows["timed-4"]["due"]
    assert "level" not in ids(browser)
    assert "<script>4" not in browser.page("/delayed")
    assert 'href="/delayed"' in browser.page("/messages")


def test_timed_messages_are_cancelled(browser: Browser, console: RunningConsole) -> None:
    """After a preview that cancels nothing."""
    chosen = ids(browser)
    preview = f"/delayed/cancel?row={chosen['timed-0']}&row={chosen['timed-1']}&row=absent"
    assert "Messages: 2 Messages that were ticked: 3." in browser.facts(preview)
    assert "timed-0" in listed(browser)
    done = browser.submit("/delayed/cancel", records=f"{chosen['timed-0']} {chosen['timed-1']}")
    assert "Messages changed: 2 of 2." in browser.facts(done.headers["location"])
    while not listed(browser).keys().isdisjoint({"timed-0", "timed-1"}):
        continue
    again = browser.submit("/delayed/cancel", records=chosen["timed-0"])
    assert "Messages changed: 0 of 1. The others do not wait any more." in browser.facts(again.headers["location"])
    assert browser.post("/delayed/cancel", data={"records": chosen["timed-0"], "csrf": "x"}).status_code == 403
    lines = [json.loads(line) for line in console.audit_log.read_text().splitlines()]
    assert [line["answer"] for line in lines if line["action"] == "delayed.cancel"] == ["done", "done", "refused"]


def test_a_timed_message_is_delivered_now(browser: Browser) -> None:
    """Once: it waits no more."""
    chosen = ids(browser)["timed-2"]
    assert "Messages: 1" in browser.facts(f"/delayed/deliver?row={chosen}")
    browser.submit("/delayed/deliver", records=chosen)
    while "timed-2" in listed(browser):
        continue
    (row,) = browser.get("/messages?topic=orders&key=timed-2&export=messages.json").json()
    assert row["body"] == "<script>2</script>"
    assert "tick rows" in browser.facts("/delayed/deliver", 400)


def test_viewers_change_no_delayed_message(name_server: str, tmp_path: Path) -> None:
    """They see no boxes, and their forms are refused."""
    with RunningConsole(name_server, tmp_path, is_read_only=True) as console, Browser(console) as viewer:
        html = viewer.page("/delayed")
        assert "timed-4" in html
        assert 'name="row"' not in html
        for action in ("deliver", "cancel"):
            assert viewer.submit(f"/delayed/{action}", records="x").status_code == 403


def test_levels_have_delays() -> None:
    """By their numbers, from 1."""
    assert {number: delay.total_seconds() for number, delay in level_delays("1s 2m 3h").items()} == {
        1: 1,
        2: 120,
        3: 10800,
    }
