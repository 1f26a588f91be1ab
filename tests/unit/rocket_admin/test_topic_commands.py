"""`streamkit topic` on the bundled broker."""

import asyncio
from collections.abc import Callable

import pytest

from rocket_admin.commands.group import group
from rocket_admin.commands.topic import topic
from rocket_broker.threaded_broker import ThreadedBroker
from rocket_client import Admin, ClientSettings
from tests.unit.rocket_admin.cluster import send
from tests.unit.rocket_admin.terminal import Terminal

LONG = "a-topic-whose-name-" + "is-rather-long-" * 5 + "1"


@pytest.fixture(scope="module", autouse=True)
def topics(broker: ThreadedBroker) -> None:
    """Make topics of each kind."""

    async def create() -> None:
        async with Admin(ClientSettings(name_servers=broker.name_server)) as admin:
            await admin.create_topic("orders", 4)
            await admin.create_topic("bills", 2, read_queues=3, perm=4)
            await admin.create_topic("%DLQ%kitchen", 1)
            await admin.create_topic(LONG, 1)

    asyncio.run(create())


def test_list_has_the_topics_of_applications(terminal: Terminal) -> None:
    """Names, queues, permission and brokers; where nothing limits the width, no line is broken."""
    heading, *rows = terminal.lines(topic, "list")
    assert heading.split() == ["TOPIC", "QUEUES", "PERM", "BROKERS"]
    assert [" ".join(row.split()) for row in rows] == [
        f"{LONG} 1 rw broker-a",
        "bills 2 w, 3 r r broker-a",
        "orders 4 rw broker-a",
    ]


def test_other_kinds_are_listed_when_asked_for(terminal: Terminal) -> None:
    """Otherwise their number is on standard error."""
    kinds = {row["topic"]: row["kind"] for row in terminal.json(topic, "list", "--all")}
    assert kinds["orders"] == "normal"
    assert kinds["%DLQ%kitchen"] == "dead-letter"
    for name in ("TBW102", "DefaultCluster", "broker-a", "DefaultCluster_REPLY_TOPIC"):
        assert kinds[name] == "system"
    hidden = sum(kind != "normal" for kind in kinds.values())
    assert f"{hidden} retry, dead-letter and system topics are not shown" in terminal.run(topic, "list").stderr


def test_json_has_one_topic_a_line(terminal: Terminal) -> None:
    """Without the fields that are not known."""
    assert terminal.json(topic, "list", "or*") == [
        {
            "topic": "orders",
            "kind": "normal",
            "brokers": ["broker-a"],
            "read_queues": 4,
            "write_queues": 4,
            "permission": "rw",
            "order": False,
        }
    ]


@pytest.mark.parametrize("columns", [80, 200])
def test_table_fits_into_the_terminal(terminal: Terminal, columns: int) -> None:
    """A name that is too long continues on the next line, and nothing is cut off."""
    lines = terminal.lines(topic, "list", columns=columns)
    assert max(map(len, lines)) <= columns
    assert "".join(line.split("  ")[0] for line in lines[1:3]).startswith(LONG)


def test_topic_is_created_shown_changed_and_deleted(terminal: Terminal) -> None:
    """Each command says what it did; what is not given stays."""
    assert terminal.lines(topic, "create", "teas", "--queues", "3", "--type", "FIFO") == ["Created topic teas."]
    asyncio.run(send(terminal.name_server, "teas", 6))
    (shown,) = terminal.json(topic, "show", "teas")
    assert (shown["kind"], shown["messages"], shown["groups"]) == ("normal", 6, [])
    assert shown["brokers"] == [
        {
            "broker": "broker-a",
            "read_queues": 3,
            "write_queues": 3,
            "permission": "rw",
            "order": False,
            "message_type": "FIFO",
        }
    ]
    assert [queue["max_offset"] for queue in terminal.json(topic, "stats", "teas")] == [2, 2, 2]
    terminal.lines(topic, "update", "teas", "--queues", "4", "--read-queues", "5")
    terminal.lines(topic, "update", "teas", "--permission", "r")
    (settings,) = terminal.json(topic, "show", "teas")[0]["brokers"]
    assert (settings["write_queues"], settings["read_queues"], settings["permission"]) == (4, 5, "r")
    assert settings["message_type"] == "FIFO"
    done = terminal.run(topic, "delete", "teas", answer="y\n")
    assert "Delete normal topic teas with 6 message(s)? [y/N]:" in done.stderr
    assert "no route for topic 'teas': it does not exist" in terminal.run(topic, "show", "teas").stderr


def test_changes_are_printed_as_json(terminal: Terminal) -> None:
    """What was created or deleted, and the settings afterwards of what was changed."""
    assert terminal.json(topic, "create", "receipts", "--queues", "2") == [{"topic": "receipts"}]
    (changed,) = terminal.json(topic, "update", "receipts", "--queues", "3")
    assert (changed["broker"], changed["write_queues"]) == ("broker-a", 3)
    assert terminal.json(topic, "delete", "receipts", "--yes") == [{"topic": "receipts", "messages": 0}]
    assert terminal.json(group, "create", "clerks", "--retries", "2") == [{"group": "clerks"}]
    (changed,) = terminal.json(group, "update", "clerks", "--retries", "3")
    assert (changed["broker"], changed["retry_max_times"]) == ("broker-a", 3)
    assert terminal.json(group, "delete", "clerks", "--yes") == [{"group": "clerks"}]


def test_mistakes_are_refused(terminal: Terminal) -> None:
    """Each error says what to do."""
    for arguments, says in (
        (("create", "orders"), "exists already: change it with `streamkit topic update orders`"),
        (("create", "no/slash"), "has a character outside"),
        (("create", "new", "--broker", "b"), "no master of b is known; there are broker-a"),
        (("update", "orders"), "nothing to change"),
        (("update", "nothing", "--queues", "2"), "`streamkit topic list` shows all topics"),
        (("stats", "nothing"), "it does not exist"),
    ):
        done = terminal.run(topic, *arguments)
        assert done.exit_code != 0
        assert says in done.stderr, arguments


def test_queues_with_messages_are_not_made_unreadable_without_a_question(terminal: Terminal) -> None:
    """No is the default answer."""
    terminal.lines(topic, "create", "cakes", "--queues", "2")
    asyncio.run(send(terminal.name_server, "cakes", 2))
    done = terminal.run(topic, "update", "cakes", "--queues", "1", answer="\n")
    assert "Nobody could read 1 message(s) of cakes any more. Go on? [y/N]:" in done.stderr
    assert len(terminal.json(topic, "stats", "cakes")) == 2
    terminal.lines(topic, "delete", "cakes", "--yes")


def test_unreachable_name_server_is_named(terminal_of: Callable[[str], Terminal]) -> None:
    """With its address, where that is from, and what to do."""
    done = terminal_of("127.0.0.1:1").run(topic, "list")
    assert done.exit_code == 1
    assert "no name server of 127.0.0.1:1 answered" in done.stderr
    assert "from NAMESRV_ADDR: start the server, or give another one with --name-server" in done.stderr
