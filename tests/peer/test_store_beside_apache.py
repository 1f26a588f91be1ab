"""One store directory, served by Apache's broker and by ours in turn, to Apache's client."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rocket_broker.pytest_plugin import RocketBrokerFactory
from tests.peer.apache import BROKER_CONF, ApacheBroker
from tests.peer.artifacts import VERSIONS
from tests.peer.java_client import JavaClient
from tests.peer.stage import Stage

pytestmark = [pytest.mark.slow, pytest.mark.peer]

FILE_SIZES = {key: BROKER_CONF[key] for key in ("mappedFileSizeCommitLog", "maxHashSlotNum", "maxIndexNum")}
"""A store keeps the file sizes it was made with."""

ON_HOLD = {"messageDelayLevel": "1s 10s 1s"}
"""Level 2 outlives the broker that a message was sent to."""

BIG = "compressed on its way " * 1000


@pytest.fixture(params=VERSIONS)
def java(request: pytest.FixtureRequest, java_client: Callable[[str], JavaClient]) -> JavaClient:
    """Apache's client of each version; its tests use Apache's broker of that version."""
    return java_client(request.param)


def test_a_store_goes_from_apache_to_us_and_back(
    java: JavaClient,
    apache_broker_factory: Callable[..., ApacheBroker],
    rocket_broker_factory: RocketBrokerFactory,
    tmp_path: Path,
) -> None:
    """Messages, queues, keys, offsets and delays that one broker wrote, the next one serves and adds to."""
    store = tmp_path / "store"
    apache = apache_broker_factory(java.version, store=store, settings=ON_HOLD)
    with Stage(java, apache.name_server, apache.address) as stage:
        java.create_topic(apache.name_server, apache.address, "letters", 2)
        producer = stage.producer()
        producer.send("letters", "a", "b", tags="vowel || not", keys="early")
        producer.send("letters", "c", "d", mode="batch", properties={"p": "v"})
        producer.send("letters", BIG, mode="queue", queue=1)
        readers = stage.consumer("letters", "readers")
        readers.take(5)
        readers.stop()
        producer.send("letters", "e")
        producer.send("letters", "held back", delayLevel=2)
    apache.stop()

    ours = rocket_broker_factory(store, **FILE_SIZES, **ON_HOLD)
    with Stage(java, ours.name_server, ours.address) as stage:
        readers = stage.consumer("letters", "readers")
        assert sorted(m.text for m in readers.take(2, timeout=30)) == ["e", "held back"]
        everything = stage.consumer("letters").take(7)
        assert sorted(m.text for m in everything) == sorted(["a", "b", "c", "d", BIG, "e", "held back"])
        assert sorted(m.text for m in everything if m.properties.get("p") == "v") == ["c", "d"]
        producer = stage.producer()
        assert sorted(m.text for m in producer.query("letters", "early")) == ["a", "b"]
        producer.send("letters", "f", keys="late")
        readers.take(3)
        readers.stop()
        producer.send("letters", "g", "h", mode="batch", keys="late")
    ours.stop()

    apache = apache_broker_factory(java.version, store=store, settings=ON_HOLD)
    with Stage(java, apache.name_server, apache.address) as stage:
        assert sorted(m.text for m in stage.consumer("letters", "readers").take(2)) == ["g", "h"]
        everything = stage.consumer("letters").take(10)
        assert sorted(m.text for m in everything) == sorted([*"abcdefgh", BIG, "held back"])
        producer = stage.producer()
        assert sorted(m.text for m in producer.query("letters", "early")) == ["a", "b"]
        assert sorted(m.text for m in producer.query("letters", "late")) == ["f", "g", "h"]
        assert producer.send("letters", "i")[0]["status"] == "SEND_OK"
    apache.kill()
