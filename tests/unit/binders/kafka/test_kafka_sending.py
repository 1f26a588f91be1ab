"""The awaitable producer: its thread reports answers, and wakes the loop once for many."""

import asyncio
import gc
import threading

import pytest
from kafka.errors import IllegalStateError, KafkaTimeoutError
from kafka.future import Future

from binders.kafka.sending import Sender


class Producer:
    """A producer that knows a topic from the second request on, and answers on demand."""

    def __init__(self) -> None:
        self.sent: list[Future] = []
        self.known: set[str] = set()
        self.closed: float | None = None

    def knows(self, topic: str) -> bool:
        return topic in self.known

    def partition_count(self, topic: str) -> int:
        return 4

    def partitions_for(self, topic: str) -> set[int]:
        assert threading.current_thread() is not threading.main_thread()
        self.known.add(topic)
        return {0}

    def send(self, topic: str, **record: object) -> Future:
        self.sent.append(Future())
        return self.sent[-1]

    def lend(self) -> None:
        pass

    take_back = lend

    def close(self, timeout: float) -> None:
        self.closed = timeout


class CountingLoop(asyncio.SelectorEventLoop):
    """A loop that counts how often another thread wakes it."""

    woken = 0

    def call_soon_threadsafe(self, *arguments: object, **named: object) -> asyncio.Handle:
        if threading.current_thread().name == "kafka":
            self.woken += 1
        return super().call_soon_threadsafe(*arguments, **named)  # type: ignore[arg-type]


def answering(producer: Producer, answer: object) -> threading.Thread:
    def tell() -> None:
        for future in producer.sent:
            if isinstance(answer, Exception):
                future.failure(answer)
            else:
                future.success(answer)

    thread = threading.Thread(target=tell, name="kafka")
    thread.start()
    return thread


def test_batch_of_answers_wakes_the_loop_once() -> None:
    """Acknowledgements queue while the loop is busy."""
    producer = Producer()
    loop = CountingLoop()

    async def main() -> list[object]:
        sender = Sender(lambda: producer, 1.0)
        ready = await sender.ready("orders")
        answers = [sender.begin(ready, "orders", value=b"x") for _ in range(100)]
        answering(producer, "stored").join()
        return await asyncio.gather(*answers)

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        assert runner.run(main()) == ["stored"] * 100
    assert loop.woken == 1


def test_send_failure_is_raised_to_the_sender() -> None:
    """A failure without a waiter is ignored."""

    async def main() -> None:
        producer = Producer()
        sender = Sender(lambda: producer, 1.0)
        ready = await sender.ready("orders")
        failing, forgotten = (sender.begin(ready, "orders", value=b"x") for _ in range(2))
        forgotten.cancel()
        answering(producer, KafkaTimeoutError("away")).join()
        with pytest.raises(KafkaTimeoutError, match="away"):
            await failing

    asyncio.run(main())


def test_producer_connects_once_on_first_use() -> None:
    """Several early sends share it; closing an unused one does nothing."""

    async def main() -> None:
        made: list[Producer] = []

        def connect() -> Producer:
            made.append(Producer())
            return made[-1]

        idle = Sender(connect, 1.0)
        await idle.close()
        assert made == []
        sender = Sender(connect, 2.0)
        await asyncio.gather(*(sender.ready("orders") for _ in range(5)))
        await sender.close()
        await sender.close()
        assert [producer.closed for producer in made] == [2.0]

    asyncio.run(main())


def test_connection_completed_after_a_cancelled_start_is_closed() -> None:
    """A thread cannot be cancelled, so close waits for it."""

    async def main() -> None:
        going_on = threading.Event()
        producer = Producer()

        def connect() -> Producer:
            assert going_on.wait(60)
            return producer

        sender = Sender(connect, 1.0)
        starting = asyncio.create_task(sender.ready("orders"))
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])
        assert starting.cancelled()
        closing = asyncio.create_task(sender.close())
        await asyncio.sleep(0)
        going_on.set()
        await closing
        assert producer.closed == 1.0

    asyncio.run(main())


def test_failure_after_a_cancelled_start_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing waits for it any more."""

    async def main() -> None:
        going_on = threading.Event()

        def connect() -> Producer:
            assert going_on.wait(60)
            raise KafkaTimeoutError("away")

        sender = Sender(connect, 1.0)
        starting = asyncio.create_task(sender.start())
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])
        going_on.set()
        await sender.close()

    asyncio.run(main())
    gc.collect()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


def test_failed_connection_is_retried_by_the_next_send() -> None:
    """All who wait for the same attempt get the same error."""

    async def main() -> None:
        producer = Producer()
        found: list[Producer | Exception] = [KafkaTimeoutError("away"), producer]

        def connect() -> Producer:
            each = found.pop(0)
            if isinstance(each, Exception):
                raise each
            return each

        sender = Sender(connect, 1.0)
        failed = await asyncio.gather(sender.start(), sender.start(), return_exceptions=True)
        assert [type(each) for each in failed] == [KafkaTimeoutError] * 2
        assert await sender.start() is producer
        await sender.close()
        with pytest.raises(IllegalStateError, match="closed"):
            await sender.start()

    asyncio.run(main())
