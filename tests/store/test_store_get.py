"""Reading from a queue: each status of Apache's ``DefaultMessageStore.getMessage``."""

from collections.abc import Sequence
from random import Random

import pytest

from rocket_broker.store import GetStatus, MessageStore, queue_reader
from rocket_broker.store.consume_queue import ENTRY_SIZE
from rocket_remoting.wire.java_hash import java_hash
from rocket_remoting.wire.record import decode_record
from tests.native_core import needs_native_core
from tests.store.disk import ENTRIES_PER_FILE, LOG_FILE_SIZE, Disk, delete_old, message

ALL = 1_000_000


def fill(store: MessageStore, number: int, tags: tuple[str, ...] = ("",)) -> None:
    """Store messages with the tags in turn."""
    for n in range(number):
        tag = tags[n % len(tags)]
        store.put(message(body=b"%d" % n, tags_code=java_hash(tag)))


def bodies(records: Sequence[bytes | memoryview]) -> list[int]:
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
def test_offset_determines_the_status(disk: Disk, offset: int, status: GetStatus, next_offset: int) -> None:
    """Before, within, at the end of and beyond the queue; each status has the next offset."""
    store = disk.open()
    fill(store, 3)
    result = store.get("orders", 0, offset, 32, ALL)
    assert (result.status, result.next_begin_offset) == (status, next_offset)
    assert (result.min_offset, result.max_offset) == (0, 3)


def test_unknown_queue_is_no_error(disk: Disk) -> None:
    """It begins at 0, and reading does not create it."""
    store = disk.open()
    result = store.get("orders", 7, 5, 32, ALL)
    assert (result.status, result.next_begin_offset) == (GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)
    assert store.topics_with_queues() == {}


def test_queue_whose_messages_were_all_refused_is_empty(disk: Disk) -> None:
    """Whatever the offset."""
    store = disk.open()
    store.put(message(body=b"x" * LOG_FILE_SIZE))
    result = store.get("orders", 0, 5, 32, ALL)
    assert (result.status, result.next_begin_offset) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0)


@pytest.mark.parametrize(("max_count", "found"), [(1, 1), (5, 5), (100, 10), (0, 1)])
def test_max_count_limits_the_result(disk: Disk, max_count: int, found: int) -> None:
    """At least one message is returned."""
    store = disk.open()
    fill(store, 10)
    result = store.get("orders", 0, 0, max_count, ALL)
    assert bodies(result.records) == list(range(found))
    assert result.next_begin_offset == found


@pytest.mark.parametrize(("records", "found"), [(0, 1), (1, 1), (2.5, 2), (3, 3)])
def test_max_bytes_limits_the_result(disk: Disk, records: float, found: int) -> None:
    """By the sizes of whole records; at least one is returned."""
    store = disk.open()
    fill(store, 10)
    size = len(store.get("orders", 0, 0, 1, ALL).records[0])
    result = store.get("orders", 0, 0, 32, int(records * size))
    assert list(map(len, result.records)) == [size] * found


def test_messages_are_filtered_by_tag_hash(disk: Disk) -> None:
    """The next offset is behind the last checked entry."""
    store = disk.open()
    fill(store, 10, ("red", "green", "blue"))
    result = store.get("orders", 0, 0, 32, ALL, frozenset({java_hash("red"), java_hash("blue")}))
    assert bodies(result.records) == [0, 2, 3, 5, 6, 8, 9]
    assert (result.status, result.next_begin_offset) == (GetStatus.FOUND, 10)


def test_full_result_checks_no_further_entries(disk: Disk) -> None:
    """Not even entries that the filter would drop, as in Apache's loop."""
    store = disk.open()
    fill(store, 9, ("red", "green", "green"))
    result = store.get("orders", 0, 0, 2, ALL, frozenset({java_hash("red")}))
    assert (bodies(result.records), result.next_begin_offset) == ([0, 3], 4)


def test_result_without_matches_advances_the_offset(disk: Disk) -> None:
    """When the filter lets nothing through the reader still gets ahead."""
    store = disk.open()
    fill(store, 10, ("red",))
    result = store.get("orders", 0, 4, 32, ALL, frozenset({java_hash("blue")}))
    assert (result.status, result.next_begin_offset) == (GetStatus.NO_MATCHED_MESSAGE, 10)
    assert result.records == []


def test_read_checks_at_most_800_entries(disk: Disk) -> None:
    """A filter without matches reads 16,000 bytes of entries, not the whole queue."""
    store = disk.open(mapped_file_size_consume_queue=20 * 2000, mapped_file_size_commit_log=2**20)
    fill(store, 1000, ("red",))
    none = frozenset({java_hash("blue")})
    assert store.get("orders", 0, 0, 32, ALL, none).next_begin_offset == 800
    assert store.get("orders", 0, 0, 900, ALL, none).next_begin_offset == 900


def test_read_ends_with_the_queue_file(disk: Disk) -> None:
    """The next read begins with the next file."""
    store = disk.open()
    fill(store, ENTRIES_PER_FILE + 10)
    result = store.get("orders", 0, ENTRIES_PER_FILE - 3, 32, ALL)
    assert bodies(result.records) == [ENTRIES_PER_FILE - 3, ENTRIES_PER_FILE - 2, ENTRIES_PER_FILE - 1]
    assert bodies(store.get("orders", 0, result.next_begin_offset, 32, ALL).records)[0] == ENTRIES_PER_FILE


def test_offset_of_an_expired_message_is_too_small(disk: Disk) -> None:
    """The reader is sent to the first remaining message."""
    store = disk.open()
    fill(store, 300)
    assert delete_old(store) > 0
    first = store.min_offset("orders", 0)
    assert 0 < first < 300
    result = store.get("orders", 0, 0, 32, ALL)
    assert (result.status, result.next_begin_offset) == (GetStatus.OFFSET_TOO_SMALL, first)
    assert bodies(store.get("orders", 0, first, 1, ALL).records) == [first]


def test_views_stay_readable_when_the_file_is_deleted(disk: Disk) -> None:
    """A record being sent to a consumer stays complete."""
    store = disk.open()
    fill(store, 300)
    record = store.get("orders", 0, 0, 1, ALL).records[0]
    delete_old(store)
    assert bodies([record]) == [0]


def test_entries_are_listed_for_the_delay_service(disk: Disk) -> None:
    """With their offsets, up to the limit."""
    store = disk.open()
    fill(store, 5, ("red",))
    entries = list(store.consume_queue_entries("orders", 0, 2, 2))
    assert [(entry[0], entry[3]) for entry in entries] == [(2, java_hash("red")), (3, java_hash("red"))]
    assert [store.message_at(entry[1], entry[2]) for entry in entries] == store.get("orders", 0, 2, 2, ALL).records
    assert list(store.consume_queue_entries("orders", 9, 0, 2)) == []


@pytest.mark.parametrize("offset", [-1, 1, 50, 10_000, LOG_FILE_SIZE - 4, 2**62])
def test_no_message_where_no_record_begins(disk: Disk, offset: int) -> None:
    """Arbitrary offsets from hostile clients find nothing."""
    store = disk.open()
    fill(store, 3)
    assert store.message_at(offset) is None


def test_blank_at_the_end_of_a_file_is_no_message(disk: Disk) -> None:
    """The filler is not returned."""
    store = disk.open()
    end = store.put(message(body=b"x" * (LOG_FILE_SIZE - 300))).size
    store.put(message(body=b"y" * 300))
    assert store.message_at(end) is None


@needs_native_core
def test_native_core_reads_the_same(disk: Disk) -> None:
    """With any limits and tags, over the borders of files, and if bytes of records or entries have changed."""
    random = Random(5)
    store = disk.open()
    for number in range(ENTRIES_PER_FILE * 2):
        body = bytes(random.randrange(500))
        store.put(message(body=body, tags_code=number % 3, properties={"k": "v"} if number % 2 else {}))
    store.flush()
    log, queue = store._commit_log, store._queues.find(("orders", 0))
    assert queue is not None
    alone = 0
    for round_ in range(120):
        if round_ == 20:
            log.found = log.end  # as after a restart
        if round_ > 40:
            file = random.choice(random.choice([log.files, queue.files]).files)
            end = ENTRY_SIZE * ENTRIES_PER_FILE if file in queue.files.files else LOG_FILE_SIZE
            file.open()[random.randrange(end)] ^= 1 << random.randrange(8)
        offset = random.randrange(queue.max_offset)
        limits = (random.choice([1, 2, 32]), random.choice([1, 1_000, ALL]))
        tags = random.choice([None, None, frozenset({0}), frozenset({1, 2}), frozenset({7}), frozenset(range(99))])
        found = queue_reader.read(log, queue, offset, *limits, tags)
        expected = queue_reader._read_each(log, queue, offset, 800, *limits, tags, None)
        assert found == expected
        alone += all(isinstance(record, bytes) for record in found.records)
    assert alone > 40
