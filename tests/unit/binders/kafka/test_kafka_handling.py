"""Partition drivers continue after any error of a call or its settlement."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from types import SimpleNamespace

import pytest
from kafka import TopicPartition

from binders.kafka.dead_letter import DeadLetters
from binders.kafka.handling import PartitionSettler
from binders.kafka.headers import Record
from binders.kafka.partition import AssignedPartition, Delivery
from streamkit.binder.binder import ConsumerDestination
from streamkit.binder.delivery import Delivery as DeliveryTerms
from streamkit.binder.delivery import ExtendedConsumerProperties
from streamkit.binder.drivers import ConcurrentDriver, Driver, OrderedDriver
from streamkit.binder.permits import Permits
from streamkit.config.settings import ConsumerProperties
from streamkit.settlement import ACCEPT, Reject, Requeue, Settlement
from streamkit.testing.virtual_time import VirtualTime

PartitionDriver = Driver[AssignedPartition, Delivery]
KEY = TopicPartition("orders", 0)
COUNT = 4
REJECTED = Reject("not for us")


class FailingLetters(DeadLetters):
    """A dead letter topic that fails."""

    async def keep(self, record: Record, rejected: Reject) -> None:
        raise RuntimeError("odd")


class Receiver:
    """A receiver that answers its first call as given and accepts everything later.

    Attributes:
        calls: The offsets of each call.
    """

    def __init__(self, first: Sequence[Settlement] | Exception) -> None:
        self.calls: list[list[int]] = []
        self._first = first

    async def call_receiver(self, deliveries: Sequence[Delivery]) -> Sequence[Settlement]:
        self.calls.append([delivery.record.offset for delivery in deliveries])
        if len(self.calls) > 1:
            return [ACCEPT] * len(deliveries)
        if isinstance(self._first, Exception):
            raise self._first
        return self._first


def partition_after(kind: type[PartitionDriver], receiver: Receiver, letters: FailingLetters) -> AssignedPartition:
    """Run a partition with messages until it is idle; return it."""
    partition = AssignedPartition(KEY)

    async def main() -> None:
        destination = ConsumerDestination(
            "orders",
            "kitchen",
            "in",
            ConsumerProperties(),
            ExtendedConsumerProperties(),
            DeliveryTerms(),
            Permits(1),
        )
        settler = PartitionSettler(letters, lambda settled: None)
        driver = kind(destination, settler, receiver.call_receiver, size=2)
        partition.begin(0)
        partition.take(
            [
                SimpleNamespace(topic="orders", partition=0, offset=n, key=None, value=None, headers=[])
                for n in range(COUNT)
            ]
        )
        driver.wake(partition)
        await asyncio.sleep(3600)
        driver.interrupt()
        await driver.finish(1)

    with VirtualTime() as time:
        time.run(main())
    return partition


class KeptLetters(DeadLetters):
    """Keeps the offsets of rejected messages."""

    def __init__(self) -> None:
        self.offsets: list[int] = []

    async def keep(self, record: Record, rejected: Reject) -> None:
        self.offsets.append(record.offset)


def delivery_of(offset: int) -> Delivery:
    """Return a message at an offset of a partition that has only this message."""
    partition = AssignedPartition(KEY)
    partition.begin(offset)
    partition.take([SimpleNamespace(topic="orders", partition=0, offset=offset, key=None, value=None, headers=[])])
    return partition.waiting.popleft()


@pytest.mark.parametrize(("lost", "letters"), [(False, [7]), (True, [])])
def test_a_message_of_another_member_gets_no_dead_letter_here(lost: bool, letters: list[int]) -> None:
    """Its new member handles the message and decides about it: two letters would be one too many."""
    kept, delivery = KeptLetters(), delivery_of(7)
    if lost:
        delivery.partition.lose()
    asyncio.run(PartitionSettler(kept, lambda settled: None).reject(delivery, REJECTED))
    assert kept.offsets == letters


@pytest.mark.parametrize(("closes", "woken"), [(False, 1), (True, 0)])
def test_nothing_is_delivered_again_after_the_close(closes: bool, woken: int) -> None:
    """A call that ends during the stop may still requeue its message: the message stays unsettled."""

    async def main() -> None:
        delivery, wakes = delivery_of(7), list[AssignedPartition]()
        settler = PartitionSettler(KeptLetters(), lambda settled: None)
        if closes:
            settler.close()
        settler.redeliver(delivery, 10.0, wakes.append)
        await asyncio.sleep(20)
        assert (len(wakes), len(delivery.partition.waiting)) == (woken, woken)
        assert delivery.partition.position == 7

    with VirtualTime() as time:
        time.run(main())


@pytest.mark.parametrize("kind", [OrderedDriver, ConcurrentDriver])
@pytest.mark.parametrize(
    ("first", "again"),
    [
        (RuntimeError("odd"), [0, 1]),
        ([ACCEPT], [0, 1]),
        ([Requeue(after=timedelta(seconds=1)), REJECTED], [0, 1]),
        ([REJECTED, Requeue(after=timedelta(seconds=1))], [0, 1]),
    ],
    ids=["the call", "too few settlements", "the last letter", "the first letter"],
)
def test_partition_continues_after_any_error(
    kind: type[PartitionDriver],
    first: Sequence[Settlement] | Exception,
    again: list[int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The error is logged and the messages are delivered again, in ordered mode before the next ones."""
    receiver = Receiver(first)
    partition = partition_after(kind, receiver, FailingLetters())
    assert partition.position == COUNT
    assert any(record.levelname == "ERROR" and "again" in record.message for record in caplog.records)
    if kind is OrderedDriver:
        assert receiver.calls[1] == again


def test_what_comes_again_during_a_call_is_not_taken_for_its_message() -> None:
    """The group's offset is moved back while a call is under way: the records that come again are all handled."""
    partition = AssignedPartition(KEY)
    handled: list[int] = []

    def records(*offsets: int) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(topic="orders", partition=0, offset=n, key=None, value=None, headers=[]) for n in offsets
        ]

    async def receive(deliveries: Sequence[Delivery]) -> Sequence[Settlement]:
        offsets = [delivery.record.offset for delivery in deliveries]
        handled.extend(offsets)
        if handled == [5]:
            partition.take(records(3, 4))
        return [ACCEPT] * len(deliveries)

    async def main() -> None:
        destination = ConsumerDestination(
            "orders",
            "kitchen",
            "in",
            ConsumerProperties(),
            ExtendedConsumerProperties(),
            DeliveryTerms(),
            Permits(1),
        )
        driver = OrderedDriver(destination, PartitionSettler(FailingLetters(), lambda settled: None), receive)
        partition.begin(5)
        partition.take(records(5))
        driver.wake(partition)
        await asyncio.sleep(1)
        driver.interrupt()
        await driver.finish(1)

    with VirtualTime() as time:
        time.run(main())
    assert handled == [5, 3, 4]
