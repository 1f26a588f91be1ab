"""Polled sources with concurrent and cancelled polls; on a real Kafka: `test_kafka_binder`."""

import asyncio
from types import SimpleNamespace

import pytest
from kafka import TopicPartition

from binders.kafka.consumer import Membership
from binders.kafka.dead_letter import DeadLetters
from binders.kafka.fetching import ConsumerClient, Subscription
from binders.kafka.headers import Record
from binders.kafka.partition import AssignedPartition
from binders.kafka.polled import KafkaPolledSource
from binders.kafka.unreadable import Unreadable
from streamkit.binder.binder import BindingState, ConsumerDestination
from streamkit.binder.delivery import Delivery, ExtendedConsumerProperties
from streamkit.binder.permits import Permits
from streamkit.config.settings import ConsumerProperties
from streamkit.settlement import ACCEPT, Reject
from streamkit.testing.virtual_time import VirtualTime

KEY = TopicPartition("orders", 0)


class SlowLetters(DeadLetters):
    """A dead letter topic that takes an hour per message."""

    def __init__(self) -> None:
        self.begun = 0

    async def keep(self, record: Record, rejected: Reject) -> None:
        self.begun += 1
        await asyncio.sleep(3600)


class FailingLetters(DeadLetters):
    """A dead letter topic that fails."""

    async def keep(self, record: Record, rejected: Reject) -> None:
        raise RuntimeError("odd")


def source_of(letters: DeadLetters) -> KafkaPolledSource:
    """Return a running source without a thread, whose polls wait for a second."""
    destination = ConsumerDestination(
        "orders", "kitchen", "in", ConsumerProperties(), ExtendedConsumerProperties(), Delivery(), Permits(1)
    )
    membership = Membership(destination, "kitchen", ConsumerClient({}), Subscription("orders"), letters)
    source = KafkaPolledSource(membership, 1.0)
    source._state = BindingState.RUNNING
    return source


def running(letters: DeadLetters, value: bytes) -> tuple[KafkaPolledSource, AssignedPartition]:
    """Return a source with one message waiting in its partition, and the partition."""
    source, partition = source_of(letters), AssignedPartition(KEY)
    partition.begin(0)
    record = SimpleNamespace(
        topic=KEY.topic,
        partition=KEY.partition,
        offset=0,
        timestamp=-1,
        timestamp_type=0,
        key=None,
        value=value,
        headers=[],
    )
    source._take([(partition, [record])])
    return source, partition


def test_rejection_of_a_cancelled_poll_is_completed_by_the_next_poll() -> None:
    """Without waiting for further messages, although other polls found none meanwhile."""

    async def main() -> None:
        letters = SlowLetters()
        source, partition = running(letters, Unreadable.of(b"??", ValueError("no records")))
        first = asyncio.create_task(source.poll())
        await asyncio.sleep(1)
        assert await source.poll() is None
        first.cancel()
        await asyncio.wait([first])
        second = asyncio.create_task(source.poll())
        await asyncio.sleep(3600)
        assert await second is None
        assert letters.begun == 2
        assert partition.position == 1

    with VirtualTime() as time:
        time.run(main())


def test_message_whose_settlement_failed_is_polled_again() -> None:
    """The caller gets the error, and the offset does not block the partition."""

    async def main() -> None:
        source, partition = running(FailingLetters(), b"soup")
        polled = await source.poll()
        assert polled is not None
        with pytest.raises(RuntimeError, match="odd"):
            await polled.settle(Reject("not for us"))
        again = await source.poll()
        assert again is not None
        await again.settle(ACCEPT)
        assert (partition.position, partition.calls) == (1, 0)

    with VirtualTime() as time:
        time.run(main())
