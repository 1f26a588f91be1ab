"""Apache's Java client on our broker alone: binary headers, restarts, and kills."""

import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from rocket_broker.pytest_plugin import RocketBroker, RocketBrokerFactory
from rocket_broker.settings.broker_settings import SMALL_STORE
from rocket_broker.threaded_broker import ThreadedBroker
from tests.end_to_end.broker_process import PATIENT, running
from tests.peer.artifacts import VERSIONS
from tests.peer.java_client import JavaClient, JavaProducer
from tests.peer.json_peer import PeerError
from tests.peer.stage import DELAY_LEVELS, Stage, eventually
from tests.ports import free_ports

pytestmark = pytest.mark.peer


@pytest.mark.parametrize("version", VERSIONS)
def test_binary_headers_work_like_json(
    version: str, java_client: Callable[[str], JavaClient], rocket_broker_factory: RocketBrokerFactory
) -> None:
    """A client with ROCKETMQ encoding sends, consumes, locks and fails like any other."""
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
def test_mqadmin_shows_why_a_setting_is_not_changed(
    version: str, java_client: Callable[[str], JavaClient], rocket_broker: RocketBroker
) -> None:
    """As on Apache's broker for keys of its black list; other settings change, and all are shown."""
    with Stage(java_client(version), rocket_broker.name_server, rocket_broker.address) as stage:
        change = ("updateBrokerConfig", "-b", stage.address, "-k")
        assert "update broker config success" in stage.mqadmin(*change, "deleteWhen", "-v", "05")
        for key, reason in (
            ("diskSpaceCleanForciblyRatio", "requests cannot"),
            ("rocketmqHome", "requests cannot"),
            ("warmMapedFileEnable", "no effect"),
        ):
            refused = stage.mqadmin(*change, key, "-v", "10")
            assert "success" not in refused
            assert "CODE: 16" in refused
            assert reason in refused
        assert "deleteWhen" in stage.mqadmin("getBrokerConfig", "-b", stage.address)


@pytest.mark.parametrize("version", VERSIONS)
def test_java_clients_continue_after_our_restart(
    version: str, java_client: Callable[[str], JavaClient], tmp_path: Path
) -> None:
    """Producer and consumer reconnect, and the group continues."""
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
            # A 4.9 consumer waits 30 s for the answer to a pull whose connection has been lost.
            consumer.stop()
            consumer = stage.consumer(topic, group)
        after = [f"after {i}" for i in range(8)]
        producer.send(topic, *after)
        consumer.wait_for(lambda: set(after) <= {m.text for m in consumer.received}, what="all of them")
        assert Counter(m.text for m in consumer.received if m.text != "before") == Counter(after)


@pytest.mark.parametrize("version", VERSIONS)
def test_java_clients_get_acknowledged_messages_of_a_killed_broker(
    version: str, java_client: Callable[[str], JavaClient], tmp_path: Path
) -> None:
    """kill -9 while Java sends and consumes: each is delivered, at its offset."""
    port = max(free_ports())
    settings = {
        "brokerName": "broker-a",
        "storePathRootDir": str(tmp_path / "store"),
        "listenPort": str(port),
    }
    config = tmp_path / "broker.conf"
    config.write_text("".join(f"{key}={value}\n" for key, value in (SMALL_STORE | settings | PATIENT).items()))
    acknowledged: dict[tuple[int, int], str] = {}

    def send(producer: JavaProducer, topic: str, number: int) -> bool:
        try:
            (answer,) = producer.send(topic, f"{number}")
        except PeerError:
            return False
        acknowledged[answer["queue"], answer["offset"]] = f"{number}"
        return True

    with running("namesrv", "-p", "0", cwd=tmp_path) as name_server:
        arguments = ("-c", str(config), "-n", name_server.address())
        with running("broker", *arguments, cwd=tmp_path) as broker:
            stage = Stage(java_client(version), name_server.address(), broker.address())
            topic, group = stage.topic(), stage.name("group")
            producer = stage.producer(timeoutMs=10_000, retryTimes=0)
            consumer = stage.consumer(topic, group)
            assert send(producer, topic, 0)
            killing = threading.Timer(1.0, broker.signal, [signal.SIGKILL])
            killing.start()
            sent = 1
            while send(producer, topic, sent):
                sent += 1
            killing.join()
        with running("broker", *arguments, cwd=tmp_path) as broker, stage:
            broker.address()
            assert eventually(lambda: send(producer, topic, sent + 1), bool)
            if version.startswith("4."):
                # A 4.9 consumer waits 30 s for the answer to a pull whose connection has been lost.
                consumer.stop()
            again = stage.consumer(topic, group)
            heard = [consumer, again]
            wanted = {(*place, body) for place, body in acknowledged.items()}
            assert eventually(
                lambda: {(m.queue, m.offset, m.text) for each in heard for m in each.received} >= wanted, bool
            )
    assert len({*acknowledged.values()}) == len(acknowledged)
