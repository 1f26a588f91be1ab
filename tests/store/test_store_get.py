"""Reading from a queue: each answer of Apache's ``DefaultMessageStore.getMessage``."""

import pytest

from rocket_broker.store import GetStatus, MessageStore
from rocket_remoting.wire.java_hash import java_hash
from rocket_remoting.wire.record import decode_record
from tests.store.disk import ENTRIES_PER_FILE, LOG_FILE_SIZE, Disk, delete_old, message

ALL = 1_000_000


def fill(store: MessageStore, number: int, tags: tuple[str, ...] = ("",)) -> None:
    """Store messages, with the tags in turn."""
    for n in range(number):
        tag = tags[n % len(tags)]
        store.put(message(body=b"%d" % n, tags_code=java_hash(tag)))


def bodies(records: list[memoryview]) -> list[int]:
    """Return the numbers in the bodies."""
    return [int(decode_record(record).body) for record in records]


@pytest.mark.parametrize(
    ("offset", "status", "next_offset"),
    [
        (-1, GetStatus.OFFSET_TOO_SMALL, 0),
        (0, GetStatus.FOUND, 3),
        (2, GetStatus.FOUND, 3),
        (3, GetStatus.OFFSET_OVERFLOW_ONE, 3),
        (4, GetStatus.OFFSET_OVERFLOW_BADLY, 3),
        (2**62, GetStatus.OFFSET_OVERFLOW_BADLY, 3),
    ],
)
def test_the_offset_decides(disk: Disk, offset: int, status: GetStatus, next_offset: int) -> None:
    """Before, in, at the end of and beyond the queue: each has its status and says where to go on."""
    store = disk.open()
    fill(store, 3)
    result = store.get("orders", 0, offset, 32, ALL)
    assert (result.status, result.next_begin_offset) == (status, next_offset)
    assert (result.min_offset, result.max_offset) == (0, 3)


def test_an_unknown_queue_is_no_error(disk: Disk) -> None:
    """A queue in which nothing was ever stored begins at 0, and reading does not make it."""
    store = disk.open()
    result = store.get("orders", 7, 5, 32, ALL)
    assert (result.status, result.next_begin_offset) == (GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)
    assert store.topics_with_queues() == {}


def test_a_queue_whose_messages_were_all_refused_is_empty(disk: Disk) -> None:
    """A queue without a message answers so, whatever the offset."""
    store = disk.open()
    store.put(message(body=b"x" * LOG_FILE_SIZE))
    result = store.get("orders", 0, 5, 32, ALL)
    assert (result.status, result.next_begin_offset) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0)


@pytest.mark.parametrize(("max_count", "found"), [(1, 1), (5, 5), (100, 10), (0, 1)])
def test_max_count_bounds_the_answer(disk: Disk, max_count: int, found: int) -> None:
    """So many messages come at most, but one always does."""
    store = disk.open()
    fill(store, 10)
    result = store.get("orders", 0, 0, max_count, ALL)
    assert bodies(result.records) == list(range(found))
    assert result.next_begin_offset == found


@pytest.mark.parametrize(("records", "found"), [(0, 1), (1, 1), (2.5, 2), (3, 3)])
def test_max_bytes_bounds_the_answer(disk: Disk, records: float, found: int) -> None:
    """The bytes of whole records stay within the limit, but one record always comes."""
    store = disk.open()
    fill(store, 10)
    size = len(store.get("orders", 0, 0, 1, ALL).records[0])
    result = store.get("orders", 0, 0, 32, int(records * size))
    assert list(map(len, result.records)) == [size] * found


def test_tags_are_filtered_by_their_hash(disk: Disk) -> None:
    """Only messages with one of the hashes come; the reader goes on behind what was looked at."""
    store = disk.open()
    fill(store, 10, ("red", "green", "blue"))
    result = store.get("orders", 0, 0, 32, ALL, frozenset({java_hash("red"), java_hash("blue")}))
    assert bodies(result.records) == [0, 2, 3, 5, 6, 8, 9]
    assert (result.status, result.next_begin_offset) == (GetStatus.FOUND, 10)


def test_a_full_answer_stops_before_the_next_entry(disk: Disk) -> None:
    """Once there are enough, not even entries that the filter would drop are looked at, as in Apache's loop."""
    store = disk.open()
    fill(store, 9, ("red", "green", "green"))
    result = store.get("orders", 0, 0, 2, ALL, frozenset({java_hash("red")}))
    assert (bodies(result.records), result.next_begin_offset) == ([0, 3], 4)


def test_no_match_moves_the_reader_on(disk: Disk) -> None:
    """When the filter lets nothing through the reader still gets ahead."""
    store = disk.open()
    fill(store, 10, ("red",))
    result = store.get("orders", 0, 4, 32, ALL, frozenset({java_hash("blue")}))
    assert (result.status, result.next_begin_offset) == (GetStatus.NO_MATCHED_MESSAGE, 10)
    assert result.records == []


def test_a_read_looks_at_no_more_than_800_entries(disk: Disk) -> None:
    """A filter that matches nothing holds the broker for 16,000 bytes of entries, not for the whole queue."""
    store = disk.open(mapped_file_size_consume_queue=20 * 2000, mapped_file_size_commit_log=2**20)
    fill(store, 1000, ("red",))
    none = frozenset({java_hash("blue")})
    assert store.get("orders", 0, 0, 32, ALL, none).next_begin_offset == 800
    assert store.get("orders", 0, 0, 900, ALL, none).next_begin_offset == 900


def test_a_read_ends_with_the_queues_file(disk: Disk) -> None:
    """A read looks into one file of the queue; the next read begins with the next file."""
    store = disk.open()
    fill(store, ENTRIES_PER_FILE + 10)
    result = store.get("orders", 0, ENTRIES_PER_FILE - 3, 32, ALL)
    assert bodies(result.records) == [ENTRIES_PER_FILE - 3, ENTRIES_PER_FILE - 2, ENTRIES_PER_FILE - 1]
    assert bodies(store.get("orders", 0, result.next_begin_offset, 32, ALL).records)[0] == ENTRIES_PER_FILE


def test_expired_messages_are_too_small(disk: Disk) -> None:
    """Where the log's first file was deleted a reader is sent to the first message that is left."""
    store = disk.open()
    fill(store, 300)
    assert delete_old(store) > 0
    first = store.min_offset("orders", 0)
    assert 0 < first < 300
    result = store.get("orders", 0, 0, 32, ALL)
    assert (result.status, result.next_begin_offset) == (GetStatus.OFFSET_TOO_SMALL, first)
    assert bodies(store.get("orders", 0, first, 1, ALL).records) == [first]


def test_views_stay_readable_when_the_file_goes(disk: Disk) -> None:
    """A record that is on its way to a consumer stays whole when its file is deleted."""
    store = disk.open()
    fill(store, 300)
    record = store.get("orders", 0, 0, 1, ALL).records[0]
    delete_old(store)
    assert bodies([record]) == [0]


def test_entries_are_listed_for_the_delay_service(disk: Disk) -> None:
    """Entries come with their numbers, up to the limit."""
    store = disk.open()
    fill(store, 5, ("red",))
    entries = list(store.consume_queue_entries("orders", 0, 2, 2))
    assert [(entry[0], entry[3]) for entry in entries] == [(2, java_hash("red")), (3, java_hash("red"))]
    assert [store.message_at(entry[1], entry[2]) for entry in entries] == store.get("orders", 0, 2, 2, ALL).records
    assert list(store.consume_queue_entries("orders", 9, 0, 2)) == []


@pytest.mark.parametrize("offset", [-1, 1, 50, 10_000, LOG_FILE_SIZE - 4, 2**62])
def test_no_message_where_no_record_begins(disk: Disk, offset: int) -> None:
    """An offset from a hostile client finds nothing unless a record begins there."""
    store = disk.open()
    fill(store, 3)
    assert store.message_at(offset) is None


def test_the_blank_at_a_files_end_is_no_message(disk: Disk) -> None:
    """The filler at the end of a file is not handed out."""
    store = disk.open()
    end = store.put(message(body=b"x" * (LOG_FILE_SIZE - 300))).size
    store.put(message(body=b"y" * 300))
    assert store.message_at(end) is None
