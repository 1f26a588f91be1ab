"""The operator's commands beside Apache's mqadmin, on Apache's broker of each version and on ours."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from rocket_admin.commands import broker, group, offset, topic
from rocket_admin.commands.doctor import doctor
from rocket_client import Producer, ProducerSettings
from rocket_remoting import Message
from tests.peer.conftest import Peers, of_version
from tests.peer.stage import ANSWER_TIMEOUT, SEND_TIMEOUT, Stage, eventually
from tests.peer.test_mqadmin import rows
from tests.unit.rocket_admin.cluster import Consumed, with_member


@pytest.fixture(params=[of_version("4.9.7", "apache"), of_version("5.3.3", "apache"), of_version("5.3.3", "bundled")])
def stage(request: pytest.FixtureRequest, peers: Peers) -> Iterator[Stage]:
    """mqadmin of each version before Apache's broker of that version, and that of 5.3.3 before ours."""
    version, kind = request.param
    broker = peers.broker(version) if kind == "apache" else peers.bundled()
    with Stage(peers.client(version), broker.name_server, broker.address) as stage:
        yield stage


class Commands:
    """Runs commands against the broker of a stage."""

    def __init__(self, stage: Stage) -> None:
        self._options = ("-n", stage.name_server, "--answer-within", str(ANSWER_TIMEOUT.total_seconds()))

    def run(self, command: click.Command, *arguments: str) -> str:
        """Run a command that succeeds; return its output."""
        done = CliRunner().invoke(command, [*arguments, *self._options])
        assert done.exit_code == 0, done.output
        return done.stdout

    def diagnosis(self) -> list[Any]:
        """Return the findings of `streamkit doctor`, which ends with the status of the worst."""
        done = CliRunner().invoke(doctor, ["--for", "0", "--json", *self._options])
        findings = [json.loads(line) for line in done.stdout.splitlines()]
        worst = max(("ok", "unknown", "warning", "error").index(each["severity"]) for each in findings)
        assert done.exit_code == max(0, worst - 1), done.output
        return findings

    def json(self, command: click.Command, *arguments: str) -> list[Any]:
        """Run a command with `--json`; return its objects."""
        return [json.loads(line) for line in self.run(command, *arguments, "--json").splitlines()]

    def stats(self, name: str, count: int) -> list[Any]:
        """Return a topic's queues once they have so many messages: Apache's broker adds them after its answers."""
        return eventually(
            lambda: self.json(topic.topic, "stats", name), lambda queues: sum(q["messages"] for q in queues) == count
        )


async def send(stage: Stage, topic: str, count: int) -> None:
    """Send messages to the topic's queues in turn."""
    settings = ProducerSettings(name_servers=stage.name_server, send_timeout=SEND_TIMEOUT)
    async with Producer(stage.name("senders"), settings) as producer:
        for number in range(count):
            await producer.send(Message(topic, str(number).encode()))


def test_commands_say_what_mqadmin_says(stage: Stage) -> None:
    """Of topics, queues, groups and brokers; what they change, mqadmin shows."""
    commands = Commands(stage)
    orders, kitchen = stage.name("orders"), stage.name("kitchen")
    commands.run(topic.topic, "create", orders, "--queues", "2")
    commands.run(group.group, "create", kitchen, "--retries", "3")
    asyncio.run(send(stage, orders, 6))

    theirs = set(stage.mqadmin("topicList").split())  # asked first: a client that stops may still have a topic made
    listed = {each["topic"]: each for each in commands.json(topic.topic, "list", "--all")}
    assert theirs <= set(listed)
    assert (listed[orders]["kind"], listed[orders]["write_queues"], listed[orders]["permission"]) == ("normal", 2, "rw")
    assert [listed[name]["kind"] for name in ("TBW102", "broker-a", "DefaultCluster")] == ["system"] * 3

    stats = commands.stats(orders, 6)
    shown = [[q["broker"], str(q["queue"]), str(q["min_offset"]), str(q["max_offset"])] for q in stats]
    status = rows(stage.mqadmin("topicStatus", "-t", orders))
    assert [row[:4] for row in status if row[0] == "broker-a"] == shown
    (stored,) = commands.json(topic.topic, "stats", orders, "--rates")
    assert stored["topic"] == orders
    assert stored.get("messages_minute") in {None, *range(1, 7)}  # Apache's samples come every ten seconds

    assert commands.json(group.group, "list", kitchen) == [{"group": kitchen, "members": 0}]
    commands.run(offset.offset, "set", kitchen, orders, "2", "--yes")
    assert commands.json(group.group, "list", kitchen) == [{"group": kitchen, "members": 0, "lag": 2}]
    assert commands.json(group.group, "show", kitchen)[0]["brokers"][0]["retry_max_times"] == 3
    commands.run(topic.topic, "create", f"%RETRY%{kitchen}")  # mqadmin finds the brokers of a group by this topic
    progress = eventually(
        lambda: stage.mqadmin("consumerProgress", "-g", kitchen),
        lambda printed: re.search(r"Diff Total: 2$", printed, re.MULTILINE) is not None,
    )
    queues = commands.json(offset.offset, "show", kitchen)
    assert [[str(q[name]) for name in ("queue", "max_offset", "committed", "lag")] for q in queues] == [
        row[2:6] for row in rows(progress) if row[0] == orders
    ]

    (found,) = commands.json(broker.list_)
    (row,) = rows(stage.mqadmin("clusterList"))
    version = row[4].removeprefix("V").replace("_", ".")
    assert [found[name] for name in ("cluster", "broker", "address", "version")] == [*row[:2], row[3], version]
    (settings,) = commands.json(broker.config, "broker-a", "brokerClusterName")
    assert settings == {"brokerClusterName": "DefaultCluster"}
    (settings,) = commands.json(broker.config, "broker-a", "defaultTopicQueueNums")
    again = f"defaultTopicQueueNums={settings['defaultTopicQueueNums']}"
    assert commands.json(broker.config, "broker-a", "--set", again, "--yes") == [settings]

    try:
        commands.run(broker.wipe_perm, "broker-a", "--yes")
        assert re.search(r'"perm":\s?4', stage.mqadmin("topicRoute", "-t", orders))
    finally:
        commands.run(broker.add_perm, "broker-a")

    commands.run(group.group, "delete", kitchen, "--yes")
    commands.run(topic.topic, "delete", orders, "--yes")
    # A registration of Apache's broker that was under way may still name it.
    eventually(lambda: stage.mqadmin("topicList").split(), lambda topics: orders not in topics)
    assert commands.json(group.group, "list", kitchen) == []


def test_groups_are_moved_with_and_without_members(stage: Stage) -> None:
    """The plan says what is delivered again; a connected member then gets just that."""
    commands = Commands(stage)
    orders, kitchen, copy = stage.topic(queues=2), stage.name("kitchen"), stage.name("copy")
    asyncio.run(send(stage, orders, 6))
    commands.stats(orders, 6)
    for name in (kitchen, copy):
        commands.run(group.group, "create", name)
    commands.run(group.group, "rewind", kitchen, orders, "--to", "latest", "--yes")
    assert [(queue["committed"], queue["lag"]) for queue in commands.json(offset.offset, "show", kitchen)] == [
        (3, 0)
    ] * 2
    commands.run(offset.offset, "clone", kitchen, copy, "--yes")
    assert [queue["committed"] for queue in commands.json(offset.offset, "show", copy)] == [3, 3]

    def consumers() -> list[str]:
        return list(commands.json(topic.topic, "show", orders)[0]["groups"])

    def work(consumed: Consumed) -> None:
        (member,) = eventually(
            lambda: commands.json(group.group, "members", kitchen),
            lambda members: len(members) == 1 and len(members[0].get("queues", ())) >= 2,
        )
        assert f"{orders} broker-a:1" in member["queues"]
        assert consumers() == [copy, kitchen]  # 5.3.3 lists the topic among them
        moves = commands.json(group.group, "rewind", kitchen, orders, "--to", "earliest", "--dry-run")
        assert [(move["target"], move["again"], move["skipped"]) for move in moves] == [(0, 3, 0), (0, 3, 0)]
        commands.run(group.group, "rewind", kitchen, orders, "--to", "earliest", "--yes")
        # Brokers of 5.x tell a member with the answer to its next pull, which new messages end.
        asyncio.run(send(stage, orders, 2))
        taken = set[bytes]()
        while not taken >= {b"2", b"3", b"4", b"5"}:
            taken |= set(consumed.next(1))

    asyncio.run(with_member(stage.name_server, orders, kitchen, work))


def test_doctor_finds_the_same_on_each_broker(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lag that nobody consumes, dead letters, and what was taken away from a topic, a group and a broker."""
    monkeypatch.chdir(tmp_path)
    commands = Commands(stage)
    orders, kitchen = stage.topic(queues=1), stage.name("kitchen")
    commands.run(group.group, "create", kitchen, "--no-consume")
    asyncio.run(send(stage, orders, 3))
    commands.stats(orders, 3)
    commands.run(offset.offset, "set", kitchen, orders, "1", "--yes")
    commands.run(topic.topic, "create", f"%DLQ%{kitchen}", "--queues", "1")
    asyncio.run(send(stage, f"%DLQ%{kitchen}", 1))
    commands.stats(f"%DLQ%{kitchen}", 1)
    commands.run(topic.topic, "update", orders, "--permission", "r")
    try:
        commands.run(broker.wipe_perm, "broker-a", "--yes")
        findings = commands.diagnosis()
    finally:
        commands.run(broker.add_perm, "broker-a")
        commands.run(group.group, "delete", kitchen, "--yes")
        commands.run(topic.topic, "delete", f"%DLQ%{kitchen}", "--yes")
        commands.run(topic.topic, "delete", orders, "--yes")

    ok = {finding["check"] for finding in findings if finding["severity"] == "ok"}
    assert ok >= {"name servers", "brokers", "versions", "clocks"}
    found = [each["found"] for each in findings if {"broker-a", orders, kitchen} & set(each.get("about", ()))]
    for expected in (
        f"group {kitchen} has no members, and 2 message(s) to consume",
        f"group {kitchen} has 1 dead letter(s), the newest of ",
        f"on broker broker-a, {orders} cannot be written to",
        f"broker broker-a gives no messages to {kitchen}",
        f"the write permission of broker broker-a was taken away at name server {stage.name_server}",
    ):
        assert any(text.startswith(expected) for text in found), (expected, found)
