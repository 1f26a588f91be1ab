"""Allocation strategies, checked with the results of Apache's client."""

import sys
from collections.abc import Sequence
from hashlib import md5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocket_client.allocation import (
    ByConfig,
    ConsistentHash,
    MachineRoom,
    MachineRoomNearby,
    averagely,
    averagely_by_circle,
)
from rocket_remoting.wire.message import MessageQueue

# What AllocateMessageQueueConsistentHash of 4.9.7 answers for eight queues and three members.
JAVA_RING = [[], [0, 1, 7], [2, 3, 4, 5, 6]]


def queues(count: int, topic: str = "orders") -> list[MessageQueue]:
    return [MessageQueue(topic, "broker-a", number) for number in range(count)]


def ring_hash(text: str) -> int:
    return int.from_bytes(md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


def ids(share: Sequence[MessageQueue]) -> list[int]:
    return [queue.queue_id for queue in share]


@pytest.mark.parametrize(
    ("queue_count", "members", "shares"),
    [
        (8, 1, [[0, 1, 2, 3, 4, 5, 6, 7]]),
        (8, 2, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (8, 3, [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (4, 3, [[0, 1], [2], [3]]),
        (4, 4, [[0], [1], [2], [3]]),
        (2, 3, [[0], [1], []]),
        (1, 2, [[0], []]),
    ],
)
def test_averagely_assigns_contiguous_ranges(queue_count: int, members: int, shares: list[list[int]]) -> None:
    """As AllocateMessageQueueAveragely: the first members get one queue more."""
    names = [f"client-{number}" for number in range(members)]
    assert [ids(averagely("g", name, queues(queue_count), names)) for name in names] == shares


def test_averagely_by_circle_assigns_in_turn() -> None:
    """As AllocateMessageQueueAveragelyByCircle does."""
    names = ["a", "b", "c"]
    shares = [ids(averagely_by_circle("g", name, queues(8), names)) for name in names]
    assert shares == [[0, 3, 6], [1, 4, 7], [2, 5]]


def test_by_config_assigns_the_configured_queues() -> None:
    """Members do not matter; queues that do not exist are left out."""
    strategy = ByConfig([*queues(2), MessageQueue("orders", "broker-b", 9)])
    assert ids(strategy("g", "anyone", queues(4), ["anyone", "other"])) == [0, 1]


def test_by_config_assigns_other_topics_averagely() -> None:
    """The retry topic's queues are in no configuration but must be consumed."""
    strategy = ByConfig(queues(2))
    retries = queues(2, "%RETRY%g")
    assert ids(strategy("g", "b", retries, ["a", "b"])) == [1]


def test_by_machine_room_assigns_the_queues_of_its_rooms() -> None:
    """As AllocateMessageQueueByMachineRoom: the remainder goes one by one to the first members."""
    everything = [MessageQueue("orders", f"{room}@broker", number) for room in "xyz" for number in range(4)]
    shares = [MachineRoom({"x", "y"})("g", name, everything, ["a", "b", "c"]) for name in "abc"]
    names = [[f"{queue.broker_name[0]}{queue.queue_id}" for queue in share] for share in shares]
    assert names == [["x0", "x1", "y2"], ["x2", "x3", "y3"], ["y0", "y1"]]
    assert MachineRoom({"x"})("g", "a", queues(4), ["a"]) == []
    assert MachineRoom({"x"})("g", "a", [MessageQueue("orders", "x@y@broker", 0)], ["a"]) == []


def test_machine_room_nearby_prefers_members_of_the_queues_room() -> None:
    """As AllocateMachineRoomNearby: queues of rooms without members go to all."""
    everything = [MessageQueue("orders", f"{room}@broker", number) for room in "xyz" for number in range(4)]
    nearby = MachineRoomNearby(averagely, lambda queue: queue.broker_name[0], lambda client: client[0])
    members = ["x1", "x2", "y1"]
    shares = {name: nearby("g", name, everything, members) for name in members}
    assert {name: [f"{q.broker_name[0]}{q.queue_id}" for q in share] for name, share in shares.items()} == {
        "x1": ["x0", "x1", "z0", "z1"],
        "x2": ["x2", "x3", "z2"],
        "y1": ["y0", "y1", "y2", "y3", "z3"],
    }


def test_consistent_hash_equals_javas() -> None:
    """Client nodes and queues are hashed by the first four bytes of MD5 of Java's texts."""
    names = ["10.0.0.1@1", "10.0.0.2@2", "10.0.0.3@3"]
    strategy = ConsistentHash()
    assert [ids(strategy("g", name, queues(8), names)) for name in names] == JAVA_RING


def test_consistent_hash_moves_only_queues_of_the_departed_member() -> None:
    """The remaining members keep theirs."""
    strategy, names = ConsistentHash(), [f"client-{number}" for number in range(5)]
    before = {name: set(strategy("g", name, queues(64), names)) for name in names}
    after = {name: set(strategy("g", name, queues(64), names[:-1])) for name in names[:-1]}
    assert all(before[name] <= after[name] for name in names[:-1])


@given(
    st.sets(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=12),
    st.integers(1, 12),
    st.lists(st.integers(0, 2**31 - 1), max_size=60),
)
def test_consistent_hash_gives_each_queue_to_the_next_point(members: set[str], nodes: int, numbers: list[int]) -> None:
    """Of the queues, and of the members' points, all are looked at here, one by one."""
    names, everything = sorted(members), [MessageQueue("orders", "broker-a", number) for number in numbers]
    ring = {ring_hash(f"{name}-{number}"): name for name in names for number in range(nodes)}
    owners = {
        queue: ring[min((point for point in ring if point >= place), default=min(ring))]
        for queue in everything
        for place in [ring_hash(f"MessageQueue [topic=orders, brokerName=broker-a, queueId={queue.queue_id}]")]
    }
    for name in names:
        mine = [queue for queue in everything if owners[queue] == name]
        assert ConsistentHash(nodes)("g", name, everything, names) == mine


def test_hashes_of_many_queues_and_members_are_computed_in_steps() -> None:
    """The division itself then computes none, so the event loop is not kept for long."""
    names = [f"of-steps-{number:03}" for number in range(300)]
    everything = queues(2_500, "of-steps")
    strategy = ConsistentHash()
    calls: list[int] = [0]

    def count(frame: object, event: str, function: object) -> None:
        calls[-1] += event == "c_call" and getattr(function, "__name__", "") == "openssl_md5"

    sys.setprofile(count)
    try:
        for _ in strategy.prepare(names[0], everything, names):
            calls.append(0)
        calls.append(0)
        share = strategy("g", names[0], everything, names)
    finally:
        sys.setprofile(None)
    assert (sum(calls), max(calls), calls[-1]) == (5_500, 1_000, 0)
    assert share
    assert list(strategy.prepare(names[0], everything[:8], names[:3])) == []


def test_consistent_hash_needs_virtual_nodes() -> None:
    """Without any, no queue has an owner."""
    with pytest.raises(ValueError, match="virtual node"):
        ConsistentHash(0)
