"""The pages of half messages over HTTP, on the bundled broker: open transactions, and ending them by hand."""

import asyncio
import json
import re
from pathlib import Path

from rocket_client import LocalTransactionState, TransactionProducer, TransactionProducerSettings
from rocket_remoting import Message
from tests.unit.rocket_console.browser import Browser, RunningConsole


async def _unknown(message: Message) -> LocalTransactionState:
    return LocalTransactionState.UNKNOWN


def test_open_transactions_are_listed(browser: Browser, name_server: str) -> None:
    """With their topic and group; those that have ended are not, and their texts are no HTML."""
    page = "/half-messages"
    assert "No transaction is open." in browser.facts(page)

    async def transact() -> None:
        settings = TransactionProducerSettings(name_servers=name_server)
        async with TransactionProducer("tellers", settings, _unknown) as producer:
            for body in (b"committed", b"rolled back", b"<script>open</script>"):
                transaction = await producer.begin(Message("orders", body, keys="t1"))
                if body == b"committed":
                    await transaction.commit()
                elif body == b"rolled back":
                    await transaction.rollback()
            await asyncio.to_thread(look)

    def look() -> None:
        # Producers do not wait until the broker has noted the end of a transaction.
        while len(rows := browser.get(f"{page}?export=halves.json").json()) > 1:
            continue
        assert [(row["body"], row["topic"], row["group"], row["checks"]) for row in rows] == [
            ("<script>open</script>", "orders", "tellers", 0)
        ]
        html = browser.page(page)
        assert "<script>open" not in html

    asyncio.run(transact())


def test_open_transactions_are_ended_by_hand(browser: Browser, name_server: str, console: RunningConsole) -> None:
    """Committed or rolled back, after a preview that ends nothing; each is in the audit log."""

    async def transact() -> None:
        settings = TransactionProducerSettings(name_servers=name_server)
        async with TransactionProducer("clerks", settings, _unknown) as producer:
            for key in ("by-hand-1", "by-hand-2", "by-hand-3"):
                await producer.begin(Message("orders", key.encode(), keys=key))
            await asyncio.to_thread(end)

    def open_ones() -> dict[str, str]:
        """Return the ids of the records of open transactions by their keys."""
        table = browser.page("/half-messages?halves.q=clerks")
        rows = table.split("<tr>")[2:]
        return {key: row.split('value="')[1].split('"')[0] for row in rows for key in re.findall(r"by-hand-\d", row)}

    def end() -> None:
        while len(halves := open_ones()) < 3:
            continue
        preview = f"/half-messages/commit?row={halves['by-hand-1']}&row=absent"
        assert "Transactions: 1 Half messages that were ticked: 2." in browser.facts(preview)
        assert len(open_ones()) == 3
        done = browser.submit("/half-messages/commit", halves=halves["by-hand-1"])
        assert "Transactions ended: 1 of 1." in browser.facts(done.headers["location"])
        rest = f"{halves['by-hand-2']} {halves['by-hand-3']}"
        done = browser.submit("/half-messages/roll-back", halves=rest)
        assert "ended=2&asked=2" in done.headers["location"]
        while open_ones():
            continue
        assert browser.submit("/half-messages/commit", halves=rest).headers["location"].count("ended=0")

    asyncio.run(transact())
    keys = [row["keys"] for row in browser.get("/messages?topic=orders&where=keys~by-hand&export=messages.json").json()]
    assert keys == ["by-hand-1"]
    assert "tick rows" in browser.facts("/half-messages/commit", 400)
    assert browser.post("/half-messages/commit", data={"halves": "x", "csrf": "x"}).status_code == 403
    lines = [json.loads(line) for line in console.audit_log.read_text().splitlines()]
    made = [(line["action"], line["answer"]) for line in lines if line["action"].startswith("transaction")]
    assert made[:2] == [("transaction.commit", "done"), ("transaction.roll-back", "done")]


def test_viewers_end_no_transaction(name_server: str, tmp_path: Path) -> None:
    """They see no boxes, and their forms are refused."""
    with RunningConsole(name_server, tmp_path, is_read_only=True) as console, Browser(console) as viewer:
        assert 'id="ticked"' not in viewer.page("/half-messages")
        for action in ("commit", "roll-back"):
            assert viewer.submit(f"/half-messages/{action}", halves="x").status_code == 403
