"""Old files are deleted by age, hour and disk usage."""

import asyncio
import errno
import logging
from collections.abc import Callable, Coroutine, Iterator
from datetime import datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from rocket_broker.store import GetStatus, MessageStore, PutStatus
from rocket_broker.store.files import OsFileSystem
from rocket_remoting.clock import Clock
from streamkit.testing.virtual_time import VirtualTime
from tests.store.disk import (
    ENTRIES_PER_FILE,
    Disk,
    bodies,
    delete_old,
    erase,
    log_file,
    message,
    queue_file,
    stop,
)
from tests.store.faulty_file_system import FaultyFileSystem

HOUR = 3_600_000
AT_FOUR = int(datetime(2026, 3, 1, 4, 30).astimezone().timestamp() * 1000)
AT_NOON = AT_FOUR + 8 * HOUR


@pytest.fixture
def full_log(faulty_disk: Disk) -> Iterator[MessageStore]:
    """Return a store with five files in its log, each last written an hour after the one before."""
    faulty_disk.clock.now = AT_FOUR
    store = faulty_disk.open()
    while len(log_files(faulty_disk)) < 5:
        assert store.put(message(body=bytes(1000))).status is PutStatus.OK
    age(faulty_disk, 76, 75, 74, 1, 0)
    return store


def log_files(disk: Disk) -> list[str]:
    return disk.file_system.names(disk.root / "commitlog")


def age(disk: Disk, *hours: int) -> None:
    """Set how long ago each file of the log was last written."""
    assert isinstance(disk.file_system, FaultyFileSystem)
    for name, ago in zip(log_files(disk), hours, strict=True):
        disk.file_system.modified[disk.root / "commitlog" / name] = disk.clock.now - ago * HOUR


def use(disk: Disk, percent: float) -> None:
    """Set the disk usage."""
    assert isinstance(disk.file_system, FaultyFileSystem)
    disk.file_system.used = percent


def clean(store: MessageStore) -> int:
    return asyncio.run(store.clean())


def test_expired_files_are_deleted_at_the_configured_hour(faulty_disk: Disk, full_log: MessageStore) -> None:
    """Queue and log then begin with the first remaining message, and consumers of deleted ones are sent there."""
    assert clean(full_log) == 3
    assert len(log_files(faulty_disk)) == 2
    first = full_log.min_offset("orders", 0)
    assert 0 < first < full_log.max_offset("orders", 0)
    lost = full_log.get("orders", 0, 0, 32, 2**31)
    assert (lost.status, lost.next_begin_offset) == (GetStatus.OFFSET_TOO_SMALL, first)
    assert full_log.get("orders", 0, first, 1, 2**31).status is GetStatus.FOUND


def test_nothing_is_deleted_at_other_hours(faulty_disk: Disk, full_log: MessageStore) -> None:
    """As long as there is enough space."""
    faulty_disk.clock.now = AT_NOON
    assert clean(full_log) == 0
    assert len(log_files(faulty_disk)) == 5


@pytest.mark.parametrize(("used", "deleted"), [(75, 0), (76, 3), (85, 3), (86, 4), (99, 4)])
def test_disk_usage_triggers_deletion(faulty_disk: Disk, full_log: MessageStore, used: float, deleted: int) -> None:
    """From 75 % on expired files are deleted at any hour, from 85 % on all but the last."""
    faulty_disk.clock.now = AT_NOON
    age(faulty_disk, 76, 75, 74, 1, 0)
    use(faulty_disk, used)
    assert clean(full_log) == deleted


def test_forced_deletion_can_be_disabled(faulty_disk: Disk, full_log: MessageStore) -> None:
    """Without cleanFileForciblyEnable a full disk deletes no message before its time."""
    asyncio.run(full_log.stop())
    store = faulty_disk.open(clean_file_forcibly_enable=False)
    use(faulty_disk, 99)
    assert clean(store) == 3


def test_retention_settings_may_change_while_running(faulty_disk: Disk, full_log: MessageStore) -> None:
    """The hours, and the disk usage from which files are deleted or messages refused."""
    faulty_disk.clock.now = AT_NOON
    use(faulty_disk, 60)
    age(faulty_disk, 76, 75, 74, 1, 0)
    assert clean(full_log) == 0
    full_log.keep_files_as(replace(full_log.settings, disk_space_warning_level_ratio=50))
    assert clean(full_log) == 0
    assert full_log.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE
    full_log.keep_files_as(replace(full_log.settings, delete_when=frozenset({12})))
    assert clean(full_log) == 3
    assert full_log.put(message()).status is PutStatus.OK


def test_full_disk_refuses_messages_until_there_is_space(faulty_disk: Disk, full_log: MessageStore) -> None:
    """Reads continue; messages are accepted after the first check that finds space."""
    use(faulty_disk, 91)
    clean(full_log)
    assert full_log.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE
    first = full_log.min_offset("orders", 0)
    assert full_log.get("orders", 0, first, 1, 2**31).status is GetStatus.FOUND
    use(faulty_disk, 90)
    clean(full_log)
    assert full_log.put(message()).status is PutStatus.OK


def test_at_most_ten_files_are_deleted_at_once_and_never_the_last(disk: Disk) -> None:
    """A long backlog takes several checks."""
    store = disk.open()
    while len(log_files(disk)) < 13:
        store.put(message(body=bytes(8000)))
    assert [delete_old(store) for _ in range(3)] == [10, 2, 0]
    assert len(log_files(disk)) == 1
    assert store.put(message()).status is PutStatus.OK


def test_queue_and_index_files_are_deleted_with_the_log(disk: Disk) -> None:
    """Files that lead to messages and an idle queue's last file are kept."""
    store = disk.open(max_index_num=100)
    store.put(message("idle"))
    for number in range(400):
        store.put(message(body=bytes(200), keys=f"k{number}", properties={"KEYS": f"k{number}"}))
    delete_old(store)
    first = store.min_offset("orders", 0)
    begin = first - first % ENTRIES_PER_FILE
    files = [f"{number * 20:020d}" for number in range(begin, 400, ENTRIES_PER_FILE)]
    assert disk.file_system.names(queue_file(disk).parent) == files
    assert len(files) < 400 // ENTRIES_PER_FILE
    assert len(disk.file_system.names(disk.root / "index")) <= (400 - first) // 99 + 2
    assert disk.file_system.names(queue_file(disk, "idle").parent) == [f"{0:020d}"]


def test_queue_offsets_continue_after_a_deletion_and_a_crash(faulty_disk: Disk, full_log: MessageStore) -> None:
    """The queues are synced before the log's files are deleted."""
    expected = full_log.max_offset("orders", 0)
    clean(full_log)
    first = full_log.min_offset("orders", 0)
    store = faulty_disk.crash().open()
    assert (store.min_offset("orders", 0), store.max_offset("orders", 0)) == (first, expected)
    asyncio.run(store.stop())


def test_nothing_is_deleted_when_the_flush_fails(faulty_disk: Disk, full_log: MessageStore) -> None:
    """The error is logged, and every file is kept."""
    assert isinstance(faulty_disk.file_system, FaultyFileSystem)
    faulty_disk.file_system.sync_error = OSError(errno.EIO, "input/output error")
    with pytest.raises(OSError, match="the disk refused a flush"):
        clean(full_log)
    assert len(log_files(faulty_disk)) == 5
    faulty_disk.file_system.sync_error = None


def test_nothing_is_deleted_when_the_queues_cannot_be_flushed(faulty_disk: Disk, full_log: MessageStore) -> None:
    """A process out of file descriptors flushes the log alone; entries of deleted messages could not be rebuilt."""
    files = faulty_disk.file_system
    assert isinstance(files, FaultyFileSystem)
    assert asyncio.run(full_log.flush_to(full_log.max_commit_log_offset))
    files.sync_error = OSError(errno.EMFILE, "too many open files")
    with pytest.raises(OSError, match="the disk refused a flush"):
        clean(full_log)
    assert len(log_files(faulty_disk)) == 5
    files.sync_error = None
    assert clean(full_log) == 3


@pytest.mark.parametrize("of", ["log", "queue", "index"])
def test_undeletable_file_leaves_no_gap(faulty_disk: Disk, of: str) -> None:
    """Later files are kept until it can be deleted, so that the next start finds no missing file."""
    files = faulty_disk.file_system
    assert isinstance(files, FaultyFileSystem)
    store = faulty_disk.open(max_index_num=100)

    def fill() -> None:
        for number in range(400):
            store.put(message(body=bytes(200), keys=f"k{number}", properties={"KEYS": f"k{number}"}))

    fill()
    first_index = faulty_disk.root / "index" / files.names(faulty_disk.root / "index")[0]
    stays = {"log": log_file(faulty_disk), "queue": queue_file(faulty_disk), "index": first_index}[of]
    files.unremovable.add(stays)
    for _ in range(2):
        with pytest.raises(PermissionError):
            delete_old(store)
        fill()
    given = bodies(store)
    end = store.max_offset("orders", 0)
    stop(store)
    store = faulty_disk.open(max_index_num=100)
    assert (bodies(store)[-len(given) :], store.max_offset("orders", 0)) == (given, end)
    files.unremovable.clear()
    while delete_old(store):
        pass
    assert len(log_files(faulty_disk)) == 1
    assert stays.name not in files.names(stays.parent)


def test_file_removed_by_somebody_else_is_skipped(disk: Disk) -> None:
    """The broker deletes further ones."""
    store = disk.open()
    while len(log_files(disk)) < 5:
        store.put(message(body=bytes(8000)))
    erase(disk, log_file(disk))
    assert delete_old(store) == 4
    assert len(log_files(disk)) == 1
    assert store.get("orders", 0, store.min_offset("orders", 0), 32, 2**31).status is GetStatus.FOUND


class SetClock:
    """Virtual time with an adjustable offset."""

    def __init__(self, clock: Clock) -> None:
        self.ahead_hours = 0
        self._clock = clock

    def now_ms(self) -> int:
        return self._clock.now_ms() + self.ahead_hours * HOUR


def run_scene(scene: Callable[[MessageStore, Disk, SetClock], Coroutine[None, None, None]]) -> None:
    """Run a scene with four recent files in a log, which are deleted at any hour once they expired."""
    with VirtualTime() as time:
        clock = SetClock(time.clock)
        disk = Disk(FaultyFileSystem(), Path("/store"), clock)  # type: ignore[arg-type]
        store = disk.open(delete_when=frozenset(range(24)), clean_resource_interval=60_000)
        while len(log_files(disk)) < 4:
            store.put(message(body=bytes(8000)))
        for name in log_files(disk):
            disk.file_system.modified[disk.root / "commitlog" / name] = clock.now_ms()  # type: ignore[attr-defined]
        time.run(scene(store, disk, clock))
        time.run(store.stop())


async def hours(number: float) -> None:
    """Wait for a number of hours of virtual time."""
    await asyncio.sleep(number * 3600)


def test_running_store_deletes_expired_files() -> None:
    """At the first periodic check after they expired."""

    async def scene(store: MessageStore, disk: Disk, clock: SetClock) -> None:
        await store.start()
        await hours(71.9)
        assert len(log_files(disk)) == 4
        await hours(0.2)
        assert len(log_files(disk)) == 1

    run_scene(scene)


@pytest.mark.parametrize(("ahead", "kept"), [(30 * 24, 35.5), (12, 59), (-12, 83)])
def test_clock_jump_does_not_expire_files(ahead: int, kept: float, caplog: pytest.LogCaptureFixture) -> None:
    """After a jump of 30 days, files kept for 72 hours keep half of their remaining time, so that the clock can
    be corrected."""

    async def scene(store: MessageStore, disk: Disk, clock: SetClock) -> None:
        await store.start()
        await hours(1)
        clock.ahead_hours = ahead
        await hours(kept - 0.1)
        assert (len(log_files(disk)), await store.delete_expired()) == (4, 0)
        await hours(0.2)
        assert len(log_files(disk)) == 1

    run_scene(scene)
    jump = {720: "30 days, 0:00:00", 12: "12:00:00"}.get(ahead, "")
    assert caplog.text.count("the system clock jumped ahead by") == caplog.text.count(f"by {jump}: until") == bool(jump)


def test_corrected_clock_jump_has_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    """Files expire as they would have without it."""

    async def scene(store: MessageStore, disk: Disk, clock: SetClock) -> None:
        await store.start()
        await hours(1)
        clock.ahead_hours = 30 * 24
        await hours(10)
        clock.ahead_hours = 0
        await hours(60.9)
        assert len(log_files(disk)) == 4
        await hours(0.2)
        assert len(log_files(disk)) == 1

    with caplog.at_level(logging.INFO):
        run_scene(scene)
    assert "files of the commit log age by the system clock again" in caplog.text


def test_nothing_expires_in_the_first_ten_minutes() -> None:
    """A machine that starts with a wrong clock has time to correct it."""

    async def scene(store: MessageStore, disk: Disk, clock: SetClock) -> None:
        clock.ahead_hours = 30 * 24
        await store.start()
        await hours(9 / 60)
        assert len(log_files(disk)) == 4
        clock.ahead_hours = 0
        await hours(71.5)
        assert len(log_files(disk)) == 4

    run_scene(scene)


def test_clock_set_at_the_start_applies_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """A machine without a battery clock starts in the past; files expire by the corrected time."""

    async def scene(store: MessageStore, disk: Disk, clock: SetClock) -> None:
        clock.ahead_hours = -10_000
        await store.start()
        await hours(5 / 60)
        clock.ahead_hours = 80
        await hours(6 / 60)
        assert len(log_files(disk)) == 1

    run_scene(scene)


def test_store_unused_for_long_is_cleaned_soon() -> None:
    """Ten minutes after its start, although it was last open a month ago."""

    async def scene(store: MessageStore, disk: Disk, clock: SetClock) -> None:
        clock.ahead_hours = 30 * 24
        await store.start()
        await hours(11 / 60)
        assert len(log_files(disk)) == 1

    run_scene(scene)


def test_full_disk_is_cleaned_whatever_the_clock() -> None:
    """Without waiting for the clock or the first ten minutes."""

    async def scene(store: MessageStore, disk: Disk, clock: SetClock) -> None:
        use(disk, 99)
        await store.start()
        await hours(2 / 60)
        assert len(log_files(disk)) == 1

    run_scene(scene)


def test_real_disk_usage_is_a_percentage(tmp_path: Path) -> None:
    """As reported by df."""
    assert 0 <= OsFileSystem().used_percent(tmp_path) <= 100
    assert 0 <= OsFileSystem().used_percent(tmp_path / "not" / "yet") <= 100
