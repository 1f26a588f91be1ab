"""Concurrent transactions: they do not block each other, producers are limited, and all are closed in the end."""

import asyncio
import threading

import pytest
from kafka.errors import KafkaError, KafkaTimeoutError
from kafka.future import Future

from binders.kafka.sending import Sender
from binders.kafka.transactions import AT_ONCE, Transactions

PATIENCE = 60.0
# asyncio's own pool has no more than 32.
MORE_THAN_THREADS = 40


class Brokers:
    """The brokers of all producers, which answer from some time on.

    Attributes:
        producers: The producers there are.
        are_back: Whether they answer.
    """

    def __init__(self) -> None:
        self.producers: list[Producer] = []
        self.are_back = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._asked = asyncio.Semaphore(0)

    @property
    def transactions(self) -> Transactions:
        return Transactions(lambda number, threads: Sender(self._connect, 1.0, threads))

    def _connect(self) -> "Producer":
        self.producers.append(Producer(self))
        return self.producers[-1]

    def ask(self) -> None:
        self._loop.call_soon_threadsafe(self._asked.release)

    async def are_asked(self, times: int) -> None:
        """Wait until so many transactions are being ended."""
        async with asyncio.timeout(PATIENCE):
            for _ in range(times):
                await self._asked.acquire()


class Producer:
    """A producer like kafka-python's:

    ending a transaction blocks until the brokers answer or the producer is closed.
    """

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self.is_closed = False

    def knows(self, topic: str) -> bool:
        return True

    def partition_count(self, topic: str) -> int:
        return 4

    def begin_transaction(self) -> None:
        pass

    def send(self, topic: str, **record: object) -> Future:
        return Future().success("stored")

    def commit_transaction(self) -> None:
        self._brokers.ask()
        while not self._brokers.are_back.wait(0.01):
            if self.is_closed:
                raise KafkaTimeoutError("the producer was closed before the brokers answered")

    abort_transaction = commit_transaction

    def lend(self) -> None:
        pass

    take_back = lend

    def close(self, timeout: float) -> None:
        self.is_closed = True


@pytest.mark.slow
def test_cancelled_calls_end_while_many_wait_for_brokers() -> None:
    """A blocked thread is freed by closing its producer, which needs a thread itself."""

    async def commit(transactions: Transactions) -> None:
        async with transactions.open() as transaction:
            await transaction.commit()

    async def main() -> None:
        brokers = Brokers()
        transactions = brokers.transactions
        tasks = [asyncio.create_task(commit(transactions)) for _ in range(MORE_THAN_THREADS)]
        await brokers.are_asked(MORE_THAN_THREADS)
        for task in tasks:
            task.cancel()
        _, late = await asyncio.wait(tasks, timeout=PATIENCE)
        brokers.are_back.set()
        assert not late
        await transactions.close()
        assert all(producer.is_closed for producer in brokers.producers)

    asyncio.run(main())


def test_concurrent_messages_share_a_bounded_number_of_producers() -> None:
    """Each producer has connections and a thread, and is kept."""

    async def main() -> None:
        brokers = Brokers()
        transactions = brokers.transactions
        sending = [asyncio.create_task(transactions.send("orders", {"value": b"x"})) for _ in range(100)]
        await brokers.are_asked(AT_ONCE)
        brokers.are_back.set()
        await asyncio.gather(*sending)
        await transactions.close()
        assert len(brokers.producers) == AT_ONCE
        assert all(producer.is_closed for producer in brokers.producers)

    asyncio.run(main())


def test_pending_transactions_fail_at_close() -> None:
    """Their producers are closed too, and no new one is made."""

    async def main() -> None:
        brokers = Brokers()
        transactions = brokers.transactions
        sending = asyncio.create_task(transactions.send("orders", {"value": b"x"}))
        await brokers.are_asked(1)
        await transactions.close()
        with pytest.raises(KafkaTimeoutError, match="closed before the brokers answered"):
            await sending
        with pytest.raises(KafkaError, match="are closed"):
            await transactions.send("orders", {"value": b"x"})
        assert [producer.is_closed for producer in brokers.producers] == [True]

    asyncio.run(main())
