"""Who sends a producer's records: its thread, or the loop that the thread lends its work to."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from uuid import uuid4

import pytest
from kafka.errors import KafkaError

from binders.kafka.clients import RepairedProducer, connect_producer
from binders.kafka.repairs import sending_turns
from binders.kafka.repairs.producer_closing import force_close
from tests.peer.kafka import KafkaServer

PATIENCE = 60.0


def until(condition: Callable[[], bool]) -> None:
    """Ask again and again, until the condition is true."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline


class Producing:
    """A producer that has been lent, and what it did."""

    def __init__(self, producer: RepairedProducer, topic: str) -> None:
        self.producer = producer
        self.topic = topic
        self.requests: list[int] = []
        write = producer._sender._produce_request

        def counted(node: object, acks: int, timeout: int, batches: list[object]) -> object:
            self.requests.append(sum(batch.record_count for batch in batches))  # type: ignore[attr-defined]
            return write(node, acks, timeout, batches)

        producer._sender._produce_request = counted

    def send(self, value: bytes = b"x") -> "Acknowledged":
        """Send a record, whose acknowledgment tells where it was received."""
        return Acknowledged(self.producer.send(self.topic, value, partition=0))

    async def lent(self) -> None:
        """Return when the thread has lent its work."""
        await asyncio.to_thread(until, lambda: self.producer._turns._is_lent)


class Acknowledged:
    """An acknowledgment that is waited for in a thread or on a loop."""

    def __init__(self, sent: object) -> None:
        self._told = threading.Event()
        self.thread: threading.Thread | None = None
        self.error: Exception | None = None
        sent.add_callback(self._note)  # type: ignore[attr-defined]
        sent.add_errback(self._note)  # type: ignore[attr-defined]

    def _note(self, result: object) -> None:
        self.thread = threading.current_thread()
        self.error = result if isinstance(result, Exception) else None
        self._told.set()

    def wait(self) -> None:
        """Wait in this thread, in which nothing else runs meanwhile."""
        assert self._told.wait(PATIENCE)

    async def come(self) -> None:
        """Wait, and let the loop run."""
        await asyncio.to_thread(self.wait)


def run(server: KafkaServer, case: Callable[[Producing], Awaitable[None]], **settings: object) -> None:
    """Run a case with a producer whose thread has connected, and lent its work if it lends any."""

    async def main() -> None:
        config = {"bootstrap_servers": server.address, **settings}
        producer = await asyncio.to_thread(connect_producer, config)
        topic = f"turns-{uuid4().hex}"
        try:
            await asyncio.to_thread(producer.partitions_for, topic)
            producer.lend()
            producing = Producing(producer, topic)
            await producing.send(b"first").come()
            producing.requests.clear()
            await case(producing)
        finally:
            producer.take_back()
            await asyncio.to_thread(partial(producer.close, timeout=5))

    asyncio.run(main())


def test_records_of_one_turn_are_one_request_of_the_loop(
    kafka_server: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And their acknowledgments come on the loop."""
    monkeypatch.setattr(sending_turns, "_LOOK", PATIENCE)

    async def case(producing: Producing) -> None:
        await producing.lent()
        acknowledged = [producing.send() for _ in range(100)]
        for each in acknowledged:
            await each.come()
        assert {each.thread for each in acknowledged} == {threading.current_thread()}
        assert [each.error for each in acknowledged] == [None] * 100
        assert producing.requests == [100]

    run(kafka_server, case)


def test_a_loop_that_is_busy_holds_nothing_up(kafka_server: KafkaServer) -> None:
    """The thread takes its work back, and lends it again."""

    async def case(producing: Producing) -> None:
        await producing.lent()
        sent = producing.send()
        sent.wait()
        assert sent.error is None
        assert sent.thread is producing.producer._sender
        async with asyncio.timeout(PATIENCE):
            while sent.thread is not threading.current_thread():
                await producing.lent()
                sent = producing.send()
                await sent.come()

    run(kafka_server, case)


def test_records_of_other_threads_are_sent(kafka_server: KafkaServer) -> None:
    """The loop is woken for them."""

    async def case(producing: Producing) -> None:
        await producing.lent()
        for _ in range(50):
            sent = await asyncio.to_thread(producing.send)
            await sent.come()
            assert sent.error is None

    run(kafka_server, case)


@pytest.mark.parametrize(
    "settings",
    [{"acks": 1}, {"acks": 0}, {"max_in_flight_requests_per_connection": 1}],
    ids=["one broker", "no broker", "one request"],
)
def test_other_acknowledgments_come_too(kafka_server: KafkaServer, settings: dict[str, object]) -> None:
    """In the order of the records."""

    async def case(producing: Producing) -> None:
        for _ in range(20):
            acknowledged = [producing.send(b"x" * 10_000) for _ in range(5)]
            for each in acknowledged:
                await each.come()
                assert each.error is None

    run(kafka_server, case, **settings)


def test_more_than_a_request_may_have_is_sent(kafka_server: KafkaServer) -> None:
    """Batch by batch, and what does not fit into the first request in later ones."""

    async def case(producing: Producing) -> None:
        acknowledged = [producing.send(b"x" * 50_000) for _ in range(100)]
        for each in acknowledged:
            await each.come()
            assert each.error is None
        assert sum(producing.requests) == 100

    run(kafka_server, case)


@pytest.mark.parametrize("settings", [{"linger_ms": 5}, {"compression_type": "gzip"}], ids=["linger", "compression"])
def test_what_the_loop_should_not_do_stays_with_the_thread(
    kafka_server: KafkaServer, settings: dict[str, object]
) -> None:
    """Waiting for more records, and compressing them."""

    async def case(producing: Producing) -> None:
        for _ in range(5):
            sent = producing.send()
            await sent.come()
            assert sent.error is None
            assert not producing.producer._turns._is_lent

    run(kafka_server, case, **settings)


def test_a_producer_that_is_taken_back_sends_by_itself(kafka_server: KafkaServer) -> None:
    """Whatever the loop does meanwhile."""

    async def case(producing: Producing) -> None:
        await producing.lent()
        unsent = producing.send()
        producing.producer.take_back()
        unsent.wait()
        sent = producing.send()
        sent.wait()
        assert unsent.error is None
        assert sent.error is None
        assert unsent.thread is producing.producer._sender

    run(kafka_server, case)


def test_a_producer_whose_loop_is_closed_sends_by_itself(kafka_server: KafkaServer) -> None:
    """And it closes."""

    async def main() -> RepairedProducer:
        producer = await asyncio.to_thread(connect_producer, {"bootstrap_servers": kafka_server.address})
        await asyncio.to_thread(producer.partitions_for, topic)
        producer.lend()
        await Producing(producer, topic).lent()
        return producer

    topic = f"turns-{uuid4().hex}"
    producer = asyncio.run(main())
    try:
        assert producer.send(topic, b"x").get(timeout=PATIENCE).offset == 0
    finally:
        producer.close(timeout=5)
        assert not producer._sender.is_alive()


@pytest.mark.peer
@pytest.mark.slow
def test_records_outlast_a_broker_that_restarts(kafka_server_of_its_own: KafkaServer) -> None:
    """Those that wait are sent when it is back, once each."""
    server = kafka_server_of_its_own

    async def case(producing: Producing) -> None:
        await producing.lent()
        server.kill()
        waiting = [producing.send(str(number).encode()) for number in range(20)]
        await asyncio.to_thread(server.start)
        for each in waiting:
            await each.come()
            assert each.error is None
        last = await asyncio.to_thread(producing.producer.send(producing.topic, b"last", partition=0).get, PATIENCE)
        assert last.offset == 21

    run(server, case)


@pytest.mark.peer
@pytest.mark.slow
def test_records_that_wait_fail_when_their_producer_is_closed(kafka_server_of_its_own: KafkaServer) -> None:
    """Brokers that are away keep nobody waiting."""
    server = kafka_server_of_its_own

    async def case(producing: Producing) -> None:
        await producing.lent()
        server.kill()
        waiting = producing.send()
        producing.producer.take_back()
        await asyncio.to_thread(force_close, producing.producer)
        await waiting.come()
        assert isinstance(waiting.error, KafkaError)

    run(server, case)
