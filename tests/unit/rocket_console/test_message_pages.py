"""The pages about messages over HTTP, on the bundled broker: search, one message, its story, sending it again."""

import asyncio
import json
import re
from html import unescape
from pathlib import Path

import pytest

from rocket_client import ConsumeContext, Producer, ProducerSettings, PushConsumer, PushConsumerSettings
from rocket_console.pages.message_body import body_views
from rocket_remoting import Message
from rocket_remoting.wire.message import MessageExt
from tests.unit.rocket_console.browser import Browser, RunningConsole, text_of

HOSTILE = '{"cake": "<script>alert(1)</script>", "from": "\u202e\u0000"}'


@pytest.fixture(scope="module")
def cakes(name_server: str) -> str:
    """The id of a message with JSON in topic `cakes`, which also has a message of bytes and 40 of text."""

    async def send() -> str:
        async with Producer("bakers", ProducerSettings(name_servers=name_server)) as producer:
            properties = {"contentType": "application/json", "colour": "<b>red</b>"}
            body = json.dumps(json.loads(HOSTILE, strict=False)).encode()
            sent = await producer.send(Message("cakes", body, keys="sacher", properties=properties))
            await producer.send(Message("cakes", b"\x00\x01bytes", tags="raw"))
            for number in range(40):
                await producer.send(Message("cakes", f"cake {number}".encode()))
            return sent.msg_id

    return asyncio.run(send())


def found(browser: Browser, address: str) -> list[str]:
    """Return the bodies of the messages that a search finds."""
    return [row["body"] for row in browser.get(f"{address}&export=messages.json").json()]


def test_messages_are_searched_by_id_key_and_conditions(browser: Browser, cakes: str) -> None:
    """Each search has its address."""
    for address in (
        f"/messages?id={cakes}",
        "/messages?topic=cakes&key=sacher",
        "/messages?topic=cakes&where=body~alert",
    ):
        text = browser.facts(address)
        assert cakes in text, address
        assert "<script>" not in browser.page(address)
    assert sorted(found(browser, "/messages?topic=cakes&begin=1h&where=body~cake+1%0Abody!~cake+11")) == [
        "cake 1",
        *(f"cake {number}" for number in range(10, 20) if number != 11),
    ]
    assert found(browser, "/messages?topic=cakes&where=tags=raw") == ["00 01 62 79 74 65 73 (7 bytes)"]
    assert found(browser, "/messages?topic=cakes&end=2020-01-01") == []
    rows = browser.get("/messages?topic=cakes&export=messages.json").json()
    begin, end = sorted(row["stored_at"] for row in rows)[10:31:20]
    within = [row["body"] for row in rows if begin <= row["stored_at"] <= end]
    assert sorted(found(browser, f"/messages?topic=cakes&begin={begin}&end={end}")) == sorted(within)
    assert "Records with the id: 0." in browser.facts("/messages?id=absent")
    assert cakes in browser.facts(f"/messages?id={cakes}&at=cakes")
    assert "Records with the id: 0." in browser.facts(f"/messages?id={cakes}&at=cakes2")


@pytest.mark.parametrize(
    ("address", "status", "text"),
    [
        ("/messages", 200, "Conditions, one in a line"),
        ("/messages?where=a=b", 400, "name the topic"),
        ("/messages?topic=cakes&where=x", 400, "'x' is not a condition"),
        ("/messages?topic=cakes&begin=soon", 400, "'soon' is none of earliest"),
        ("/messages?topic=cakes&begin=latest", 400, "the field from is 'latest'"),
        ("/messages?topic=cakes&at=%7B", 400, "open the page again"),
        ("/messages?topic=absent", 404, "Look for the topic in the list"),
        ("/messages/absent/story", 404, "it may have been deleted by age"),
    ],
)
def test_searches_say_what_is_missing(browser: Browser, cakes: str, address: str, status: int, text: str) -> None:
    """And what to write."""
    assert text in browser.facts(address, status)


def test_a_search_goes_on_where_it_has_ended(browser: Browser, name_server: str) -> None:
    """Each part finds a hundred messages or a few more, and all parts together each message once."""

    async def send() -> None:
        async with Producer("bakers", ProducerSettings(name_servers=name_server)) as producer:
            for number in range(0, 300, 50):
                await producer.send_batch(
                    [Message("loaves", str(each).encode()) for each in range(number, number + 50)]
                )

    asyncio.run(send())
    address, bodies, parts = "/messages?topic=loaves", list[str](), 0
    while address:
        bodies += found(browser, address)
        parts += 1
        link = re.search(r'href="([^"]*)">Search the next part', browser.page(address))
        address = unescape(link[1]) if link else ""
    assert sorted(bodies, key=int) == [str(number) for number in range(300)]
    assert parts > 1


def test_conditions_lead_into_avro(name_server: str, tmp_path: Path, browser: Browser) -> None:
    """With the schemas of the console, in a search as in a live tail."""

    async def send() -> None:
        async with Producer("bakers", ProducerSettings(name_servers=name_server)) as producer:
            for body in (b"\x06tea", b"\x0ccoffee"):  # the length, doubled, and the text
                await producer.send(Message("menu", body))

    asyncio.run(send())
    (tmp_path / "menu.avsc").write_text('{"type": "record", "name": "A", "fields": [{"name": "x", "type": "string"}]}')
    search = "/messages?topic=menu&where=$.x=tea"
    with (
        RunningConsole(name_server, tmp_path / "console", schemas=tmp_path / "menu.avsc") as console,
        Browser(console) as guest,
    ):
        assert found(guest, search) == ["06 74 65 61 (4 bytes)"]
        rows = guest.facts("/topics/menu/tail/rows?where=$.x=tea")
        assert "06 74 65 61" in rows
        assert "63 6f 66 66" not in rows
    assert found(browser, search) == []


def test_a_message_shows_its_body_by_what_it_is(browser: Browser, cakes: str) -> None:
    """JSON with indents and bytes; nothing of it is HTML."""
    html = browser.page(f"/messages/{cakes}?topic=cakes")
    assert "<script>alert" not in html
    assert "<b>red" not in html
    assert "\u202e" not in html
    text = unescape(html)
    assert '{\n  "cake": "<script>alert(1)</script>",' in text
    assert "<summary>JSON</summary>" in html
    assert "00000000  7b 22 63 61 6b 65" in html


@pytest.mark.parametrize(
    ("body", "titles"),
    [
        (b'{"a": 1}', ["JSON", "Bytes"]),
        (b"{no", ["Text", "Bytes"]),
        ("grüße".encode(), ["Text", "Bytes"]),
        (b"a\x00b", ["Bytes"]),
        (b"", ["Bytes"]),
        (b"x" * 300_000, ["Text", "Bytes"]),
    ],
)
def test_a_body_has_views(body: bytes, titles: list[str]) -> None:
    """The most readable one is open; long ones are cut."""
    views = body_views(body, None)
    assert [view.title for view in views] == titles
    assert [view.is_open for view in views] == [True, False][: len(views)]
    assert views[0].is_cut is (len(body) > 256 * 1024)


def test_a_message_has_its_story(browser: Browser) -> None:
    """What each group has done with it, and its records."""
    (row,) = browser.get("/messages?topic=orders&key=k0&export=messages.json").json()
    text = browser.facts(f"/messages/{row['message_id']}/story?topic=orders")
    assert "What has become of it in each group" in text
    assert "shop consumed" in text
    assert "All records of the message" in text


def test_a_message_is_sent_again(browser: Browser, console: RunningConsole, cakes: str) -> None:
    """To the topic that it was first sent to, or another one that exists; the audit log names it."""
    assert 'value="cakes"' in browser.page(f"/messages/{cakes}/resend")
    sent = browser.submit(f"/messages/{cakes}/resend", to="orders")
    assert sent.status_code == 303
    text = browser.facts(sent.headers["location"])
    assert "The copy was sent. This is its page." in text
    assert "Topic orders" in text
    assert "KEYS sacher" in text
    refused = browser.submit(f"/messages/{cakes}/resend", to="absent")
    assert (refused.status_code, "No such topic" in text_of(refused.text)) == (404, True)
    lines = [json.loads(line) for line in console.audit_log.read_text().splitlines()]
    made = [(line["answer"], line["names"]) for line in lines if line["action"] == "message.resend"]
    assert made == [("done", {"id": cakes, "to": "orders"}), ("failed", {"id": cakes, "to": "absent"})]
    assert browser.post(f"/messages/{cakes}/resend", data={"to": "orders", "csrf": "x"}).status_code == 403


def test_a_message_is_edited_and_sent(browser: Browser, console: RunningConsole, cakes: str) -> None:
    """Its body, tag, keys and properties; what a browser cannot send back is copied as it is."""
    html = browser.page(f"/messages/{cakes}/edit")
    assert "<script>alert" not in html
    assert "colour=&lt;b&gt;red&lt;/b&gt;" in html
    body = unescape(html.split('name="body" rows="12">\n')[1].split("</textarea>")[0])
    assert json.loads(body)["cake"] == "<script>alert(1)</script>"
    fields = {"to": "orders", "keys": "edited", "tags": "t", "properties": "colour=blue\r\nsize=1"}
    sent = browser.submit(f"/messages/{cakes}/edit", body="a\r\nb", **fields)
    text = browser.facts(sent.headers["location"])
    assert "The edited message was sent." in text
    assert "colour blue" in text
    assert "size 1" in text
    assert "contentType" not in text.replace("Content type", "")
    (row,) = browser.get("/messages?topic=orders&key=edited&export=messages.json").json()
    assert row["size"] == 3
    assert browser.submit(f"/messages/{cakes}/edit", to="orders", properties="x").status_code == 400
    assert browser.post(f"/messages/{cakes}/edit", data={"to": "orders", "csrf": "x"}).status_code == 403
    lines = [json.loads(line) for line in console.audit_log.read_text().splitlines()]
    made = [line for line in lines if line["action"] == "message.edit" and line["names"]["id"] == cakes]
    assert [line["answer"] for line in made] == ["done", "failed", "refused"]
    recorded = {"id": cakes, "to": "orders", "keys": "edited", "tags": "t", "properties_bytes": 18, "body_bytes": 3}
    assert made[0]["names"] == recorded


def test_a_body_of_bytes_is_sent_as_it_is(browser: Browser, cakes: str) -> None:
    """It has no field."""
    (row,) = browser.get("/messages?topic=cakes&where=tags=raw&export=messages.json").json()
    edit = f"/messages/{row['message_id']}/edit"
    assert "cannot be edited here" in browser.facts(edit)
    browser.submit(edit, to="orders", keys="bytes", body="forged")
    (copy,) = browser.get("/messages?topic=orders&key=bytes&export=messages.json").json()
    assert copy["body"] == row["body"]


def test_one_member_handles_a_message(browser: Browser, name_server: str, cakes: str) -> None:
    """At once, and the page says what its listener has done."""
    handled: list[bytes] = []

    async def taste_one(messages: list[MessageExt], context: ConsumeContext) -> None:
        handled.append(bytes(messages[0].body))
        if len(handled) > 1:
            raise ValueError("<script>no oven</script>")

    async def consume() -> None:
        consumer = PushConsumer("tasters", PushConsumerSettings(name_servers=name_server))
        consumer.subscribe("cakes", "none")
        consumer.listen_concurrently(taste_one)
        async with consumer:
            await asyncio.to_thread(taste)

    def taste() -> None:
        page = f"/messages/{cakes}/member"
        while "tasters:" not in (html := browser.page(page)):
            continue
        member = unescape(html.split('name="member"')[1].split('value="')[1].split('"')[0])
        assert "The listener has handled the message." in text_of(browser.submit(page, member=member).text)
        failed = browser.submit(page, member=member).text
        assert "The listener has failed." in text_of(failed)
        assert "<script>no oven" not in failed
        assert "no oven" in failed
        assert browser.submit(page, member='["tasters","absent"]').status_code == 502
        assert browser.submit(page, member="x").status_code == 400
        assert browser.post(page, data={"member": member, "csrf": "x"}).status_code == 403

    asyncio.run(consume())
    assert len(handled) == 2
    assert "Start the application that consumes it" in browser.facts(f"/messages/{cakes}/member")


def test_viewers_send_no_message(name_server: str, tmp_path: Path, cakes: str) -> None:
    """Neither an edited one, nor to a member."""
    with RunningConsole(name_server, tmp_path, is_read_only=True) as console, Browser(console) as viewer:
        for step in ("edit", "member"):
            assert "</button></div>\n</form>" not in viewer.page(f"/messages/{cakes}/{step}")
            assert viewer.submit(f"/messages/{cakes}/{step}", to="orders", member="x").status_code == 403
