"""When stored messages are flushed to the disk."""

import asyncio
import errno
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocket_broker.store import FlushDiskType, MessageStore, PutStatus, StoreClosed, StoreSettings
from rocket_broker.store.checkpoint import Checkpoint, Mark
from rocket_broker.store.files import PAGE_SIZE, OsFileSystem
from streamkit.testing.virtual_time import VirtualTime
from tests.store.disk import Disk, FakeClock, bodies, log_file, message, queue_file, stop
from tests.store.faulty_file_system import FaultyFileSystem

SYNC = FlushDiskType.SYNC_FLUSH


class Recording(FaultyFileSystem):
    """A faulty file system that can hold syncs back.

    Attributes:
        may_sync: Syncs wait for it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.may_sync = threading.Event()
        self.may_sync.set()

    def sync(self, path: Path) -> None:
        self.may_sync.wait()
        super().sync(path)

    def number(self, path: Path) -> int:
        """Return how often a file was synced."""
        return self.syncs.count(path)


@pytest.fixture
def files() -> Recording:
    """The file system of `disk`."""
    return Recording()


@pytest.fixture
def time() -> Iterator[VirtualTime]:
    """The virtual time of the test."""
    with VirtualTime() as time:
        yield time


@pytest.fixture
def disk(files: Recording, time: VirtualTime) -> Iterator[Disk]:
    """A faulty disk in virtual time."""
    disk = Disk(files, Path("/store"), time.clock)
    yield disk
    files.may_sync.set()
    disk.close(time.run)


def started(disk: Disk, time: VirtualTime, **settings: object) -> MessageStore:
    """Return a store that flushes in the background."""
    store = disk.open(**settings)
    time.run(store.start())
    return store


# ASYNC_FLUSH


def test_four_pages_are_flushed_after_half_a_second(disk: Disk, files: Recording, time: VirtualTime) -> None:
    """Of 4 KiB each; fewer wait up to ten seconds."""
    store = started(disk, time)
    store.put(message())
    time.advance(1)
    assert files.number(log_file(disk)) == 1
    store.put(message(body=b"x" * 3 * PAGE_SIZE))
    time.advance(8)
    assert files.number(log_file(disk)) == 1
    store.put(message(body=b"x" * PAGE_SIZE))
    time.advance(0.6)
    assert files.number(log_file(disk)) == 2
    time.run(store.stop())


def test_single_byte_is_flushed_after_ten_seconds(disk: Disk, files: Recording, time: VirtualTime) -> None:
    """However little there is, it does not wait longer."""
    store = started(disk, time)
    store.put(message())
    time.advance(1)
    store.put(message())
    time.advance(11)
    assert files.number(log_file(disk)) == 2
    time.run(store.stop())


def test_idle_store_has_no_timers(disk: Disk, files: Recording, time: VirtualTime) -> None:
    """When everything is flushed."""
    store = started(disk, time)
    store.put(message())
    time.advance(200)
    syncs = len(files.syncs)
    time.advance(100_000)
    assert len(files.syncs) == syncs
    time.run(store.stop())


def test_queues_are_flushed_with_two_new_pages(disk: Disk, files: Recording, time: VirtualTime) -> None:
    """Every second if their entries fill pages, and all queues once a minute."""
    store = started(disk, time, mapped_file_size_consume_queue=20 * 2000, mapped_file_size_commit_log=2**20)
    for _ in range(2 * PAGE_SIZE // 20):
        store.put(message())
    store.put(message())
    time.advance(2)
    assert files.number(queue_file(disk)) == 1
    store.put(message(queue_id=1))
    time.advance(2)
    assert files.number(queue_file(disk, "orders", 1)) == 0
    time.advance(60)
    assert files.number(queue_file(disk, "orders", 1)) == 1
    time.run(store.stop())


def test_mark_moves_once_a_minute(disk: Disk, time: VirtualTime) -> None:
    """Recovery begins at the log's end of the last thorough flush."""
    store = started(disk, time)
    store.put(message())
    marked = store.max_commit_log_offset
    time.advance(61)
    store.put(message())
    report = disk.crash().store().load()
    assert report.trusted_to == marked
    time.run(store.stop())


def test_mark_moves_after_so_many_bytes(disk: Disk, time: VirtualTime) -> None:
    """A busy store does not wait for the minute, so that recovery reads little."""
    store = started(disk, time, flush_consume_queue_thorough_bytes=1000)
    for _ in range(20):
        store.put(message())
    marked = store.max_commit_log_offset
    time.advance(2)
    report = disk.crash().store().load()
    assert report.trusted_to == marked
    time.run(store.stop())


def test_mark_never_moves_back(tmp_path: Path) -> None:
    """Of two concurrent flushes the earlier may end last."""
    settings = StoreSettings(tmp_path)
    checkpoint = Checkpoint(settings, OsFileSystem())
    checkpoint.load()
    later = Mark(200, 150, 200)
    checkpoint.advance(later, 2, 2)
    checkpoint.advance(Mark(100, 50, 100), 1, 1)
    checkpoint.close()
    again = Checkpoint(settings, OsFileSystem())
    again.load()
    assert (again.mark, again.log_timestamp, again.index_timestamp) == (later, 2, 2)


def test_checkpoint_has_apaches_timestamps(disk: Disk, time: VirtualTime) -> None:
    """Apache's brokers read the first three numbers."""
    store = started(disk, time)
    time.advance(5)
    now = time.clock.now_ms()
    store.put(message(keys="k"))
    time.advance(61)
    store.put(message(keys="k"))
    checkpoint = disk.bytes_of(disk.root / "checkpoint")
    assert struct.unpack_from(">qqq", checkpoint) == (now, now, now)
    time.run(store.stop())


def test_stop_flushes_everything(disk: Disk, time: VirtualTime) -> None:
    """After an orderly stop a power failure loses nothing."""
    store = started(disk, time)
    for number in range(10):
        store.put(message(body=b"%d" % number, queue_id=number % 3))
    time.run(store.stop())
    disk = disk.crash()
    store = disk.store()
    report = store.load()
    assert (report.ended_in_order, report.records) == (True, 0)
    assert bodies(store) == [b"0", b"3", b"6", b"9"]
    disk.close()


def test_async_flush_does_not_delay_answers(disk: Disk, files: Recording, time: VirtualTime) -> None:
    """They do not depend on the disk."""
    store = started(disk, time)
    files.may_sync.clear()
    assert time.run(store.await_flush(store.put(message()))) is PutStatus.OK
    files.may_sync.set()
    time.run(store.stop())


def test_store_is_loaded_before_it_is_started(disk: Disk, time: VirtualTime) -> None:
    """Starting comes second."""
    with pytest.raises(StoreClosed, match="is not open"):
        time.run(disk.store().start())


# SYNC_FLUSH


def test_waiting_senders_share_one_fsync(disk: Disk, files: Recording, time: VirtualTime) -> None:
    """Group commit: a hundred concurrent senders cost one flush, which covers their messages."""
    store = started(disk, time, flush_disk_type=SYNC)

    async def main() -> list[PutStatus]:
        waiting = [store.await_flush(store.put(message(body=b"%d" % number))) for number in range(100)]
        return await asyncio.gather(*waiting)

    assert set(time.run(main())) == {PutStatus.OK}
    assert files.number(log_file(disk)) == 1
    assert len(bodies(disk.crash().open())) == 100
    time.run(store.stop())


def test_message_stored_during_a_flush_waits_for_the_next(disk: Disk, files: Recording, time: VirtualTime) -> None:
    """The running flush does not cover it."""
    store = started(disk, time, flush_disk_type=SYNC)

    async def main() -> None:
        files.may_sync.clear()
        first = asyncio.create_task(store.await_flush(store.put(message())))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        second = asyncio.create_task(store.await_flush(store.put(message())))
        await asyncio.sleep(0)
        files.may_sync.set()
        assert await asyncio.gather(first, second) == [PutStatus.OK, PutStatus.OK]

    time.run(main())
    assert files.number(log_file(disk)) == 2
    time.run(store.stop())


def test_message_can_opt_out_of_waiting(disk: Disk, files: Recording, time: VirtualTime) -> None:
    """With the property WAIT=false."""
    store = started(disk, time, flush_disk_type=SYNC)
    files.may_sync.clear()
    assert time.run(store.await_flush(store.put(message(wait_store_ok=False)))) is PutStatus.OK
    files.may_sync.set()
    time.run(store.stop())


def test_refused_message_waits_for_nothing(disk: Disk, time: VirtualTime) -> None:
    """Its status is its answer."""
    store = started(disk, time, flush_disk_type=SYNC)
    assert time.run(store.await_flush(store.put(message("..")))) is PutStatus.MESSAGE_ILLEGAL
    time.run(store.stop())


def test_flush_timeout_is_reported_to_the_sender(files: Recording) -> None:
    """The message is stored but perhaps not on the disk."""
    disk = Disk(files, Path("/store"), FakeClock())
    store = disk.open(flush_disk_type=SYNC, sync_flush_timeout=10)

    async def main() -> None:
        await store.start()
        files.may_sync.clear()
        assert await store.await_flush(store.put(message())) is PutStatus.FLUSH_DISK_TIMEOUT
        files.may_sync.set()
        for _ in range(1000):  # this machine's ten milliseconds may be over before any disk has answered
            status = await store.await_flush(store.put(message()))
            if status is PutStatus.OK:
                break
        assert status is PutStatus.OK
        await store.stop()

    asyncio.run(main())


# A disk that fails


def test_failed_fsync_closes_the_store_to_messages(disk: Disk, files: Recording, time: VirtualTime) -> None:
    """The disk's contents are unknown: waiting senders get an error, and messages are refused."""
    store = started(disk, time, flush_disk_type=SYNC)
    files.sync_error = OSError(errno.EIO, "input/output error")
    assert time.run(store.await_flush(store.put(message(body=b"1")))) is PutStatus.FLUSH_DISK_TIMEOUT
    files.sync_error = None
    assert store.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert bodies(store) == [b"1"]
    time.run(store.stop())
    assert disk.file_system.size(disk.root / "abort") is not None


@pytest.mark.promise
@pytest.mark.parametrize("seed", range(5))
def test_next_start_rewrites_data_after_a_failed_fsync(
    disk: Disk, files: Recording, time: VirtualTime, seed: int
) -> None:
    """The kernel considers the failed pages clean, so syncing them again has no effect."""
    store = started(disk, time, flush_disk_type=SYNC)
    given = [b"%d" % number for number in range(300)]
    assert time.run(store.await_flush(store.put(message(body=given[0])))) is PutStatus.OK
    files.sync_error = OSError(errno.EIO, "input/output error")
    results = [store.put(message(body=body)) for body in given[1:-1]]
    assert time.run(store.await_flush(results[-1])) is PutStatus.FLUSH_DISK_TIMEOUT
    files.sync_error = None
    time.run(store.stop())
    store = started(disk, time, flush_disk_type=SYNC)
    assert time.run(store.await_flush(store.put(message(body=given[-1])))) is PutStatus.OK
    after = disk.crash(seed)
    assert bodies(after.open()) == given
    after.close()


def test_flush_without_file_descriptors_is_retried(disk: Disk, files: Recording, time: VirtualTime) -> None:
    """No fsync was attempted: waiting senders wait on, and messages are accepted."""
    store = started(disk, time, flush_disk_type=SYNC)

    async def main() -> None:
        files.sync_error = OSError(errno.EMFILE, "too many open files")
        waiting = asyncio.create_task(store.await_flush(store.put(message(body=b"1"))))
        await asyncio.sleep(1)
        assert store.put(message(body=b"2")).status is PutStatus.OK
        files.sync_error = None
        assert await waiting is PutStatus.OK

    time.run(main())
    time.run(store.stop())
    store = disk.store()
    assert store.load().ended_in_order
    assert bodies(store) == [b"1", b"2"]
    stop(store)


def test_stop_without_file_descriptors_is_not_orderly(disk: Disk, files: Recording, time: VirtualTime) -> None:
    """Unflushed data is not taken for flushed."""
    store = started(disk, time)
    store.put(message(body=b"1"))
    files.sync_error = OSError(errno.EMFILE, "too many open files")
    time.run(store.stop())
    files.sync_error = None
    store = disk.store()
    assert not store.load().ended_in_order
    assert bodies(store) == [b"1"]
    stop(store)


def test_flush_error_during_a_stop_is_noticed(disk: Disk, files: Recording, time: VirtualTime) -> None:
    """The stop waits for a running flush, and its error counts."""
    store = started(disk, time, flush_disk_type=SYNC)

    async def main() -> None:
        files.may_sync.clear()
        files.sync_error = OSError(errno.EIO, "input/output error")
        waiting = asyncio.create_task(store.await_flush(store.put(message())))
        await asyncio.sleep(0)
        stopping = asyncio.create_task(store.stop())
        await asyncio.sleep(0)
        files.may_sync.set()
        assert await waiting is PutStatus.FLUSH_DISK_TIMEOUT
        files.sync_error = None
        await stopping

    time.run(main())
    assert disk.file_system.size(disk.root / "abort") is not None


def test_failed_flush_on_demand_is_reported(disk: Disk, files: Recording) -> None:
    """Nothing is deleted without a flush, and the store refuses messages."""
    store = disk.open()
    store.put(message())
    files.sync_error = OSError(errno.EIO, "input/output error")
    with pytest.raises(OSError, match="input/output error"):
        store.delete_topic("orders")
    assert store.max_offset("orders", 0) == 1
    assert store.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE


def test_failed_fsync_at_the_stop_is_not_orderly(disk: Disk, files: Recording, time: VirtualTime) -> None:
    """The next start does not trust unflushed data."""
    store = started(disk, time)
    store.put(message(body=b"1"))
    files.sync_error = OSError(errno.EIO, "input/output error")
    time.run(store.stop())
    files.sync_error = None
    store = disk.store()
    assert not store.load().ended_in_order
    stop(store)


def test_messages_are_refused_while_the_disk_is_far_behind(disk: Disk, files: Recording, time: VirtualTime) -> None:
    """And accepted again once enough is flushed."""
    store = started(disk, time, max_unflushed_bytes=1000)
    files.may_sync.clear()
    results = [store.put(message()) for _ in range(20)]
    assert {result.status for result in results[:10]} == {PutStatus.OK}
    assert {result.status for result in results[-9:]} == {PutStatus.OS_PAGE_CACHE_BUSY}
    files.may_sync.set()
    time.advance(1)
    assert store.put(message()).status is PutStatus.OK
    time.run(store.stop())


def test_message_is_refused_if_its_file_cannot_be_created(disk: Disk, files: Recording) -> None:
    """The next one may be stored."""
    store = disk.open()
    files.create_error = PermissionError(errno.EACCES, "permission denied")
    assert store.put(message()).status is PutStatus.CREATE_MAPPED_FILE_FAILED
    files.create_error = None
    assert store.put(message()).queue_offset == 0


# A full disk


def test_full_disk_refuses_only_messages(files: Recording, disk: Disk) -> None:
    """With a status; stored ones stay readable, and with space messages are accepted again."""
    store = disk.open()
    files.free_pages = 20
    stored = 0
    while (result := store.put(message(body=b"%d" % stored, queue_id=stored % 7, keys="k"))).status is PutStatus.OK:
        stored += 1
        assert stored < 2000
    assert result.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert sum(len(bodies(store, "orders", queue_id)) for queue_id in range(7)) == stored
    files.free_pages = None
    assert store.put(message()).status is PutStatus.OK
    store = disk.kill().store()
    report = store.load()
    assert report.torn == ""
    assert sum(len(bodies(store, "orders", queue_id)) for queue_id in range(7)) == stored + 1


@pytest.mark.parametrize("pages", range(12))
def test_message_is_stored_completely_or_not_at_all(disk: Disk, files: Recording, pages: int) -> None:
    """Log, queue and index allocate their space before anything is written, wherever the space ends."""
    store = disk.open()
    files.free_pages = pages
    results = [store.put(message(f"t{number}", keys=f"k{number}")) for number in range(6)]
    stored = [number for number, result in enumerate(results) if result.status is PutStatus.OK]
    for number in range(6):
        found = len(store.query(f"t{number}", f"k{number}", 9, 0, 2**62))
        assert (found, store.max_offset(f"t{number}", 0)) == ((1, 1) if number in stored else (0, 0))
    ends = [results[number].commit_log_offset + results[number].size for number in stored]
    assert store.max_commit_log_offset == (ends[-1] if ends else 0)
