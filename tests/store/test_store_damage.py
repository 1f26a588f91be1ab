"""Opening a store in which a crash, or the disk, has damaged records or entries."""

import pytest

from rocket_broker.store import GetStatus
from rocket_broker.store.files import PAGE_SIZE
from rocket_remoting.wire.record import decode_record
from tests.store.disk import (
    ENTRIES_PER_FILE,
    FOREVER,
    LOG_FILE_SIZE,
    Disk,
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

LAST_IN_FILE = 149


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("the head", ""),
        ("the head but its size", "magic"),
        ("the body", "is damaged"),
        ("its own offset", "says it is at"),
        ("the topic's length", "does not agree"),
        ("the last page", "never reached the disk"),
        ("a sector of properties", "never reached the disk"),
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
        "a sector of properties": (PAGE_SIZE, PAGE_SIZE),
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


@pytest.mark.parametrize(("checks", "left"), [(True, [b"0"]), (False, [b"0", b"?", b"2"])])
def test_check_sums_may_be_left_unread(disk: Disk, checks: bool, left: list[bytes]) -> None:
    """With checkCRCOnRecover=false a damaged body is served, and no message is given up for it."""
    store = disk.open()
    put(store, 0)
    store.flush()
    begin = store.max_commit_log_offset
    put(store, 1, 2)
    disk = disk.kill()
    overwrite(disk, log_file(disk), begin + 88, b"?")
    assert bodies(disk.open(check_crc_on_recover=checks)) == left
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


@pytest.mark.promise
@pytest.mark.parametrize(
    ("position", "data"),
    [
        (0, b"\x7f"),  # the size
        (4, bytes(4)),  # the magic number
        (20, b"\x01"),  # its number
        (28, b"\x01"),  # its own offset
        (84, b"\xff"),  # the body's length
        (88 + 1 + 1, b"\xff"),  # the topic
        (0, bytes(106)),  # all of it
    ],
)
def test_readers_pass_over_a_damaged_record(disk: Disk, position: int, data: bytes) -> None:
    """No client could make anything of it, nor of what follows it in an answer: the others are there."""
    store = disk.open()
    given = put(store, 0, 1, 2)
    start = store.max_commit_log_offset
    put(store, 3)
    given += put(store, 4, 5)
    stop(store)
    overwrite(disk, log_file(disk), start + position, data)
    store = disk.open()
    assert bodies(store) == given
    damaged = store.get("orders", 0, 3, 1, 2**30)
    assert [decode_record(record).body for record in damaged.records] == [b"4"]
    put(store, 6)
    assert bodies(store) == [*given, b"6"]


@pytest.mark.promise
@pytest.mark.parametrize("number", [9, LAST_IN_FILE])
@pytest.mark.parametrize("part", [0, 4, 28, 84])
def test_a_damaged_head_just_before_the_mark_costs_its_message_only(
    disk: Disk, number: int, part: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A record that begins at the mark shows that the log reaches to it: what was stored since is there."""
    store = disk.open()
    given = put(store, *range(number))
    damaged = store.max_commit_log_offset
    put(store, number)
    store.flush()
    given += put(store, *range(number + 1, number + 20))
    disk = disk.kill()
    overwrite(disk, log_file(disk), damaged + part, b"\x7f")
    store = disk.open()
    assert bodies(store) == given
    assert store.max_offset("orders", 0) == number + 20
    assert f"the message at {damaged} is damaged" in caplog.text
    disk.close()


@pytest.mark.parametrize("left", [0, 1])
def test_a_log_that_ends_before_the_mark_is_told(disk: Disk, left: int, caplog: pytest.LogCaptureFixture) -> None:
    """Its last files were deleted, or all: the store opens with what is left, and says what is not."""
    store = disk.open()
    put(store, *range(600))
    end = store.max_commit_log_offset
    stop(store)
    for number in range(left, end // LOG_FILE_SIZE + 1):
        erase(disk, log_file(disk, number))
    disk.open()
    assert f"the log ends before {end}" in caplog.text


@pytest.mark.parametrize("is_indexed", [False, True])
def test_a_message_whose_properties_are_damaged_is_not_lost(disk: Disk, is_indexed: bool) -> None:
    """The check sum is the body's only: the broker starts, and what can be read of them is there, as with Java."""
    store = disk.open()
    given = put(store, 0, 1, 2)
    offset = next(entry[1] for entry in store.consume_queue_entries("orders", 0, 1, 1))
    if is_indexed:
        store.flush()
    disk = disk.kill()
    overwrite(disk, log_file(disk), disk.bytes_of(log_file(disk)).index(b"k1", offset), b"\xff")
    store = disk.open()
    assert bodies(store) == given
    keys = ("k0", "k1", "\ufffd1", "k2")
    assert [len(store.query("orders", key, 32, 0, FOREVER)) for key in keys] == [
        1,
        is_indexed,
        not is_indexed,
        1,
    ]
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


def test_a_message_whose_number_is_damaged_is_in_no_queue(disk: Disk) -> None:
    """It would have more messages before it than the log has room for: the queue is not filled up to there."""
    store = disk.open()
    put(store, 0, 1)
    start = store.max_commit_log_offset
    put(store, 2, 3, 4)
    disk = disk.kill()
    overwrite(disk, log_file(disk), start + 20, b"\x20")
    erase(disk, disk.root / "consumequeue")
    store = disk.open()
    assert (bodies(store), store.max_offset("orders", 0)) == ([b"0", b"1", b"3", b"4"], 5)
    disk.close()


@pytest.mark.parametrize("is_seen_late", [False, True])
def test_a_hole_before_the_mark_is_closed_from_the_log(disk: Disk, is_seen_late: bool) -> None:
    """The log is read for what is missing, also if only the next message of the queue shows that something is."""
    store = disk.open()
    put(store, *range(40))
    if is_seen_late:  # another queue leads to all that lies before the mark
        put(store, 40, queue_id=1)
        store.flush()
    else:
        store.flush()
        put(store, 40, queue_id=1)
    put(store, 40)
    disk = disk.kill()
    overwrite(disk, queue_file(disk), 10 * 20, bytes(31 * 20))
    store = disk.open()
    assert bodies(store) == [b"%d" % number for number in range(41)]
    assert bodies(store, "orders", 1) == [b"40"]
    assert [entry[0] for entry in store.consume_queue_entries("orders", 0, 0, 50)] == list(range(41))
    disk.close()


def test_readers_pass_over_numbers_whose_messages_are_damaged(disk: Disk) -> None:
    """What neither queue nor log has any more keeps its numbers, over files, and stops nobody."""
    store = disk.open()
    put(store, *range(60))
    put(store, 60, queue_id=1)
    store.flush()
    put(store, 60)
    damaged = next(entry[1] for entry in store.consume_queue_entries("orders", 0, 20, 1))
    disk = disk.kill()
    overwrite(disk, queue_file(disk), 10 * 20, bytes(40 * 20))
    overwrite(disk, queue_file(disk).with_name(f"{ENTRIES_PER_FILE * 20:020d}"), 0, bytes(ENTRIES_PER_FILE * 20))
    overwrite(disk, log_file(disk), damaged + 4, bytes(4))
    store = disk.open()
    result = store.get("orders", 0, 20, 32, 2**20)
    assert (result.status, result.next_begin_offset) == (GetStatus.MESSAGE_WAS_REMOVING, ENTRIES_PER_FILE)
    assert [decode_record(r).body for r in store.get("orders", 0, 0, 1000, 2**20).records] == [
        b"%d" % number for number in range(20)
    ]
    (record,) = store.get("orders", 0, ENTRIES_PER_FILE, 32, 2**20).records
    assert decode_record(record).body == b"60"
    assert (store.min_offset("orders", 0), store.max_offset("orders", 0)) == (0, 61)
    assert store.put(message()).queue_offset == 61
    disk.close()


@pytest.mark.parametrize("are_old_deleted", [False, True])
def test_an_entry_of_which_one_sector_reached_the_disk_is_made_anew(disk: Disk, are_old_deleted: bool) -> None:
    """Without its first sector it looks like an older message's: its own would be hidden for ever."""
    split = 2048 // 20  # eight bytes of its entry are in one sector, twelve in the next
    store = disk.open(mapped_file_size_consume_queue=200 * 20)
    put(store, *range(300), queue_id=1)
    if are_old_deleted:
        assert delete_old(store)
    given = put(store, *range(split))
    store.flush()
    given += put(store, split)
    disk = disk.kill()
    overwrite(disk, queue_file(disk), split * 20, bytes(8))
    store = disk.store(mapped_file_size_consume_queue=200 * 20)
    assert store.load().entries_taken_back == 1
    assert bodies(store) == given
    disk.close()


def test_the_entry_of_a_deleted_message_is_not_taken_for_a_torn_one(disk: Disk) -> None:
    """A queue whose messages are all gone keeps its count, wherever its last entry lies."""
    count = 2048 // 20 + 1
    store = disk.open(mapped_file_size_consume_queue=200 * 20)
    put(store, *range(count))
    put(store, *range(300), queue_id=1)
    delete_old(store)
    disk = disk.kill()
    store = disk.open(mapped_file_size_consume_queue=200 * 20)
    assert (store.min_offset("orders", 0), store.max_offset("orders", 0)) == (count, count)
    disk.close()


@pytest.mark.parametrize(("is_apaches", "position"), [(True, 88), (False, 4)])
def test_a_last_message_damaged_after_an_orderly_end_takes_its_entries_with_it(
    disk: Disk, is_apaches: bool, position: int
) -> None:
    """No reader is led to it, by queue or key, and the next message takes its number."""
    store = disk.open()
    given = put(store, *range(9))
    last = store.max_commit_log_offset
    put(store, 9)
    stop(store)
    if is_apaches:
        without_mark(disk)
    overwrite(disk, log_file(disk), last + position, b"?")
    store = disk.store()
    report = store.load()
    assert (report.ended_in_order, report.end, report.entries_taken_back) == (True, last, 1)
    assert bodies(store) == given
    assert store.query("orders", "k9", 32, 0, FOREVER) == []
    assert store.put(message(body=b"new")).queue_offset == 9
    assert bodies(store) == [*given, b"new"]
