"""Old files are deleted by age and hour, and by what the disk has left."""

import asyncio
import errno
import logging
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

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
    """A store with five files in its log, each last written an hour after the one before."""
    faulty_disk.clock.now = AT_FOUR
    store = faulty_disk.open()
    while len(log_files(faulty_disk)) < 5:
        assert store.put(message(body=bytes(1000))).status is PutStatus.OK
    age(faulty_disk, 76, 75, 74, 1, 0)
    return store


def log_files(disk: Disk) -> list[str]:
    return disk.file_system.names(disk.root / "commitlog")


def age(disk: Disk, *hours: int) -> None:
    """Say how long ago each file of the log was last written."""
    assert isinstance(disk.file_system, FaultyFileSystem)
    for name, ago in zip(log_files(disk), hours, strict=True):
        disk.file_system.modified[disk.root / "commitlog" / name] = disk.clock.now - ago * HOUR


def use(disk: Disk, percent: float) -> None:
    """Say how much of the disk is used."""
    assert isinstance(disk.file_system, FaultyFileSystem)
    disk.file_system.used = percent


def clean(store: MessageStore) -> int:
    return asyncio.run(store.clean())


def test_at_the_hour_files_kept_long_enough_go(faulty_disk: Disk, full_log: MessageStore) -> None:
    """Queue and log begin with the first message that is left, and the readers of what is gone are sent there."""
    assert clean(full_log) == 3
    assert len(log_files(faulty_disk)) == 2
    first = full_log.min_offset("orders", 0)
    assert 0 < first < full_log.max_offset("orders", 0)
    lost = full_log.get("orders", 0, 0, 32, 2**31)
    assert (lost.status, lost.next_begin_offset) == (GetStatus.OFFSET_TOO_SMALL, first)
    assert full_log.get("orders", 0, first, 1, 2**31).status is GetStatus.FOUND


def test_at_other_hours_nothing_goes(faulty_disk: Disk, full_log: MessageStore) -> None:
    """Deleting is for the quiet hours, as long as there is room."""
    faulty_disk.clock.now = AT_NOON
    assert clean(full_log) == 0
    assert len(log_files(faulty_disk)) == 5


@pytest.mark.parametrize(("used", "deleted"), [(75, 0), (76, 3), (85, 3), (86, 4), (99, 4)])
def test_the_disk_s_use_hastens_deleting(faulty_disk: Disk, full_log: MessageStore, used: float, deleted: int) -> None:
    """From 75 % on old files go at any hour, from 85 % on all but the last."""
    faulty_disk.clock.now = AT_NOON
    age(faulty_disk, 76, 75, 74, 1, 0)
    use(faulty_disk, used)
    assert clean(full_log) == deleted


def test_nothing_young_goes_where_that_is_switched_off(faulty_disk: Disk, full_log: MessageStore) -> None:
    """Without cleanFileForciblyEnable a crowded disk costs no message that is to be kept."""
    asyncio.run(full_log.stop())
    store = faulty_disk.open(clean_file_forcibly_enable=False)
    use(faulty_disk, 99)
    assert clean(store) == 3


def test_how_files_are_kept_may_change_while_the_store_is_open(faulty_disk: Disk, full_log: MessageStore) -> None:
    """When they are deleted, and from what use of the disk on they are, or messages are refused."""
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


def test_a_full_disk_refuses_messages_until_there_is_room(faulty_disk: Disk, full_log: MessageStore) -> None:
    """Reads go on; the first look that finds room takes messages again."""
    use(faulty_disk, 91)
    clean(full_log)
    assert full_log.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE
    first = full_log.min_offset("orders", 0)
    assert full_log.get("orders", 0, first, 1, 2**31).status is GetStatus.FOUND
    use(faulty_disk, 90)
    clean(full_log)
    assert full_log.put(message()).status is PutStatus.OK


def test_at_most_ten_files_go_at_once_and_never_the_last(disk: Disk) -> None:
    """A long backlog is deleted over several looks."""
    store = disk.open()
    while len(log_files(disk)) < 13:
        store.put(message(body=bytes(8000)))
    assert [delete_old(store) for _ in range(3)] == [10, 2, 0]
    assert len(log_files(disk)) == 1
    assert store.put(message()).status is PutStatus.OK


def test_queues_and_index_give_their_room_back_with_the_log(disk: Disk) -> None:
    """Of their files only those are left that lead to messages, and an idle queue's last."""
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


def test_queues_keep_their_count_over_a_crash_after_deleting(faulty_disk: Disk, full_log: MessageStore) -> None:
    """What led to deleted messages was on the disk before they went."""
    expected = full_log.max_offset("orders", 0)
    clean(full_log)
    first = full_log.min_offset("orders", 0)
    store = faulty_disk.crash().open()
    assert (store.min_offset("orders", 0), store.max_offset("orders", 0)) == (first, expected)
    asyncio.run(store.stop())


def test_nothing_is_deleted_when_the_disk_refuses_the_flush(faulty_disk: Disk, full_log: MessageStore) -> None:
    """The error is told, and every file is still there."""
    assert isinstance(faulty_disk.file_system, FaultyFileSystem)
    faulty_disk.file_system.sync_error = OSError(errno.EIO, "input/output error")
    with pytest.raises(OSError, match="the disk refused a flush"):
        clean(full_log)
    assert len(log_files(faulty_disk)) == 5
    faulty_disk.file_system.sync_error = None


def test_nothing_is_deleted_when_only_the_log_is_on_the_disk(faulty_disk: Disk, full_log: MessageStore) -> None:
    """A process out of files cannot flush the queues: their entries of what is deleted cannot be made anew."""
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
def test_a_file_that_cannot_be_removed_leaves_no_hole(faulty_disk: Disk, of: str) -> None:
    """Those behind it stay until it goes: at the next start no file is missing between others."""
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


def test_a_file_that_somebody_else_removed_is_passed_over(disk: Disk) -> None:
    """Who makes room by hand does not keep the broker from making more."""
    store = disk.open()
    while len(log_files(disk)) < 5:
        store.put(message(body=bytes(8000)))
    erase(disk, log_file(disk))
    assert delete_old(store) == 4
    assert len(log_files(disk)) == 1
    assert store.get("orders", 0, store.min_offset("orders", 0), 32, 2**31).status is GetStatus.FOUND


class SetClock:
    """The clock of virtual time, set ahead or back."""

    def __init__(self, clock: Clock) -> None:
        self.ahead_hours = 0
        self._clock = clock

    def now_ms(self) -> int:
        return self._clock.now_ms() + self.ahead_hours * HOUR


def run_scene(scene: Callable[[MessageStore, Disk, SetClock], Coroutine[None, None, None]]) -> None:
    """Run a scene with four files in a log, written a moment ago, that are deleted at any hour when they are old."""
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
    """Let so many hours pass."""
    await asyncio.sleep(number * 3600)


def test_a_running_store_cleans_by_itself() -> None:
    """Files go at the first look when they are old, whatever else happens."""

    async def scene(store: MessageStore, disk: Disk, clock: SetClock) -> None:
        await store.start()
        await hours(71.9)
        assert len(log_files(disk)) == 4
        await hours(0.2)
        assert len(log_files(disk)) == 1

    run_scene(scene)


@pytest.mark.parametrize(("ahead", "kept"), [(30 * 24, 35.5), (12, 59), (-12, 83)])
def test_a_clock_that_jumps_makes_no_file_old(ahead: int, kept: float, caplog: pytest.LogCaptureFixture) -> None:
    """Ahead by 30 days, files of 72 hours last half of what is left of these: time to set the clock right."""

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


def test_a_jump_that_is_taken_back_in_time_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Files are as old then as they would have been."""

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


def test_nothing_is_deleted_by_age_before_the_clock_can_have_been_set() -> None:
    """A machine that has just started with a clock far ahead has ten minutes to hear of the time."""

    async def scene(store: MessageStore, disk: Disk, clock: SetClock) -> None:
        clock.ahead_hours = 30 * 24
        await store.start()
        await hours(9 / 60)
        assert len(log_files(disk)) == 4
        clock.ahead_hours = 0
        await hours(71.5)
        assert len(log_files(disk)) == 4

    run_scene(scene)


def test_a_clock_that_is_set_at_the_start_counts_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """A machine without a clock of its own begins in the past: what is old by the right time is deleted."""

    async def scene(store: MessageStore, disk: Disk, clock: SetClock) -> None:
        clock.ahead_hours = -10_000
        await store.start()
        await hours(5 / 60)
        clock.ahead_hours = 80
        await hours(6 / 60)
        assert len(log_files(disk)) == 1

    run_scene(scene)


def test_a_store_that_was_not_used_for_long_is_cleaned_soon() -> None:
    """Ten minutes after its start, although a month has passed since it was last open."""

    async def scene(store: MessageStore, disk: Disk, clock: SetClock) -> None:
        clock.ahead_hours = 30 * 24
        await store.start()
        await hours(11 / 60)
        assert len(log_files(disk)) == 1

    run_scene(scene)


def test_room_is_made_whatever_the_clock_says() -> None:
    """A disk that fills does not wait for the clock, nor for the first ten minutes."""

    async def scene(store: MessageStore, disk: Disk, clock: SetClock) -> None:
        use(disk, 99)
        await store.start()
        await hours(2 / 60)
        assert len(log_files(disk)) == 1

    run_scene(scene)


def test_the_real_disk_s_use_is_a_percentage(tmp_path: Path) -> None:
    """As df tells it."""
    assert 0 <= OsFileSystem().used_percent(tmp_path) <= 100
    assert 0 <= OsFileSystem().used_percent(tmp_path / "not" / "yet") <= 100
