"""What Apache's Java client meets on our broker alone: its other header encoding, and restarts."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from rocket_broker.pytest_plugin import RocketBrokerFactory
from rocket_broker.threaded_broker import ThreadedBroker
from tests.peer.apache import free_ports
from tests.peer.artifacts import VERSIONS
from tests.peer.java_client import JavaClient
from tests.peer.json_peer import PeerError
from tests.peer.stage import DELAY_LEVELS, Stage

pytestmark = pytest.mark.peer


@pytest.mark.parametrize("version", VERSIONS)
def test_binary_headers_serve_as_json_does(
    version: str, java_client: Callable[[str], JavaClient], rocket_broker_factory: RocketBrokerFactory
) -> None:
    """A client told to encode headers as ROCKETMQ sends, consumes, locks and fails like any other."""
    java_client(version)
    rocket_broker = rocket_broker_factory(messageDelayLevel=DELAY_LEVELS)
    at = (rocket_broker.name_server, rocket_broker.address)
    with JavaClient(version, serialize="ROCKETMQ") as java, Stage(java, *at) as stage:
        topic = stage.topic()
        producer = stage.producer()
        sent = producer.send(topic, *"abcd", tags="t", keys="k")
        producer.send(topic, "e", "f", mode="batch")

        assert sorted(m.text for m in stage.consumer(topic, mode="orderly").take(6)) == list("abcdef")
        failing = stage.consumer(topic, failTimes=1, failBody="d")
        failing.wait_for(lambda: len(failing.received) == 7, what="six messages and one again")
        assert Counter(m.text for m in failing.received) == Counter("abcddef")
        assert producer.view(topic, sent[0]["offsetId"]).text == "a"
        assert "broker-a" in stage.mqadmin("topicStatus", "-t", topic)


@pytest.mark.parametrize("version", VERSIONS)
def test_java_clients_go_on_after_our_restart(
    version: str, java_client: Callable[[str], JavaClient], tmp_path: Path
) -> None:
    """Producer and consumer connect again by themselves; the group goes on with what comes."""
    name_server_port, broker_port = free_ports()

    def start() -> ThreadedBroker:
        return ThreadedBroker(
            tmp_path / "store",
            name_server_port=name_server_port,
            broker_port=broker_port,
            settings={"messageDelayLevel": DELAY_LEVELS},
        )

    with start() as ours:
        stage = Stage(java_client(version), ours.name_server, ours.address)
        topic = stage.topic()
        producer = stage.producer(timeoutMs=10_000)
        group = stage.name("group")
        consumer = stage.consumer(topic, group)
        producer.send(topic, "before")
        consumer.take(1)
    with pytest.raises(PeerError):
        producer.send(topic, "to nobody")
    with start(), stage:
        if version.startswith("4."):
            # Its consumer waits 30 s for the answer to a pull whose connection is gone.
            consumer.stop()
            consumer = stage.consumer(topic, group)
        after = [f"after {i}" for i in range(8)]
        producer.send(topic, *after)
        consumer.wait_for(lambda: set(after) <= {m.text for m in consumer.received}, what="all of them")
        assert Counter(m.text for m in consumer.received if m.text != "before") == Counter(after)
