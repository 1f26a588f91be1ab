"""The transient store pool: messages wait in memory until they are committed."""

import asyncio
import errno
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from rocket_broker.store import FlushDiskType, MessageStore, PutStatus
from rocket_broker.store.files import FileSystem, OsFileSystem
from rocket_remoting.wire.topics import DELETIONS_TOPIC
from streamkit.testing.virtual_time import VirtualTime
from tests.store.disk import (
    LOG_FILE_SIZE,
    Disk,
    FakeClock,
    bodies,
    delete_old,
    log_file,
    message,
    queue_file,
    stop,
)
from tests.store.faulty_file_system import FaultyFileSystem

POOL = {"transient_store_pool_enable": True}
INTERVAL = 0.21
"""Seconds, a little more than the 200 ms that pass until a commit."""


class Refusing(FaultyFileSystem):
    """A faulty file system with failing writes and maps.

    Attributes:
        write_error: Raised by the next writes.
        map_error: Raised when the next files are mapped.
    """

    def __init__(self) -> None:
        super().__init__()
        self.write_error: OSError | None = None
        self.map_error: OSError | None = None

    def map(self, path: Path, ordered_to: int = 0) -> memoryview:
        if self.map_error is not None:
            raise self.map_error
        return super().map(path, ordered_to)

    def write(self, path: Path, start: int, data: memoryview) -> None:
        if self.write_error is not None:
            raise self.write_error
        super().write(path, start, data)


@pytest.fixture
def time() -> Iterator[VirtualTime]:
    """The virtual time of the test."""
    with VirtualTime() as time:
        yield time


@pytest.fixture
def files() -> Refusing:
    """The file system of the faulty `disk`."""
    return Refusing()


@pytest.fixture(params=["real", "faulty"])
def disk(request: pytest.FixtureRequest, tmp_path: Path, files: Refusing, time: VirtualTime) -> Iterator[Disk]:
    """A disk in virtual time."""
    file_system: FileSystem = OsFileSystem() if request.param == "real" else files
    disk = Disk(file_system, tmp_path / "store", time.clock)
    yield disk
    disk.close(time.run)


@pytest.fixture
def refusing_disk(files: Refusing, time: VirtualTime) -> Iterator[Disk]:
    """The faulty one of the disks."""
    disk = Disk(files, Path("/store"), time.clock)
    yield disk
    disk.close(time.run)


def started(disk: Disk, time: VirtualTime, **settings: object) -> MessageStore:
    """Return a store with a pool that commits in the background."""
    store = disk.open(**POOL | settings)
    time.run(store.start())
    return store


def put(store: MessageStore, *numbers: int, **fields: object) -> None:
    """Store messages with numbers as bodies and keys; each gets its number as queue offset."""
    for number in numbers:
        key = f"k{number}"
        result = store.put(message(body=b"%d" % number, keys=key, properties={"KEYS": key}, **fields))
        assert (result.status, result.queue_offset) == (PutStatus.OK, number)


def found(store: MessageStore) -> list[int]:
    """Return the numbers of the queue's messages, all of which are indexed."""
    numbers = [int(body) for body in bodies(store)]
    assert all(len(store.query("orders", f"k{number}", 9, 0, 2**62)) == 1 for number in numbers)
    return numbers


# Readers


def test_readers_see_committed_messages_only(disk: Disk, time: VirtualTime) -> None:
    """A message gets its offset at once, and is readable, announced and indexed 200 ms later."""
    store, arrived = started(disk, time), list[int]()
    store.arrival_listeners.append(lambda topic, queue_id, offset, tags, stored: arrived.append(offset))
    put(store, 0, 1, 2)
    time.advance(INTERVAL * 0.9)
    assert (found(store), arrived, store.max_offset("orders", 0)) == ([], [], 0)
    assert store.query("orders", "k0", 9, 0, 2**62) == []
    time.advance(INTERVAL * 0.2)
    assert (found(store), arrived, store.max_offset("orders", 0)) == ([0, 1, 2], [0, 1, 2], 3)
    put(store, 3)
    time.advance(INTERVAL)
    assert (found(store), arrived) == ([0, 1, 2, 3], [0, 1, 2, 3])
    time.run(store.stop())


def test_few_pages_wait_for_the_thorough_commit(disk: Disk, time: VirtualTime) -> None:
    """Four pages of 4 KiB are committed earlier."""
    store = started(disk, time, commit_commit_log_thorough_interval=1000)
    put(store, 0)
    time.advance(INTERVAL)
    assert found(store) == [0]
    put(store, 1)
    time.advance(INTERVAL * 2)
    assert found(store) == [0]
    for _ in range(5):
        store.put(message("others", body=bytes(4000)))
    time.advance(INTERVAL * 2)
    assert found(store) == [0, 1]
    time.run(store.stop())


def test_read_by_log_offset_commits_first(disk: Disk, time: VirtualTime) -> None:
    """The end of a transaction refers to its half message so, and may come before the commit."""
    store = started(disk, time)
    stored = store.put(message())
    assert store.message_at(stored.commit_log_offset) is not None
    assert store.max_offset("orders", 0) == 1
    assert store.message_at(stored.commit_log_offset + stored.size) is None
    time.run(store.stop())


def test_idle_store_has_no_timers(disk: Disk, time: VirtualTime) -> None:
    """When everything is committed."""
    store = started(disk, time)
    put(store, 0)
    time.advance(200)
    marked = disk.bytes_of(disk.root / "checkpoint")
    time.advance(100_000)
    assert disk.bytes_of(disk.root / "checkpoint") == marked
    time.run(store.stop())


# Ends


def test_kill_loses_only_uncommitted_messages(disk: Disk, time: VirtualTime) -> None:
    """No entry leads to them, and their offsets are assigned again."""
    store = started(disk, time)
    put(store, *range(40))
    time.advance(INTERVAL)
    put(store, *range(40, 50))
    after = disk.kill()
    store = after.store()
    report = store.load()
    assert (report.torn, found(store), store.max_offset("orders", 0)) == ("", [*range(40)], 40)
    assert not any(disk.bytes_of(queue_file(disk))[40 * 20 :])
    put(store, 40)
    assert found(store)[-1] == 40
    after.close()


@pytest.mark.parametrize("restarted_with", [POOL, {}], ids=["pool", "none"])
def test_orderly_stop_loses_nothing(disk: Disk, time: VirtualTime, restarted_with: dict[str, bool]) -> None:
    """Pending messages are committed and flushed; the next store may run with or without a pool."""
    store = started(disk, time)
    put(store, *range(200))
    time.run(store.stop())
    disk = disk.crash()
    store = disk.store(**restarted_with)
    assert store.load().ended_in_order
    assert found(store) == [*range(200)]
    put(store, 200)
    stop(store)
    assert found(disk.open()) == [*range(201)]
    disk.close()


@pytest.mark.parametrize("seed", range(10))
def test_flushed_messages_survive_a_power_failure(disk: Disk, time: VirtualTime, seed: int) -> None:
    """A flush commits first and leaves no gap."""
    random = Random(seed)
    store = started(disk, time)
    put(store, *range(30))
    time.advance(random.random())
    put(store, *range(30, 60))
    assert time.run(store.flush_to(store.max_commit_log_offset))
    put(store, *range(60, 120))
    time.advance(random.random())
    after = disk.crash(seed)
    store = after.open(**POOL)
    numbers = found(store)
    assert numbers == [*range(len(numbers))]
    assert len(numbers) >= 60
    after.close()
    time.run(store.stop())


def test_topic_deletion_commits_first(disk: Disk, time: VirtualTime) -> None:
    """Otherwise pending messages would create its queues again."""
    store = started(disk, time)
    put(store, 0, 1)
    store.delete_topic("orders")
    time.advance(1)
    assert store.topics_with_queues() == {DELETIONS_TOPIC: [0]}
    put(store, 0)
    time.advance(1)
    assert bodies(store) == [b"0"]
    time.run(store.stop())


# Files and buffers


def test_pending_messages_span_many_files(disk: Disk, time: VirtualTime) -> None:
    """Of log, queue and index."""
    store = started(disk, time)
    random = Random(1)
    for number in range(1000):
        put(store, number)
        if random.random() < 0.01:
            time.advance(INTERVAL)
    time.run(store.stop())
    store = disk.open(**POOL)
    assert found(store) == [*range(1000)]
    assert disk.file_system.size(log_file(disk, 5)) == LOG_FILE_SIZE


def test_old_files_are_deleted_after_a_commit(disk: Disk, time: VirtualTime) -> None:
    """No pending message belongs to them."""
    store = disk.open(**POOL)
    put(store, *range(300))
    assert delete_old(store) == 0
    store.flush()
    assert delete_old(store) > 0
    numbers = found(store)
    assert numbers == [*range(numbers[0], 300)]
    assert numbers[0] > 0


def test_messages_without_a_buffer_go_to_the_file(disk: Disk, time: VirtualTime) -> None:
    """They are readable after the pending ones."""
    store = started(disk, time, transient_store_pool_size=1)
    put(store, *range(300))
    assert found(store) == []
    time.advance(INTERVAL)
    assert found(store) == [*range(300)]
    time.run(store.stop())
    assert found(disk.open()) == [*range(300)]


def test_messages_without_a_buffer_can_be_refused(disk: Disk, time: VirtualTime) -> None:
    """With fastFailIfNoBufferInStorePool, until a buffer is free."""
    store = started(disk, time, transient_store_pool_size=2, fast_fail_if_no_buffer_in_store_pool=True)
    stored = 0
    while (result := store.put(message(body=b"%d" % stored))).status is PutStatus.OK:
        stored += 1
        assert stored < 1000
    assert result.status is PutStatus.CREATE_MAPPED_FILE_FAILED
    time.advance(INTERVAL)
    assert store.put(message()).queue_offset == stored
    time.run(store.stop())
    assert disk.open().max_offset("orders", 0) == stored + 1


def test_pool_is_unused_with_sync_flush(disk: Disk, time: VirtualTime) -> None:
    """Messages are readable at once."""
    store = started(disk, time, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    put(store, 0)
    assert found(store) == [0]
    time.run(store.stop())


# Disks that refuse


@pytest.mark.parametrize("pages", range(0, 20, 3))
def test_accepted_message_can_always_be_committed(
    refusing_disk: Disk, files: Refusing, time: VirtualTime, pages: int
) -> None:
    """Space in log, queue and index is allocated when it is accepted."""
    store = started(refusing_disk, time)
    files.free_pages = pages
    results = [store.put(message(f"t{number % 9}", keys=f"k{number}")) for number in range(300)]
    taken = [number for number, result in enumerate(results) if result.status is PutStatus.OK]
    assert len(taken) < 300
    files.free_pages = 0
    time.advance(INTERVAL)
    for number in taken:
        assert len(store.query(f"t{number % 9}", f"k{number}", 9, 0, 2**62)) == 1
    assert sum(store.max_offset(f"t{number}", 0) for number in range(9)) == len(taken)
    files.free_pages = None
    assert store.put(message()).status is PutStatus.OK
    time.run(store.stop())


def test_failed_commit_closes_the_store_to_messages(refusing_disk: Disk, files: Refusing, time: VirtualTime) -> None:
    """Uncommitted messages are not readable, and the next start has the committed ones."""
    store = started(refusing_disk, time)
    put(store, 0)
    time.advance(INTERVAL)
    put(store, 1)
    files.write_error = OSError(errno.EIO, "input/output error")
    time.advance(INTERVAL)
    assert store.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert found(store) == [0]
    assert not time.run(store.flush_to(store.max_commit_log_offset))
    time.run(store.stop())
    files.write_error = None
    store = refusing_disk.store()
    assert not store.load().ended_in_order
    assert found(store) == [0]


def test_commit_without_file_descriptors_is_retried(refusing_disk: Disk, files: Refusing, time: VirtualTime) -> None:
    """Messages wait, and more are accepted."""
    store = started(refusing_disk, time)
    files.write_error = OSError(errno.EMFILE, "too many open files")
    put(store, 0)
    time.advance(1)
    put(store, 1)
    files.write_error = None
    time.advance(1)
    assert found(store) == [0, 1]
    time.run(store.stop())


def test_message_whose_queue_cannot_be_mapped_is_published_later(
    refusing_disk: Disk, files: Refusing, time: VirtualTime
) -> None:
    """Its bytes are in the log's file already; it stays the first to get its entry."""
    files.map_limit = 1  # the second message's queue takes the map of the first one's
    store = started(refusing_disk, time)
    store.put(message(body=b"first"))
    store.put(message("others", body=b"second"))
    files.map_error = OSError(errno.EMFILE, "too many open files")
    time.advance(1)
    files.map_error = None
    assert bodies(store) == []
    time.advance(1)
    assert store.put(message(body=b"third")).queue_offset == 1
    time.advance(1)
    assert (bodies(store), bodies(store, "others")) == ([b"first", b"third"], [b"second"])
    time.run(store.stop())


def test_stop_without_file_descriptors_is_not_orderly(refusing_disk: Disk, files: Refusing, time: VirtualTime) -> None:
    """Uncommitted messages are lost and not taken for stored."""
    store = started(refusing_disk, time)
    put(store, 0)
    files.write_error = OSError(errno.EMFILE, "too many open files")
    time.run(store.stop())
    files.write_error = None
    store = refusing_disk.store()
    assert not store.load().ended_in_order
    assert found(store) == []


def test_threaded_commits_lose_nothing(tmp_path: Path) -> None:
    """Messages arrive while a thread writes, and some request a commit."""
    disk = Disk(OsFileSystem(), tmp_path / "store", FakeClock())

    async def main() -> None:
        store = disk.open(**POOL, commit_interval_commit_log=1, commit_commit_log_thorough_interval=1)
        await store.start()
        for number in range(3000):
            put(store, number)
            if number % 10 == 0:
                await asyncio.sleep(0)
            if number % 97 == 0:
                assert store.message_at(store.max_commit_log_offset - 1) is None
            if number % 501 == 0:
                assert await store.flush_to(store.max_commit_log_offset)
        await store.stop()

    asyncio.run(main())
    assert found(disk.open()) == [*range(3000)]
    disk.close()
