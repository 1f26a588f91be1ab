"""`streamkit dlq` on the bundled broker."""

import asyncio
import json
from itertools import count
from pathlib import Path

import pytest

from rocket_admin.commands.dlq import dlq
from rocket_admin.commands.message import message
from rocket_broker.threaded_broker import ThreadedBroker
from rocket_client import Admin, ClientSettings
from tests.unit.rocket_admin.letters import bury, bury_damaged
from tests.unit.rocket_admin.terminal import Terminal

_numbers = count(1)


@pytest.fixture
def group(broker: ThreadedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A group with three dead letters of two causes, whose messages came from a topic of its own."""
    monkeypatch.chdir(tmp_path)
    name = f"kitchen-{next(_numbers)}"

    async def prepare() -> None:
        async with Admin(ClientSettings(name_servers=broker.name_server)) as admin:
            await admin.create_topic(f"orders-of-{name}", 1)
        await bury(broker.name_server, name, f"orders-of-{name}", ["KeyError", "ValueError", "ValueError"])

    asyncio.run(prepare())
    return name


def test_dead_letters_are_listed_by_group_cause_and_letter(terminal: Terminal, group: str) -> None:
    """As tables and as JSON."""
    (listed,) = [each for each in terminal.json(dlq, "list") if each["group"] == group]
    assert (listed["count"], listed["dropped"]) == (3, 0)
    causes = terminal.json(dlq, "show", group)
    assert [(each["type"], each["text"], each["count"]) for each in causes] == [
        ("ValueError", "no dish 1", 2),
        ("KeyError", "no dish 0", 1),
    ]
    letters = terminal.json(dlq, "show", group, "--letters", "--where", "FAILURE_TYPE=KeyError")
    assert [(each["origin_topic"], each["letter"]["body"]) for each in letters] == [(f"orders-of-{group}", "order 0")]
    assert "There are more than 2 letters" in terminal.run(dlq, "show", group, "--letters", "--limit", "2").stderr
    assert "ValueError" in terminal.run(dlq, "show", group, columns=80).stdout


def test_replay_asks_sends_and_keeps_an_account(terminal: Terminal, group: str, tmp_path: Path) -> None:
    """The same command again sends nothing."""
    topic = f"orders-of-{group}"
    dry = terminal.run(dlq, "replay", group, "--where", "FAILURE_TYPE=ValueError", "--dry-run")
    assert dry.stdout == f"Would send 2 dead letter(s): 2 to {topic}.\n"
    refused = terminal.run(dlq, "replay", group, answer="n\n")
    assert refused.exit_code == 1
    assert f"Send 3 dead letter(s): 3 to {topic}? Every group of a topic receives them." in refused.stderr
    assert list(tmp_path.iterdir()) == []
    done = terminal.run(dlq, "replay", group, "--where", "FAILURE_TYPE=ValueError", answer="y\n")
    assert (done.exit_code, done.stdout) == (0, f"Sent 2 dead letter(s): 2 to {topic}.\n")
    account = tmp_path / f"dead-letters-{group}.jsonl"
    assert [json.loads(line).get("topic") for line in account.read_text().splitlines()] == [None, topic, topic]
    sent = f"Sent 1 dead letter(s): 1 to {topic}. 2 were sent before."
    assert terminal.lines(dlq, "replay", group, "--yes") == [sent]
    assert terminal.lines(dlq, "replay", group, "--yes") == ["Sent no dead letters. 3 were sent before."]
    lines = terminal.lines(message, "tail", topic, "--from", "earliest", "--no-follow")
    assert sorted(line[-7:] for line in lines) == ["order 0", "order 1", "order 2"]
    assert group not in [each["group"] for each in terminal.json(dlq, "list")]
    assert group in [each["group"] for each in terminal.json(dlq, "list", "--all")]


def test_drop_says_what_it_changes(terminal: Terminal, group: str) -> None:
    """It asks, and dropped letters are still there for who asks for them."""
    dry = terminal.run(dlq, "drop", group, "--dry-run")
    assert dry.stdout.splitlines()[-1] == "Nothing was dropped."
    assert "Drop 3 dead letter(s)" in terminal.run(dlq, "drop", group, answer="n\n").stderr
    (done,) = terminal.json(dlq, "drop", group, "--yes")
    assert (done["from_offset"], done["to_offset"], done["count"]) == (0, 3, 3)
    assert terminal.json(dlq, "show", group) == []
    assert len(terminal.json(dlq, "show", group, "--letters", "--all")) == 3


def test_wrong_arguments_are_errors(terminal: Terminal, group: str, tmp_path: Path) -> None:
    """A group without dead letters, a topic that is not there, a file that is no account."""
    assert "%DLQ%nobody" in terminal.run(dlq, "show", "nobody").output
    gone = terminal.run(dlq, "replay", group, "--to", "elsewhere", "--yes")
    assert "topic 'elsewhere' does not exist; create it, or name another one" in gone.output
    (tmp_path / "notes").write_text("mine\n")
    foreign = terminal.run(dlq, "replay", group, "--account", "notes", "--yes")
    assert "notes: line 1 is not one of a replay's account" in foreign.output
    both = terminal.run(dlq, "replay", group, "--to", "x", "--to-group-alone")
    assert "--to and --to-group-alone exclude each other" in both.output


def test_damaged_letter_is_passed_over(broker: ThreadedBroker, terminal: Terminal, group: str) -> None:
    """It is named and counted, the others are listed and sent, and the exit status is 1."""
    asyncio.run(bury_damaged(broker.address, group))
    asyncio.run(bury(broker.name_server, group, f"orders-of-{group}", ["LookupError"]))
    shown = terminal.run(dlq, "show", group, "--letters", "--json")
    assert shown.exit_code == 1
    assert [json.loads(line)["letter"]["offset"] for line in shown.stdout.splitlines()] == [0, 1, 2, 4]
    assert f"of topic %DLQ%{group}, queue 0 at offset 3, cannot be decompressed" in shown.stderr
    assert "passed over: 1." in shown.stderr
    causes = terminal.run(dlq, "show", group, "--json")
    assert (causes.exit_code, len(causes.stdout.splitlines())) == (1, 3)
    sent = terminal.run(dlq, "replay", group, "--yes")
    assert (sent.exit_code, sent.stdout) == (1, f"Sent 4 dead letter(s): 4 to orders-of-{group}.\n")
    assert sent.stderr.count("at offset 3") == 1
    # It stays, and so does what comes after it: dead letters are dropped from the first one on.
    (left,) = [each for each in terminal.json(dlq, "list") if each["group"] == group]
    assert (left["count"], left["dropped"]) == (2, 3)
    dropped = terminal.json(dlq, "drop", group, "--before", "2000-01-01T00:00", "--dry-run")
    assert [each["count"] for each in dropped] == [0]
    assert [each["count"] for each in terminal.json(dlq, "drop", group, "--yes")] == [2]
