"""Arbitrary delays of Apache's clients: on Apache's broker 5.3.3, then on ours."""

import time
from collections.abc import Iterator

import pytest

from tests.peer.artifacts import VERSIONS
from tests.peer.conftest import Peers
from tests.peer.json_peer import PeerError
from tests.peer.stage import LATEST, Stage

BROKER = "5.3.3"
"""The first line of Apache's brokers with a timer."""
ATTEMPTS = 5
"""On a busy machine a few messages may take longer to send than the moments that they name are apart."""


def of_client(client: str, kind: str) -> object:
    """Return a fixture parameter; the broker's version comes first, by which parallel workers share tests."""
    return pytest.param((client, kind), marks=pytest.mark.peer, id=f"timer{BROKER}-java{client}-on-{kind}")


@pytest.fixture(params=[of_client(client, kind) for client in VERSIONS for kind in ("apache", "bundled")])
def timing(request: pytest.FixtureRequest, peers: Peers) -> Iterator[Stage]:
    """Apache's Java client of each version on Apache's broker 5.3.3, then on ours."""
    client, kind = request.param
    broker = peers.broker(BROKER) if kind == "apache" else peers.bundled()
    with Stage(peers.client(client), broker.name_server, broker.address) as stage:
        yield stage


@pytest.mark.parametrize(("name", "seconds"), [("TIMER_DELAY_MS", 2.5), ("TIMER_DELAY_SEC", 2.0)])
def test_delay_in_the_clients_own_unit(timing: Stage, name: str, seconds: float) -> None:
    """The message is delivered that much later, in its topic, unchanged."""
    topic = timing.topic()
    consumer = timing.consumer(topic)
    producer = timing.producer()
    amount = int(seconds * 1000) if name.endswith("MS") else int(seconds)
    begun = time.time()

    (sent,) = producer.send(topic, "later", tags="t", keys="k", **{name: amount})
    (message,) = consumer.take(1, timeout=60)

    # Apache's timer wheel has a precision of one second, and may deliver that much too early.
    assert seconds - 1.0 <= time.time() - begun < seconds + LATEST
    assert sent["status"] == "SEND_OK"
    assert (message.topic, message.text, message.tags, message.keys) == (topic, "later", "t", "k")
    assert message.properties["REAL_TOPIC"] == topic


def test_messages_are_delivered_at_their_times(timing: Stage) -> None:
    """The one sent last may be first; one with a past time is delivered at once."""
    producer = timing.producer()
    for _ in range(ATTEMPTS):
        topic = timing.topic(queues=1)
        consumer = timing.consumer(topic, mode="orderly")
        now = int(time.time() * 1000)
        producer.send(topic, "third", TIMER_DELIVER_MS=now + 10_000)
        producer.send(topic, "second", TIMER_DELIVER_MS=now + 6_000)
        producer.send(topic, "first", TIMER_DELIVER_MS=now - 60_000)
        if time.time() * 1000 < now + 3_000:
            break  # otherwise the second message may have been due, within the timers' precision, before it was sent

    assert [m.text for m in consumer.take(3, timeout=60)] == ["first", "second", "third"]


def test_too_long_delay_is_refused(timing: Stage) -> None:
    """Beyond the maximum, three days on Apache's and 40 on ours, nothing is stored."""
    topic = timing.topic()
    producer = timing.producer()
    with pytest.raises(PeerError) as refused:
        producer.send(topic, "never", TIMER_DELAY_SEC=41 * 24 * 3600)

    assert refused.value.code == 13
    assert "wheel" in str(refused.value).lower() or "timer" in str(refused.value).lower()
