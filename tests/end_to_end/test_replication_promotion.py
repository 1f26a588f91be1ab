"""What goes on over a promotion: timers, delays, redeliveries, transactions and ordered groups, each message once."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rocket_broker.replication import metadata
from rocket_client import ConsumeFromWhere, PushConsumer, PushConsumerSettings
from rocket_client.connection import client
from rocket_remoting import MessageExt
from rocket_remoting.clock import SystemClock
from rocket_remoting.wire.codes import ResponseCode
from tests.end_to_end.broker_pair import BrokerPair, with_pair
from tests.end_to_end.client_stage import RecordingListener, until
from tests.end_to_end.transactions import GROUP, begin, end, questions

HOURS = 2
LEVELS = "1s 1s 1h"
"""Level 3, which the first redelivery has, is over only when two hours have passed."""
SECONDS = 60.0
"""A test that waits for this long has failed."""


class LaterClock(SystemClock):
    """The time in two hours: what waits for an hour is due."""

    def now_ms(self) -> int:
        """Return that time in milliseconds since 1970."""
        return super().now_ms() + HOURS * 3_600_000


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pauses between commits of consumers, and between copies of the tables to the slave."""
    monkeypatch.setattr(client, "FIRST_PERSIST", 0.1)
    monkeypatch.setattr(metadata, "SECONDS_BETWEEN_COPIES", 0.02)


def test_what_waits_is_delivered_once(tmp_path: Path) -> None:
    """Timed and delayed messages and transactions, of which each has one that the former master has delivered."""

    async def scene(pair: BrokerPair) -> None:
        sender, former = pair.client, pair.master.broker
        await sender.create_topic("orders")
        await pair.start_slave()
        now = former.clock.now_ms()
        await sender.send(body=b"timed, early", properties={"TIMER_DELAY_MS": "100"})
        await sender.send(body=b"timed, late", properties={"TIMER_DELAY_SEC": "3600"})
        await sender.send(body=b"delayed, early", properties={"DELAY": "1"})
        await sender.send(body=b"delayed, late", properties={"DELAY": "3"})
        committed = await begin(sender, now, key="early")
        pending = await begin(sender, now, key="late")
        assert (await end(sender, committed)).code == ResponseCode.SUCCESS
        early = {b"timed, early", b"delayed, early", b"hello"}
        await until(lambda: former.store.max_offset("orders", 0) == len(early))
        timers = former.timers
        assert timers is not None
        await until(lambda: timers.progress.moment > now + 100)
        await pair.until_copied()

        master, sender = await pair.promote(
            clock=LaterClock(), messageDelayLevel=LEVELS, transactionCheckInterval="20", transactionTimeOut="1"
        )
        await until(lambda: master.store.max_offset("orders", 0) == len(early) + 2)
        await sender.heartbeat(producers=(GROUP,))
        await until(lambda: bool(questions(sender)))
        (question,) = {question.message.properties["UNIQ_KEY"]: question for question in questions(sender)}.values()
        assert question.message.properties["UNIQ_KEY"] == pending.transaction_id
        await question.answer(sender)
        await until(lambda: master.store.max_offset("orders", 0) == len(early) + 3)
        bodies = [message.body for message in await sender.messages()]
        assert set(bodies[:3]) == early
        assert sorted(bodies[3:]) == [b"delayed, late", b"hello", b"timed, late"]
        assert master.halves.pending.count == 0

    with_pair(tmp_path, scene, messageDelayLevel=LEVELS, timerPrecisionMs="100")


def test_groups_go_on_where_they_were(tmp_path: Path) -> None:
    """The same consumers: an ordered group keeps its order, a failed message is redelivered, and none comes twice."""

    async def scene(pair: BrokerPair) -> None:
        await pair.client.create_topic("orders")
        await pair.start_slave(messageDelayLevel=LEVELS)
        ordered = RecordingListener()
        failing = RecordingListener(fails_first)
        async with (
            consumer(pair, "ordered", lambda c: c.listen_orderly(ordered)),
            consumer(pair, "failing", lambda c: c.listen_concurrently(failing)),
        ):
            for number in range(10):
                await pair.client.send(body=b"%d" % number)
            await asyncio.gather(ordered.count(10, SECONDS), failing.count(10, SECONDS))
            offsets = pair.master.broker.offsets
            await until(lambda: all(offsets.get(group, "orders", 0) == 10 for group in ("ordered", "failing")))
            await pair.until_copied()
            _, sender = await pair.promote(clock=LaterClock(), messageDelayLevel=LEVELS)
            for number in range(10, 20):
                await sender.send(body=b"%d" % number)
            await asyncio.gather(ordered.count(20, SECONDS), failing.count(21, SECONDS))
        assert ordered.bodies == [b"%d" % number for number in range(20)]
        assert sorted(failing.bodies) == sorted([b"5", *(b"%d" % number for number in range(20))])

    with_pair(tmp_path, scene, messageDelayLevel=LEVELS)


def fails_first(message: MessageExt) -> Any:
    """Return an error for the first delivery of one message."""
    return ValueError("the kitchen is closed") if message.body == b"5" and not message.reconsume_times else None


def consumer(pair: BrokerPair, group: str, listen: Callable[[PushConsumer], None]) -> PushConsumer:
    """Return a consumer of the topic that soon sees changes of routes and commits soon."""
    settings = PushConsumerSettings(
        name_servers=pair.master.name_server_address,
        consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
        poll_name_server_interval=timedelta(milliseconds=100),
        persist_consumer_offset_interval=timedelta(milliseconds=100),
        rebalance_interval=timedelta(milliseconds=100),
        lock_interval=timedelta(milliseconds=100),
        pull_time_delay_when_exception=timedelta(milliseconds=100),
    )
    made = PushConsumer(group, settings, transport=pair.transport)
    made.subscribe("orders")
    listen(made)
    return made
