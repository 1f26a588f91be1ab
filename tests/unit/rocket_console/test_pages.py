"""The pages over HTTP, on the bundled broker: what they show and do."""

import json
import re
import socket
from html import unescape
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rocket_console.pages.sections import SECTIONS
from tests.unit.rocket_console.browser import Browser, RunningConsole, text_of


@pytest.mark.parametrize(
    ("address", "facts"),
    [
        ("/", ["Overview", "DefaultCluster", "Stored per second", "broker-a master", "Who uses what"]),
        ("/overview/live", ["Messages per second", "broker-a master"]),
        ("/topics", ["All topics", "orders normal 4 4 rw – broker-a", "TBW102 system"]),
        ("/topics/orders", ["Messages 6", "Groups shop", "stored", "broker-a 4 4 rw no"]),
        ("/topics/orders/messages", ["6 of 6 messages", "order 4"]),
        ("/topics/orders/messages?from=oldest&queue=broker-a:0", [" of 6 messages. Reading moves"]),
        ("/topics/orders/clients", ["shop 0", "127.0.0.1 6"]),
        ("/topics/orders/tail", ["Arriving messages"]),
        ("/topics/orders/send", ["Body, as UTF-8 text"]),
        ("/topics/orders/settings", ["broker-a: 4 write queues, 4 read queues, permission rw"]),
        ("/topics/orders/delete", ["has 6 messages", "These groups consume it: shop"]),
        ("/topics/%25DLQ%25shop", ["Kind dead-letter"]),
        ("/new-topic", ["Create the topic"]),
        ("/groups", ["shop 0 2 – orders normal"]),
        ("/groups?groups.order=-lag&groups.kind=normal", ["shop 0 2"]),
        ("/groups/shop", ["Lag 2", "Members 0", "Dead letters that are stored 0", "orders broker-a"]),
        ("/groups/shop/live", ["Lag by queue"]),
        ("/groups/shop/members", ["No member is connected. Start the application"]),
        ("/groups/shop/settings", ["broker-a: 16 redeliveries"]),
        ("/groups/shop/delete", ["has 2 messages to consume"]),
        ("/groups/shop/reset", ["Show what would happen"]),
        ("/groups/shop/reset?to=earliest", ["Messages delivered again 4", "Messages skipped 0", "Nothing was changed"]),
        ("/groups/shop/reset?to=latest&topics=orders", ["Messages skipped 2"]),
        ("/new-group", ["Create the group"]),
        ("/brokers", ["broker-a master"]),
        ("/brokers/broker-a", ["Settings of the master", "brokerActive true", "brokerClusterName DefaultCluster"]),
    ],
)
def test_pages_have_their_facts(browser: Browser, address: str, facts: list[str]) -> None:
    """Each has its address, the state of its tables included."""
    text = browser.facts(address)
    assert [fact for fact in facts if fact not in text] == []


@pytest.mark.parametrize(
    ("address", "status", "text"),
    [
        ("/nothing", 404, "Not found"),
        ("/topics/absent", 404, "Look for the topic in the list"),
        ("/groups/absent", 404, "Look for the group in the list"),
        ("/brokers/absent", 404, "no broker absent is registered"),
        ("/groups/shop/reset?to=soon", 400, "'soon' is none of an offset, earliest"),
        ("/topics/orders/messages?queue=x", 400, "broker:number"),
        ("/topics/orders/tail?where=x", 400, "'x' is not a condition"),
        ("/topics/orders/tail/rows?at=%7B", 400, "open the page again"),
    ],
)
def test_errors_say_what_to_do(browser: Browser, address: str, status: int, text: str) -> None:
    """With the names concerned."""
    assert text in browser.facts(address, status)


def test_every_page_has_the_headers_and_no_inline_scripts_or_styles(browser: Browser) -> None:
    """The policy would block them, and other sites cannot frame a page."""
    for address in ("/", "/topics/orders", "/nothing", "/static/console.css"):
        answer = browser.get(address)
        assert answer.headers["content-security-policy"].startswith("default-src 'self'; base-uri 'none'")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert not re.search(r"<style|<script(?! type=\"module\" src=)|\son[a-z]+=|\sstyle=", answer.text)


def test_texts_of_messages_are_never_html(browser: Browser) -> None:
    """Tags of HTML are text, and characters that cannot be seen are shown."""
    html = browser.page("/topics/orders/messages")
    assert "<script>alert" not in html
    assert "<img src=x" not in html
    assert "\u202e" not in html
    assert "<script>alert('body')</script>\\u202e" in unescape(html)
    assert "\\u202ekey" in html


def test_a_message_has_a_page(browser: Browser) -> None:
    """Each row of a table of messages leads there; its texts are text there, too."""
    html = browser.page("/topics/orders/messages?messages.q=script")
    address = re.search(r'href="(/messages/[^"]*)"', html)
    assert address is not None
    text = browser.facts(address[1])
    assert "Topic orders" in text
    assert "<script>alert('body')</script>\\u202e" in text
    assert "TAGS <img src=x>" in text
    assert "no broker has a message with the id" in browser.facts("/messages/0A000001", 404)


def test_ids_on_a_page_are_unique(browser: Browser) -> None:
    """Labels and links would lead to the wrong one."""
    for address in (
        "/",
        "/topics",
        "/topics/orders",
        "/topics/orders/clients",
        "/topics/orders/send",
        "/groups/shop",
        "/groups/shop/reset",
        "/messages?topic=orders",
        "/dead-letters/shop",
        "/dead-letters/shop/replay?preview=yes",
        "/dead-letters/shop/drop?before=latest",
        "/half-messages",
    ):
        html = browser.page(address)
        ids = re.findall(r'\sid="([^"]*)"', html)
        assert sorted(set(ids)) == sorted(ids)
        assert set(re.findall(r'<label[^>]* for="([^"]*)"', html)) <= set(ids)


def test_keys_lead_to_one_section_each() -> None:
    """The keys `g o`, `g t`, `g g` and the like."""
    keys = [section.key for section in SECTIONS]
    assert sorted(set(keys)) == sorted(keys)


def test_tables_are_files_too(browser: Browser) -> None:
    """With the order and the filters of the page."""
    answer = browser.get("/topics?topics.q=orders&export=topics.json")
    assert answer.headers["content-disposition"] == 'attachment; filename="topics.json"'
    assert [row["topic"] for row in answer.json()] == ["orders"]
    lines = browser.get("/groups?groups.kind=normal&export=groups.csv").text.splitlines()
    assert lines == ["group,members,lag,model,topics,kind", "shop,0,2,,orders,normal"]


def test_a_live_tail_shows_what_arrives(browser: Browser) -> None:
    """Each part says where the next one begins; the condition filters."""
    browser.submit("/new-topic", topic="tailed", queues="2")
    page = browser.page("/topics/tailed/tail?where=body~world")
    address = unescape(re.search(r'data-live="([^"]*)"', page)[1])  # type: ignore[index]
    for body in ("hello world", "hello moon"):
        assert browser.submit("/topics/tailed/send", body=body, properties="a=b", keys="k").status_code == 303
    part = browser.get(address)
    assert "hello world" in part.text
    assert "hello moon" not in part.text
    assert "<tr>" not in browser.get(part.headers["x-next"]).text


def test_a_topic_is_created_changed_and_deleted(browser: Browser, console: RunningConsole) -> None:
    """Each change is in the audit log, with its names and its result."""
    made = browser.submit("/new-topic", topic="cakes", queues="2", permission="rw")
    assert made.headers["location"] == "/topics/cakes?done=topic.create"
    assert "The topic was created." in browser.facts("/topics/cakes?done=topic.create")
    assert "exists already" in browser.submit("/new-topic", topic="cakes", queues="2").text
    assert browser.submit("/topics/cakes/settings", queues="3").status_code == 303
    assert "broker-a 3 3 rw" in browser.facts("/topics/cakes")
    assert "write the name of the topic" in browser.submit("/topics/cakes/delete", confirmed="bread").text
    assert browser.submit("/topics/cakes/delete", confirmed="cakes").status_code == 303
    browser.page("/topics/cakes", 404)
    lines = [json.loads(line) for line in console.audit_log.read_text().splitlines()]
    found = [(line["action"], line["answer"]) for line in lines if line["names"].get("topic") == "cakes"]
    assert found == [
        ("topic.create", "done"),
        ("topic.create", "failed"),
        ("topic.update", "done"),
        ("topic.delete", "failed"),
        ("topic.delete", "done"),
    ]


def test_queues_with_messages_are_not_taken_away_without_a_tick(browser: Browser) -> None:
    """Nobody could read them any more."""
    refused = browser.submit("/topics/orders/settings", queues="1")
    assert refused.status_code == 400
    assert "message(s) of orders any more: wait" in text_of(refused.text)
    assert "broker-a 4 4 rw" in browser.facts("/topics/orders")


def test_a_group_is_created_moved_changed_and_deleted(browser: Browser) -> None:
    """The move is previewed first."""
    assert browser.submit("/new-group", group="bakers", retries="3").status_code == 303
    assert "Messages skipped 6" in browser.facts("/groups/bakers/reset?to=latest&topics=orders")
    moved = browser.submit("/groups/bakers/reset", target="latest", topics="orders")
    assert moved.headers["location"] == "/groups/bakers?done=group.reset"
    assert "Lag 0" in browser.facts("/groups/bakers")
    assert browser.submit("/groups/bakers/settings", consume="no").status_code == 303
    assert "broker-a no yes no 3 1" in browser.facts("/groups/bakers")
    assert browser.submit("/groups/bakers/delete", confirmed="bakers").status_code == 303
    browser.page("/groups/bakers", 404)


def test_a_page_without_a_cluster_says_which_server_and_what_to_do(tmp_path: Path) -> None:
    """Also as a part of a page that is open."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        name_server = f"127.0.0.1:{closed.getsockname()[1]}"
        with RunningConsole(name_server, tmp_path) as console, Browser(console) as browser:
            text = browser.facts("/", 502)
            assert name_server in text
            assert "Start the name server" in text
            part = browser.get("/topics/orders/tail/rows", headers={"x-fragment": "1"})
            assert part.status_code == 502
            assert "<html" not in part.text


def test_a_page_waits_for_a_silent_server_only_so_long(tmp_path: Path) -> None:
    """The listener accepts connections, and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        name_server = f"127.0.0.1:{silent.getsockname()[1]}"
        with RunningConsole(name_server, tmp_path, answer_within=0.05) as console, Browser(console) as browser:
            answer = browser.get("/topics")
            assert answer.status_code in (502, 504)
            assert urlsplit(console.url).hostname == "127.0.0.1"
