"""A transactional Kafka binder: a listener's sends and its message's offset are committed together or not at all."""

import asyncio
from collections.abc import Mapping

import pytest

from streamkit import Message, StreamApplication
from streamkit.errors import ConfigurationError
from streamkit.listeners.listener import send_to
from streamkit.messaging.headers import PARTITION
from tests.peer.kafka import KafkaServer
from tests.peer.test_kafka_binder import Inbox, Shop, eventually

pytestmark = [pytest.mark.slow]

COMMITTED = "read_committed"


@pytest.fixture
def shop(kafka_server: KafkaServer) -> Shop:
    return Shop(kafka_server)


def transactional(shop: Shop) -> Mapping[str, object]:
    """Return settings of an application that reads `in` and writes to another topic by `out`."""
    return {
        "kafka.binder.transaction.transaction-id-prefix": f"tx-{shop.topic}-",
        "kafka.bindings.in.consumer.max-reconsume-times": 1,
        "kafka.bindings.in.consumer.suspend": "50ms",
        "bindings.in.consumer.max-attempts": 1,
        "bindings.out.destination": f"{shop.topic}-receipts",
        "output-bindings": "out",
    }


def test_sends_and_offset_are_committed_together(shop: Shop) -> None:
    """The listener's result, and what it sends itself."""

    async def main() -> None:
        await shop.make_topic(1)

        def listen(app: StreamApplication) -> None:
            @app.stream_listener("in")
            @send_to("out")
            async def answer(text: str) -> str:
                await app.bridge.asend("out", f"{text}1")
                return f"{text}2"

        async with shop.app(listen, **transactional(shop)):
            await shop.send("a", "b")
            found = await shop.records(f"{shop.topic}-receipts", 4, COMMITTED)
            await eventually(shop.committed, {0: 2})
        assert sorted(record.value for record in found) == [b"a1", b"a2", b"b1", b"b2"]

    asyncio.run(main())


def test_sends_on_a_listener_thread_are_part_of_the_transaction(shop: Shop) -> None:
    """Those of a failed `def` listener are aborted."""

    async def main() -> None:
        await shop.make_topic(1)
        calls: list[str] = []

        def listen(app: StreamApplication) -> None:
            @app.stream_listener("in")
            def fail_once(text: str) -> None:
                calls.append(text)
                app.bridge.send("out", f"call {len(calls)}")
                if len(calls) == 1:
                    raise ValueError("after sending")

        async with shop.app(listen, **transactional(shop)):
            await shop.send("x")
            (committed,) = await shop.records(f"{shop.topic}-receipts", 1, COMMITTED)
        assert committed.value == b"call 2"

    asyncio.run(main())


def test_sends_of_a_failed_call_are_invisible(shop: Shop) -> None:
    """They are in the topic, aborted; readers of committed records get the next delivery's."""

    async def main() -> None:
        await shop.make_topic(1)
        calls = Inbox()

        def listen(app: StreamApplication) -> None:
            @app.stream_listener("in")
            async def fail_once(text: str) -> None:
                calls.add(text)
                await app.bridge.asend("out", f"call {len(calls.items)}")
                if len(calls.items) == 1:
                    raise ValueError("after sending")

        async with shop.app(listen, **transactional(shop)):
            await shop.send("x")
            await calls.wait(2)
            (committed,) = await shop.records(f"{shop.topic}-receipts", 1, COMMITTED)
            everything = await shop.records(f"{shop.topic}-receipts", 2)
        assert committed.value == b"call 2"
        assert sorted(record.value for record in everything) == [b"call 1", b"call 2"]
        # Kafka's broker completes a transaction, and with it the offset's commit, after its answer.
        await eventually(shop.committed, {0: 1})

    asyncio.run(main())


def test_sends_for_a_rejected_message_are_aborted(shop: Shop) -> None:
    """Its dead letter is written after the abort, and the partition continues."""

    async def main() -> None:
        await shop.make_topic(1)
        calls = Inbox()

        def listen(app: StreamApplication) -> None:
            @app.stream_listener("in")
            async def fail_bad(text: str) -> None:
                calls.add(text)
                await app.bridge.asend("out", text)
                if text == "bad":
                    raise ValueError("never")

        async with shop.app(listen, **transactional(shop)):
            await shop.send("bad", "good")
            assert await calls.wait(3) == ["bad", "bad", "good"]
            (letter,) = await shop.records(f"error.{shop.topic}.{shop.group}", 1)
            (sent,) = await shop.records(f"{shop.topic}-receipts", 1, COMMITTED)
            await eventually(shop.committed, {0: 2})
        assert (letter.value, sent.value) == (b"bad", b"good")

    asyncio.run(main())


def test_send_outside_a_listener_is_a_separate_transaction(shop: Shop) -> None:
    """Concurrent ones have producers of their own; settings may disable these transactions."""

    async def main() -> None:
        async with shop.app(**transactional(shop)) as app:
            await asyncio.gather(*(app.bridge.asend("out", str(number)) for number in range(5)))
        more = {"kafka.bindings.out.producer.allow-non-transactional": "true"}
        async with shop.app(**transactional(shop), **more) as app:
            await app.bridge.asend("out", Message("5"))
        found = await shop.records(f"{shop.topic}-receipts", 6, COMMITTED)
        assert sorted(record.value for record in found) == [b"0", b"1", b"2", b"3", b"4", b"5"]

    asyncio.run(main())


def test_call_that_outlasts_a_rebalance_is_aborted(shop: Shop) -> None:
    """Another member may handle the message, so its results are visible once."""

    async def main() -> None:
        await shop.make_topic(2)
        begun, go_on = Inbox(), asyncio.Event()
        receipts = f"{shop.topic}-receipts"
        # With this interval, a rebalance waits for calls for one second.
        more: Mapping[str, object] = {
            "kafka.bindings.in.consumer.configuration.max.poll.interval.ms": 4000,
            "bindings.in.consumer.concurrency": 2,
        }

        def listen(app: StreamApplication, name: str) -> None:
            @app.stream_listener("in")
            async def answer(text: str) -> None:
                await app.bridge.asend("out", text)
                begun.add(name)
                if name == "slow":
                    await go_on.wait()

        async with shop.app(lambda app: listen(app, "slow"), **transactional(shop), **more):
            for number in range(2):
                await shop.send(str(number), headers={PARTITION: number})
            await begun.wait(2)
            other = {"kafka.binder.transaction.transaction-id-prefix": f"tx2-{shop.topic}-"}
            async with shop.app(lambda app: listen(app, "quick"), **{**transactional(shop), **more, **other}):
                await begun.wait(3)
                go_on.set()
                await eventually(shop.committed, {0: 1, 1: 1})
        async with shop.app(bindings__out__destination=receipts) as app:
            await app.bridge.asend("out", "end")
        found = await shop.records(receipts, 3, COMMITTED)
        assert sorted(record.value for record in found) == [b"0", b"1", b"end"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"bindings.in.consumer.max-attempts": 3}, "attempts in process cannot take back"),
        ({"bindings.in.consumer.batch-mode": "true"}, "one by one: remove batch-mode"),
        ({"kafka.bindings.in.consumer.ordered": "false"}, "remove ordered=false"),
    ],
)
def test_settings_incompatible_with_transactions_are_refused(
    shop: Shop, setting: Mapping[str, object], message: str
) -> None:
    """Before anything is connected, with the alternative."""

    async def main() -> None:
        with pytest.raises(ConfigurationError, match=message):
            async with shop.app(shop.listening(Inbox()), **{**transactional(shop), **setting}):
                raise AssertionError("it must not start")

    asyncio.run(main())
