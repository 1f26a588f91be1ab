"""Listener transactions: failures are retried, and offsets of partitions that were reassigned are refused."""

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace

import pytest
from kafka import OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaTimeoutError
from kafka.future import Future

from binders.kafka.fetching import ConsumerClient, FetchThread, Subscription
from binders.kafka.partition import AssignedPartition, Delivery
from binders.kafka.sending import Sender
from binders.kafka.transactions import Transactions
from streamkit.settlement import ACCEPT, Requeue, Settlement


@pytest.mark.parametrize("error", [KafkaTimeoutError("away"), RuntimeError("odd")])
def test_message_whose_transaction_cannot_begin_is_retried(error: Exception) -> None:
    """After any error, since its partition must continue."""

    def connect() -> object:
        raise error

    async def call_receiver(deliveries: Sequence[Delivery]) -> Sequence[Settlement]:
        return [ACCEPT for _ in deliveries]

    async def main() -> Sequence[Settlement]:
        transactions = Transactions(lambda number, threads: Sender(connect, 1.0, threads))
        delivery = Delivery(AssignedPartition(TopicPartition("orders", 0)), None)
        settled = await transactions.around(call_receiver, "in", lambda: None)([delivery])
        await transactions.close()
        return settled

    assert asyncio.run(main()) == [Requeue("its transaction failed", cause=error)]


class Producer:
    """A producer that records committed offsets with their group membership."""

    def __init__(self) -> None:
        self.committed: list[tuple[dict[TopicPartition, int], object]] = []

    def begin_transaction(self) -> None:
        pass

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], membership: object
    ) -> None:
        self.committed.append(({key: each.offset for key, each in offsets.items()}, membership))

    def commit_transaction(self) -> None:
        pass

    def lend(self) -> None:
        pass

    take_back = lend

    def close(self, timeout: float) -> None:
        pass


def handled_in_transaction() -> tuple[AssignedPartition, Producer]:
    """Return the partition and the producer after one message whose call outlasted a rebalance."""
    partition, producer = AssignedPartition(TopicPartition("orders", 0)), Producer()
    generation = 5

    async def call_receiver(deliveries: Sequence[Delivery]) -> Sequence[Settlement]:
        nonlocal generation
        generation = 6
        return [ACCEPT for _ in deliveries]

    async def main() -> None:
        transactions = Transactions(lambda number, threads: Sender(lambda: producer, 1.0, threads))
        partition.begin(7)
        partition.take([SimpleNamespace(offset=7, key=None, value=None, headers=[])])
        settled = await transactions.around(call_receiver, "in", lambda: generation)([partition.waiting.popleft()])
        assert settled == [ACCEPT]
        partition.settle(7)
        await transactions.close()

    asyncio.run(main())
    return partition, producer


def test_offset_is_committed_with_the_membership_at_the_calls_start() -> None:
    """With a later membership brokers would accept it although another member owns the partition."""
    partition, producer = handled_in_transaction()
    assert producer.committed == [({partition.key: 8}, 5)]


def test_offset_committed_by_a_transaction_is_not_committed_again() -> None:
    """A late second commit would undo the next transaction's."""
    partition, _ = handled_in_transaction()
    assert partition.position == 8
    assert not partition.is_due


ORDERS = TopicPartition("orders", 0)


class Consumer:
    """A consumer with one partition and two messages, which records commits."""

    def __init__(self) -> None:
        self.committed: list[int] = []
        self._found = {
            ORDERS: [
                SimpleNamespace(offset=5, key=None, value=None, headers=[]),
                SimpleNamespace(offset=6, key=None, value=None, headers=[]),
            ]
        }

    def poll(self, *, timeout_ms: int) -> dict[TopicPartition, list[SimpleNamespace]]:
        found, self._found = self._found, {}
        return found

    def assignment(self) -> set[TopicPartition]:
        return {ORDERS}

    def paused(self) -> set[TopicPartition]:
        return set()

    def begins_at(self, key: TopicPartition) -> int:
        return 7

    def commit_async(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Future:
        self.committed.append(offsets[ORDERS].offset)
        return Future().success(None)


@pytest.mark.parametrize(("is_transactional", "meanwhile"), [(True, [5]), (False, [5, 6])])
def test_plain_commit_waits_for_the_running_transaction(is_transactional: bool, meanwhile: list[int]) -> None:
    """For brokers the last commit counts, so an earlier one must not follow the transaction's."""

    async def main() -> None:
        taken: list[AssignedPartition] = []
        subscription = Subscription("orders", is_transactional=is_transactional)

        def take(batches: Sequence[tuple[AssignedPartition, Sequence[SimpleNamespace]]]) -> None:
            for partition, records in batches:
                partition.take(records)
                taken.append(partition)

        thread = FetchThread(
            "in",
            ConsumerClient({}),
            subscription,
            take,
            lambda partition: None,
            recall=lambda partition: None,
        )
        consumer = Consumer()
        thread.assigned(consumer, {ORDERS})
        thread.turn(consumer)
        await asyncio.sleep(0)
        (partition,) = taken
        partition.settle(5)
        partition.calls += 1
        thread.turn(consumer)
        assert consumer.committed == meanwhile
        partition.calls -= 1
        thread.turn(consumer)
        assert consumer.committed == [5, 6]

    asyncio.run(main())
