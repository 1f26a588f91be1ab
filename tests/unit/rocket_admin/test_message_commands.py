"""`streamkit message` on the bundled broker."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rocket_admin.commands.message import message
from rocket_broker.threaded_broker import ThreadedBroker
from rocket_client import Admin, ClientSettings
from tests.unit.rocket_admin.terminal import Terminal


@pytest.fixture(scope="module", autouse=True)
def topics(broker: ThreadedBroker) -> None:
    """Make a topic of two queues, and one for each test that reads a whole topic."""

    async def create() -> None:
        async with Admin(ClientSettings(name_servers=broker.name_server)) as admin:
            for topic in ("orders", "told", "tailed", "queried", "lettered"):
                await admin.create_topic(topic, 2)

    asyncio.run(create())


def sent(terminal: Terminal, *arguments: str) -> Any:
    """Send a message, and return what the command prints about it."""
    (stored,) = terminal.json(message, "send", *arguments)
    return stored


def test_message_is_sent_and_its_story_is_told(terminal: Terminal) -> None:
    """By both ids; tables name the place, the body and the groups."""
    arguments = ("--tags", "hot", "--key", "o-1", "--property", "colour=red", "--content-type", "application/json")
    stored = sent(terminal, "told", '{"table": 7}', *arguments, "--queue", "1")
    assert (stored["topic"], stored["queue"], stored["status"]) == ("told", 1, "SEND_OK")
    (told,) = terminal.json(message, "show", stored["message_id"], "--topic", "told", "--group", "kitchen")
    assert told["message"]["properties"]["colour"] == "red"
    assert told["message"]["offset_message_id"] == stored["offset_message_id"]
    assert [(each["group"], each["state"]) for each in told["groups"]] == [("kitchen", "waiting")]
    text = terminal.run(message, "show", stored["offset_message_id"], "--group", "kitchen", columns=200).stdout
    assert "broker broker-a, queue 1, offset 0" in text
    assert '  "table": 7' in text
    assert "not consumed: no member of the group is connected; it is the next one of its queue" in text


def test_copy_of_a_message_is_sent_again(terminal: Terminal) -> None:
    """After a question; to its own topic or another one."""
    stored = sent(terminal, "orders", "coffee", "--key", "o-2")
    assert terminal.run(message, "resend", stored["message_id"], answer="n\n").exit_code == 1
    (again,) = terminal.json(message, "resend", stored["message_id"], "--yes")
    assert again["message_id"] != stored["message_id"]
    assert again["topic"] == "orders"
    dry = terminal.run(message, "resend", stored["message_id"], "--to", "tailed", "--dry-run")
    assert dry.stdout == "Would send a copy of 6 bytes to tailed.\n"
    assert len(terminal.json(message, "query", "orders", "--key", "o-2")) == 2


def test_topic_is_followed_from_its_beginning(terminal: Terminal) -> None:
    """A line for each message: time, id, queue and offset, body."""
    stored = sent(terminal, "tailed", "coffee", "--queue", "0")
    sent(terminal, "tailed", "tea", "--queue", "0", "--tags", "hot")
    first, _ = terminal.lines(message, "tail", "tailed", "--from", "earliest", "--no-follow")
    assert first.split()[2:] == [stored["message_id"], "0@0", "coffee"]
    (line,) = terminal.lines(message, "tail", "tailed", "--from", "0", "--no-follow", "--where", "body~ea")
    assert line.endswith("tea")
    assert len(terminal.lines(message, "tail", "tailed", "--from", "1h", "--count", "2")) == 2
    assert terminal.lines(message, "tail", "tailed", "--no-follow") == []


def test_messages_are_found_by_key_and_time(terminal: Terminal) -> None:
    """With conditions and a limit."""
    for number in range(3):
        sent(terminal, "queried", f"order {number}", "--key", "k")
    bodies = [each["body"] for each in terminal.json(message, "query", "queried", "--key", "k")]
    assert bodies == ["order 0", "order 1", "order 2"]
    assert len(terminal.json(message, "query", "queried", "--since", "1h", "--where", "body!~2")) == 2
    assert (
        "There may be more than 1 messages"
        in terminal.run(message, "query", "queried", "--key", "k", "--limit", "1").stderr
    )
    assert "No message was found" in terminal.run(message, "query", "queried", "--key", "x").stderr


def test_conditions_lead_into_avro_with_schemas(terminal: Terminal, tmp_path: Path) -> None:
    """By key, by time and of a tail. Schemas that cannot be read are an error."""
    (tmp_path / "lettered.avsc").write_text(
        '{"type": "record", "name": "A", "fields": [{"name": "x", "type": "string"}]}'
    )
    for body in ("\x06tea", "\x0ccoffee"):  # the length, doubled, and the text
        sent(terminal, "lettered", body, "--key", "k")
    only_tea = ("--where", "$.x=tea")
    with_schemas = (*only_tea, "--schemas", str(tmp_path))
    for search in (("query", "lettered", "--key", "k"), ("query", "lettered", "--since", "1h")):
        assert [each["body"] for each in terminal.json(message, *search, *with_schemas)] == ["06 74 65 61"]
        assert terminal.json(message, *search, *only_tea) == []
    assert len(terminal.lines(message, "tail", "lettered", "--from", "0", "--no-follow", *with_schemas)) == 1
    (tmp_path / "lettered.avsc").write_text("{")
    refused = terminal.run(message, "tail", "lettered", *with_schemas)
    assert refused.exit_code == 1
    assert "lettered.avsc is not an Avro schema" in refused.output


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["send", "oders", "x"], "'oders'"),
        (["send", "orders", "x", "--property", "colour"], "'colour' is not NAME=VALUE"),
        (["send", "orders", "x", "--property", "KEYS=k"], "KEYS is a property of RocketMQ's own"),
        (["send", "orders", "x", "--queue", "9"], "has no writable queue 9"),
        (["query", "orders"], "give --key, or --since"),
        (["query", "orders", "--since", "latest"], "'latest' is neither 30m"),
        (["tail", "orders", "--where", "colour"], "'colour' is not a condition"),
        (["tail", "orders", "--from", "tea"], "'tea' is none of an offset"),
        (["show", "7F000001" * 4], "no message 7F0000017F0000017F0000017F000001 is found in any topic"),
        (["resend", "7F000001" * 4, "--yes"], "is found; it may be deleted"),
    ],
)
def test_wrong_arguments_are_errors(terminal: Terminal, arguments: list[str], error: str) -> None:
    """They say what is wrong with which name."""
    done = terminal.run(message, *arguments)
    assert done.exit_code != 0
    assert error in done.output


def test_dry_send_sends_nothing(terminal: Terminal) -> None:
    """It looks whether the topic exists."""
    assert terminal.lines(message, "send", "orders", "coffee", "--dry-run") == [
        "Would send 6 bytes to orders, which has 2 writable queues."
    ]
