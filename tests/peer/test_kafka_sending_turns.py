"""A producer's records are sent by its thread, or by the loop to which the thread lends its work."""

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
    """Check repeatedly until the condition is true."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline


class Producing:
    """A producer whose work was lent to the loop, and what it did."""

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
        """Send a record whose acknowledgment says where it was received."""
        return Acknowledged(self.producer.send(self.topic, value, partition=0))

    async def lent(self) -> None:
        """Wait until the thread has lent its work."""
        await asyncio.to_thread(until, lambda: self.producer._turns._is_lent)


class Acknowledged:
    """An acknowledgment that is awaited in a thread or on a loop."""

    def __init__(self, sent: object) -> None:
        self._arrived = threading.Event()
        self.thread: threading.Thread | None = None
        self.error: Exception | None = None
        sent.add_callback(self._note)  # type: ignore[attr-defined]
        sent.add_errback(self._note)  # type: ignore[attr-defined]

    def _note(self, result: object) -> None:
        self.thread = threading.current_thread()
        self.error = result if isinstance(result, Exception) else None
        self._arrived.set()

    def wait(self) -> None:
        """Wait in this thread, which blocks it."""
        assert self._arrived.wait(PATIENCE)

    async def come(self) -> None:
        """Wait while the loop runs."""
        await asyncio.to_thread(self.wait)


def run(server: KafkaServer, case: Callable[[Producing], Awaitable[None]], **settings: object) -> None:
    """Run a case with a producer whose thread has connected, and lent its work if it does so."""

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


def test_records_of_one_iteration_are_one_request_of_the_loop(
    kafka_server: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their acknowledgments arrive on the loop."""
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


def test_busy_loop_does_not_delay_sends(kafka_server: KafkaServer) -> None:
    """The thread takes its work back, and lends it again later."""

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
def test_acknowledgments_of_other_kinds_arrive(kafka_server: KafkaServer, settings: dict[str, object]) -> None:
    """In the order of the records."""

    async def case(producing: Producing) -> None:
        for _ in range(20):
            acknowledged = [producing.send(b"x" * 10_000) for _ in range(5)]
            for each in acknowledged:
                await each.come()
                assert each.error is None

    run(kafka_server, case, **settings)


def test_records_beyond_the_request_size_are_sent(kafka_server: KafkaServer) -> None:
    """Batch by batch in further requests."""

    async def case(producing: Producing) -> None:
        acknowledged = [producing.send(b"x" * 50_000) for _ in range(100)]
        for each in acknowledged:
            await each.come()
            assert each.error is None
        assert sum(producing.requests) == 100

    run(kafka_server, case)


@pytest.mark.parametrize("settings", [{"linger_ms": 5}, {"compression_type": "gzip"}], ids=["linger", "compression"])
def test_work_unsuited_for_the_loop_stays_with_the_thread(
    kafka_server: KafkaServer, settings: dict[str, object]
) -> None:
    """Waiting for more records, and compression."""

    async def case(producing: Producing) -> None:
        for _ in range(5):
            sent = producing.send()
            await sent.come()
            assert sent.error is None
            assert not producing.producer._turns._is_lent

    run(kafka_server, case, **settings)


def test_producer_that_is_taken_back_sends_by_its_thread(kafka_server: KafkaServer) -> None:
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


def test_producer_with_a_closed_loop_sends_by_its_thread(kafka_server: KafkaServer) -> None:
    """And can be closed."""

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
def test_records_survive_a_broker_restart(kafka_server_of_its_own: KafkaServer) -> None:
    """Pending ones are sent when it is back, once each."""
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
def test_pending_records_fail_when_their_producer_is_closed(kafka_server_of_its_own: KafkaServer) -> None:
    """Without waiting for unavailable brokers."""
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
