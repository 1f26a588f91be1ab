"""A deleted topic stays deleted after a crash, since the commit log records the deletion."""

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
def test_power_failure_during_a_deletion_leaves_all_or_nothing(*, is_pooled: bool) -> None:
    """The topic has all messages or none, other topics have theirs, and none returns later."""
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


def test_topic_deleted_repeatedly_has_only_its_last_messages(disk: Disk) -> None:
    """Each generation has the same offsets, and the log has them all."""
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


def test_deletion_record_expires_with_its_log_file(disk: Disk) -> None:
    """All messages that it deletes are older and have expired before."""
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
def test_client_message_deletes_nothing(disk: Disk, host: tuple[str, int]) -> None:
    """Whatever its topic and body: only the broker writes deletion records."""
    store = disk.open()
    given = put(store, 1, 2)
    forged = deletion_message("orders")
    forged.store_host = host
    store.put(forged)
    stop(store)
    erase(disk, disk.root / "consumequeue")
    assert bodies(disk.open()) == given


def test_restored_older_queue_files_do_not_undelete(disk: Disk) -> None:
    """The next message reveals missing entries, which are rebuilt as deleted."""
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


def test_queue_keeps_its_next_offset_over_a_start(disk: Disk) -> None:
    """Trailing entries that lead nowhere neither hide earlier messages nor consume offsets."""
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
