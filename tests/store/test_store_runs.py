"""Runs of messages stored in one call have the same files as messages stored one by one."""

import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from rocket_broker.processors.batches import read_plain
from rocket_broker.settings.delay_levels import DelayLevels
from rocket_broker.store import MessageStore, PutStatus
from rocket_broker.store.message_store import ArrivalListener
from rocket_broker.store.state import FileState, IndexState, LogState, QueueState
from rocket_broker.writing.batch_head import BatchHead
from rocket_broker.writing.message_writer import MessageWriter
from rocket_remoting.wire.batch import decode_batch
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.message import Host
from tests.native_core import made, needs_native_core
from tests.store.disk import ENTRIES_PER_FILE, LOG_FILE_SIZE, SMALL, Disk, FakeClock, bodies, overwrite, stop
from tests.store.faulty_file_system import FaultyFileSystem

if TYPE_CHECKING:
    from rocket_native import SendReader

pytestmark = needs_native_core

COUNT = 32
HOST = ("127.0.0.1", 10911)
FOREVER = 2**62
HEADER, SLOTS = 40, 40 + 4 * SMALL["max_hash_slot_num"]
"""Where they end in an index file."""
ROOMY = {"mapped_file_size_commit_log": 1024 * 1024, "mapped_file_size_consume_queue": 20 * 1000}

Properties = Callable[[int], dict[str, str]]


def head_of(host: Host) -> BatchHead:
    """Return the fields that the messages of a batch share."""
    return BatchHead("orders", 1, b"CLUSTER\x01c", 0, 7, host, 2)


HEAD = head_of(("10.0.0.1", 5))


def batch(
    count: int = COUNT,
    properties: Properties = lambda number: {},
    *,
    size: int = 3,
    closing: bytes = b"\2",
) -> bytes:
    """Return the body of a batch request."""
    entries = []
    for number in range(count):
        own = "".join(f"{name}\x01{value}\x02" for name, value in properties(number).items()).encode()
        own = own.removesuffix(b"\2") + closing if own else own
        body = b"%d" % number + bytes(size)
        head = struct.pack(">iiiii", 22 + len(body) + len(own), 0, 0, number, len(body))
        entries.append(head + body + struct.pack(">h", len(own)) + own)
    return b"".join(entries)


def one_by_one(store: MessageStore, data: bytes, head: BatchHead = HEAD, host: Host = HOST) -> bool:
    """Store a batch message by message; return whether all were stored."""
    writer = MessageWriter(store, DelayLevels("1s"), store._clock, host)
    try:
        return {writer.put_entry(head, entry).status for entry in decode_batch(data)} == {PutStatus.OK}
    except RemoteProtocolError:
        return False


def in_one_go(store: MessageStore, data: bytes, head: BatchHead = HEAD, host: Host = HOST) -> bool:
    """Store a batch in one call; return whether that was possible."""
    writer = MessageWriter(store, DelayLevels("1s"), store._clock, host)
    messages = read_plain(data, 0, len(data))
    return messages is not None and writer.put_plain(head, messages) is not None


def send_reader() -> "SendReader":
    """Return a reader of a few small sends."""
    from rocket_native import SendReader

    return SendReader(
        waiting=[], timed="TIMER_", sys_flags=0, most_keys=9, most_keys_in_all=9, most_messages=9, most_bytes=99,
        most_sends=9, store_host=bytes(8), keeps_signatures=False,
    )  # fmt: skip


def send(topic: str, queue_id: int) -> bytes:
    """Return a request that sends a message with a key."""
    key = "UNIQ_KEY\\u0001k\\u0002"
    fields = f'"a":"g","b":"{topic}","c":"t","d":"4","e":"{queue_id}","f":"0","g":"1","h":"0","i":"{key}"'
    header = f'{{"code":310,"extFields":{{{fields}}},"opaque":7}}'.encode()
    return struct.pack(">ii", 4 + len(header) + 3, len(header)) + header + b"abc"


def files(disk: Disk, directory: Path) -> dict[Path, bytes]:
    """Return everything below a directory."""
    found = {}
    for name in disk.file_system.names(directory):
        path = directory / name
        found.update(files(disk, path) if disk.file_system.names(path) else {path: disk.bytes_of(path)})
    return found


def stored_files(disk: Disk) -> dict[Path, bytes]:
    """Return the files of log, queues and index."""
    found = {}
    for name in ("commitlog", "consumequeue", "index"):
        found.update(files(disk, disk.root / name))
    return found


CASES: dict[str, Properties] = {
    "none": lambda number: {},
    "unique keys": lambda number: {"UNIQ_KEY": f"7F00000100002A9F18B4AAC2{number:08X}"},
    "tags": lambda number: {"TAGS": f"t{number % 3}" * (number % 5 + 1)},
    "some have some": lambda number: (
        {"TAGS": "a", "UNIQ_KEY": f"u{number}"} if number % 3 else {"p": "v w"} if number % 2 else {}
    ),
    "several keys": lambda number: {"KEYS": f" k{number}  all {number % 4} ", "UNIQ_KEY": f"u{number}"},
    "one key of all": lambda number: {"KEYS": "same", "UNIQ_KEY": "same"},
    "long and short": lambda number: {"UNIQ_KEY": "k" * (number * 7 % 90 + 1), "TAGS": "long" * 40},
    "wait": lambda number: {"a": "1", "WAIT": "false", "z": "\x7f\x03"},
}


@pytest.mark.parametrize("properties", CASES.values(), ids=CASES)
@pytest.mark.parametrize("hosts", [(HOST, HOST), (("::1", 1), HOST), (HOST, ("fe80::1", 2))])
def test_files_are_equal_both_ways(properties: Properties, hosts: tuple[Host, Host], clock: FakeClock) -> None:
    """Byte for byte: log, queue and index, with a second batch after the first."""
    found = []
    head, batches = head_of(hosts[0]), [batch(50, properties), batch(40, properties, size=100)]
    for put in (one_by_one, in_one_go):
        disk = Disk(FaultyFileSystem(), Path("/store"), clock)
        store = disk.open(**ROOMY)
        one_by_one(store, batch(3, CASES["several keys"]), head, hosts[1])
        for data in batches:
            clock.now += 1500
            assert put(store, data, head, hosts[1])
        clock.now -= 3000
        found.append(stored_files(disk))
        disk.close()
    assert found[0] == found[1]


def test_missing_last_property_separator_is_added(clock: FakeClock) -> None:
    """Java's batches lack it before 5.0."""
    data, found = batch(40, CASES["some have some"], closing=b""), []
    for put in (one_by_one, in_one_go):
        disk = Disk(FaultyFileSystem(), Path("/store"), clock)
        store = disk.open(**ROOMY)
        one_by_one(store, batch(1))
        assert put(store, data)
        found.append(stored_files(disk))
        disk.close()
    assert found[0] == found[1]


def test_damaged_batch_is_stored_as_by_the_loop(clock: FakeClock) -> None:
    """With any byte changed, or not at all."""
    random, data = Random(7), batch(COUNT, CASES["several keys"])
    taken = 0
    for _ in range(80):
        damaged = bytearray(data)
        damaged[random.randrange(len(data))] = random.choice([0, 1, 2, 32, 255, random.randrange(256)])
        found = []
        for put in (one_by_one, in_one_go):
            disk = Disk(FaultyFileSystem(), Path("/store"), clock)
            store = disk.open()
            one_by_one(store, batch(1))
            before = stored_files(disk)
            found.append((put(store, bytes(damaged)), stored_files(disk)))
            disk.close()
        (looped, by_loop), (ran, by_run) = found
        taken += ran
        assert by_run == (by_loop if ran else before)
        assert looped or not ran
    assert taken > 20


def test_a_negative_length_is_not_read_as_a_large_one() -> None:
    """Both ways refuse the batch as a whole, before a part of it is stored."""
    own = b"a\x01" + b"v" * 40_000
    large = struct.pack(">iiiii", 22 + len(own), 0, 0, 0, 0) + struct.pack(">H", len(own)) + own
    assert read_plain(batch() + large, 0, len(batch() + large)) is None
    with pytest.raises(RemoteProtocolError, match=f"batch entry {COUNT} "):
        decode_batch(batch() + large)


IN_THE_WAY = {
    "an empty store": (0, batch()),
    "the log's file is full": (LOG_FILE_SIZE - 3000, batch()),
    "the queue's file is full": (1, batch(ENTRIES_PER_FILE)),
    "the index file is full": (
        1,
        batch(properties=lambda n: {"KEYS": " ".join(f"{n}-{k}" for k in range(13))}),
    ),
    "a zero byte": (1, batch(properties=lambda n: {"a": "\0"})),
    "text that is not UTF-8": (1, batch(properties=lambda n: {"UNIQ_KEY": "key"}).replace(b"key", b"k\xffy")),
    "a value without a name": (1, batch(properties=lambda n: {"": "v"})),
    "a name without a value": (1, batch(properties=lambda n: {"TAGS": ""})),
    "a name twice": (1, batch(properties=lambda n: {"TAGS": "a"}).replace(b"TAGS\x01a", b"a\x01b\x02a\x01c")),
}


@pytest.mark.parametrize(("filled", "data"), IN_THE_WAY.values(), ids=IN_THE_WAY)
def test_run_that_cannot_be_stored_leaves_no_trace(disk: Disk, filled: int, data: bytes) -> None:
    """For any reason; its messages are then stored one by one."""
    store = disk.open()
    if filled:
        one_by_one(store, batch(1, size=filled))
    before, end = stored_files(disk), store.max_commit_log_offset
    assert not in_one_go(store, data)
    assert store.max_commit_log_offset == end
    assert bodies(store, "orders", 1) == bodies(store, "orders", 1)[: 1 if filled else 0]
    assert {path: found for path, found in stored_files(disk).items() if any(found)} == before


UNFIT = {
    "a number": BatchHead("orders", 2**31, b"", 0, 7, HOST, 0),
    "a time": BatchHead("orders", 1, b"", 0, 2**63, HOST, 0),
    "the topic": BatchHead("o" * 128, 1, b"", 0, 7, HOST, 0),
    "the properties": BatchHead("orders", 1, b"a\x01" + b"x" * 32_760, 0, 7, HOST, 0),
    "a zero byte": BatchHead("orders", 1, b"a\x01\0", 0, 7, HOST, 0),
}


@pytest.mark.parametrize("head", UNFIT.values(), ids=UNFIT)
def test_field_out_of_range_leaves_no_trace(disk: Disk, head: BatchHead) -> None:
    """All bytes are built before the first record is written."""
    store = disk.open(**ROOMY)
    one_by_one(store, batch(3))
    before, end = stored_files(disk), store.max_commit_log_offset
    assert not in_one_go(store, batch(properties=CASES["unique keys"]), head)
    assert (store.max_commit_log_offset, store.max_offset("orders", 1)) == (end, 3)
    assert {path: found for path, found in stored_files(disk).items() if any(found)} == before
    assert in_one_go(store, batch(properties=CASES["unique keys"]))
    assert store.max_offset("orders", 1) == 3 + COUNT


def test_run_is_refused_in_advance_when_it_cannot_be_stored(faulty_disk: Disk) -> None:
    """With a store pool, with too much unflushed data, and when closed."""
    store = faulty_disk.open(transient_store_pool_enable=True)
    assert not store.takes_runs
    stop(store)
    store = faulty_disk.open(max_unflushed_bytes=100)
    assert store.takes_runs
    one_by_one(store, batch(3))
    assert not store.takes_runs
    store.flush()
    assert store.takes_runs
    stop(store)
    assert not store.takes_runs


def test_full_disk_refuses_runs_until_it_has_space(faulty_disk: Disk) -> None:
    """Without parsing them; the first stored message ends the refusal."""
    store, file_system = faulty_disk.open(), faulty_disk.file_system
    assert isinstance(file_system, FaultyFileSystem)
    one_by_one(store, batch(1, size=LOG_FILE_SIZE // 2))
    file_system.free_pages = 0
    assert not one_by_one(store, batch(1, size=LOG_FILE_SIZE // 2))
    assert not store.takes_runs
    file_system.free_pages = None
    assert one_by_one(store, batch(1))
    assert store.takes_runs


def test_queue_file_is_completed_by_the_loop(disk: Disk) -> None:
    """A run that reaches the end of a file is stored one by one, the next run in one call."""
    store, ways = disk.open(), []
    one_by_one(store, batch(1))
    for number in range(4):
        data = batch(properties=lambda n, number=number: {"UNIQ_KEY": f"{number}-{n}"})
        ways.append(in_one_go(store, data))
        if not ways[-1]:
            one_by_one(store, data)
    assert set(ways) == {True, False}
    assert store.max_offset("orders", 1) == 1 + 4 * COUNT
    assert all(len(store.query("orders", f"{n}-{COUNT - 1}", 9, 0, FOREVER)) == 1 for n in range(4))


def test_listeners_are_called_once_per_run(disk: Disk) -> None:
    """With the first offset and all tags, when the messages are readable."""
    store = disk.open()
    one_by_one(store, batch(1))
    heard: list[object] = []
    store.arrival_listeners.append(
        lambda topic, queue_id, first, tags, stored: heard.append(
            (topic, queue_id, first, list(tags), store.max_offset(topic, queue_id))
        )
    )
    assert in_one_go(store, batch(properties=lambda n: {"TAGS": "a" if n else "b"}))
    assert heard == [("orders", 1, 1, [98] + [97] * (COUNT - 1), COUNT + 1)]


SENT_TO = [("orders", 1), ("orders", 0), ("tea", 1), ("orders", 1)]
WHO_LISTENS: dict[str, tuple[Callable[[MessageStore, ArrivalListener], None], list[tuple[str, int]]]] = {
    "nobody": (lambda store, listener: None, []),
    "all queues": (lambda store, listener: store.arrival_listeners.append(listener), SENT_TO[:3]),
    "a topic": (lambda store, listener: store.topic_listeners.update(tea=listener), [("tea", 1)]),
    "two queues": (
        lambda store, listener: store.queue_listeners.append(({("tea", 1), ("orders", 1), ("tea", 9)}, listener)),
        [("orders", 1), ("tea", 1)],
    ),
    "no queue": (lambda store, listener: store.queue_listeners.append((set(), listener)), []),
}


@pytest.mark.parametrize(("listen", "queues"), WHO_LISTENS.values(), ids=WHO_LISTENS)
def test_listeners_hear_of_their_queues_of_a_run(
    disk: Disk, listen: Callable[[MessageStore, ArrivalListener], None], queues: list[tuple[str, int]]
) -> None:
    """Sends of two connections to several queues are stored together; all of them are flushed."""
    store = disk.open(**ROOMY)
    one_by_one(store, batch(1), BatchHead("other", 0, b"", 0, 7, HOST, 0))
    store.flush()
    heard: list[tuple[object, ...]] = []
    listen(store, lambda topic, queue_id, first, tags, stored: heard.append((topic, queue_id, first, len(tags))))
    requests = [send(topic, queue_id) for topic, queue_id in SENT_TO]
    host = bytes(8)
    sends = send_reader().read(
        [(host, 0, memoryview(b"".join(requests[:2]))), (host, 0, memoryview(b"".join(requests[2:])))],
        "CLUSTER\x01c",
        99,
    )
    assert sends is not None
    assert (sends.targets, sends.topics) == (SENT_TO[:3], ["orders", "tea"])
    assert sends.uses == [(0, 0, 0), (0, 1, 1), (1, 2, 0), (1, 0, 1)]
    assert store.put_run(sends, sends.targets) is not None
    counts = {("orders", 1): 2, ("orders", 0): 1, ("tea", 1): 1}
    assert heard == [(*queue, 0, counts[queue]) for queue in queues]
    assert {queue: store.max_offset(*queue) for queue in counts} == counts
    assert {(queue.topic, queue.queue_id) for queue in store._flusher.dirty_queues} == set(counts)


@pytest.mark.parametrize(("start", "end"), [(HEADER, SLOTS), (0, HEADER)], ids=["slots", "header"])
def test_partly_written_index_is_recovered(disk: Disk, start: int, end: int) -> None:
    """Entries before the crash are found, and so is the run."""
    store = disk.open(**ROOMY)
    one_by_one(store, batch(40, CASES["unique keys"]))
    store.flush()
    (path,) = files(disk, disk.root / "index")
    before = disk.bytes_of(path)
    assert in_one_go(store, batch(COUNT, lambda n: {"UNIQ_KEY": f"later-{n}"}))
    killed = disk.kill()
    overwrite(killed, killed.root / "index" / path.name, start, before[start:end])
    found = killed.open(**ROOMY)
    for number in range(40):
        assert len(found.query("orders", CASES["unique keys"](number)["UNIQ_KEY"], 9, 0, FOREVER)) == 1
    for number in range(COUNT):
        assert len(found.query("orders", f"later-{number}", 9, 0, FOREVER)) == 1
    stop(found)


def test_run_without_its_first_bytes_leaves_no_record(clock: FakeClock) -> None:
    """They are written last: without them recovery takes nothing behind them for a record."""
    disk = Disk(FaultyFileSystem(), Path("/store"), clock)
    store = disk.open()
    one_by_one(store, batch(1))
    store.flush()
    end = store.max_commit_log_offset
    assert in_one_go(store, batch())
    killed = disk.kill()
    (log,) = files(killed, killed.root / "commitlog")
    overwrite(killed, log, end, bytes(8))
    report = killed.store().load()
    assert (report.end, report.torn) == (end, "")
    killed.close()


WRITER = """
import ctypes, mmap, struct, sys
from rocket_native import read_batch

root, kept = sys.argv[1:]
PAGE = mmap.PAGESIZE
own = b"UNIQ_KEY\\x01k\\x02"
message = struct.pack(">iiiii", 25 + len(own), 0, 0, 0, 3) + b"abc" + struct.pack(">h", len(own)) + own
run = read_batch(message, 0, len(message), timed="T", most_keys=9, most_keys_in_all=9).run(
    topic="orders", queue_id=1, properties=b"", sys_flag=0, host_flags=0, born_timestamp=1, born_host=bytes(8),
    store_host=bytes(8), reconsume_times=0, store_timestamp=1, queue_offset=5, commit_log_offset=7,
)
maps = {}
for name in ("log", "index", "queue"):
    with open(f"{root}/{name}", "w+b") as file:
        file.truncate(2 * PAGE)
        maps[name] = mmap.mmap(file.fileno(), 2 * PAGE)
kept_at = ctypes.addressof(ctypes.c_char.from_buffer(maps[kept]))
assert not ctypes.CDLL(None).mprotect(ctypes.c_void_p(kept_at), ctypes.c_size_t(PAGE), 1)
places = [(memoryview(maps[name]), position) for name, position in (("log", PAGE - 8), ("queue", 0))]
run.write(places[0], places[1:], (memoryview(maps["index"]), 4, 0, 0, 0, 1))
"""
"""Writes a run into three files, of which the first page of one cannot be written, so that the process dies there. The
first bytes of the record are the last ones of the log's first page."""


@pytest.mark.skipif(sys.platform != "linux", reason="protects memory as Linux does")
@pytest.mark.parametrize(
    ("kept", "written"),
    [("log", {"rest"}), ("index", {"rest", "head"}), ("queue", {"rest", "head", "index"})],
    ids=["log", "index", "queue"],
)
def test_process_that_dies_leaves_a_run_written_in_order(tmp_path: Path, kept: str, written: set[str]) -> None:
    """The records, then their first bytes, then the index, then the queue."""
    done = subprocess.run([sys.executable, "-c", WRITER, str(tmp_path), kept], capture_output=True, check=False)
    assert done.returncode == -signal.SIGSEGV, done.stderr.decode()
    log, index, queue = ((tmp_path / name).read_bytes() for name in ("log", "index", "queue"))
    page = len(log) // 2
    pieces = {"rest": log[page:], "head": log[:page], "index": index, "queue": queue}
    assert {name for name, piece in pieces.items() if any(piece)} == written


def test_run_is_not_written_outside_of_its_files() -> None:
    """Nor into memory that is read-only; then nothing is written at all."""
    messages = read_plain(batch(2, CASES["unique keys"]), 0, len(batch(2, CASES["unique keys"])))
    assert messages is not None
    run = messages.run(
        topic="orders", queue_id=1, properties=b"", sys_flag=0, host_flags=0, born_timestamp=1, born_host=bytes(8),
        store_host=bytes(8), reconsume_times=0, store_timestamp=1, queue_offset=5, commit_log_offset=7,
    )  # fmt: skip
    log, queue, index = bytearray(run.size), bytearray(40), bytearray(40 + 4 * 3 + 20 * 3)

    def write(size: int = run.size, entries: int = 40, index_size: int = len(index), number: int = 1) -> None:
        file = memoryview(index)[:index_size]
        run.write((memoryview(log)[:size], 0), [(memoryview(queue)[:entries], 0)], (file, 3, 0, 0, 0, number))

    for wrong in ({"size": run.size - 1}, {"entries": 39}, {"index_size": len(index) - 1}, {"number": 2}):
        with pytest.raises(ValueError, match="outside of the memory"):
            write(**wrong)
    with pytest.raises(ValueError, match="read-only"):
        run.write((memoryview(bytes(run.size)), 0), [(memoryview(queue), 0)], None)
    with pytest.raises(ValueError, match="all of their queues"):
        run.write((memoryview(log), 0), [], None)
    assert not any(log + queue + index)
    write()
    assert log[0] == 0
    assert log[7] == 0xA7


INDEX_SLOTS = 3
PACKED = {
    "all have room": ({}, True),
    "the log is full": ({"log_room": -1}, False),
    "the queue is full": ({"queue_room": -1}, False),
    "the index is full": ({"index_room": -1}, False),
    "the index has no space for its slots": ({"mark": 0}, False),
    "the log is not mapped": ({"is_mapped": False}, False),
}


@pytest.mark.parametrize(("lack", "is_written"), PACKED.values(), ids=PACKED)
def test_sends_are_written_at_once_if_all_files_have_room(lack: dict[str, int], is_written: bool) -> None:
    """They are also counted. Otherwise nothing changes, and `Run.write` later writes the same bytes."""

    def file(data: bytearray, room: int, base: int = 0, *, is_mapped: bool = True) -> FileState:
        view = memoryview(data) if is_mapped else None
        return made(FileState(), base=base, size=len(data) + 8, allocated=len(data) + room, view=view)

    sends = send_reader().read([(bytes(8), 0, memoryview(send("orders", 1)))], "CLUSTER\x01c", 99)
    assert sends is not None
    log_state, queue_state = made(LogState(), end=7), made(QueueState(), max_offset=5)
    size = sends.pack(log_state, [queue_state], None, 1).result[1]
    log, queue, index = bytearray(size), bytearray(20), bytearray(HEADER + 4 * INDEX_SLOTS + 20 * 2)
    log_state.tail = file(log, lack.get("log_room", 0), 7, is_mapped=lack.get("is_mapped", True))
    queue_state.tail = file(queue, lack.get("queue_room", 0), 5 * 20)
    index_state = made(
        IndexState(), file=file(index, lack.get("index_room", 0)), slots=INDEX_SLOTS, count=1, chunk_bits=16,
        chunks_allocated=bytearray([lack.get("mark", 1)]),
    )  # fmt: skip
    run = sends.pack(log_state, [queue_state], index_state, 1)
    written, _, _, index_header = run.result
    assert (log_state.end, log_state.committed, log_state.last_record) == (
        (7 + size, 7 + size, 7) if is_written else (7, 0, 0)
    )
    assert (queue_state.max_offset, queue_state.max_physical) == ((6, 7 + size) if is_written else (5, 0))
    assert (index_state.count, index_state.slots_used) == ((2, 1) if is_written else (1, 0))
    assert (written, run.queues, run.key_count) == (is_written, [(1, 7 + size)], 1)
    assert any(log + queue + index) is (index_header is not None) is is_written
    found = bytes(log), bytes(queue), bytes(index)
    again = run.write((memoryview(log), 0), [(memoryview(queue), 0)], (memoryview(index), INDEX_SLOTS, 0, 0, 0, 1))
    assert again == (1, 1, 7, 7, 1, 2)
    if is_written:
        assert (log, queue) == found[:2]
        assert index_header == again


@pytest.mark.parametrize(("left", "is_taken"), [(8, True), (7, False)])
def test_run_leaves_space_for_the_blank_behind_it(clock: FakeClock, left: int, is_taken: bool) -> None:
    """Eight bytes, without which the file could not be ended."""
    disk = Disk(FaultyFileSystem(), Path("/store"), clock)
    store = disk.open(**ROOMY)
    one_by_one(store, batch(1))
    one_by_one(store, batch())
    end = store.max_commit_log_offset
    disk.close()
    disk = Disk(FaultyFileSystem(), Path("/store"), clock)
    store = disk.open(**{**ROOMY, "mapped_file_size_commit_log": end + left})
    one_by_one(store, batch(1))
    assert in_one_go(store, batch()) is is_taken
    assert one_by_one(store, batch(2))
    disk.close()


@pytest.mark.parametrize("way", [one_by_one, in_one_go])
@pytest.mark.parametrize("stale", [41, 90, 399, -1])
def test_slots_without_entries_lead_nowhere(way: Callable[[MessageStore, bytes], bool], stale: int, disk: Disk) -> None:
    """Slots may be on the disk without header and entries; no entry links to a later one."""
    store = disk.open(**ROOMY)
    one_by_one(store, batch(40, CASES["unique keys"]))
    stop(store)
    (path,) = files(disk, disk.root / "index")
    overwrite(disk, path, HEADER, struct.pack(">i", stale) * SMALL["max_hash_slot_num"])
    assert way(disk.open(**ROOMY), batch(COUNT, lambda n: {"UNIQ_KEY": f"later-{n}"}))
    entries = disk.bytes_of(path)[SLOTS + 41 * 20 :][: COUNT * 20]
    older = [older for *_, older in struct.iter_unpack(">iqii", entries)]
    assert all(older < number for number, older in enumerate(older, 41))


@pytest.mark.parametrize("way", [one_by_one, in_one_go])
@pytest.mark.parametrize("slots_used", [-(2**31), 2**31 - 1])
def test_run_is_stored_after_a_damaged_index_header(
    way: Callable[[MessageStore, bytes], bool], slots_used: int, disk: Disk
) -> None:
    """The number of slots in use may be any; counting on from it must not end the broker."""
    store = disk.open(**ROOMY)
    one_by_one(store, batch(2, CASES["unique keys"]))
    stop(store)
    (path,) = files(disk, disk.root / "index")
    overwrite(disk, path, 32, struct.pack(">i", slots_used))
    store = disk.open(**ROOMY)
    assert way(store, batch(COUNT, lambda n: {"UNIQ_KEY": f"later-{n}"}))
    assert len(store.query("orders", "later-3", 9, 0, FOREVER)) == 1
    stop(store)
    assert 0 < struct.unpack_from(">i", disk.bytes_of(path), 32)[0] <= SMALL["max_hash_slot_num"] + COUNT


def test_core_counts_slots_up_to_the_largest_number() -> None:
    """Whatever it is given as the number of slots in use, and as that of the next entry."""
    data = batch(2, CASES["unique keys"])
    messages = read_plain(data, 0, len(data))
    assert messages is not None
    run = messages.run(
        topic="orders", queue_id=1, properties=b"", sys_flag=0, host_flags=0, born_timestamp=1, born_host=bytes(8),
        store_host=bytes(8), reconsume_times=0, store_timestamp=1, queue_offset=5, commit_log_offset=7,
    )  # fmt: skip
    log, queue, index = (memoryview(bytearray(size)) for size in (run.size, 40, HEADER + 4 * 3 + 20 * 3))
    largest = 2**31 - 1
    with pytest.raises(OverflowError, match="too many entries"):
        run.write((log, 0), [(queue, 0)], (index, 3, 0, 0, 0, largest))
    *_, slots_used, number = run.write((log, 0), [(queue, 0)], (index, 3, 2**63 - 1, 0, largest, 1)) or ()
    assert (slots_used, number) == (largest, 3)


def test_sequence_of_keys_may_begin_with_any_number() -> None:
    """Also with the largest, behind which there is none."""
    data = batch(2, CASES["unique keys"])
    messages = read_plain(data, 0, len(data))
    assert messages is not None
    assert messages.has_sequence("7F00000100002A9F18B4AAC2", 0)
    assert not messages.has_sequence("7F00000100002A9F18B4AAC2", 2**64 - 1)
