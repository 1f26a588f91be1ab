"""A transactional Kafka binder: what a listener sends and the offset of its message count together, or not at all."""

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
    """Settings of an application that reads `in` and writes to another topic by `out`."""
    return {
        "kafka.binder.transaction.transaction-id-prefix": f"tx-{shop.topic}-",
        "kafka.bindings.in.consumer.max-reconsume-times": 1,
        "kafka.bindings.in.consumer.suspend": "50ms",
        "bindings.in.consumer.max-attempts": 1,
        "bindings.out.destination": f"{shop.topic}-receipts",
        "output-bindings": "out",
    }


def test_what_is_sent_and_the_offset_are_committed_together(shop: Shop) -> None:
    """What the listener returns, and what it sends itself."""

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


def test_what_a_listener_sends_on_its_thread_is_part_of_the_transaction(shop: Shop) -> None:
    """A `def` listener that fails has sent nothing that counts."""

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


def test_what_a_failed_call_has_sent_nobody_sees(shop: Shop) -> None:
    """It stands in the topic, aborted; who reads committed messages gets what the next delivery sent."""

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
        assert await shop.committed() == {0: 1}

    asyncio.run(main())


def test_a_rejected_message_is_a_dead_letter_and_what_it_sent_is_not(shop: Shop) -> None:
    """The letter is written after the transaction was aborted, and the partition goes on."""

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


def test_what_is_sent_outside_of_a_listener_is_a_transaction_of_its_own(shop: Shop) -> None:
    """Several at once have producers of their own; where settings allow it there is no transaction at all."""

    async def main() -> None:
        async with shop.app(**transactional(shop)) as app:
            await asyncio.gather(*(app.bridge.asend("out", str(number)) for number in range(5)))
        more = {"kafka.bindings.out.producer.allow-non-transactional": "true"}
        async with shop.app(**transactional(shop), **more) as app:
            await app.bridge.asend("out", Message("5"))
        found = await shop.records(f"{shop.topic}-receipts", 6, COMMITTED)
        assert sorted(record.value for record in found) == [b"0", b"1", b"2", b"3", b"4", b"5"]

    asyncio.run(main())


def test_a_call_that_outlasts_a_rebalance_counts_nothing(shop: Shop) -> None:
    """Its partition may be another member's by then, which handles the message: what comes of it is seen once."""

    async def main() -> None:
        await shop.make_topic(2)
        begun, go_on = Inbox(), asyncio.Event()
        receipts = f"{shop.topic}-receipts"
        # So that a rebalance waits for calls for a second.
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
    ("setting", "told"),
    [
        ({"bindings.in.consumer.max-attempts": 3}, "attempts in process cannot take back"),
        ({"bindings.in.consumer.batch-mode": "true"}, "one by one: remove batch-mode"),
        ({"kafka.bindings.in.consumer.ordered": "false"}, "remove ordered=false"),
    ],
)
def test_what_a_transaction_cannot_take_back_is_refused(shop: Shop, setting: Mapping[str, object], told: str) -> None:
    """Before anything is connected, with what to set instead."""

    async def main() -> None:
        with pytest.raises(ConfigurationError, match=told):
            async with shop.app(shop.listening(Inbox()), **{**transactional(shop), **setting}):
                raise AssertionError("it must not start")

    asyncio.run(main())
