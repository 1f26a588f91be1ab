"""The console's pages about the Kafka topics of an application."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from tests.peer.kafka import KafkaServer
from tests.peer.kafka_orders import create_orders, systems_of_application_on
from tests.unit.rocket_console.browser import Browser, RunningConsole

pytestmark = [pytest.mark.slow]

NOBODY = "127.0.0.1:1"
"""No name server: no page asks RocketMQ for anything."""


@pytest.fixture
def browser(kafka_server: KafkaServer, tmp_path: Path) -> Iterator[Browser]:
    """A browser of a console that was started in the directory of an application on Kafka."""
    create_orders(kafka_server.address, "console-orders", "console/kitchen")
    systems = systems_of_application_on(kafka_server.address, tmp_path, "console-orders")
    assert not systems.needs_rocketmq
    settings = {"explorers": systems.explorers, "has_rocketmq": systems.needs_rocketmq}
    with (
        RunningConsole(NOBODY, tmp_path, answer_within=60.0, **settings) as console,
        Browser(console, follow_redirects=True) as browser,
    ):
        yield browser


def test_topics_records_and_groups_are_shown(browser: Browser, kafka_server: KafkaServer) -> None:
    """Looking at them joins no group and commits nothing."""
    check_topics(browser, kafka_server.address)
    check_records(browser)
    check_groups(browser)
    with KafkaAdminClient(bootstrap_servers=kafka_server.address) as admin:
        assert admin.describe_groups(["console/kitchen"])["console/kitchen"]["members"] == []
        offsets = admin.list_group_offsets({"console/kitchen": None})["console/kitchen"]
    assert {key.partition: each.offset for key, each in offsets.items()} == {0: 1}


def check_topics(browser: Browser, brokers: str) -> None:
    """The section is the only one, and the first page."""
    text = browser.facts("/")
    assert "Kafka topics" in text
    assert f"Binder kafka: {brokers}" in text
    assert "Dead letters" not in text
    rows = {row["topic"]: row for row in browser.get("/kafka?export=topics.json").json()}
    assert (rows["console-orders"]["partitions"], rows["console-orders"]["kind"]) == (2, "normal")
    partitions = browser.get("/kafka/kafka/topics/console-orders?export=partitions.json").json()
    assert [(row["partition"], row["begin"], row["end"]) for row in partitions] == [(0, 0, 4), (1, 0, 3)]
    assert "there is no topic absent" in browser.facts("/kafka/kafka/topics/absent", 404)
    assert "no Kafka binder other" in browser.facts("/kafka/other/topics/console-orders", 404)


def check_records(browser: Browser) -> None:
    """The newest first, each with a page; nothing of them is HTML."""
    address = "/kafka/kafka/topics/console-orders"
    rows = browser.get(f"{address}/messages?export=records.json").json()
    assert {(row["partition"], row["offset"]) for row in rows} == {
        *((0, offset) for offset in range(4)),
        *((1, offset) for offset in range(3)),
    }
    times = [row["time"] for row in rows]
    assert times == sorted(times, reverse=True)
    assert "<script>" not in browser.page(f"{address}/messages").replace('<script type="module"', "")
    page = browser.page(f"{address}/1/2")
    assert "<img src=x>" not in page
    text = browser.facts(f"{address}/1/2")
    assert "Content type application/json" in text
    assert '"order": 5' in text
    assert "Key k5" in text
    assert "it marks its key as deleted" in browser.facts(f"{address}/0/3")
    assert "has no record at offset 9" in browser.facts(f"{address}/0/9", 404)


def check_groups(browser: Browser) -> None:
    """With their lag."""
    rows = {row["group"]: row for row in browser.get("/kafka/groups?export=groups.json").json()}
    assert "console/kitchen" in rows
    address = "/kafka/kafka/groups/console%2Fkitchen"
    assert "Lag 3 Members 0" in browser.facts(address)
    (row,) = browser.get(f"{address}?export=positions.json").json()
    assert (row["topic"], row["partition"], row["committed"], row["lag"]) == ("console-orders", 0, 1, 3)
    assert "there is no group absent" in browser.facts("/kafka/kafka/groups/absent", 404)
