"""Blocks of records that the native core dispatches have the same entries as records that are dispatched one by one."""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from rocket_broker.settings.delay_levels import SCHEDULE_TOPIC
from rocket_broker.store import MessageStore, PutStatus
from rocket_broker.store.errors import LogMismatch
from rocket_remoting.native import has_native_core
from rocket_remoting.steps import run_all
from rocket_remoting.wire.java_hash import java_hash
from rocket_remoting.wire.properties import decode_stored_properties, encode_properties
from rocket_remoting.wire.sys_flag import TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from tests.native_core import needs_native_core
from tests.store.disk import Disk, FakeClock, message, stop
from tests.store.faulty_file_system import FaultyFileSystem
from tests.store.test_store_runs import stored_files

pytestmark = needs_native_core

SIZES = {"mapped_file_size_commit_log": 48 * 1024, "mapped_file_size_consume_queue": 20 * 150, "max_index_num": 250}
PROPERTIES: list[Callable[[Random], bytes]] = [
    lambda random: b"",
    lambda random: encode_properties({"UNIQ_KEY": f"7F{random.randrange(2**64):030X}", "WAIT": "true"}),
    lambda random: encode_properties({"TAGS": random.choice(["a", "bb", "ä€😀", "long" * 40]), "p": "v w"}),
    lambda random: encode_properties({"KEYS": f" k{random.randrange(9)}  all ", "UNIQ_KEY": "u", "TAGS": "a"}),
    lambda random: encode_properties({"KEYS": " ".join(f"k{n}" for n in range(random.randrange(1, 300)))}),
    lambda random: b"TAGS\x01open",
    lambda random: b"TAGS\x01\x02KEYS\x01k",
    lambda random: b"TAGS\x01a\x02TAGS\x01b\x02",
    lambda random: b"KEYS\x01\xff\xfe\x02",
    lambda random: b"\x01\x02no name\x02=\x01=\x01=\x02",
]
TOPICS = ("orders", "bills", "köche", "x" * 127)


def put_any(store: MessageStore, random: Random) -> None:
    """Store a message of any kind, with the entries that belong to its properties."""
    store._clock.now += random.choice((0, 1, 700, 90_000))  # type: ignore[attr-defined]
    properties = PROPERTIES[min(int(random.expovariate(0.6)), len(PROPERTIES) - 1)](random)
    decoded = decode_stored_properties(properties)
    fields = {
        "tags_code": java_hash(decoded["TAGS"]) if "TAGS" in decoded else 0,
        "keys": decoded.get("KEYS", ""),
        "unique_key": decoded.get("UNIQ_KEY", ""),
        "born_host": random.choice((("10.0.0.1", 5), ("10.0.0.1", 5), ("::1", 7))),
        "store_host": random.choice((("10.0.0.2", 9), ("10.0.0.2", 9), ("fe80::1", 9))),
        "sys_flag": random.choice((0, 0, 0, 0, TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)),
    }
    topic, queue_id = random.choice(TOPICS[: random.randint(1, 4)]), random.randrange(3)
    if random.random() < 0.02:
        topic, queue_id, properties = SCHEDULE_TOPIC, 2, encode_properties({"DELAY": "3"})
        delivered = store.settings.delay_levels.deliver_at(3, store._clock.now_ms())
        fields |= {"tags_code": delivered, "keys": "", "unique_key": "", "sys_flag": 0}
    body = random.randbytes(int(random.expovariate(0.01)) if random.random() < 0.98 else 20_000)
    assert store.put(message(topic, queue_id, body, properties=properties, **fields)).status is PutStatus.OK
    if random.random() < 0.005:
        store.delete_topic("bills")


def filled(seed: int, count: int = 600) -> tuple[Disk, MessageStore]:
    """Return a store with messages of all kinds."""
    disk, random = Disk(FaultyFileSystem(), Path("/store"), FakeClock()), Random(seed)
    store = disk.open(**SIZES)
    for _ in range(count):
        put_any(store, random)
    return disk, store


@dataclass
class Copied:
    """What a slave has made of a log."""

    files: dict[Path, bytes]
    heard: list[tuple[str, int, int, int]]
    end: int
    problem: str
    announcements: int = field(compare=False)


def copied(log: bytes, random: Random, *, in_blocks: bool) -> Copied:
    """Copy a log in slices, and return what the slave has then."""
    disk = Disk(FaultyFileSystem(), Path("/store"), FakeClock())
    slave = disk.open(is_replica=True, **SIZES)
    assert slave.replica is not None
    if not in_blocks:
        slave.replica._reput._reader = None
    heard: list[tuple[str, int, int, int]] = []
    announced: list[int] = []

    def hear(topic: str, queue_id: int, number: int, codes: Sequence[int], at: int) -> None:
        announced.append(len(codes))
        heard.extend((topic, queue_id, number + position, code) for position, code in enumerate(codes))

    slave.arrival_listeners.append(hear)
    file_size, start, problem = SIZES["mapped_file_size_commit_log"], 0, ""
    try:
        while start < len(log):
            size = min(int(random.expovariate(0.0001)) + 1, file_size - start % file_size)
            slave.replica.write(start, memoryview(log[start : start + size]))
            run_all(slave.replica.dispatch())
            start += size
    except LogMismatch as e:
        problem = str(e)
    return Copied(stored_files(disk), sorted(heard), slave.max_commit_log_offset, problem, len(announced))


def log_of(disk: Disk, store: MessageStore) -> bytes:
    """Return the bytes of a store's log."""
    files = stored_files(disk)
    whole = b"".join(files[path] for path in sorted(files) if path.parent.name == "commitlog")
    return whole[: store.max_commit_log_offset]


@pytest.mark.parametrize("seed", range(3))
def test_a_slave_makes_the_same_entries_both_ways(seed: int) -> None:
    """Of logs with messages of all kinds, byte for byte, and announces the same messages."""
    disk, store = filled(seed)
    log = log_of(disk, store)
    in_blocks, one_by_one = (copied(log, Random(seed), in_blocks=way) for way in (True, False))
    assert in_blocks == one_by_one
    assert (in_blocks.end, in_blocks.problem) == (store.max_commit_log_offset, "")
    assert 0 < in_blocks.announcements < one_by_one.announcements == len(one_by_one.heard)


@pytest.mark.parametrize("seed", range(12))
def test_damaged_logs_have_the_same_end_both_ways(seed: int) -> None:
    """Whatever byte is wrong, and with the same error."""
    random = Random(seed)
    disk, store = filled(random.randrange(3), 60)
    log = bytearray(log_of(disk, store))
    for _ in range(random.randint(1, 3)):
        log[random.randrange(len(log))] ^= 1 << random.randrange(8)
    in_blocks, one_by_one = (copied(bytes(log), Random(seed), in_blocks=way) for way in (True, False))
    assert in_blocks == one_by_one


def test_impossible_numbers_and_lengths_have_the_same_end_both_ways() -> None:
    """The extremes of each field of a record's head."""
    disk, store = filled(0, 20)
    log = log_of(disk, store)
    for position in (4, 8, 12, 20, 28, 36, 48, 56, 84):
        for value in (-1, 0, 2**31 - 1):
            data = log[:position] + struct.pack(">i", value) + log[position + 4 :]
            in_blocks, one_by_one = (copied(data, Random(1), in_blocks=way) for way in (True, False))
            assert in_blocks == one_by_one, (position, value)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("way", ["blocks", "one by one"])
def test_recovery_makes_the_entries_of_the_whole_log(seed: int, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same as those that were made when the messages were stored, if queues and index are lost."""
    disk, store = filled(seed)
    stop(store)
    before = stored_files(disk)
    lost = disk.file_system
    for path in before:
        if path.parent.name != "commitlog":
            lost.remove(path)
    for directory in sorted((path.parent for path in before if "consumequeue" in path.parts), reverse=True):
        if lost.size(directory) is not None:
            lost.remove(directory)
    lost.remove(disk.settings().checkpoint_path)
    if way == "one by one":
        monkeypatch.setenv("STREAMKIT_NATIVE", "0")
    has_native_core.cache_clear()
    try:
        again = disk.open(**SIZES)
    finally:
        monkeypatch.undo()
        has_native_core.cache_clear()
    after = stored_files(disk)
    assert again.max_commit_log_offset == store.max_commit_log_offset
    assert after.keys() == before.keys()
    assert [path for path in after if after[path] != before[path]] == []
