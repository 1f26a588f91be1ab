"""Groups of our clients and Java's when a master is lost, whose slave is of the other kind: ours or Apache's."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rocket_broker.replication import metadata
from rocket_client import (
    Admin,
    ClientSettings,
    ConsumeFromWhere,
    LitePullConsumer,
    LitePullConsumerSettings,
    Message,
    PushConsumer,
    PushConsumerSettings,
    SendStatus,
)
from rocket_client.connection import client
from rocket_remoting import MessageExt
from tests.end_to_end.client_stage import RecordingListener
from tests.peer.apache import ApacheBroker
from tests.peer.java_client import JavaClient, JavaConsumer
from tests.peer.replication_pairs import SECONDS, TOPIC, ApachesMaster, OurMaster, Pair
from tests.peer.stage import ANSWER_TIMEOUT, Stage, eventually
from tests.peer.test_mqadmin import rows

SOON = timedelta(milliseconds=300)
DELAYED = "delayed"

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]  # up to three JVMs start, two of them after each other


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pauses before the first commit of consumers, and between copies of the tables to our slave."""
    monkeypatch.setattr(client, "FIRST_PERSIST", 0.1)
    monkeypatch.setattr(metadata, "SECONDS_BETWEEN_COPIES", 0.2)


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        pytest.param(kind, version, marks=pytest.mark.peer, id=f"{kind.__name__}-{version}")
        for kind, version in ((OurMaster, "4.9.7"), (ApachesMaster, "4.9.7"), (ApachesMaster, "5.3.3"))
    ],
)
def test_groups_go_on_at_the_slave_and_after_its_promotion(
    kind: type[Pair],
    version: str,
    apache_broker_factory: Callable[..., ApacheBroker],
    java_client: Callable[[str], JavaClient],
    tmp_path: Path,
) -> None:
    """In order, each message once, and what waited for a delay or a redelivery is delivered by the new master."""

    async def run() -> None:
        java = await asyncio.to_thread(java_client, version)
        async with kind(version, apache_broker_factory, tmp_path) as pair:
            with Stage(java, pair.name_servers, pair.master_address) as stage:
                await Scene(pair, stage).play()

    asyncio.run(run())


@pytest.mark.parametrize("version", ["5.3.3"])
def test_apaches_slave_of_5_copies_our_log(
    version: str, apache_broker_factory: Callable[..., ApacheBroker], tmp_path: Path
) -> None:
    """Byte for byte: its default HA service speaks the protocol of 4.9."""

    async def run() -> None:
        async with OurMaster(version, apache_broker_factory, tmp_path) as pair:
            await pair.until_copied({})

    asyncio.run(run())


class Scene:
    """Three groups of our clients and three of Java's: one consumes in order, one fails a message, one polls."""

    def __init__(self, pair: Pair, java: Stage) -> None:
        self._pair = pair
        self._java = java
        self._master_is_lost = asyncio.Event()

    async def play(self) -> None:
        pair = self._pair
        ordered = RecordingListener(lambda message: self._wait_for_loss() if message.body == b"5" else None)
        failing = RecordingListener(fails_first)
        async with Admin(ClientSettings(name_servers=pair.name_servers, request_timeout=ANSWER_TIMEOUT)) as admin:
            await admin.create_topic(TOPIC, 1)
            await admin.await_topic(TOPIC, timeout=SECONDS)
        javas_ordered, javas_failing = await asyncio.to_thread(self._start_javas)
        async with (
            self._consumer("ordered", lambda consumer: consumer.listen_orderly(ordered)),
            self._consumer("failing", lambda consumer: consumer.listen_concurrently(failing)),
        ):
            # The master has all groups; `ordered` stops in the middle until a master gives it the queue's lock again.
            await self._send(0, 4)
            assert await pair.send(Message(TOPIC, DELAYED.encode(), delay_level=3)) == {SendStatus.SEND_OK}
            assert await self._polled(4) == [numbers(0, 4)] * 2
            await self._send(4, 10)
            await failing.count(10, SECONDS)
            await asyncio.to_thread(javas_ordered.take, 10)
            await asyncio.to_thread(javas_failing.take, 10)
            await ordered.count(6, SECONDS)
            polled = {"polling": 4, "java-polling": 4}
            await pair.until_copied({"failing": 10, "java-ordered": 10, "java-failing": 10, "ordered": 5} | polled)

            await asyncio.to_thread(self._check_tools)

            await pair.lose_master()
            self._master_is_lost.set()
            assert await self._polled(6) == [numbers(4, 10)] * 2

            await pair.promote()
            await self._send(10, 20)
            await asyncio.gather(ordered.count(21, SECONDS), failing.count(22, SECONDS))
            await asyncio.to_thread(javas_ordered.take, 21)
            await asyncio.to_thread(javas_failing.take, 22)
            for found in await self._polled(11):
                check_last(found, numbers(10, 20))
            check_last(texts(ordered), numbers(0, 20))
            check_last([message.text for message in javas_ordered.received], numbers(0, 20))
            for found in (texts(failing), [message.text for message in javas_failing.received]):
                assert sorted(found) == sorted([*numbers(0, 20), "3", DELAYED])

    def _start_javas(self) -> tuple[JavaConsumer, JavaConsumer]:
        """Start a consumer of Java's that consumes in order, and one that fails a message."""
        java, soon = self._java, {"persistOffsetsMs": 200}
        return (
            java.consumer(TOPIC, "java-ordered", mode="orderly", **soon),
            java.consumer(TOPIC, "java-failing", failTimes=1, failBody="3", **soon),
        )

    def _check_tools(self) -> None:
        """Check that mqadmin lists both brokers and, in 5.x, how far the slave is."""
        pair, java = self._pair, self._java
        listed = {tuple(row[1:4]) for row in rows(java.mqadmin("clusterList"))}
        assert listed >= {("broker-a", "0", pair.master_address), ("broker-a", "1", pair.slave_address)}
        if java.version.startswith("5."):
            slaves = eventually(
                lambda: rows(java.mqadmin("haStatus", "-b", pair.master_address)),
                lambda found: [(row[2], row[4]) for row in found] == [("0", "OK")],
            )
            assert [(row[2], row[4]) for row in slaves] == [("0", "OK")]  # the difference, and whether it is in sync

    async def _send(self, start: int, end: int) -> None:
        messages = [Message(TOPIC, number.encode()) for number in numbers(start, end)]
        assert await self._pair.send(*messages) == {SendStatus.SEND_OK}

    async def _wait_for_loss(self) -> None:
        await self._master_is_lost.wait()

    def _consumer(self, group: str, listen: Callable[[PushConsumer], None]) -> PushConsumer:
        """Return a consumer that soon sees changes of routes, commits soon, and pulls few messages ahead."""
        settings = PushConsumerSettings(
            name_servers=self._pair.name_servers,
            consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
            poll_name_server_interval=SOON,
            persist_consumer_offset_interval=SOON,
            rebalance_interval=SOON,
            lock_interval=SOON,
            pull_time_delay_when_exception=SOON,
            pull_batch_size=1,
            pull_threshold_for_queue=1,
        )
        consumer = PushConsumer(group, settings)
        consumer.subscribe(TOPIC)
        listen(consumer)
        return consumer

    async def _polled(self, count: int) -> list[list[str]]:
        """Return the next messages of two groups, ours and Java's, that poll and commit."""
        polled, javas = await asyncio.gather(
            self._poll(count), asyncio.to_thread(self._java.poll, TOPIC, "java-polling", count)
        )
        return [polled, [message.text for message in javas]]

    async def _poll(self, count: int) -> list[str]:
        settings = LitePullConsumerSettings(
            name_servers=self._pair.name_servers,
            consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
            pull_time_delay_when_exception=SOON,
        )
        consumer = LitePullConsumer("polling", settings)
        consumer.subscribe(TOPIC)
        found: list[str] = []
        async with consumer, asyncio.timeout(SECONDS):
            while len(found) < count:
                found += [message.body.decode() for message in await consumer.poll(1)]
            await consumer.commit()
        return found


def fails_first(message: MessageExt) -> Any:
    """Return an error for the first delivery of one message."""
    return ValueError("the kitchen is closed") if message.body == b"3" and not message.reconsume_times else None


def numbers(start: int, end: int) -> list[str]:
    """Return the bodies of messages."""
    return [str(number) for number in range(start, end)]


def texts(listener: RecordingListener) -> list[str]:
    """Return the bodies that a listener received."""
    return [body.decode() for body in listener.bodies]


def check_last(found: list[str], expected: list[str]) -> None:
    """Check that these messages came in this order, each once, and the delayed one once somewhere among them."""
    assert [text for text in found if text != DELAYED] == expected
    assert found.count(DELAYED) == 1
