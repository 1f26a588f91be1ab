"""Finding messages by the time they were stored: what brokers before 5.0 answer to request 29."""

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
def test_the_nearest_message_is_found(disk: Disk, timestamp: int, offset: int) -> None:
    """Not the next but the nearest one counts, the earlier of two equally near, the last beyond the end."""
    store = disk.open()
    for disk.clock.now in (1000, 1100, 1200):
        store.put(message())
    assert store.offset_by_time("orders", 0, timestamp) == offset


def test_an_empty_queue_answers_zero(disk: Disk) -> None:
    """Without messages there is nothing near."""
    store = disk.open()
    assert store.offset_by_time("orders", 0, 1000) == 0


def test_messages_that_expired_are_not_found(disk: Disk) -> None:
    """The search begins with the first message that is left."""
    store = disk.open()
    for disk.clock.now in range(1000, 1300):
        store.put(message())
    delete_old(store)
    first = store.min_offset("orders", 0)
    assert store.offset_by_time("orders", 0, 1000) == first > 0


def test_the_time_of_a_message_is_known(disk: Disk) -> None:
    """Each message has the time it was stored at, what is not there has -1."""
    store = disk.open()
    for disk.clock.now in (1000, 1100):
        store.put(message())
    times = [store.store_time("orders", queue_id, offset) for queue_id, offset in ((0, 0), (0, 1), (0, 2), (1, 0))]
    assert times == [1000, 1100, -1, -1]
