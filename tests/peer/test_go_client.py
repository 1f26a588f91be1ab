"""Apache's Go client, rocketmq-client-go, on Apache's broker, which proves the expectations, then on ours."""

import asyncio
import itertools
import time
from collections.abc import Iterator
from typing import Literal

import pytest

from rocket_client import Admin
from rocket_client.settings import ClientSettings
from tests.peer.artifacts import VERSIONS
from tests.peer.conftest import Peers
from tests.peer.go_client import VERSION, GoClient, GoConsumer, GoProducer
from tests.peer.stage import ANSWER_TIMEOUT

# A client that misses a queue at its start takes it at the next rebalance, 20 s later.
TIMEOUT = 60.0
# The client leaves a group by closing its connections, without unregistering. The next member may have only half of the
# queues for more than a minute: the broker removes a silent member, and the client ends a silent pull, after 120 s.
GONE = 200.0

_numbers = itertools.count(1)


class GoStage:
    """The Go client with one broker, and its own names."""

    def __init__(self, client: GoClient, name_server: str) -> None:
        """Put a running client before a running broker."""
        self._client = client
        self._name_server = name_server
        self._consumers: list[GoConsumer] = []

    def name(self, what: str) -> str:
        """Return an unused name."""
        return f"go-{what}-{next(_numbers)}"

    def topic(self, name: str = "", queues: int = 4) -> str:
        """Return a topic, a new one unless named."""
        topic = name or self.name("topic")

        async def make() -> None:
            async with Admin(ClientSettings(name_servers=self._name_server, request_timeout=ANSWER_TIMEOUT)) as admin:
                await admin.create_topic(topic, queues)
                await admin.await_topic(topic, queues=queues, timeout=TIMEOUT)

        asyncio.run(make())
        return topic

    def await_topic(self, topic: str) -> None:
        """Wait until the name server knows a topic."""

        async def wait() -> None:
            async with Admin(ClientSettings(name_servers=self._name_server, request_timeout=ANSWER_TIMEOUT)) as admin:
                await admin.await_topic(topic, timeout=TIMEOUT)

        asyncio.run(wait())

    def producer(self) -> GoProducer:
        """Start a producer with its own group."""
        return self._client.producer(self._name_server, self.name("producers"))

    def consumer(self, topic: str, group: str = "", **how: object) -> GoConsumer:
        """Start a consumer, with its own group by default."""
        group = group or self.name("group")
        consumer = self._client.consumer(self._name_server, group, topic, **how)  # type: ignore[arg-type]
        self._consumers.append(consumer)
        return consumer

    def stop(self) -> None:
        """Stop the consumers."""
        for consumer in self._consumers:
            consumer.stop()


def on(kind: str) -> object:
    """Return a fixture parameter that names the client's version, by which parallel workers share the tests."""
    return pytest.param(kind, marks=pytest.mark.peer, id=f"go{VERSION}-on-{kind}")


@pytest.fixture(params=[on("apache"), on("bundled")])
def go(request: pytest.FixtureRequest, peers: Peers, go_client: GoClient) -> Iterator[GoStage]:
    """The Go client on Apache's broker, then on ours."""
    broker = peers.broker(VERSIONS[0]) if request.param == "apache" else peers.bundled()
    stage = GoStage(go_client, broker.name_server)
    yield stage
    stage.stop()


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_go_sends_and_receives(go: GoStage, mode: Literal["sync", "async"]) -> None:
    """Each result has queue and offset, and the listener gets the whole message from there."""
    topic = go.topic()
    bodies = [f"m{i}" for i in range(8)]
    sent = go.producer().send(topic, *bodies, mode=mode, tags="t", keys=["k1", "k2"], properties={"p": "v"})

    received = go.consumer(topic).take(8, TIMEOUT)

    assert all(answer["ok"] for answer in sent)
    assert {(m.queue, m.offset) for m in received} == {(s["queue"], s["offset"]) for s in sent}
    assert sorted(m.body for m in received) == bodies
    assert {(m.topic, m.tags, m.keys, m.properties["p"]) for m in received} == {(topic, "t", "k1 k2", "v")}


def test_go_sends_one_way(go: GoStage) -> None:
    """Without an answer; everything is stored."""
    topic = go.topic()
    assert go.producer().send(topic, *"abc", mode="oneway") == []

    assert sorted(m.body for m in go.consumer(topic).take(3, TIMEOUT)) == list("abc")


def test_go_keeps_the_order_of_a_key(go: GoStage) -> None:
    """One key's messages are in one queue; an orderly listener gets them in order, also when it fails."""
    topic = go.topic()
    producer = go.producer()
    for number in range(5):
        for key in "xyz":
            producer.send(topic, f"{key}{number}", shard_by=key)

    received = go.consumer(topic, orderly=True).take(15, TIMEOUT)

    for key in "xyz":
        of_key = [m for m in received if m.body[0] == key]
        assert [m.body for m in of_key] == [f"{key}{number}" for number in range(5)]
        assert len({m.queue for m in of_key}) == 1


def test_go_selects_by_tags(go: GoStage) -> None:
    """A subscription to two tags gets only their messages."""
    topic = go.topic()
    producer = go.producer()
    for tag in ("red", "green", "blue"):
        producer.send(topic, tag, tags=tag)

    received = go.consumer(topic, expression="red || blue").take(2, TIMEOUT)

    assert sorted(m.body for m in received) == ["blue", "red"]


def test_go_broadcasts(go: GoStage) -> None:
    """Each member of a broadcasting group gets every message."""
    topic, group = go.topic(), go.name("group")
    go.producer().send(topic, *"abcd")

    for _ in range(2):
        member = go.consumer(topic, group, broadcast=True)
        assert sorted(m.body for m in member.take(4, TIMEOUT)) == list("abcd")


def test_go_delays(go: GoStage) -> None:
    """Level 2 (2 s here) is not delivered early."""
    topic = go.topic()
    consumer = go.consumer(topic)
    begun = time.monotonic()
    go.producer().send(topic, "later", delay_level=2)

    (message,) = consumer.take(1, TIMEOUT)

    assert time.monotonic() - begun > 1.9
    assert message.properties["REAL_TOPIC"] == topic


def test_go_retries_until_the_dead_letter(go: GoStage) -> None:
    """A failed message is redelivered by the retry topic, and in the end is in the dead letter topic."""
    topic, group = go.topic(), go.name("group")
    # The client would find the group's retry topic only when it rebalances, 20 s after its start.
    go.topic(f"%RETRY%{group}", queues=1)
    go.producer().send(topic, "poison", tags="t")
    consumer = go.consumer(topic, group, fail_times=9, max_times=1)

    received = consumer.take(2, TIMEOUT)
    go.await_topic(f"%DLQ%{group}")
    (letter,) = go.consumer(f"%DLQ%{group}").take(1, TIMEOUT)

    assert [(m.body, m.reconsume_times) for m in received] == [("poison", 0), ("poison", 1)]
    assert (letter.body, letter.tags) == ("poison", "t")


@pytest.mark.timeout(400)
def test_go_group_continues_after_a_member_left(go: GoStage) -> None:
    """Its messages are committed: the next member gets only new ones."""
    topic, group = go.topic(), go.name("group")
    producer = go.producer()
    producer.send(topic, *"abcd")
    earlier = go.consumer(topic, group)
    earlier.take(4, TIMEOUT)
    earlier.stop()
    producer.send(topic, *"efgh")

    later = go.consumer(topic, group)
    later.wait_for(lambda: set("efgh") <= {m.body for m in later.received}, GONE, "the new messages")
