"""Allocation assigns each queue to exactly one member, for any number of queues and members."""

from math import ceil, floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocket_client.allocation import (
    AllocateMessageQueueStrategy,
    ConsistentHash,
    MachineRoomNearby,
    averagely,
    averagely_by_circle,
)
from rocket_remoting.wire.message import MessageQueue


def _queues(counts: list[int]) -> list[MessageQueue]:
    brokers = enumerate(counts)
    return [MessageQueue("orders", f"broker-{broker}", queue) for broker, count in brokers for queue in range(count)]


queue_lists = st.lists(st.integers(1, 16), min_size=1, max_size=4).map(_queues)
member_lists = st.sets(st.text("abc0123@#", min_size=1, max_size=8), min_size=1, max_size=12).map(sorted)


nearby = MachineRoomNearby(averagely, lambda queue: queue.broker_name[-1], lambda client: client[0])


@pytest.mark.parametrize("strategy", [averagely, averagely_by_circle, ConsistentHash(), nearby])
@given(queues=queue_lists, members=member_lists)
def test_each_queue_has_exactly_one_owner(
    strategy: AllocateMessageQueueStrategy, queues: list[MessageQueue], members: list[str]
) -> None:
    """Each member computes the same assignment."""
    shares = [strategy("group", member, queues, members) for member in members]
    assert sorted(queue for share in shares for queue in share) == queues


@pytest.mark.parametrize("strategy", [averagely, averagely_by_circle])
@given(queues=queue_lists, members=member_lists)
def test_shares_differ_by_at_most_one_queue(
    strategy: AllocateMessageQueueStrategy, queues: list[MessageQueue], members: list[str]
) -> None:
    """Every member gets its share, rounded down or up."""
    part = len(queues) / len(members)
    assert {len(strategy("group", member, queues, members)) for member in members} <= {
        floor(part),
        ceil(part),
    }


@given(queues=queue_lists, members=member_lists)
def test_averagely_equals_javas_formula(queues: list[MessageQueue], members: list[str]) -> None:
    """AllocateMessageQueueAveragely, line by line."""
    for index, member in enumerate(members):
        rest = len(queues) % len(members)
        if len(queues) <= len(members):
            size = 1
        else:
            size = len(queues) // len(members) + (1 if rest > 0 and index < rest else 0)
        start = index * size if rest > 0 and index < rest else index * size + rest
        count = min(size, len(queues) - start)
        java = [queues[(start + step) % len(queues)] for step in range(count)]
        assert averagely("group", member, queues, members) == java
