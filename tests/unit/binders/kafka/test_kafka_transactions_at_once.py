"""Many transactions at once: none waits for another's brokers, producers are bounded, and in the end all are closed."""

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
    """Those of all producers: they answer once they are back.

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
        """Return once so many ends of transactions wait for them."""
        async with asyncio.timeout(PATIENCE):
            for _ in range(times):
                await self._asked.acquire()


class Producer:
    """As kafka-python's: whoever ends a transaction waits for the brokers, or until the producer is closed."""

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
def test_calls_that_are_given_up_end_however_many_wait_for_brokers() -> None:
    """A thread that waits is freed by closing its producer, which needs a thread itself."""

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


def test_messages_that_are_sent_at_once_share_producers() -> None:
    """However many there are: each producer is connections and a thread, and stays."""

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


def test_what_is_on_its_way_when_they_are_closed_fails_and_leaves_nothing() -> None:
    """Its producer is closed too, and nobody gets another one."""

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
