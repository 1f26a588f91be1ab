"""Apache's client and mqadmin on several brokers of one command."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.several_brokers import NAMES, several_brokers
from tests.peer.artifacts import VERSIONS
from tests.peer.java_client import JavaClient
from tests.peer.stage import Stage, eventually

pytestmark = [pytest.mark.peer, pytest.mark.promise]


@pytest.mark.parametrize("version", VERSIONS[-1:])
def test_java_clients_go_on_while_one_broker_is_killed(
    version: str, java_client: Callable[[str], JavaClient], tmp_path: Path
) -> None:
    """mqadmin sees both; sends go to the other one, and the killed one's messages are delivered when it is back."""
    with (
        several_brokers(tmp_path) as brokers,
        Stage(java_client(version), brokers.name_server, brokers.addresses[0]) as stage,
    ):
        listed = stage.mqadmin("clusterList")
        for name, address in zip(NAMES, brokers.addresses, strict=True):
            assert any(row.split()[:4] == ["DefaultCluster", name, "0", address] for row in listed.splitlines()), listed
        topic = stage.name("topic")
        stage.mqadmin("updateTopic", "-c", "DefaultCluster", "-t", topic, "-r", "2", "-w", "2")
        eventually(lambda: stage.mqadmin("topicRoute", "-t", topic), lambda route: all(name in route for name in NAMES))
        producer = stage.producer(timeoutMs=20_000)
        before = producer.send(topic, *(f"before {number}" for number in range(8)))
        assert {answer["broker"] for answer in before} == set(NAMES)
        brokers.signal(1, signal.SIGKILL)
        assert len(producer.send(topic, *(f"after {number}" for number in range(8)))) == 8
        brokers.wait_for_start(1, times=2)
        sent = {f"{word} {number}" for word in ("before", "after") for number in range(8)}
        consumer = stage.consumer(topic)
        consumer.wait_for(lambda: sent <= {message.text for message in consumer.received}, what="all messages")
