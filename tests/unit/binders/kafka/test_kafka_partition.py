"""How far a partition is settled: the smallest offset that is not."""

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


def test_the_position_is_the_smallest_offset_that_is_not_settled() -> None:
    """In whatever order messages are settled; gaps between offsets count for nothing."""
    partition = handed(new(), 5, 6, 9)
    positions = []
    for offset in (6, 5, 9):
        partition.settle(offset)
        positions.append(partition.position)
    assert positions == [5, 9, 10]
    assert partition.in_flight == 0


def test_where_it_begins_is_to_be_committed() -> None:
    """A group that begins now must not begin later at its next start."""
    partition = new()
    assert not partition.is_due
    partition.begin(42)
    assert partition.is_due
    assert partition.position == 42
    partition.committed = 42
    assert not partition.is_due


def test_settling_twice_counts_once() -> None:
    """A late settlement of something that is settled already changes nothing."""
    partition = handed(new(), 1, 2)
    partition.settle(1)
    partition.settle(1)
    assert (partition.in_flight, partition.position) == (1, 2)


def test_a_group_that_is_moved_back_begins_anew() -> None:
    """What was handed over before counts no more; what comes again is open, and committed only when it is settled."""
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


def test_a_batch_is_all_new_or_all_redelivered() -> None:
    """Up to its size."""
    partition = handed(new(), 1, 2, 3, 4)
    partition.waiting[0].redeliveries = 1
    assert [delivery.record.offset for delivery in next_batch(partition.waiting, 3)] == [1]
    partition.waiting.popleft()
    assert [delivery.record.offset for delivery in next_batch(partition.waiting, 2)] == [2, 3]


def test_the_lag_is_what_is_not_settled_yet() -> None:
    """Up to where the partition ends."""
    partition = handed(new(), 5, 6)
    assert partition.lag(20) == 15
    partition.settle(5)
    assert partition.lag(20) == 14
