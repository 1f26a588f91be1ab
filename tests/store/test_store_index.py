"""Finding messages by key."""

import pytest

from rocket_broker.store import FileSizeMismatch, MessageStore
from rocket_remoting.record import decode_record
from tests.store.disk import Disk, delete_old, message, stop

FOREVER = 2**62


def found(store: MessageStore, key: str, begin: int = 0, end: int = FOREVER, limit: int = 32) -> list[bytes]:
    """Return the bodies of the messages found under a key."""
    return [decode_record(record).body for record in store.query("orders", key, limit, begin, end)]


def test_a_message_is_found_by_each_of_its_keys(disk: Disk) -> None:
    """The unique key and every word of KEYS lead to the message, in its own topic only."""
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


def test_times_bound_a_query(disk: Disk) -> None:
    """Only messages stored between the times are found."""
    store = disk.open()
    for disk.clock.now in (10_000, 20_000, 30_000):
        store.put(message(body=b"%d" % disk.clock.now, keys="k"))
    assert found(store, "k", 15_000, 25_000) == [b"20000"]
    assert found(store, "k", 20_000, FOREVER) == [b"20000", b"30000"]
    assert found(store, "k", 0, 10_000) == [b"10000"]
    assert found(store, "k", 30_001, FOREVER) == []


def test_the_index_knows_seconds_only(disk: Disk) -> None:
    """A message stored within the second in which the time asked for begins or ends is found as well."""
    store = disk.open()
    for disk.clock.now in (10_000, 10_900, 12_000):
        store.put(message(body=b"%d" % disk.clock.now, keys="k"))
    assert found(store, "k", 10_950, 11_000) == [b"10000", b"10900"]


def test_a_query_is_bounded(disk: Disk) -> None:
    """The newest come when there are more than asked for, and never more than the setting allows."""
    store = disk.open(max_msgs_num_batch=3)
    for number in range(5):
        store.put(message(body=b"%d" % number, keys="k"))
    assert found(store, "k", limit=2) == [b"3", b"4"]
    assert found(store, "k", limit=99) == [b"2", b"3", b"4"]


def test_a_full_file_is_followed_by_another(disk: Disk) -> None:
    """Entries go to a new file when the last is full, and are found in all of them."""
    store = disk.open(max_index_num=10)
    for number in range(30):
        disk.clock.now += 1000
        store.put(message(body=b"%d" % number, keys=f"k{number} all"))
    files = disk.file_system.names(disk.root / "index")
    assert len(files) == 8
    assert [found(store, f"k{number}") for number in range(30)] == [[b"%d" % number] for number in range(30)]
    assert len(found(store, "all")) == 30


def test_files_made_in_one_millisecond_have_different_names(disk: Disk) -> None:
    """The clock may stand still."""
    store = disk.open(max_index_num=3)
    for number in range(6):
        store.put(message(keys=f"k{number}"))
    assert len(disk.file_system.names(disk.root / "index")) == 3


def test_a_message_with_more_keys_than_a_file_holds_is_found_by_the_first(disk: Disk) -> None:
    """Keys beyond the size of a file are left out, nothing else suffers."""
    store = disk.open(max_index_num=10)
    store.put(message(body=b"1", keys=" ".join(f"k{number}" for number in range(100))))
    assert (found(store, "k0"), found(store, "k8"), found(store, "k9")) == ([b"1"], [b"1"], [])


def test_the_index_survives_a_restart(disk: Disk) -> None:
    """What was found before is found after, and new messages go on where the file ended."""
    store = disk.open()
    store.put(message(body=b"1", keys="k"))
    stop(store)
    store = disk.open()
    store.put(message(body=b"2", keys="k"))
    assert found(store, "k") == [b"1", b"2"]
    assert len(disk.file_system.names(disk.root / "index")) == 1
    assert store.index_end == (disk.clock.now, store.min_commit_log_offset + 98)


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


def test_the_index_can_be_switched_off(disk: Disk) -> None:
    """Without the setting nothing is indexed, and no file is made."""
    store = disk.open(message_index_enable=False)
    store.put(message(keys="k"))
    assert found(store, "k") == []
    assert disk.file_system.names(disk.root / "index") == []
    assert store.index_end == (0, 0)


def test_a_file_of_other_settings_is_an_error(disk: Disk) -> None:
    """The header does not say how many slots there are: a file of another size would be read wrongly."""
    store = disk.open()
    store.put(message(keys="k"))
    stop(store)
    with pytest.raises(FileSizeMismatch, match="maxHashSlotNum or maxIndexNum"):
        disk.open(max_hash_slot_num=200)
