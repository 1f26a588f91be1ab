"""Searching messages by store time, as brokers before 5.0 answer request 29."""

import pytest

from tests.store.disk import Disk, delete_old, message


@pytest.mark.parametrize(
    ("timestamp", "offset"),
    [
        (0, 0),
        (999, 0),
        (1000, 0),
        (1040, 0),
        (1050, 0),
        (1051, 1),
        (1100, 1),
        (1149, 1),
        (1150, 1),
        (1151, 2),
        (1200, 2),
        (1201, 2),
        (10**15, 2),
    ],
)
def test_nearest_message_is_found(disk: Disk, timestamp: int, offset: int) -> None:
    """Not the next one; the earlier of two equally near, and the last one for later times."""
    store = disk.open()
    for disk.clock.now in (1000, 1100, 1200):
        store.put(message())
    assert store.offset_by_time("orders", 0, timestamp) == offset


def test_empty_queue_returns_zero(disk: Disk) -> None:
    """Without messages there is nothing near."""
    store = disk.open()
    assert store.offset_by_time("orders", 0, 1000) == 0


def test_expired_messages_are_not_found(disk: Disk) -> None:
    """The search begins with the first remaining message."""
    store = disk.open()
    for disk.clock.now in range(1000, 1300):
        store.put(message())
    delete_old(store)
    first = store.min_offset("orders", 0)
    assert store.offset_by_time("orders", 0, 1000) == first > 0


def test_store_time_of_a_message(disk: Disk) -> None:
    """-1 for a missing one."""
    store = disk.open()
    for disk.clock.now in (1000, 1100):
        store.put(message())
    times = [store.store_time("orders", queue_id, offset) for queue_id, offset in ((0, 0), (0, 1), (0, 2), (1, 0))]
    assert times == [1000, 1100, -1, -1]
