"""The pages about an application's Kafka clusters, with an explorer whose answers the test decides."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rocket_admin.commands.application_explorers import systems_of_application
from streamkit.binder.exploring import Explorer, Group, GroupMember, GroupPartition, Partition, Record, Topic
from streamkit.errors import BinderUnavailable
from tests.unit.rocket_console.browser import Browser, RunningConsole

EVIL = "<script>alert(1)</script>\u202e"


class ToldExplorer(Explorer):
    """An explorer of one topic and one group with hostile texts; or of a system that is away."""

    address = "kafka.example:9092"

    def __init__(self, *, is_away: bool = False) -> None:
        self.is_away = is_away
        self.is_closed = False

    async def topics(self) -> Sequence[Topic]:
        if self.is_away:
            raise BinderUnavailable(f"binder 'kafka' cannot ask the Kafka brokers at {self.address}")
        return [Topic(name="orders", partitions=2, replicas=1, without_leader=1, is_internal=False)]

    async def partitions(self, topic: str) -> Sequence[Partition] | None:
        return [Partition(number=0, begin=5, end=9, leader="1"), Partition(number=1, begin=None, end=None, leader=None)]

    async def groups(self) -> Sequence[Group]:
        return [Group(name=EVIL, state="Stable")]

    async def members(self, group: str) -> Sequence[GroupMember]:
        return [GroupMember(client_id=EVIL, host="10.0.0.7", partitions=("orders-0",))]

    async def positions(self, group: str) -> Sequence[GroupPartition]:
        return [
            GroupPartition(topic="orders", number=0, committed=6, end=9),
            GroupPartition(topic="gone", number=0, committed=1, end=None),
        ]

    async def newest(self, topic: str, limit: int, *, seconds: float) -> Sequence[Record]:
        return [await self.record(topic, 0, 8, seconds=seconds)]

    async def record(self, topic: str, partition: int, offset: int, *, seconds: float) -> Record:
        return Record(
            topic=topic,
            partition=partition,
            offset=offset,
            time=datetime(2026, 11, 26, tzinfo=UTC),
            key=b"\x00\xff",
            headers=((EVIL, EVIL.encode()), ("contentType", b"text/plain")),
            body=EVIL.encode() * 1000,
        )

    async def close(self) -> None:
        self.is_closed = True


def test_pages_show_texts_of_others_as_text(tmp_path: Path) -> None:
    """Beside the pages of RocketMQ. The console closes the explorer when it stops."""
    explorer = ToldExplorer()
    with RunningConsole("127.0.0.1:1", tmp_path, explorers={"kafka": explorer}) as console, Browser(console) as browser:
        group = browser.get("/kafka/groups?export=groups.json").json()[0]["group"]
        assert group.startswith("<script>")
        for address in (
            "/kafka",
            "/kafka/groups",
            "/kafka/kafka/topics/orders",
            "/kafka/kafka/topics/orders/messages",
            "/kafka/kafka/topics/orders/0/8",
        ):
            html = browser.page(address)
            assert "<script>alert" not in html
            assert "\u202e" not in html
            assert 'href="/topics"' in html
        address = "/kafka/kafka/groups/%3Cscript%3Ealert(1)%3C%2Fscript%3E%E2%80%AE"
        text = browser.facts(address)
        assert "Lag – Members 1" in text
        assert "<script>alert" not in browser.page(address)
    assert explorer.is_closed


def test_a_console_of_kafka_alone_begins_with_its_topics(tmp_path: Path) -> None:
    """There are no pages of RocketMQ then."""
    settings = {"explorers": {"kafka": ToldExplorer()}, "has_rocketmq": False}
    with RunningConsole("127.0.0.1:1", tmp_path, **settings) as console, Browser(console) as browser:
        assert browser.get("/").headers["location"] == "/kafka"
        html = browser.page("/kafka")
        assert 'href="/topics"' not in html
        assert "kafka.example:9092" in html
        assert browser.get("/topics").status_code == 404


def test_a_page_says_that_kafka_is_away(tmp_path: Path) -> None:
    """And what to do."""
    explorers = {"kafka": ToldExplorer(is_away=True)}
    with RunningConsole("127.0.0.1:1", tmp_path, explorers=explorers) as console, Browser(console) as browser:
        text = browser.facts("/kafka", 502)
    assert "Kafka does not answer" in text
    assert "binder 'kafka' cannot ask the Kafka brokers at kafka.example:9092" in text
    assert "Check that the brokers run" in text


@pytest.mark.parametrize(
    ("binders", "needs_rocketmq", "explored"),
    [
        ({}, True, set()),
        ({"cook-in-0": "kafka"}, False, {"kafka"}),
        ({"cook-in-0": "kafka", "bill-out-0": "rocketmq"}, True, {"kafka"}),
        ({"bill-out-0": "inmemory"}, False, set()),
    ],
)
def test_bindings_say_which_systems_are_used(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    binders: dict[str, str],
    needs_rocketmq: bool,
    explored: set[str],
) -> None:
    """Nothing is connected for that."""
    prefix = "spring.cloud.stream.bindings"
    lines = [
        f"{prefix}.{name}.binder={binder}\n{prefix}.{name}.destination=orders\n" for name, binder in binders.items()
    ]
    (tmp_path / "application.properties").write_text("".join(lines))
    monkeypatch.chdir(tmp_path)
    systems = systems_of_application()
    assert (systems.needs_rocketmq, set(systems.explorers)) == (needs_rocketmq, explored)
    asyncio.run(_close(list(systems.explorers.values())))


def test_wrong_settings_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They say nothing about binders, so the console shows RocketMQ alone."""
    (tmp_path / "application.properties").write_text("spring.cloud.stream.bindings.cook-in-0.binder=absent\n")
    monkeypatch.chdir(tmp_path)
    systems = systems_of_application()
    assert systems.needs_rocketmq
    assert "absent" in systems.problems[0]


async def _close(explorers: Sequence[Explorer]) -> None:
    for explorer in explorers:
        await explorer.close()
