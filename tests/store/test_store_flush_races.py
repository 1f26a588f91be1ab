"""Flushes concurrent with stores and other flushes, and after a failed one."""

import asyncio
import errno
import threading
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import TypeVar

import pytest

from rocket_broker.loop.step_line import SLICE_SECONDS
from rocket_broker.loop.watchdog import Watchdog
from rocket_broker.store import FlushDiskType, MessageStore, PutStatus
from streamkit.testing.virtual_time import VirtualTime
from tests.store.disk import (
    LOG_FILE_SIZE,
    Disk,
    FakeClock,
    bodies,
    expire,
    log_file,
    message,
    put,
    queue_file,
)
from tests.store.faulty_file_system import FaultyFileSystem

T = TypeVar("T")

SYNC = FlushDiskType.SYNC_FLUSH
AT_ONCE = {"flush_interval_consume_queue": 0, "flush_consume_queue_thorough_bytes": 1}
"""Settings under which queues and index are flushed, and the mark moves, as soon as something was stored."""


class Unsynced:
    """Chooses that only synced data reached the disk."""

    def choice(self, candidates: Sequence[T], /) -> T:
        return candidates[0]


class Held(FaultyFileSystem):
    """A faulty file system that can hold and fail a thread's sync of one file.

    Attributes:
        held: The file; None for none.
        refuses: Whether the held sync is refused when it goes on. Other syncs are not.
        copies: Whether what a crash leaves is kept each time when the checkpoint is synced.
        found: What a crash left the last time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.held: Path | None = None
        self.refuses = False
        self.copies = False
        self.found: FaultyFileSystem | None = None
        self._is_held = threading.Event()
        self._goes_on = threading.Event()

    def sync(self, path: Path) -> None:
        if path == self.held and threading.current_thread() is not threading.main_thread():
            self.held = None
            self._is_held.set()
            self._goes_on.wait()
            if self.refuses:
                self._files[path].fail_to_sync()
                raise OSError(errno.EIO, "input/output error", str(path))
        super().sync(path)
        if self.copies and path.name == "checkpoint":
            self.found = self.crash(Unsynced())

    async def is_holding(self) -> None:
        """Wait until the sync is held."""
        while not self._is_held.is_set():  # noqa: ASYNC110 - a thread sets it
            await asyncio.sleep(0)

    def go_on(self) -> None:
        """Release the held sync."""
        self._goes_on.set()


@pytest.fixture
def time() -> Iterator[VirtualTime]:
    """The virtual time of the test."""
    with VirtualTime() as time:
        yield time


@pytest.fixture
def files() -> Held:
    """The file system of `disk`."""
    return Held()


@pytest.fixture
def disk(files: Held, time: VirtualTime) -> Iterator[Disk]:
    """A faulty disk in virtual time."""
    disk = Disk(files, Path("/store"), time.clock)
    yield disk
    files.go_on()
    disk.close(time.run)


def started(disk: Disk, time: VirtualTime, **settings: object) -> MessageStore:
    """Return a store that flushes in the background."""
    store = disk.open(**settings)
    time.run(store.start())
    return store


def found_after(files: Held) -> MessageStore:
    """Return the store as found if the machine died when the checkpoint was last synced."""
    assert files.found is not None
    return Disk(files.found, Path("/store"), FakeClock()).open()


# Beside what is stored


def test_message_stored_during_a_flush_is_flushed_by_the_next(disk: Disk, files: Held, time: VirtualTime) -> None:
    """Its queue and its index file still count as changed."""
    store = started(disk, time, **AT_ONCE)

    async def main() -> None:
        files.held = disk.root / "checkpoint"  # all other files have been synced
        put(store, 1)
        await files.is_holding()
        put(store, 2)
        files.copies = True
        files.go_on()

    time.run(main())
    time.advance(1)
    store.put(message(queue_id=1))
    time.advance(1)
    after = found_after(files)
    assert bodies(after) == [b"1", b"2"]
    assert len(after.query("orders", "k2", 9, 0, 2**62)) == 1


def test_mark_covers_nothing_stored_while_its_flush_began(
    disk: Disk, files: Held, time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many queues it begins in steps, so a new queue may not be among the flushed ones."""
    seconds = count(0.0, 1.5 * SLICE_SECONDS)
    monkeypatch.setattr(Watchdog, "clock", lambda: next(seconds))  # each step uses a turn of the loop up
    store = started(disk, time)
    for queue_id in range(5):
        store.put(message(queue_id=queue_id))

    async def main() -> None:
        flushing = asyncio.create_task(store.delete_topics(["bills"]))
        for _ in range(3):
            await asyncio.sleep(0)
        store.put(message(queue_id=9))
        store.put(message(queue_id=0))
        files.held, files.copies = log_file(disk), True
        await files.is_holding()
        files.go_on()
        while files.found is None:  # noqa: ASYNC110 - a thread sets it
            await asyncio.sleep(0)
        files.copies = False
        await flushing

    time.run(main())
    assert len(bodies(found_after(files), "orders", 9)) == 1


# Beside each other


def test_mark_never_moves_back(disk: Disk, files: Held, time: VirtualTime) -> None:
    """Of two concurrent flushes the one that began first may end last."""
    store = started(disk, time, **AT_ONCE)

    async def main() -> None:
        files.held = log_file(disk)
        store.put(message())
        await files.is_holding()
        store.put(message())
        store.flush()
        files.copies = True
        files.go_on()

    time.run(main())
    time.advance(1)
    assert files.found is not None
    report = Disk(files.found, Path("/store"), time.clock).store().load()
    assert report.trusted_to == store.max_commit_log_offset
    time.advance(100)
    for path in (log_file(disk), queue_file(disk)):
        assert files.syncs.count(path) == 2, "what is on the disk is not brought there again"


# After a refusal


def test_flush_error_during_a_stop_is_not_orderly(disk: Disk, files: Held, time: VirtualTime) -> None:
    """A cancelled flush continues, and the stop waits for it without blocking the loop."""
    store = started(disk, time, **AT_ONCE)

    async def main() -> None:
        files.held, files.refuses = log_file(disk), True
        store.put(message())
        await files.is_holding()
        stopping = asyncio.create_task(store.stop())
        for _ in range(1000):
            await asyncio.sleep(0)
        files.go_on()
        await stopping

    time.run(main())
    assert files.size(disk.root / "abort") is not None


def test_cancelled_stop_ends_the_flush_threads(disk: Disk, files: Held, time: VirtualTime) -> None:
    """As soon as their syncs have ended, not at the end of the loop only; senders that wait get their answer."""
    store = started(disk, time, flush_disk_type=SYNC)

    async def main() -> None:
        files.held = log_file(disk)
        waiting = asyncio.create_task(store.await_flush(store.put(message())))
        await files.is_holding()
        stopping = asyncio.create_task(store.stop())
        await asyncio.sleep(0)
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        files.go_on()
        assert await waiting is PutStatus.OK
        for thread in [each for each in threading.enumerate() if each.name.startswith("store-flush")]:
            thread.join(30)
            assert not thread.is_alive()

    time.run(main())
    assert files.size(disk.root / "abort") is not None


@pytest.mark.promise
@pytest.mark.parametrize("seed", range(3))
def test_mark_stays_after_a_failed_flush(disk: Disk, files: Held, time: VirtualTime, seed: int) -> None:
    """The kernel considers the pages clean, so a later sync of the same files proves nothing."""
    store = started(disk, time, flush_disk_type=SYNC, flush_consume_queue_thorough_bytes=1000)
    given = put(store, *range(300))
    files.sync_error = OSError(errno.EIO, "input/output error")
    assert not time.run(store.flush_to(store.max_commit_log_offset))
    files.sync_error = None
    time.advance(100)
    time.run(store.stop())
    store = started(disk, time, flush_disk_type=SYNC)
    given += put(store, 300)
    assert time.run(store.flush_to(store.max_commit_log_offset))
    after = disk.crash(seed)
    assert bodies(after.open()) == given
    after.close()


def test_flush_that_ends_after_a_failed_one_fails_too(disk: Disk, files: Held, time: VirtualTime) -> None:
    """The kernel reports the error to one of them only; the other must fail before the loop has handled it."""
    store = started(disk, time, **AT_ONCE)

    async def main() -> None:
        files.held, files.refuses = log_file(disk), True
        store.put(message())
        await files.is_holding()
        files.go_on()
        while store.takes_runs:
            pass
        with pytest.raises(OSError, match="refused"):
            store.flush()

    time.run(main())


def test_store_with_a_failed_flush_deletes_no_files(disk: Disk, files: Held, time: VirtualTime) -> None:
    """Otherwise deleted messages might return without their entries."""
    store = started(disk, time)
    while store.max_commit_log_offset <= LOG_FILE_SIZE:
        store.put(message(body=bytes(1000)))
    store.flush()
    files.sync_error = OSError(errno.EIO, "input/output error")
    with pytest.raises(OSError, match="refused"):
        time.run(expire(store))
    files.sync_error = None
    with pytest.raises(OSError, match="refused"):
        time.run(expire(store))
    assert store.min_commit_log_offset == 0


def test_failed_flush_of_a_deletion_closes_the_store(disk: Disk, files: Held, time: VirtualTime) -> None:
    """It is unknown whether the log's deletion record is on the disk."""
    store = started(disk, time)
    store.put(message())
    store.flush()

    async def main() -> None:
        deleting = asyncio.create_task(store.delete_topics(["orders"]))
        while store.max_offset("rmq_sys_deleted_topics", 0) == 0:  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0)
        files.sync_error = OSError(errno.EIO, "input/output error")
        with pytest.raises(OSError, match="input/output error"):
            await deleting

    time.run(main())
    files.sync_error = None
    assert store.max_offset("orders", 0) == 1
    assert store.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE


# After a start


def test_recovery_results_are_flushed_without_further_messages(disk: Disk, time: VirtualTime) -> None:
    """The next recovery finds them on the disk."""
    store = disk.open()
    put(store, 1, 2)
    disk = disk.kill()
    store = started(disk, time)
    time.advance(100)
    report = disk.crash().store().load()
    assert (report.trusted_to, report.records) == (store.max_commit_log_offset, 0)
    time.run(store.stop())
