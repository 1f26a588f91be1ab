"""Opening a store after an orderly end and after a crash."""

import struct
from pathlib import Path

import pytest

from rocket_broker.store import FileSizeMismatch, StoreCorrupt, StoreLocked
from rocket_broker.store.checkpoint import Mark, blank_checkpoint, read_mark
from rocket_broker.store.errors import StoreFull
from rocket_broker.store.files import PAGE_SIZE, OsFileSystem
from rocket_remoting.wire.java_hash import java_hash
from rocket_remoting.wire.record import decode_record
from rocket_remoting.wire.sys_flag import TRANSACTION_PREPARED
from rocket_remoting.wire.topics import DELETIONS_TOPIC, SCHEDULE_TOPIC
from tests.store.disk import (
    ENTRIES_PER_FILE,
    FOREVER,
    LOG_FILE_SIZE,
    Disk,
    FakeClock,
    bodies,
    delete_old,
    erase,
    log_file,
    message,
    overwrite,
    put,
    queue_file,
    stop,
    without_mark,
)
from tests.store.faulty_file_system import FaultyFileSystem

# Orderly ends


def test_stopped_store_is_reopened_without_reading_it(disk: Disk) -> None:
    """After an orderly stop the mark is at the log's end."""
    store = disk.open()
    given = put(store, *range(300))
    stop(store)
    store = disk.store()
    report = store.load()
    assert report.ended_in_order
    assert (report.records, report.entries_added, report.entries_taken_back) == (0, 0, 0)
    assert bodies(store) == given
    put(store, 300)
    assert bodies(store)[-1] == b"300"


def test_abort_file_exists_while_the_store_is_open(disk: Disk) -> None:
    """Apache's brokers check it too."""
    store = disk.open()
    assert disk.file_system.size(disk.root / "abort") is not None
    stop(store)
    assert disk.file_system.size(disk.root / "abort") is None


def test_store_opens_once(disk: Disk) -> None:
    """A second one in the same directory is refused until the first has stopped."""
    store = disk.open()
    with pytest.raises(StoreLocked, match="another broker has this store open"):
        disk.store().load()
    put(store, 1)
    stop(store)
    assert bodies(disk.open()) == [b"1"]


def test_failed_stop_releases_the_lock(faulty_disk: Disk) -> None:
    """The abort file cannot be removed: the stop raises, and the next start recovers everything."""
    files = faulty_disk.file_system
    assert isinstance(files, FaultyFileSystem)
    store = faulty_disk.open()
    put(store, 1)
    files.unremovable.add(faulty_disk.root / "abort")
    with pytest.raises(PermissionError):
        stop(store)
    store = faulty_disk.store()
    assert not store.load().ended_in_order
    assert bodies(store) == [b"1"]
    files.unremovable.clear()


@pytest.mark.parametrize("is_linked", [True, False])
def test_two_stores_do_not_share_a_log(tmp_path: Path, is_linked: bool) -> None:
    """Neither by a copied setting nor through a symbolic link."""
    clock, files = FakeClock(), OsFileSystem()
    first, second = (Disk(files, tmp_path / name, clock) for name in "ab")
    store = first.open()
    put(store, 1)
    shared = {"commit_log_dir": first.root / "commitlog"}
    if is_linked:
        second.root.mkdir()
        (second.root / "commitlog").symlink_to(first.root / "commitlog")
        shared = {}
    with pytest.raises(StoreLocked, match=r"commitlog is locked: another .*storePathCommitLog"):
        second.open(**shared)
    put(store, 2)
    stop(store)
    assert bodies(first.open()) == [b"1", b"2"]
    first.close()


def test_stopping_twice_has_no_effect(disk: Disk) -> None:
    """The second time nothing happens."""
    store = disk.open()
    stop(store)
    stop(store)
    assert disk.store().load().ended_in_order


# Crashes


@pytest.mark.parametrize("seed", range(20))
def test_flushed_messages_survive_a_crash(disk: Disk, seed: int) -> None:
    """Unflushed ones survive as a prefix without gaps."""
    store = disk.open()
    flushed = put(store, *range(70))
    store.flush()
    others = put(store, *range(70, 140))
    disk = disk.crash(seed)
    store = disk.store()
    report = store.load()
    found = bodies(store)
    assert not report.ended_in_order
    assert found[:70] == flushed
    assert found[70:] == others[: len(found) - 70]
    for number in range(len(found)):
        records = store.query("orders", f"k{number}", 32, 0, FOREVER)
        assert [decode_record(record).body for record in records] == [b"%d" % number]
    disk.close()


def test_kill_loses_nothing(disk: Disk) -> None:
    """Written data is in the page cache, which only a machine failure loses."""
    store = disk.open()
    given = put(store, *range(70))
    store = disk.kill().open()
    assert bodies(store) == given
    stop(store)


def test_log_is_recovered_from_the_mark(disk: Disk) -> None:
    """What was flushed before is not read again."""
    store = disk.open()
    put(store, *range(100))
    store.flush()
    marked = store.max_commit_log_offset
    put(store, *range(100, 110))
    report = disk.crash().store().load()
    assert (report.trusted_to, report.read_from) == (marked, marked)
    assert report.records <= 10


def test_log_with_an_empty_last_file_is_continued(disk: Disk) -> None:
    """A blank at the end of the last file but one is complete."""
    store = disk.open()
    store.put(message(body=b"x" * (LOG_FILE_SIZE - 200)))
    put(store, 1)
    disk = disk.kill()
    overwrite(disk, log_file(disk, 1), 0, bytes(200))
    store = disk.store()
    assert store.load().end == LOG_FILE_SIZE
    assert store.put(message()).commit_log_offset == LOG_FILE_SIZE
    disk.close()


def test_prepared_messages_are_recovered_without_entries(disk: Disk) -> None:
    """Recovery knows which messages no consumer sees."""
    store = disk.open()
    store.put(message(sys_flag=TRANSACTION_PREPARED, keys="k", properties={"KEYS": "k"}))
    put(store, 1)
    disk = disk.kill()
    store = disk.open()
    assert bodies(store) == [b"1"]
    assert len(store.query("orders", "k", 32, 0, FOREVER)) == 1
    disk.close()


def test_rebuilt_entries_equal_the_lost_ones(disk: Disk) -> None:
    """Tags have Java's hash, a delayed message its delivery time."""
    store = disk.open()
    store.put(message(properties={"TAGS": "red"}, tags_code=java_hash("red")))
    store.put(message(SCHEDULE_TOPIC, 2, properties={"DELAY": "3"}, tags_code=disk.clock.now + 10_000))
    store.put(message(SCHEDULE_TOPIC, 17, properties={"DELAY": "99"}, tags_code=disk.clock.now + 7_200_000))
    before = disk.bytes_of(queue_file(disk)), disk.bytes_of(queue_file(disk, SCHEDULE_TOPIC, 2))
    before += (disk.bytes_of(queue_file(disk, SCHEDULE_TOPIC, 17)),)
    disk = disk.kill()
    erase(disk, disk.root / "consumequeue")
    disk.open()
    after = disk.bytes_of(queue_file(disk)), disk.bytes_of(queue_file(disk, SCHEDULE_TOPIC, 2))
    after += (disk.bytes_of(queue_file(disk, SCHEDULE_TOPIC, 17)),)
    assert after == before
    disk.close()


# Queues and index are derived


def test_missing_queues_are_rebuilt_from_the_log(disk: Disk) -> None:
    """The directory of all queues may be deleted after an orderly stop, as with Apache's broker."""
    store = disk.open()
    given = put(store, *range(120))
    put(store, 1, 2, queue_id=5)
    stop(store)
    erase(disk, disk.root / "consumequeue")
    store = disk.store()
    report = store.load()
    assert (bodies(store), bodies(store, "orders", 5)) == (given, [b"1", b"2"])
    assert (report.entries_added, report.messages_indexed) == (122, 0)


def test_short_queues_are_completed_from_the_log(disk: Disk) -> None:
    """For example after a restore of an older copy."""
    store = disk.open()
    given = put(store, *range(40))
    stop(store)
    overwrite(disk, queue_file(disk), 10 * 20, bytes(30 * 20))
    store = disk.open()
    assert bodies(store) == given


@pytest.mark.parametrize("left", [0, 1])
def test_missing_index_files_are_rebuilt_from_the_log(disk: Disk, left: int) -> None:
    """After an orderly stop too, since the checkpoint records them."""
    store = disk.open()
    for number in range(900):
        disk.clock.now += 100
        put(store, number)
    stop(store)
    for name in disk.file_system.names(disk.root / "index")[left:]:
        erase(disk, disk.root / "index" / name)
    store = disk.store()
    report = store.load()
    assert report.ended_in_order
    assert report.messages_indexed == 900 - left * 399
    assert all(len(store.query("orders", f"k{number}", 9, 0, FOREVER)) == 1 for number in range(900))
    stop(store)
    assert disk.store().load().messages_indexed == 0


def test_a_deleted_queue_stays_deleted_when_the_index_is_made_anew(disk: Disk) -> None:
    """The log does not record that, but the entries of its messages were on the disk once."""
    store = disk.open()
    put(store, 1, 2)
    put(store, 3, topic="others")
    store.delete_queue("orders", 0)
    stop(store)
    erase(disk, disk.root / "index")
    store = disk.open()
    assert store.topics_with_queues() == {"others": [0]}
    assert len(store.query("others", "k3", 9, 0, FOREVER)) == 1


def test_missing_index_file_of_the_same_second_is_noticed(disk: Disk) -> None:
    """The checkpoint has the newest indexed message's time in milliseconds."""
    store = disk.open()
    put(store, *range(399))
    disk.clock.now += 500
    put(store, *range(399, 450))
    stop(store)
    last = disk.file_system.names(disk.root / "index")[-1]
    erase(disk, disk.root / "index" / last)
    store = disk.open()
    assert all(len(store.query("orders", f"k{number}", 9, 0, FOREVER)) == 1 for number in range(450))


@pytest.mark.parametrize("length", [None, 100])
def test_whole_log_is_read_without_a_checkpoint(disk: Disk, length: int | None) -> None:
    """A missing or short one is rebuilt, and nothing is trusted."""
    store = disk.open()
    given = put(store, *range(300))
    stop(store)
    erase(disk, disk.root / "checkpoint")
    if length is not None:
        disk.file_system.create(disk.root / "checkpoint", length)
    store = disk.store()
    report = store.load()
    assert (report.ended_in_order, report.read_from, report.records) == (False, 0, 300)
    assert bodies(store) == given
    assert all(len(store.query("orders", f"k{number}", 9, 0, FOREVER)) == 1 for number in range(300))


def test_rebuilt_queue_begins_with_the_log(disk: Disk) -> None:
    """Offsets of deleted messages are padded, so that the first remaining one keeps its own."""
    store = disk.open()
    put(store, *range(300))
    delete_old(store)
    first = store.min_offset("orders", 0)
    stop(store)
    erase(disk, disk.root / "consumequeue")
    store = disk.open()
    assert (store.min_offset("orders", 0), store.max_offset("orders", 0)) == (first, 300)
    assert bodies(store) == [b"%d" % number for number in range(first, 300)]
    stop(store)
    store = disk.open()
    assert (store.min_offset("orders", 0), store.max_offset("orders", 0)) == (first, 300)


def test_empty_queue_keeps_its_next_offset(disk: Disk) -> None:
    """Whatever was deleted."""
    store = disk.open()
    put(store, 0, 1, 2)
    put(store, *range(300), queue_id=1)
    delete_old(store)
    assert (store.min_offset("orders", 0), store.max_offset("orders", 0)) == (3, 3)
    stop(store)
    store = disk.open()
    assert (store.min_offset("orders", 0), store.max_offset("orders", 0)) == (3, 3)
    assert store.put(message()).queue_offset == 3


def test_deleted_topic_stays_deleted(disk: Disk) -> None:
    """After a crash or an orderly stop; its offsets begin at 0 again."""
    store = disk.open()
    put(store, *range(10))
    store.put(message("other"))
    store.delete_topic("orders")
    assert store.topics_with_queues() == {"other": [0], DELETIONS_TOPIC: [0]}
    given = put(store, 10, 11)
    disk = disk.kill()
    store = disk.open()
    assert (bodies(store), store.min_offset("orders", 0)) == (given, 0)
    store.delete_topic("orders")
    disk = disk.kill()
    store = disk.open()
    assert store.topics_with_queues() == {"other": [0], DELETIONS_TOPIC: [0]}
    disk.close()


@pytest.mark.parametrize("lost", ["index", "consumequeue"])
def test_recreated_topic_has_only_its_new_messages(disk: Disk, lost: str) -> None:
    """However much of the log is read: deleted ones neither return nor consume offsets."""
    store = disk.open()
    put(store, *range(10))
    store.delete_topic("orders")
    given = put(store, 10, 11, 12)
    stop(store)
    erase(disk, disk.root / lost)
    store = disk.open()
    assert bodies(store) == given
    assert [put(store, number) for number in (13, 14)] == [[b"13"], [b"14"]]
    assert bodies(store) == [*given, b"13", b"14"]


@pytest.mark.parametrize("lost", ["index", "consumequeue", "checkpoint"])
@pytest.mark.parametrize("is_made_anew", [False, True])
def test_rebuilt_queues_exclude_deleted_topics(disk: Disk, lost: str, is_made_anew: bool) -> None:
    """The log records the deletion and its position."""
    store = disk.open()
    put(store, *range(10))
    others = put(store, 20, 21, topic="others")
    store.delete_topic("orders")
    given = put(store, 10, 11, queue_id=1) if is_made_anew else []
    stop(store)
    erase(disk, disk.root / lost)
    store = disk.open()
    assert (bodies(store), bodies(store, "orders", 1), bodies(store, "others")) == ([], given, others)
    assert ("orders" in store.topics_with_queues()) == is_made_anew


def test_gap_brings_no_deleted_messages_back(disk: Disk) -> None:
    """The whole log is read for a queue with missing entries; others stay as they are."""
    store = disk.open()
    put(store, *range(10))
    store.delete_topic("orders")
    given = put(store, 10, 11)
    others = put(store, 20, 21, 22, topic="others")
    given += put(store, 12)
    store.flush()
    others += put(store, 23, topic="others")
    disk = disk.kill()
    erase(disk, queue_file(disk, "others"))
    store = disk.open()
    assert (bodies(store), bodies(store, "others")) == (given, others)
    disk.close()


def test_queues_without_a_log_are_removed(disk: Disk) -> None:
    """Queues whose log was deleted lead nowhere."""
    store = disk.open()
    put(store, *range(100))
    stop(store)
    erase(disk, disk.root / "commitlog")
    store = disk.open()
    assert (store.max_commit_log_offset, store.max_offset("orders", 0)) == (0, 0)
    assert store.query("orders", "k1", 32, 0, FOREVER) == []
    put(store, 1)
    assert bodies(store) == [b"1"]


# Stores that Apache's brokers wrote: no mark


def test_stopped_store_without_a_mark_is_read_from_the_third_last_file(disk: Disk) -> None:
    """As Apache's brokers do; earlier files are trusted."""
    store = disk.open()
    given = put(store, *range(600))
    stop(store)
    without_mark(disk)
    overwrite(disk, log_file(disk), 88, b"?")
    store = disk.store()
    report = store.load()
    files = len(disk.file_system.names(disk.root / "commitlog"))
    assert report.read_from == (files - 3) * LOG_FILE_SIZE > 0
    assert (report.entries_added, report.entries_taken_back, report.messages_indexed) == (0, 0, 0)
    assert bodies(store)[1:] == given[1:]


def test_crashed_store_without_a_mark_is_read_from_the_checkpoints_time(disk: Disk) -> None:
    """From the last file begun three seconds before the checkpoint's times; everything from there is rebuilt."""
    store = disk.open()
    given = []
    for number in range(600):
        disk.clock.now += 100
        given += put(store, number)
    disk = disk.kill()
    begun = [_first_timestamp(disk, number) for number in range(5)]
    time = begun[2] + 3_000
    overwrite(disk, disk.root / "checkpoint", 0, struct.pack(">qqq", time, time, 0) + bytes(64))
    store = disk.store()
    report = store.load()
    assert report.trusted_to == 2 * LOG_FILE_SIZE
    assert LOG_FILE_SIZE < report.read_from <= 2 * LOG_FILE_SIZE
    assert bodies(store) == given
    assert store.query("orders", "k599", 32, 0, FOREVER)
    assert not store.query("orders", "k1", 32, 0, FOREVER)
    disk.close()


def test_mark_of_another_log_is_ignored(disk: Disk) -> None:
    """The log is read as without a mark."""
    store = disk.open()
    put(store, *range(200))
    stop(store)
    overwrite(disk, log_file(disk, 0), 28, b"")
    mark = disk.bytes_of(disk.root / "checkpoint")[64:88]
    erase(disk, disk.root)
    store = disk.open()
    given = put(store, *range(1000, 1100))
    stop(store)
    overwrite(disk, disk.root / "checkpoint", 64, mark)
    store = disk.store()
    report = store.load()
    assert report.read_from == 0
    assert bodies(store) == given


def test_store_that_died_before_its_first_flush_is_not_trusted(disk: Disk) -> None:
    """Also if its abort file is missing."""
    store = disk.open()
    put(store, 1, 2)
    disk = disk.kill()
    erase(disk, disk.root / "abort")
    overwrite(disk, disk.root / "checkpoint", 0, bytes(PAGE_SIZE))
    store = disk.store()
    report = store.load()
    assert (report.ended_in_order, report.trusted_to, report.records) == (False, 0, 2)
    assert bodies(store) == [b"1", b"2"]
    disk.close()


# What cannot be repaired


def test_missing_file_is_an_error(disk: Disk) -> None:
    """A gap in the flushed part of the log is not ignored."""
    store = disk.open()
    put(store, *range(600))
    stop(store)
    erase(disk, log_file(disk, 1))
    with pytest.raises(StoreCorrupt, match="this file is missing") as caught:
        disk.open()
    assert caught.value.file == log_file(disk, 1)


def test_files_behind_a_missing_one_are_dropped_behind_the_mark(disk: Disk) -> None:
    """They were not flushed."""
    store = disk.open()
    given = put(store, *range(20))
    store.flush()
    put(store, *range(20, 600))
    disk = disk.kill()
    erase(disk, log_file(disk, 1))
    store = disk.store()
    report = store.load()
    assert report.files_deleted > 0
    assert bodies(store)[:20] == given
    assert report.end == LOG_FILE_SIZE
    disk.close()


def test_file_of_another_size_is_an_error(disk: Disk) -> None:
    """The settings must be those of the store; the error says which and how."""
    store = disk.open()
    put(store, 1)
    stop(store)
    with pytest.raises(FileSizeMismatch, match=f"set mappedFileSizeCommitLog={LOG_FILE_SIZE}"):
        disk.open(mapped_file_size_commit_log=2 * LOG_FILE_SIZE)
    with pytest.raises(FileSizeMismatch, match=f"set mappedFileSizeConsumeQueue={ENTRIES_PER_FILE * 20}"):
        disk.open(mapped_file_size_consume_queue=20)
    assert bodies(disk.open()) == [b"1"]


@pytest.mark.parametrize("size", ["mapped_file_size_commit_log", "mapped_file_size_consume_queue", "max_index_num"])
def test_start_with_wrong_sizes_changes_nothing(disk: Disk, size: str) -> None:
    """With the right ones the store counts as stopped in order."""
    store = disk.open()
    put(store, *range(10))
    stop(store)
    with pytest.raises(FileSizeMismatch):
        disk.open(**{size: 2000})
    assert disk.store().load().ended_in_order


def test_unknown_file_is_an_error(disk: Disk) -> None:
    """It is not interpreted."""
    disk.file_system.make_directory(disk.root / "commitlog")
    disk.file_system.create(disk.root / "commitlog" / "notes", LOG_FILE_SIZE)
    with pytest.raises(StoreCorrupt, match="not a file of this store"):
        disk.open()


def test_log_may_be_on_its_own_disk(disk: Disk) -> None:
    """With the file system's lost+found directory."""
    disk.file_system.make_directory(disk.root / "commitlog" / "lost+found")
    put(disk.open(), 1)


def test_long_recovery_reports_its_progress(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    """Every five seconds, to the log and to a callback."""
    store = disk.open(mapped_file_size_commit_log=2**20)
    put(store, *range(5000))
    after = disk.kill()
    after.clock = TickingClock()
    caplog.set_level("INFO", "rocket_broker.store.recovery")
    progress: list[str] = []
    after.store(mapped_file_size_commit_log=2**20).load(lambda: progress.append("goes on"))
    reported = [text for text in caplog.messages if "opening the store, read 0 of at most 1 MiB" in text]
    assert len(reported) == len(progress) == 2
    after.close()


class TickingClock(FakeClock):
    """A clock that advances three seconds per reading."""

    def now_ms(self) -> int:
        self.now += 3_000
        return self.now


def test_recovery_report_is_a_sentence(disk: Disk) -> None:
    """For the broker's log."""
    store = disk.open()
    put(store, 0)
    store.flush()
    put(store, 1, 2)
    disk = disk.kill()
    overwrite(disk, log_file(disk), 2 * 106 + 88, b"?")
    assert str(disk.store().load()) == (
        "the broker before was killed; read 1 message(s) from 106 to the end at 212; "
        "1 queue(s); entries: 2 taken back, 1 added; 1 message(s) indexed; "
        "cut off a torn end (the body of the record at 212 is damaged); 0 ms"
    )
    disk.close()


def test_report_of_a_new_store_mentions_no_previous_broker(disk: Disk) -> None:
    """There was none: nothing was stopped."""
    assert str(disk.store().load()) == "the store is empty; 0 ms"
    disk.close()


def _first_timestamp(disk: Disk, number: int) -> int:
    timestamp: int = struct.unpack_from(">q", disk.bytes_of(log_file(disk, number)), 56)[0]
    return timestamp


def test_damaged_mark_is_ignored() -> None:
    """Its checksum covers each of its numbers."""
    content = blank_checkpoint(first=1, deletions_from=2)
    assert read_mark(content) == (Mark(1), 2)
    for position in range(64, 104):
        damaged = bytearray(content)
        damaged[position] ^= 1
        assert read_mark(bytes(damaged)) is None


def test_failed_recovery_is_not_an_orderly_stop(faulty_disk: Disk) -> None:
    """A start without disk space leaves the abort file."""
    disk = faulty_disk
    store = disk.open()
    given = put(store, *range(200))
    stop(store)
    erase(disk, disk.root / "consumequeue")
    assert isinstance(disk.file_system, FaultyFileSystem)
    disk.file_system.free_pages = 2
    with pytest.raises(StoreFull):
        disk.open()
    disk.file_system.free_pages = None
    store = disk.store()
    assert not store.load().ended_in_order
    assert bodies(store) == given


def test_last_message_is_found_behind_a_damaged_one(disk: Disk) -> None:
    """The next mark must name it, or the log would not be trusted."""
    store = disk.open()
    given = put(store, *range(5))
    stop(store)
    overwrite(disk, log_file(disk), store.max_commit_log_offset // 5 * 2, bytes(8))
    erase(disk, disk.root / "consumequeue")
    store = disk.open()
    last = store.last_message()
    assert last is not None
    assert decode_record(last).body == given[-1]


def sign_as_apache(disk: Disk) -> None:
    """Write what Apache's broker writes into the lock file when it opens a store."""
    path = disk.root / "lock"
    disk.file_system.allocate(path, 0, 4)
    disk.file_system.write(path, 0, memoryview(b"lock"))


def test_deletions_are_read_from_the_log_after_another_broker_wrote(disk: Disk) -> None:
    """It writes into the lock file, and may have deleted topics without a deletion record."""
    store = disk.open()
    put(store, 1, 2)
    stop(store)
    checkpoint = disk.root / "checkpoint"
    end = store.max_commit_log_offset
    mark = Mark(end, end // 2, end)
    stop(disk.open())
    assert read_mark(disk.bytes_of(checkpoint)) == (mark, 0)
    sign_as_apache(disk)
    stop(disk.open())
    assert read_mark(disk.bytes_of(checkpoint)) == (mark, end)
    assert disk.bytes_of(disk.root / "lock") == b"skit"


def test_lock_file_that_cannot_be_signed_is_reported(faulty_disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    """The store opens: without the signature, the next start is only more careful."""
    stop(faulty_disk.open())
    sign_as_apache(faulty_disk)
    assert isinstance(faulty_disk.file_system, FaultyFileSystem)
    faulty_disk.file_system.is_unsignable = True
    stop(faulty_disk.open())
    assert f"{faulty_disk.root / 'lock'}: cannot be written: No space left on device" in caplog.text
    assert faulty_disk.open() is not None
