"""Opening a store after an orderly end and after a crash."""

import struct

import pytest

from rocket_broker.store import FileSizeMismatch, MessageStore, StoreCorrupt, StoreLocked
from rocket_broker.store.files import PAGE_SIZE
from rocket_remoting.java_hash import java_hash
from rocket_remoting.record import decode_record
from rocket_remoting.sys_flag import TRANSACTION_PREPARED
from rocket_remoting.topics import SCHEDULE_TOPIC
from tests.store.disk import (
    ENTRIES_PER_FILE,
    LOG_FILE_SIZE,
    Disk,
    bodies,
    delete_old,
    erase,
    log_file,
    message,
    overwrite,
    queue_file,
    stop,
)

FOREVER = 2**62


def put(store: MessageStore, *numbers: int, **fields: object) -> list[bytes]:
    """Store messages with numbers as bodies and keys; return the bodies."""
    given = [b"%d" % number for number in numbers]
    for body in given:
        key = f"k{body.decode()}"
        store.put(message(body=body, keys=key, properties={"KEYS": key}, **fields))
    return given


def without_mark(disk: Disk) -> None:
    """Make the checkpoint one of Apache's brokers."""
    overwrite(disk, disk.root / "checkpoint", 64, bytes(24))


# Orderly ends


def test_a_stopped_store_is_there_again_without_reading_it(disk: Disk) -> None:
    """After an orderly end the mark is at the log's end: however long the log, nothing is read."""
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


def test_the_abort_file_is_there_while_the_store_is_open(disk: Disk) -> None:
    """Apache's brokers look for it too."""
    store = disk.open()
    assert disk.file_system.size(disk.root / "abort") is not None
    stop(store)
    assert disk.file_system.size(disk.root / "abort") is None


def test_a_store_opens_once(disk: Disk) -> None:
    """A second store in the same directory is told so; after the first stopped it may open."""
    store = disk.open()
    with pytest.raises(StoreLocked, match="another broker has this store open"):
        disk.store().load()
    put(store, 1)
    stop(store)
    assert bodies(disk.open()) == [b"1"]


def test_stopping_twice_is_stopping_once(disk: Disk) -> None:
    """The second time nothing happens."""
    store = disk.open()
    stop(store)
    stop(store)
    assert disk.store().load().ended_in_order


# Crashes


@pytest.mark.parametrize("seed", range(20))
def test_what_was_flushed_survives(disk: Disk, seed: int) -> None:
    """After a crash the flushed messages are there, and of the others the first few or none: never one behind a gap."""
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


def test_a_killed_process_loses_nothing(disk: Disk) -> None:
    """What was put is in the page cache: only the machine's death can lose it."""
    store = disk.open()
    given = put(store, *range(70))
    store = disk.kill().open()
    assert bodies(store) == given
    stop(store)


def test_the_log_is_read_from_the_mark(disk: Disk) -> None:
    """What was flushed before the crash is not read again."""
    store = disk.open()
    put(store, *range(100))
    store.flush()
    marked = store.max_commit_log_offset
    put(store, *range(100, 110))
    report = disk.crash().store().load()
    assert (report.trusted_to, report.read_from) == (marked, marked)
    assert report.records <= 10


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("the head", ""),
        ("the head but its size", "magic"),
        ("the body", "is damaged"),
        ("its own offset", "says it is at"),
        ("the topic's length", "does not agree"),
        ("the last page", "never reached the disk"),
        ("a page of properties", "never reached the disk"),
    ],
)
def test_a_torn_record_is_cut_off_with_all_behind_it(disk: Disk, what: str, reason: str) -> None:
    """Whatever part of it is missing, the record and those after it are gone, and their entries with them."""
    store = disk.open()
    put(store, 0, 1)
    store.flush()
    begin = store.max_commit_log_offset
    size = store.put(message(body=b"torn", keys="k2", properties={"p": "v" * 2 * PAGE_SIZE})).size
    put(store, 3, 4)
    disk = disk.kill()
    last_page = (begin + size) // PAGE_SIZE * PAGE_SIZE
    position, length = {
        "the head": (begin, 88),
        "the head but its size": (begin + 4, 84),
        "the body": (begin + 88, 2),
        "its own offset": (begin + 28, 8),
        "the topic's length": (begin + 88 + 4, 1),
        "the last page": (last_page, begin + size - last_page),
        "a page of properties": (PAGE_SIZE, PAGE_SIZE),
    }[what]
    overwrite(disk, log_file(disk), position, bytes(length))
    store = disk.store()
    report = store.load()
    assert bodies(store) == [b"0", b"1"]
    assert report.end == store.max_commit_log_offset == begin
    assert reason in report.torn
    assert (report.torn == "") == (reason == "")
    assert [len(store.query("orders", f"k{number}", 32, 0, FOREVER)) for number in range(5)] == [
        1,
        1,
        0,
        0,
        0,
    ]
    put(store, 2)
    assert bodies(store) == [b"0", b"1", b"2"]
    disk.close()


def test_remains_of_cut_off_records_never_come_back(disk: Disk) -> None:
    """A record written over a torn one, as long as that, does not bring those behind it to life."""
    store = disk.open()
    put(store, 0)
    store.flush()
    begin = store.max_commit_log_offset
    put(store, 1, 2, 3)
    disk = disk.kill()
    overwrite(disk, log_file(disk), begin + 88, b"?")
    store = disk.open()
    put(store, 4)
    disk = disk.kill()
    store = disk.open()
    assert bodies(store) == [b"0", b"4"]
    disk.close()


def test_messages_before_a_mark_are_not_given_up(disk: Disk) -> None:
    """If the disk damages what was whole on it, that is lost, and what follows is not."""
    store = disk.open()
    put(store, *range(10))
    stop(store)
    erase(disk, queue_file(disk))
    overwrite(disk, log_file(disk), 88, b"?")
    store = disk.open()
    assert store.max_commit_log_offset > 900
    put(store, 10)
    assert bodies(store) == [b"10"]


def test_a_log_whose_last_file_was_just_begun_goes_on_there(disk: Disk) -> None:
    """A blank at the end of the last file but one is whole, even if nothing follows it."""
    store = disk.open()
    store.put(message(body=b"x" * (LOG_FILE_SIZE - 200)))
    put(store, 1)
    disk = disk.kill()
    overwrite(disk, log_file(disk, 1), 0, bytes(200))
    store = disk.store()
    assert store.load().end == LOG_FILE_SIZE
    assert store.put(message()).commit_log_offset == LOG_FILE_SIZE
    disk.close()


def test_prepared_messages_come_back_without_entries(disk: Disk) -> None:
    """Recovery knows which messages no consumer sees."""
    store = disk.open()
    store.put(message(sys_flag=TRANSACTION_PREPARED, keys="k", properties={"KEYS": "k"}))
    put(store, 1)
    disk = disk.kill()
    store = disk.open()
    assert bodies(store) == [b"1"]
    assert len(store.query("orders", "k", 32, 0, FOREVER)) == 1
    disk.close()


def test_entries_made_anew_are_those_that_were_lost(disk: Disk) -> None:
    """Tags have Java's hash, a delayed message the time it is due."""
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


def test_a_message_whose_topic_is_damaged_is_in_no_queue(disk: Disk) -> None:
    """The check sum is the body's only; a topic that names no directory does no harm."""
    store = disk.open()
    put(store, 1)
    disk = disk.kill()
    overwrite(disk, log_file(disk), 88 + 1 + 1, b"/")
    store = disk.open()
    assert (store.max_offset("orders", 0), store.max_commit_log_offset) == (0, 106)
    disk.close()


# Queues and index are derived


def test_missing_queues_are_made_from_the_log(disk: Disk) -> None:
    """The directory of all queues may be deleted after an orderly end, as with Apache's broker."""
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
    """A queue brought back from an older copy gets the entries it lacks."""
    store = disk.open()
    given = put(store, *range(40))
    stop(store)
    overwrite(disk, queue_file(disk), 10 * 20, bytes(30 * 20))
    store = disk.open()
    assert bodies(store) == given


def test_a_hole_before_the_mark_is_closed_from_the_log(disk: Disk) -> None:
    """When the next message of a queue is not the next number, the log is read for what is missing."""
    store = disk.open()
    put(store, *range(40))
    store.flush()
    put(store, 40, queue_id=1)
    put(store, 40)
    disk = disk.kill()
    overwrite(disk, queue_file(disk), 10 * 20, bytes(31 * 20))
    store = disk.open()
    assert bodies(store) == [b"%d" % number for number in range(41)]
    assert bodies(store, "orders", 1) == [b"40"]
    disk.close()


def test_a_queue_made_anew_begins_where_the_log_does(disk: Disk) -> None:
    """Numbers of messages that have been deleted are filled: the first that is left keeps its own."""
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


def test_a_queue_keeps_its_count_when_all_its_messages_are_gone(disk: Disk) -> None:
    """The next message has the next number, whatever was deleted."""
    store = disk.open()
    put(store, 0, 1, 2)
    put(store, *range(300), queue_id=1)
    delete_old(store)
    assert (store.min_offset("orders", 0), store.max_offset("orders", 0)) == (3, 3)
    stop(store)
    store = disk.open()
    assert (store.min_offset("orders", 0), store.max_offset("orders", 0)) == (3, 3)
    assert store.put(message()).queue_offset == 3


def test_a_deleted_topic_stays_deleted(disk: Disk) -> None:
    """Neither a crash nor an orderly end brings it back, and its numbers begin anew."""
    store = disk.open()
    put(store, *range(10))
    store.put(message("other"))
    store.delete_topic("orders")
    assert store.topics_with_queues() == {"other": [0]}
    given = put(store, 10, 11)
    disk = disk.kill()
    store = disk.open()
    assert (bodies(store), store.min_offset("orders", 0)) == (given, 0)
    store.delete_topic("orders")
    disk = disk.kill()
    store = disk.open()
    assert store.topics_with_queues() == {"other": [0]}
    disk.close()


def test_without_a_log_there_are_no_queues(disk: Disk) -> None:
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


def test_a_store_without_mark_that_ended_in_order_is_read_from_the_third_last_file(disk: Disk) -> None:
    """So do Apache's brokers; what lies before is taken on trust."""
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


def test_a_store_without_mark_that_crashed_is_read_from_the_checkpoints_time(disk: Disk) -> None:
    """From the last file begun three seconds before the checkpoint's times on, everything is made anew."""
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


def test_a_mark_of_another_log_is_not_believed(disk: Disk) -> None:
    """When the log is not the one the mark was made for, it is read as if there were none."""
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


def test_a_store_that_died_before_its_first_flush_did_not_end_in_order(disk: Disk) -> None:
    """A lost abort file does not make it so: nothing in it is taken on trust."""
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


def test_a_missing_file_is_an_error(disk: Disk) -> None:
    """A hole in the log where all was on the disk is not papered over."""
    store = disk.open()
    put(store, *range(600))
    stop(store)
    erase(disk, log_file(disk, 1))
    with pytest.raises(StoreCorrupt, match="this file is missing") as caught:
        disk.open()
    assert caught.value.file == log_file(disk, 1)


def test_files_behind_one_that_vanished_in_a_crash_are_left_out(disk: Disk) -> None:
    """Nothing behind the mark was promised: files there may be missing."""
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


def test_a_file_of_another_size_is_an_error(disk: Disk) -> None:
    """The settings must be those the store was made with; the error says which and how."""
    store = disk.open()
    put(store, 1)
    stop(store)
    with pytest.raises(FileSizeMismatch, match=f"set mappedFileSizeCommitLog={LOG_FILE_SIZE}"):
        disk.open(mapped_file_size_commit_log=2 * LOG_FILE_SIZE)
    with pytest.raises(FileSizeMismatch, match=f"set mappedFileSizeConsumeQueue={ENTRIES_PER_FILE * 20}"):
        disk.open(mapped_file_size_consume_queue=20)
    assert bodies(disk.open()) == [b"1"]


def test_a_strange_file_is_an_error(disk: Disk) -> None:
    """A file that no broker made is not guessed about."""
    disk.file_system.make_directory(disk.root / "commitlog")
    disk.file_system.create(disk.root / "commitlog" / "notes", LOG_FILE_SIZE)
    with pytest.raises(StoreCorrupt, match="no file of this store"):
        disk.open()


def test_the_report_is_a_sentence(disk: Disk) -> None:
    """What recovery did can be read in the broker's log."""
    store = disk.open()
    put(store, 0)
    store.flush()
    put(store, 1, 2)
    disk = disk.kill()
    overwrite(disk, log_file(disk), 2 * 106 + 88, b"?")
    assert str(disk.store().load()) == (
        "the broker before was killed; read 1 messages from 106 to the end at 212; "
        "1 queues, 2 entries taken back, 1 added; 1 messages indexed; "
        "cut off a torn end (the body of the record at 212 is damaged); 0 ms"
    )
    disk.close()


def _first_timestamp(disk: Disk, number: int) -> int:
    timestamp: int = struct.unpack_from(">q", disk.bytes_of(log_file(disk, number)), 56)[0]
    return timestamp
