"""A slave's store, into which slices of a master's log are copied."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from rocket_broker.settings.delay_levels import SCHEDULE_TOPIC
from rocket_broker.store.errors import LogMismatch
from rocket_broker.store.files import OsFileSystem
from rocket_broker.store.message_store import MessageStore
from rocket_broker.store.messages import PutStatus
from rocket_remoting.steps import run_all
from rocket_remoting.wire.sys_flag import TRANSACTION_PREPARED
from tests.store.disk import LOG_FILE_SIZE, Disk, FakeClock, bodies, delete_old, log_file, message, put, stop


@pytest.fixture
def master(tmp_path: Path) -> Iterator[MessageStore]:
    """The master's store."""
    disk = Disk(OsFileSystem(), tmp_path / "master", FakeClock())
    yield disk.open()
    disk.close()


def copy(master: MessageStore, slave: MessageStore, *, most: int = 1000, stop_at: int = 2**62) -> None:
    """Copy the master's log as a connection does, in slices of at most so many bytes, up to an offset."""
    assert slave.replica is not None
    offset = slave.replica.begin() or master.min_commit_log_offset
    while (data := master.log_slice(offset, min(most, max(stop_at - offset, 0)))) is not None and len(data):
        slave.replica.write(offset, data)
        run_all(slave.replica.dispatch())
        offset += len(data)


def contents(store: MessageStore) -> dict[tuple[str, int], list[bytes]]:
    """Return the bodies in all queues."""
    return {(topic, id_): bodies(store, topic, id_) for topic, ids in store.topics_with_queues().items() for id_ in ids}


def fill(store: MessageStore, count: int = 30) -> None:
    """Store messages of all kinds, in several files of the log."""
    for number in range(count):
        put(store, number, queue_id=number % 3)
        store.put(message("large", body=bytes(900)))
        store.put(message(SCHEDULE_TOPIC, 2, properties={"DELAY": "3"}, tags_code=store._clock.now_ms() + 10_000))
        store.put(message("halves", sys_flag=TRANSACTION_PREPARED))
    assert store.max_commit_log_offset > 2 * LOG_FILE_SIZE


@pytest.mark.parametrize("most", [50, LOG_FILE_SIZE])
def test_copied_log_has_the_same_bytes_queues_and_index(master: MessageStore, disk: Disk, most: int) -> None:
    """Whatever the slices are."""
    fill(master)
    slave = disk.open(is_replica=True)
    copy(master, slave, most=most)
    assert slave.max_commit_log_offset == master.max_commit_log_offset
    for number in range(3):
        file = Path(master.settings.commit_log_path / log_file(disk, number).name)
        assert disk.bytes_of(log_file(disk, number)) == file.read_bytes()
    assert contents(slave) == contents(master)
    entries = [list(store.consume_queue_entries(SCHEDULE_TOPIC, 2, 0, 1000)) for store in (slave, master)]
    assert entries[0] == entries[1]
    assert [bytes(r) for r in slave.query("orders", "k7", 9, 0, 2**62)] == [
        bytes(r) for r in master.query("orders", "k7", 9, 0, 2**62)
    ]


def test_each_message_is_announced_when_it_is_whole(master: MessageStore, disk: Disk) -> None:
    """So that held pull requests are answered."""
    put(master, 1, 2)
    slave = disk.open(is_replica=True)
    heard: list[tuple[str, int, int, int]] = []
    slave.arrival_listeners.append(lambda *arrived: heard.append((arrived[0], arrived[1], arrived[2], len(arrived[3]))))
    copy(master, slave, stop_at=master.max_commit_log_offset - 1)
    assert heard == [("orders", 0, 0, 1)]
    copy(master, slave)
    assert heard == [("orders", 0, 0, 1), ("orders", 0, 1, 1)]


def test_a_slave_accepts_no_messages(disk: Disk) -> None:
    """Its log would not be the master's any more."""
    slave = disk.open(is_replica=True)
    assert slave.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert not slave.takes_runs


@pytest.mark.parametrize("seed", range(3))
def test_copying_continues_after_a_crash(master: MessageStore, disk: Disk, seed: int) -> None:
    """From the last record that is whole on the disk, wherever the slices ended, until the logs are equal."""
    random = Random(seed)
    fill(master)
    for _ in range(2):
        slave = disk.open(is_replica=True)
        copy(master, slave, most=random.randint(1, 3000), stop_at=random.randrange(master.max_commit_log_offset))
        if random.random() < 0.5:
            slave.flush()
        disk = disk.crash(seed)
    slave = disk.open(is_replica=True)
    copy(master, slave)
    assert contents(slave) == contents(master)
    stop(slave)
    assert disk.open().put(message()).commit_log_offset == master.max_commit_log_offset  # as a master now
    disk.close()


def test_a_part_of_a_record_is_cut_off_when_the_slave_connects_again(master: MessageStore, disk: Disk) -> None:
    """Another master may have another record there."""
    put(master, 1, 2)
    slave = disk.open(is_replica=True)
    assert slave.replica is not None
    copy(master, slave, stop_at=master.max_commit_log_offset - 10)
    end = slave.replica.begin()
    assert end == slave.max_commit_log_offset < master.max_commit_log_offset
    assert not any(disk.bytes_of(log_file(disk))[end:])
    copy(master, slave)
    assert contents(slave) == contents(master)


def test_an_empty_slave_begins_with_the_first_file_that_the_master_has(master: MessageStore, disk: Disk) -> None:
    """And continues after a crash."""
    fill(master)
    assert delete_old(master) > 0
    first = master.min_commit_log_offset
    slave = disk.open(is_replica=True)
    copy(master, slave, stop_at=first + 2000)
    assert slave.min_commit_log_offset == first > 0
    crashed = disk.kill()
    slave = crashed.open(is_replica=True)
    assert slave.max_commit_log_offset > first
    copy(master, slave)
    assert contents(slave) == contents(master)
    crashed.close()


def test_a_deleted_topic_is_deleted_on_the_slave(master: MessageStore, disk: Disk) -> None:
    """The log says so; the topic may be created again."""
    slave = disk.open(is_replica=True)
    put(master, 1, 2)
    copy(master, slave)
    master.delete_topic("orders")
    copy(master, slave)
    assert "orders" not in slave.topics_with_queues()
    slave.flush()
    put(master, 3)
    copy(master, slave)
    assert bodies(slave) == [b"3"]


def test_other_sizes_of_files_are_recognized(master: MessageStore, disk: Disk) -> None:
    """The error names the setting."""
    fill(master)
    slave = disk.open(is_replica=True, mapped_file_size_commit_log=LOG_FILE_SIZE + 4096)
    with pytest.raises(LogMismatch, match="files"):
        copy(master, slave, most=LOG_FILE_SIZE)


def test_bytes_that_are_no_log_are_refused(master: MessageStore, disk: Disk) -> None:
    """What is there stays readable."""
    put(master, 1)
    slave = disk.open(is_replica=True)
    copy(master, slave)
    assert slave.replica is not None
    end = slave.replica.begin()
    with pytest.raises(LogMismatch, match=f"at {end}: the bytes at 5 came"):
        slave.replica.write(5, memoryview(b"abc"))
    record = master.message_at(0)
    assert record is not None
    for data in (b"garbage garbage", bytes(100), bytes(record)):
        slave.replica.write(slave.replica.begin(), memoryview(data))
        with pytest.raises(LogMismatch):
            run_all(slave.replica.dispatch())
        assert slave.max_commit_log_offset == end
    damaged = bytearray(record)
    damaged[28:36] = end.to_bytes(8, "big")
    damaged[88] ^= 1
    slave.replica.write(slave.replica.begin(), memoryview(damaged))
    with pytest.raises(LogMismatch, match="damaged"):
        run_all(slave.replica.dispatch())
    assert bodies(slave) == [b"1"]


def test_deletions_are_not_recorded_in_a_log_that_is_copied(master: MessageStore, disk: Disk) -> None:
    """Apache's masters record none, so tools must not rely on the records before the promotion."""
    put(master, 1, 2)
    copy(master, slave := disk.open(is_replica=True))
    stop(slave)
    promoted = disk.open()
    assert promoted._files.checkpoint.deletions_from == promoted.max_commit_log_offset == master.max_commit_log_offset
