"""The pages about dead letters over HTTP, on the bundled broker: causes, letters, replaying and dropping them."""

import asyncio
import json
import re
from html import unescape
from itertools import count
from pathlib import Path

import pytest

from rocket_client import Admin, ClientSettings
from rocket_console.pages.dead_letter_comparison import line_differences
from tests.unit.rocket_admin.letters import bury, bury_damaged
from tests.unit.rocket_console.browser import Browser, RunningConsole, text_of

_numbers = count(1)
HOSTILE = "<script>alert(1)</script>\u202e"


@pytest.fixture
def kitchen(name_server: str) -> str:
    """A group with three dead letters of two causes, whose messages came from topic `orders`."""
    group = f"kitchen-{next(_numbers)}"
    asyncio.run(bury(name_server, group, "orders", ["KeyError", "ValueError", "ValueError"]))
    return group


def test_dead_letters_have_causes(browser: Browser, kitchen: str) -> None:
    """Of a group: each cause with its number, and each letter."""
    assert f"{kitchen} 3 0" in browser.facts("/dead-letters")
    text = browser.facts(f"/dead-letters/{kitchen}")
    assert "that were read: 3." in text
    assert "ValueError no dish 1 – 2" in text
    assert "KeyError no dish 0 – 1" in text
    address = f"/dead-letters/{kitchen}?where=FAILURE_TYPE=KeyError"
    assert [row["body"] for row in browser.get(f"{address}&export=letters.json").json()] == ["order 0"]
    browser.submit("/new-group", group=kitchen)
    assert f'href="/dead-letters/{kitchen}"' in browser.page(f"/groups/{kitchen}")


@pytest.mark.parametrize(
    ("address", "status", "text"),
    [
        ("/dead-letters/absent", 404, "No such topic"),
        ("/dead-letters/shop?where=x", 400, "'x' is not a condition"),
        ("/dead-letters/shop", 200, "that were read: 0."),
        ("/dead-letters/shop/replay", 200, "Show what would be sent"),
        ("/dead-letters/shop/replay?preview=yes", 200, "No letter would be sent"),
        ("/dead-letters/shop/replay?preview=yes&to=orders&alone=yes", 400, "both is not possible"),
        ("/dead-letters/shop/drop", 200, "Show what would be dropped"),
        ("/dead-letters/shop/drop?before=earliest", 400, "no letter is older"),
    ],
)
def test_pages_say_what_can_be_done(browser: Browser, address: str, status: int, text: str) -> None:
    """Also to a group without dead letters."""
    assert text in browser.facts(address, status)


def test_dead_letters_are_replayed_with_an_account(browser: Browser, console: RunningConsole, kitchen: str) -> None:
    """A preview sends nothing; a replay sends as many as the form says, and drops them; none is sent twice."""
    replay = f"/dead-letters/{kitchen}/replay"
    preview = browser.facts(f"{replay}?preview=yes&limit=2")
    assert "Letters to send: 2 To orders 2" in preview
    assert "that were read: 3." in browser.facts(f"/dead-letters/{kitchen}")
    sent = browser.submit(replay, limit="2")
    assert sent.headers["location"] == f"{replay}?done=dead-letter.replay"
    assert "Letters sent 2 Sent before, passed over 0" in _ended(browser, replay)
    assert "that were read: 1." in browser.facts(f"/dead-letters/{kitchen}")
    assert "REPLAYED_LETTER" in browser.facts(_newest(browser, "orders"))
    assert "Letters to send: 1 To orders 1 In the account of what was sent before 2" in browser.facts(
        f"{replay}?preview=yes"
    )
    browser.submit(replay)
    assert "Letters sent 1 Sent before, passed over 2" in _ended(browser, replay)
    assert "No letter would be sent" in browser.facts(f"{replay}?preview=yes")
    browser.submit(replay, again="yes")
    assert "Sent before, passed over 0" in _ended(browser, replay)
    assert browser.submit(replay, rate="0").status_code == 400
    assert browser.post(replay, data={"csrf": "x"}).status_code == 403
    lines = [json.loads(line) for line in console.audit_log.read_text().splitlines()]
    made = [line["answer"] for line in lines if line["names"].get("group") == kitchen]
    assert made == ["done", "done", "done", "failed", "refused"]


def _ended(browser: Browser, replay: str) -> str:
    """Return the text of the page of a replay, when it has ended."""
    while "The last replay: running" in (text := browser.facts(replay)):
        continue
    return text


def test_a_replay_is_cancelled_and_goes_on(browser: Browser, name_server: str) -> None:
    """It runs while nobody looks; what it has sent is in the account. The last progress has no button to cancel it."""
    asyncio.run(bury(name_server, "slow", "orders", ["KeyError"] * 100))
    replay = "/dead-letters/slow/replay"
    browser.submit(replay, rate="1", again="")
    text = browser.facts(replay)
    assert "The last replay: running" in text
    assert "Cancel the replay" in text
    assert "a replay of group slow is running" in text_of(browser.submit(replay).text)
    progress = browser.get(f"{replay}/progress")
    assert "The last replay: running" in text_of(progress.text)
    assert "Cancel the replay</button>" in progress.text
    assert "x-last" not in progress.headers
    assert browser.post(f"{replay}/cancel", data={"csrf": "x"}).status_code == 403
    assert browser.submit(f"{replay}/cancel").status_code == 303
    progress = browser.get(f"{replay}/progress")
    assert "The last replay: cancelled" in text_of(progress.text)
    assert "<button" not in progress.text
    assert progress.headers["x-last"] == "1"
    text = browser.facts(replay)
    assert "The last replay: cancelled" in text
    (sent,) = re.findall(r"Letters sent (\d+) ", text)
    assert int(sent) < 100
    browser.submit(replay, rate="1000")
    assert f"Letters sent {100 - int(sent)} Sent before, passed over {sent}" in _ended(browser, replay)


def test_a_failed_replay_says_why(browser: Browser, name_server: str) -> None:
    """What was sent before the failure is in the account."""

    async def prepare() -> None:
        await bury(name_server, "broken", "orders", ["KeyError"])
        await bury(name_server, "broken", "absent", ["KeyError"])

    asyncio.run(prepare())
    replay = "/dead-letters/broken/replay"
    browser.submit(replay)
    text = _ended(browser, replay)
    assert "The last replay: failed" in text
    assert "absent" in text
    assert "Letters sent 1 " in text


def test_two_letters_are_compared(browser: Browser, kitchen: str) -> None:
    """Side by side, with what differs marked."""
    rows = re.findall(r'name="row" value="([^"]+)"', browser.page(f"/dead-letters/{kitchen}"))
    assert len(rows) == 3
    compare = f"/dead-letters/{kitchen}/compare"
    address = f"{compare}?row={rows[0]}&row={rows[1]}"
    lines = browser.get(f"{address}&export=lines.json").json()
    assert [line["kind"] for line in lines] == ["different"]
    assert {lines[0]["first"], lines[0]["second"]} == {"order 0", "order 1"}
    found = {row["name"]: row["kind"] for row in browser.get(f"{address}&export=properties.json").json()}
    assert (found["RETRY_TOPIC"], found["FAILURE_TYPE"]) == ("same", "different")
    assert "tick two" in browser.facts(f"{compare}?row={rows[0]}", 400)
    assert browser.get(f"{compare}?row={rows[0]}&row=absent").status_code == 404


def test_lines_of_bodies_are_side_by_side() -> None:
    """Those that only one body has stand beside nothing."""
    lines, is_cut = line_differences("a\nb\nc", "a\nc\nd")
    found = [(line.name, line.kind) for line in lines]
    assert found == [("1 | 1", "same"), ("2 | –", "first only"), ("3 | 2", "same"), ("– | 3", "second only")]
    assert not is_cut
    lines, is_cut = line_differences("x\n" * 5000, "y" * 5000)
    assert (len(lines), is_cut) == (1000, True)


def test_viewers_replay_nothing(name_server: str, tmp_path: Path, kitchen: str) -> None:
    """They see the pages without buttons that change something."""
    with (
        RunningConsole(name_server, tmp_path, is_read_only=True) as console,
        Browser(console) as viewer,
    ):
        assert "Send the letters</button>" not in viewer.page(f"/dead-letters/{kitchen}/replay?preview=yes")
        assert "Compare the two" in viewer.page(f"/dead-letters/{kitchen}")
        for action in ("replay", "replay/cancel"):
            assert viewer.submit(f"/dead-letters/{kitchen}/{action}").status_code == 403


def _newest(browser: Browser, topic: str) -> str:
    """Return the address of the newest message of a topic that was replayed."""
    (row, *_) = browser.get(f"/messages?topic={topic}&where=REPLAYED_LETTER~0&export=messages.json").json()
    return f"/messages/{row['message_id']}?topic={topic}"


def test_dead_letters_are_dropped_after_a_preview(browser: Browser, kitchen: str) -> None:
    """Those up to the time of the preview."""
    drop = f"/dead-letters/{kitchen}/drop"
    preview = browser.page(f"{drop}?before=2100-01-01T00:00Z")
    assert "Letters from before 2100-01-01T00:00:00.000Z to drop: 3" in text_of(preview)
    assert browser.submit(drop, before="2020-01-01T00:00Z").status_code == 303
    assert "that were read: 3." in browser.facts(f"/dead-letters/{kitchen}")
    assert browser.submit(drop, before="2100-01-01T00:00Z").status_code == 303
    assert "that were read: 0." in browser.facts(f"/dead-letters/{kitchen}")
    assert f"{kitchen} 0 3" in browser.facts("/dead-letters")
    assert browser.post(drop, data={"before": "latest"}).status_code == 403


def test_hostile_and_damaged_letters_are_text(browser: Browser, name_server: str) -> None:
    """A damaged letter is shown, and passed over by a replay."""

    async def prepare() -> None:
        await bury(name_server, "hostile", "orders", [HOSTILE])
        async with Admin(ClientSettings(name_servers=name_server)) as admin:
            (broker,) = (await admin.masters()).values()
        await bury_damaged(broker, "hostile")

    asyncio.run(prepare())
    html = browser.page("/dead-letters/hostile")
    assert "<script>alert" not in html
    assert "\u202e" not in html
    assert "<script>alert(1)</script>\\u202e" in unescape(html)
    assert "that were read: 2." in text_of(html)
    assert "Letters to send: 1" in browser.facts("/dead-letters/hostile/replay?preview=yes")
    assert len(browser.get("/messages?topic=%25DLQ%25hostile&export=messages.json").json()) == 2
