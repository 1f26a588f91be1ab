"""Finding messages by key."""

import struct
from pathlib import Path

import pytest

from rocket_broker.store import FileSizeMismatch, MessageStore, PutStatus
from rocket_broker.store.files import SECTOR_SIZE
from rocket_remoting.steps import run_all
from rocket_remoting.wire.java_hash import java_hash
from rocket_remoting.wire.record import decode_record
from tests.store.disk import SMALL, Disk, bodies, delete_old, log_file, message, overwrite, put, stop

FOREVER = 2**62
HEADER, ENTRIES = 40, 40 + 4 * SMALL["max_hash_slot_num"]
"""Where they end and begin in an index file; the first entry is never used."""


def index_file(disk: Disk) -> Path:
    """Return the only file of the index."""
    (name,) = disk.file_system.names(disk.root / "index")
    return disk.root / "index" / name


def found(store: MessageStore, key: str, begin: int = 0, end: int = FOREVER, limit: int = 32) -> list[bytes]:
    """Return the bodies of the messages found by a key."""
    return [decode_record(record).body for record in store.query("orders", key, limit, begin, end)]


def test_message_is_found_by_each_of_its_keys(disk: Disk) -> None:
    """The unique key and every word of KEYS, within its topic."""
    store = disk.open()
    store.put(message(body=b"1", unique_key="U1", keys="a b"))
    store.put(message(body=b"2", unique_key="U2", keys="b  c"))
    store.put(message("bills", body=b"3", keys="a"))
    assert [found(store, key) for key in ("U1", "U2", "a", "b", "c", "", "d")] == [
        [b"1"],
        [b"2"],
        [b"1"],
        [b"1", b"2"],
        [b"2"],
        [],
        [],
    ]


def test_query_is_limited_by_store_time(disk: Disk) -> None:
    """Only messages stored between the times are found."""
    store = disk.open()
    for disk.clock.now in (10_000, 20_000, 30_000):
        store.put(message(body=b"%d" % disk.clock.now, keys="k"))
    assert found(store, "k", 15_000, 25_000) == [b"20000"]
    assert found(store, "k", 20_000, FOREVER) == [b"20000", b"30000"]
    assert found(store, "k", 0, 10_000) == [b"10000"]
    assert found(store, "k", 30_001, FOREVER) == []


def test_index_has_a_resolution_of_a_second(disk: Disk) -> None:
    """Messages within the first and last second of the interval are found too."""
    store = disk.open()
    for disk.clock.now in (10_000, 10_900, 12_000):
        store.put(message(body=b"%d" % disk.clock.now, keys="k"))
    assert found(store, "k", 10_950, 11_000) == [b"10000", b"10900"]


def test_query_results_are_limited(disk: Disk) -> None:
    """To the newest ones, up to the request's number and the setting's."""
    store = disk.open(max_msgs_num_batch=3)
    for number in range(5):
        store.put(message(body=b"%d" % number, keys="k"))
    assert found(store, "k", limit=2) == [b"3", b"4"]
    assert found(store, "k", limit=99) == [b"2", b"3", b"4"]


def test_full_index_file_is_followed_by_another(disk: Disk) -> None:
    """Queries search all files."""
    store = disk.open(max_index_num=10)
    for number in range(30):
        disk.clock.now += 1000
        store.put(message(body=b"%d" % number, keys=f"k{number} all"))
    files = disk.file_system.names(disk.root / "index")
    assert len(files) == 8
    assert [found(store, f"k{number}") for number in range(30)] == [[b"%d" % number] for number in range(30)]
    assert len(found(store, "all")) == 30


def test_index_files_of_one_millisecond_have_different_names(disk: Disk) -> None:
    """The clock may stand still."""
    store = disk.open(max_index_num=3)
    for number in range(6):
        store.put(message(keys=f"k{number}"))
    assert len(disk.file_system.names(disk.root / "index")) == 3


def test_index_files_keep_their_order_when_the_clock_is_set_back(disk: Disk) -> None:
    """Their names are local times, which jump back each autumn."""
    store = disk.open()
    put(store, *range(450))
    disk.clock.now -= 3_600_000
    put(store, *range(450, 900))
    disk.clock.now += 7_200_000
    put(store, *range(900, 950))
    stop(store)
    store = disk.store()
    assert store.load().messages_indexed == 0
    assert all(len(store.query("orders", f"k{number}", 9, 0, FOREVER)) == 1 for number in range(950))


def test_keys_beyond_an_index_files_size_are_omitted(disk: Disk) -> None:
    """The message is found by the first ones."""
    store = disk.open(max_index_num=10)
    store.put(message(body=b"1", keys=" ".join(f"k{number}" for number in range(100))))
    assert (found(store, "k0"), found(store, "k8"), found(store, "k9")) == ([b"1"], [b"1"], [])


def test_index_survives_a_restart(disk: Disk) -> None:
    """New entries continue where the file ended."""
    store = disk.open()
    store.put(message(body=b"1", keys="k"))
    stop(store)
    store = disk.open()
    store.put(message(body=b"2", keys="k"))
    assert found(store, "k") == [b"1", b"2"]
    assert len(disk.file_system.names(disk.root / "index")) == 1
    assert store.index_end == (disk.clock.now, store.min_commit_log_offset + 98)


@pytest.mark.parametrize("is_torn_behind", [False, True])
def test_query_times_are_exact_after_a_crash(disk: Disk, is_torn_behind: bool) -> None:
    """A file's last message is found by its millisecond, whatever entries behind it were dropped."""
    store = disk.open()
    for disk.clock.now in (10_000, 11_900):
        store.put(message(body=b"%d" % disk.clock.now, keys="k"))
    store.flush()
    end = store.max_commit_log_offset
    if is_torn_behind:
        disk.clock.now = 13_000
        store.put(message(body=b"torn", keys="k"))
    disk = disk.kill()
    if is_torn_behind:
        overwrite(disk, log_file(disk), end, bytes(8))
    store = disk.open()
    assert found(store, "k", 11_900, 11_900) == [b"11900"]
    assert store.index_end[0] == 11_900


@pytest.mark.parametrize("seed", range(10))
def test_repaired_index_is_flushed(faulty_disk: Disk, seed: int) -> None:
    """After a crash, a start, an orderly stop and another crash, flushed messages are found by key."""
    disk, settings = faulty_disk, {"max_hash_slot_num": 300}  # in several sectors
    store = disk.open(**settings)
    for number in range(100):
        store.put(message(body=b"%d" % number, keys=f"k{number}"))
    store.flush()
    end = store.max_commit_log_offset
    for number in range(100):
        store.put(message(body=b"torn", keys=f"k{number}"))
    disk = disk.kill()
    overwrite(disk, log_file(disk), end, bytes(8))
    stop(disk.open(**settings))
    disk = disk.crash(seed)
    store = disk.open(**settings)
    assert [found(store, f"k{number}") for number in range(100)] == [[b"%d" % n] for n in range(100)]
    disk.close()


@pytest.mark.parametrize("seed", range(10))
def test_dropped_index_entries_never_return(faulty_disk: Disk, seed: int) -> None:
    """They would point into messages stored later in the same place."""
    disk, settings = faulty_disk, {"max_hash_slot_num": 300, "max_index_num": 1000}
    store = disk.open(**settings)
    for number in range(100):
        store.put(message(body=b"%d" % number, keys=f"k{number}"))
    store.flush()
    end = store.max_commit_log_offset
    for number in range(100):
        store.put(message(body=b"torn", keys=f"torn{number}"))
    disk = disk.kill()
    overwrite(disk, log_file(disk), end, bytes(8))
    store = disk.open(**settings)
    for number in range(100, 150):
        store.put(message(body=b"%d" % number, keys=f"k{number}", properties={"pad": "p" * 300}))
    store.flush()
    for number in range(150, 200):
        store.put(message(body=b"%d" % number, keys=f"k{number}"))
    disk = disk.crash(seed)
    store = disk.open(**settings)
    assert [found(store, f"k{number}") for number in range(150)] == [[b"%d" % n] for n in range(150)]
    disk.close()


@pytest.mark.parametrize("stale", [2, 3, 77, -1])
def test_slot_without_an_entry_leads_nowhere(disk: Disk, stale: int) -> None:
    """In a store left by Apache's broker, slots may be on the disk without header and entries."""
    store = disk.open()
    put(store, 1)
    stop(store)
    slot = HEADER + 4 * (abs(java_hash("orders#k2")) % SMALL["max_hash_slot_num"])
    overwrite(disk, index_file(disk), slot, struct.pack(">i", stale))
    store = disk.open()
    store.put(message(body=b"2", keys="k2", properties={"KEYS": "k2"}))
    stop(store)
    entry = disk.bytes_of(index_file(disk))[ENTRIES + 2 * 20 :][:20]
    assert struct.unpack(">iqii", entry)[3] == 0
    assert found(disk.open(), "k2") == [b"2"]


def test_search_ends_at_a_damaged_chain(disk: Disk) -> None:
    """An entry that leads to a newer one ends it."""
    store = disk.open()
    for number in (1, 2):
        store.put(message(body=b"%d" % number, keys="k", properties={"KEYS": "k"}))
    stop(store)
    overwrite(disk, index_file(disk), ENTRIES + 20 + 16, struct.pack(">i", 2))
    result = run_all(disk.open().find("orders", "k", 32, 0, FOREVER, most_entries=20))
    assert [decode_record(record).body for record in result.records] == [b"1", b"2"]
    assert result.is_complete


def test_partly_written_index_entry_is_dropped(disk: Disk) -> None:
    """With zeros for the second half of the offset it would point to the beginning of the log."""
    settings = {"max_hash_slot_num": 106}  # so that entry 2 begins 8 bytes before the end of a sector
    store = disk.open(**settings)
    put(store, 1)
    store.flush()
    put(store, 2)
    disk = disk.kill()
    entry = HEADER + 4 * 106 + 2 * 20
    assert entry % SECTOR_SIZE == SECTOR_SIZE - 8
    overwrite(disk, index_file(disk), entry + 8, bytes(12))
    store = disk.open(**settings)
    assert (found(store, "k1"), found(store, "k2")) == ([b"1"], [b"2"])
    disk.close()


def test_index_file_without_valid_entries_is_deleted(disk: Disk) -> None:
    """The store continues with a new one."""
    store = disk.open()
    store.put(message(body=b"1", keys="k"))
    store.flush()
    disk = disk.kill()
    (name,) = disk.file_system.names(disk.root / "index")
    first_entry = 40 + 4 * SMALL["max_hash_slot_num"] + 20
    overwrite(disk, disk.root / "index" / name, first_entry, bytes(20))
    store = disk.open()
    assert disk.file_system.names(disk.root / "index") == []
    store.flush()
    store.put(message(body=b"2", keys="k"))
    store.flush()
    assert found(store, "k") == [b"2"]
    disk.close()


def test_expired_messages_are_not_found(disk: Disk) -> None:
    """When the log's first files were deleted their messages are gone from the answers."""
    store = disk.open(max_index_num=50)
    for number in range(300):
        store.put(message(body=b"%d" % number, keys=f"k{number}"))
    files = len(disk.file_system.names(disk.root / "index"))
    delete_old(store)
    assert found(store, "k0") == []
    assert found(store, "k299") == [b"299"]
    assert len(disk.file_system.names(disk.root / "index")) < files


def test_index_can_be_disabled(disk: Disk) -> None:
    """No file is created."""
    store = disk.open(message_index_enable=False)
    store.put(message(keys="k"))
    assert found(store, "k") == []
    assert disk.file_system.names(disk.root / "index") == []
    assert store.index_end == (0, 0)


def test_index_file_with_other_settings_is_an_error(disk: Disk) -> None:
    """The header does not have the number of slots, so another size would be misread."""
    store = disk.open()
    store.put(message(keys="k"))
    stop(store)
    with pytest.raises(FileSizeMismatch, match="maxHashSlotNum or maxIndexNum"):
        disk.open(max_hash_slot_num=200)


HEADER_FIELDS = [(">q", 0), (">q", 8), (">q", 16), (">q", 24), (">i", 32), (">i", 36)]
"""The numbers of a header, and where they are."""


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("number", [-(2**63), -1, 0, 2**63 - 1])
@pytest.mark.parametrize(("field", "position"), HEADER_FIELDS)
def test_store_goes_on_after_a_damaged_index_header(
    disk: Disk, field: str, position: int, number: int, killed: bool
) -> None:
    """Whatever number is damaged, messages are stored and searches end without an error."""
    store = disk.open()
    for key in range(5):
        store.put(message(body=b"%d" % key, keys=f"k{key}"))
    store.flush()
    disk = disk.kill() if killed else disk
    if not killed:
        stop(store)
    bits = 8 * struct.calcsize(field)
    overwrite(disk, index_file(disk), position, struct.pack(field, number >> 64 - bits))
    store = disk.open()
    for key in range(5, 9):
        assert store.put(message(body=b"%d" % key, keys=f"k{key}")).status is PutStatus.OK
    for key in range(9):
        assert found(store, f"k{key}") in ([], [b"%d" % key])
    stop(store)
    store = disk.open()
    assert len(bodies(store)) == 9


def test_slots_in_use_are_at_most_all_slots(disk: Disk) -> None:
    """A damaged header may have any number; the next entry must not make it one that no header can have."""
    store = disk.open()
    store.put(message(keys="k"))
    stop(store)
    overwrite(disk, index_file(disk), 32, struct.pack(">i", 2**31 - 1))
    store = disk.open()
    assert store.put(message(keys="other")).status is PutStatus.OK
    slots = SMALL["max_hash_slot_num"]
    stop(store)
    assert struct.unpack_from(">i", disk.bytes_of(index_file(disk)), 32)[0] <= slots + 1


def test_last_timestamp_fits_its_field_after_a_crash(disk: Disk) -> None:
    """It is made of the first one and the last entry's seconds if the message is gone."""
    store = disk.open()
    store.put(message(keys="k"))
    (file,) = store._index.files
    file.begin_timestamp, file.end_offset = 2**63 - 1, 5
    file.cut(FOREVER, lambda *_: True, lambda _: None)
    assert (file.end_timestamp, file.end_offset) == (2**63 - 1, 0)
    file.begin_timestamp, file.end_offset = -(2**63), 5
    seconds = HEADER + 4 * SMALL["max_hash_slot_num"] + 20 + 12
    overwrite(disk, index_file(disk), seconds, struct.pack(">i", -5))
    file.cut(FOREVER, lambda *_: True, lambda _: None)
    assert file.end_timestamp == -(2**63)
