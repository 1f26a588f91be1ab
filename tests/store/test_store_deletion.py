"""A topic that was deleted stays deleted: the commit log says so, wherever the machine dies and whatever is lost."""

from pathlib import Path
from random import Random

import pytest

from rocket_broker.store.deletion import deletion_message
from rocket_remoting.wire.topics import DELETIONS_TOPIC
from tests.store.disk import (
    Disk,
    FakeClock,
    bodies,
    delete_old,
    erase,
    message,
    overwrite,
    put,
    queue_file,
    stop,
)
from tests.store.faulty_file_system import Choices
from tests.store.test_store_crash_points import CrashPoints, Last, Script


@pytest.mark.parametrize("is_pooled", [False, True])
def test_a_power_failure_at_any_step_of_a_deletion_leaves_all_or_nothing(*, is_pooled: bool) -> None:
    """The topic has all its messages or none, other topics have theirs, and none comes back later."""
    files, clock = CrashPoints(), FakeClock()
    store = Disk(files, Path("/store"), clock).open(transient_store_pool_enable=is_pooled)
    given = [put(store, *range(n, n + 3), queue_id=n % 2) for n in (0, 1)]
    others = put(store, 10, 11, topic="others")
    store.flush()
    outcomes: set[bool] = set()

    def crash() -> None:
        ways: list[Choices] = [Script(), Last(), *map(Random, range(5))]
        for way in ways:
            disk = Disk(files.crash(way), Path("/store"), clock)
            found = disk.open()
            queues = [bodies(found, "orders", queue_id) for queue_id in (0, 1)]
            assert queues in (given, [[], []])
            outcomes.add(queues == given)
            assert bodies(found, "others") == others
            found.put(message(body=b"new"))
            stop(found)
            erase(disk, disk.root / "consumequeue")
            found = disk.open()
            queues[0].append(b"new")
            assert [bodies(found, "orders", queue_id) for queue_id in (0, 1)] == queues
            disk.close()

    files.at_point = crash
    store.delete_topic("orders")
    crash()
    assert outcomes == {True, False}


def test_a_topic_deleted_again_and_again_has_its_last_messages_only(disk: Disk) -> None:
    """Their numbers are the same each time; the log has them all."""
    store = disk.open()
    for generation in range(4):
        given = put(store, *range(10 * generation, 10 * generation + 5 - generation))
        if generation < 3:
            store.delete_topic("orders")
    for lost in ("consumequeue", "checkpoint"):
        stop(store)
        erase(disk, disk.root / lost)
        store = disk.open()
        assert (bodies(store), store.max_offset("orders", 0)) == (given, 2)


def test_a_deletion_goes_with_the_file_of_the_log_that_tells_it(disk: Disk) -> None:
    """Everything that it deleted is older, and has gone before."""
    store = disk.open()
    put(store, *range(10))
    store.delete_topic("orders")
    put(store, *range(400), topic="others")
    assert delete_old(store)
    assert store.min_offset(DELETIONS_TOPIC, 0) == store.max_offset(DELETIONS_TOPIC, 0) == 1
    given = put(store, 1, 2)
    stop(store)
    erase(disk, disk.root / "consumequeue")
    assert bodies(disk.open()) == given


@pytest.mark.parametrize("host", [("127.0.0.1", 10911), ("0.0.0.0", 10911)])
def test_what_a_client_sends_deletes_nothing(disk: Disk, host: tuple[str, int]) -> None:
    """Whatever its topic and body: a deletion comes from nobody."""
    store = disk.open()
    given = put(store, 1, 2)
    forged = deletion_message("orders")
    forged.store_host = host
    store.put(forged)
    stop(store)
    erase(disk, disk.root / "consumequeue")
    assert bodies(disk.open()) == given


def test_queues_brought_back_from_a_copy_made_before_the_deletion_lead_to_nothing_again(disk: Disk) -> None:
    """The message that follows shows that entries are missing, and the log that the others are deleted."""
    store = disk.open()
    put(store, 0, 1, 2)
    stop(store)
    copy = disk.bytes_of(queue_file(disk))
    store = disk.open()
    store.delete_topic("orders")
    given = put(store, 10, 11)
    stop(store)
    overwrite(disk, queue_file(disk), 0, copy)
    erase(disk, disk.root / "checkpoint")
    assert bodies(disk.open()) == given


def test_a_queue_keeps_its_count_over_a_start(disk: Disk) -> None:
    """What leads nowhere at its end hides no message before it, and takes no number for a new one."""
    store = disk.open()
    given = put(store, *range(48))
    disk.clock.now += 1000
    for queue_id, count in ((0, 50), (1, 7), (2, 51)):  # a file has fifty entries
        store.keep_count("orders", queue_id, count)
    for _ in range(2):
        assert [store.max_offset("orders", queue_id) for queue_id in range(3)] == [50, 7, 51]
        assert [store.min_offset("orders", queue_id) for queue_id in range(3)] == [0, 7, 51]
        assert bodies(store) == given
        assert store.offset_by_time("orders", 0, disk.clock.now) == 47
        stop(store)
        store = disk.open()
    assert store.put(message(body=b"next")).queue_offset == 50
    found = [store.get("orders", 0, offset, 9, 2**30) for offset in (47, 48, 50)]
    assert [len(result.records) for result in found] == [1, 0, 1]
    assert found[1].next_begin_offset == 50
    assert store.offset_by_time("orders", 0, disk.clock.now + 1) == 50
