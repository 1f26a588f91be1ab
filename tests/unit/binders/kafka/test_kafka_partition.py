"""The position of a partition: its smallest unsettled offset."""

from collections.abc import Sequence
from types import SimpleNamespace

from kafka import TopicPartition

from binders.kafka.partition import AssignedPartition
from streamkit.binder.calls import next_batch


def records(offsets: Sequence[int]) -> list[SimpleNamespace]:
    return [SimpleNamespace(offset=offset, key=None, value=None, headers=[]) for offset in offsets]


def handed(partition: AssignedPartition, *offsets: int) -> AssignedPartition:
    partition.begin(offsets[0])
    partition.handed += len(offsets)
    partition.take(records(offsets))
    return partition


def new() -> AssignedPartition:
    return AssignedPartition(TopicPartition("orders", 0))


def test_position_is_the_smallest_unsettled_offset() -> None:
    """In whatever order messages are settled; gaps between offsets do not matter."""
    partition = handed(new(), 5, 6, 9)
    positions = []
    for offset in (6, 5, 9):
        partition.settle(offset)
        positions.append(partition.position)
    assert positions == [5, 9, 10]
    assert partition.in_flight == 0


def test_start_position_is_committed() -> None:
    """Otherwise a new group might start later after a restart."""
    partition = new()
    assert not partition.is_due
    partition.begin(42)
    assert partition.is_due
    assert partition.position == 42
    partition.committed = 42
    assert not partition.is_due


def test_settling_twice_counts_once() -> None:
    """The second settlement changes nothing."""
    partition = handed(new(), 1, 2)
    partition.settle(1)
    partition.settle(1)
    assert (partition.in_flight, partition.position) == (1, 2)


def test_partition_restarts_when_the_group_is_moved_back() -> None:
    """Redelivered messages are unsettled, and earlier deliveries no longer count."""
    partition = handed(new(), 5, 6)
    partition.handed += 2
    partition.take(records((3, 4)))
    assert partition.position == 3
    assert [delivery.record.offset for delivery in partition.waiting] == [3, 4]
    assert partition.in_flight == 2
    partition.settle(5)
    assert partition.in_flight == 2
    partition.settle(3)
    partition.settle(4)
    assert (partition.position, partition.in_flight) == (5, 0)


def test_batch_has_only_new_or_only_redelivered_messages() -> None:
    """Up to its size."""
    partition = handed(new(), 1, 2, 3, 4)
    partition.waiting[0].redeliveries = 1
    assert [delivery.record.offset for delivery in next_batch(partition.waiting, 3)] == [1]
    partition.waiting.popleft()
    assert [delivery.record.offset for delivery in next_batch(partition.waiting, 2)] == [2, 3]


def test_lag_counts_unsettled_messages() -> None:
    """Up to the end of the partition."""
    partition = handed(new(), 5, 6)
    assert partition.lag(20) == 15
    partition.settle(5)
    assert partition.lag(20) == 14
