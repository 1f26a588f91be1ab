"""Opening a store with records or entries damaged by a crash or the disk."""

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
def test_torn_record_is_truncated_with_all_later_ones(disk: Disk, what: str, reason: str) -> None:
    """Whatever part of it is missing; their entries are removed too."""
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
def test_checksum_verification_can_be_disabled(disk: Disk, checks: bool, left: list[bytes]) -> None:
    """With checkCRCOnRecover=false a damaged body is served, and no message is dropped for it."""
    store = disk.open()
    put(store, 0)
    store.flush()
    begin = store.max_commit_log_offset
    put(store, 1, 2)
    disk = disk.kill()
    overwrite(disk, log_file(disk), begin + 88, b"?")
    assert bodies(disk.open(check_crc_on_recover=checks)) == left
    disk.close()


def test_remains_of_truncated_records_never_return(disk: Disk) -> None:
    """A record of equal length written over a torn one does not bring back those behind it."""
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


def test_damage_before_the_mark_costs_only_the_damaged_messages(disk: Disk) -> None:
    """Later messages were flushed and are kept."""
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
def test_readers_skip_a_damaged_record(disk: Disk, position: int, data: bytes) -> None:
    """No client could parse it or what follows it in the answer; the other messages are served."""
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
def test_damaged_header_before_the_mark_costs_only_its_message(
    disk: Disk, number: int, part: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A record that begins at the mark shows that the log reaches it, so later messages are kept."""
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
def test_log_that_ends_before_the_mark_is_reported(disk: Disk, left: int, caplog: pytest.LogCaptureFixture) -> None:
    """Its last files or all were deleted: the store opens with the rest and logs what is missing."""
    store = disk.open()
    put(store, *range(600))
    end = store.max_commit_log_offset
    stop(store)
    for number in range(left, end // LOG_FILE_SIZE + 1):
        erase(disk, log_file(disk, number))
    disk.open()
    assert f"the log ends before {end}" in caplog.text


@pytest.mark.parametrize("is_indexed", [False, True])
def test_message_with_damaged_properties_is_kept(disk: Disk, is_indexed: bool) -> None:
    """The checksum covers only the body, as in Java: the readable properties are kept."""
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


def test_message_with_a_damaged_topic_is_in_no_queue(disk: Disk) -> None:
    """The checksum covers only the body; an illegal topic name creates no directory."""
    store = disk.open()
    put(store, 1)
    disk = disk.kill()
    overwrite(disk, log_file(disk), 88 + 1 + 1, b"/")
    store = disk.open()
    assert (store.max_offset("orders", 0), store.max_commit_log_offset) == (0, 106)
    disk.close()


def test_message_with_a_damaged_queue_offset_is_in_no_queue(disk: Disk) -> None:
    """An offset beyond what the log can contain does not fill the queue up to it."""
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
def test_gap_before_the_mark_is_filled_from_the_log(disk: Disk, is_seen_late: bool) -> None:
    """Also if only the queue's next message reveals it."""
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


def test_readers_skip_offsets_of_damaged_messages(disk: Disk) -> None:
    """The offsets stay reserved, across files, and block no reader."""
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
def test_partly_written_queue_entry_is_rebuilt(disk: Disk, are_old_deleted: bool) -> None:
    """Without its first sector it looks like an older message's entry and would hide its own message."""
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


def test_entry_of_a_deleted_message_is_not_taken_for_a_torn_one(disk: Disk) -> None:
    """An empty queue keeps its next offset, wherever its last entry lies."""
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
def test_last_message_damaged_after_an_orderly_stop_is_removed_with_its_entries(
    disk: Disk, is_apaches: bool, position: int
) -> None:
    """No reader reaches it by queue or key, and the next message gets its offset."""
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
