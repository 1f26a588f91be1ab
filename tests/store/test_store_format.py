"""The bytes on the disk, read by an independent parser written from Apache's format."""

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from time import localtime, strftime

import pytest

from rocket_broker.store.consume_queue import ConsumeQueue
from rocket_broker.store.mapped_file import OpenMaps
from rocket_remoting.wire.sys_flag import TRANSACTION_PREPARED
from tests.store.disk import LOG_FILE_SIZE, SMALL, Disk, message, stop


@dataclass
class Record:
    """The fields of a commit log record."""

    position: int
    size: int
    queue_id: int
    flag: int
    queue_offset: int
    sys_flag: int
    born: tuple[int, bytes, int]
    stored: tuple[int, bytes, int]
    reconsume_times: int
    prepared_offset: int
    body: bytes
    topic: bytes
    properties: bytes


def read_commit_log(directory: Path, disk: Disk) -> list[Record]:
    """Return the records of all files, each of which is full or ends in zeros."""
    records: list[Record] = []
    for name in disk.file_system.names(directory):
        assert len(name) == 20
        data = disk.bytes_of(directory / name)
        position = 0
        while position < len(data):
            size, magic = struct.unpack_from(">iI", data, position)
            if magic == 0xCBD43194:
                assert size == len(data) - position
                break
            if (size, magic) == (0, 0):
                assert not any(data[position:])
                break
            assert magic == 0xDAA320A7
            records.append(read_record(data, position, int(name)))
            position += size
    return records


def read_record(data: bytes, start: int, base: int) -> Record:
    """Return one record; its fields have no gaps."""
    at = start + 8

    def number(code: str) -> int:
        nonlocal at
        (value,) = struct.unpack_from(">" + code, data, at)
        at += struct.calcsize(">" + code)
        return int(value)

    def text(length: int) -> bytes:
        nonlocal at
        at += length
        return data[at - length : at]

    crc, queue_id, flag, queue_offset, offset, sys_flag = (number(code) for code in "iiiqqi")
    assert offset == base + start
    born = number("q"), text(16 if sys_flag & 16 else 4), number("i")
    stored = number("q"), text(16 if sys_flag & 32 else 4), number("i")
    reconsume_times, prepared_offset = number("i"), number("q")
    body = text(number("i"))
    assert crc == zlib.crc32(body) & 0x7FFFFFFF
    topic, properties = text(number("b")), text(number("h"))
    (size,) = struct.unpack_from(">i", data, start)
    assert at - start == size
    return Record(
        offset,
        size,
        queue_id,
        flag,
        queue_offset,
        sys_flag,
        born,
        stored,
        reconsume_times,
        prepared_offset,
        body,
        topic,
        properties,
    )


def java_hash(text: str) -> int:
    """Return Java's String.hashCode."""
    value = 0
    for character in text:
        value = (value * 31 + ord(character)) % 2**32
    return value - 2**32 if value >= 2**31 else value


def test_records_have_apaches_layout(disk: Disk) -> None:
    """Every field is where Apache's CommitLog writes it, in all four combinations of hosts."""
    store = disk.open()
    hosts = {"10.1.2.3": bytes((10, 1, 2, 3)), "::1": bytes(15) + b"\1"}
    for born in hosts:
        for stored in hosts:
            store.put(
                message(
                    "orders",
                    7,
                    b"body",
                    properties=b"TAGS\x01red\x02",
                    flag=-2,
                    sys_flag=1,
                    born_timestamp=5,
                    born_host=(born, 65535),
                    store_host=(stored, 10911),
                    reconsume_times=3,
                    prepared_transaction_offset=2**40,
                )
            )
    records = read_commit_log(disk.root / "commitlog", disk)
    expected = [(born, stored) for born in hosts for stored in hosts]
    for number, (record, (born, stored)) in enumerate(zip(records, expected, strict=True)):
        assert (record.queue_id, record.flag, record.queue_offset) == (7, -2, number)
        assert record.sys_flag == 1 | (16 if ":" in born else 0) | (32 if ":" in stored else 0)
        assert record.born == (5, hosts[born], 65535)
        assert record.stored == (disk.clock.now, hosts[stored], 10911)
        assert (record.reconsume_times, record.prepared_offset) == (3, 2**40)
        assert (record.body, record.topic, record.properties) == (b"body", b"orders", b"TAGS\x01red\x02")


def test_consume_queue_entries_have_apaches_layout(disk: Disk) -> None:
    """Twenty bytes per message: offset, size, tags code; zeros behind the last."""
    store = disk.open()
    for number in range(200):
        topic, queue_id = ("a", "b")[number % 2], number % 3
        tags_code = java_hash("tag") if number % 5 else 0
        store.put(message(topic, queue_id, b"%d" % number, tags_code=tags_code))
    store.put(message("a", 0, sys_flag=TRANSACTION_PREPARED))
    records = read_commit_log(disk.root / "commitlog", disk)
    root = disk.root / "consumequeue"
    entries: dict[tuple[bytes, int, int], tuple[int, int, int]] = {}
    for topic in disk.file_system.names(root):
        for queue_id in disk.file_system.names(root / topic):
            directory = root / topic / queue_id
            data = b"".join(disk.bytes_of(directory / name) for name in disk.file_system.names(directory))
            for number, entry in enumerate(struct.iter_unpack(">qiq", data)):
                if entry[1]:
                    entries[topic.encode(), int(queue_id), number] = entry
    in_queues = [record for record in records if not record.sys_flag & 12]
    assert entries == {
        (record.topic, record.queue_id, record.queue_offset): (
            record.position,
            record.size,
            java_hash("tag") if int(record.body) % 5 else 0,
        )
        for record in in_queues
    }
    assert len(entries) == 200


def test_files_have_apaches_names_and_sizes(disk: Disk) -> None:
    """Twenty digits of offset, full size from the beginning."""
    store = disk.open()
    for _ in range(300):
        store.put(message(keys="k"))
    stop(store)
    log = disk.file_system.names(disk.root / "commitlog")
    assert log[:2] == ["00000000000000000000", f"{LOG_FILE_SIZE:020d}"]
    assert {disk.file_system.size(disk.root / "commitlog" / name) for name in log} == {LOG_FILE_SIZE}
    queue = disk.root / "consumequeue" / "orders" / "0"
    assert disk.file_system.names(queue)[:2] == ["00000000000000000000", "00000000000000001000"]
    (index,) = disk.file_system.names(disk.root / "index")
    seconds, milliseconds = divmod(disk.clock.now, 1000)
    assert index == strftime("%Y%m%d%H%M%S", localtime(seconds)) + f"{milliseconds:03d}"
    assert disk.file_system.size(disk.root / "index" / index) == 40 + 4 * 100 + 20 * 400
    assert disk.file_system.size(disk.root / "checkpoint") == 4096


def test_index_is_a_chained_hash_table(disk: Disk) -> None:
    """From the slot of a key's hash a chain leads to all its messages, newest first."""
    store = disk.open()
    keys = [f"k{number % 37}" for number in range(150)]
    begin = disk.clock.now
    for key in keys:
        store.put(message(keys=key))
        disk.clock.now += 700
    positions: dict[str, list[int]] = {}
    for key, record in zip(keys, read_commit_log(disk.root / "commitlog", disk), strict=True):
        positions.setdefault(key, []).insert(0, record.position)
    (name,) = disk.file_system.names(disk.root / "index")
    data = disk.bytes_of(disk.root / "index" / name)
    begin_time, end_time, begin_offset, end_offset, slots_used, count = struct.unpack_from(">qqqqii", data)
    assert (begin_time, end_time) == (begin, disk.clock.now - 700)
    assert (begin_offset, end_offset) == (0, max(map(max, positions.values())))
    slots = struct.unpack_from(f">{SMALL['max_hash_slot_num']}i", data, 40)
    assert slots_used == sum(slot > 0 for slot in slots)
    assert count == len(keys) + 1
    for key, expected in positions.items():
        key_hash = abs(java_hash(f"orders#{key}"))
        number = slots[key_hash % len(slots)]
        chain = []
        while number:
            entry = struct.unpack_from(">iqii", data, 40 + 4 * len(slots) + 20 * number)
            if entry[0] == key_hash:
                chain.append(entry[1])
                assert entry[2] == (number - 1) * 700 // 1000
            number = entry[3]
        assert chain == expected


@pytest.mark.parametrize("first", [1, 49, 50, 120])
def test_rebuilt_queue_file_is_padded_as_apaches(disk: Disk, first: int) -> None:
    """Up to its first message with entries of offset 0 and the largest size."""
    queue = ConsumeQueue("orders", 0, disk.settings(), OpenMaps(disk.file_system))
    queue.fill_to(first)
    queue.prepare()
    queue.append(1000, 100, 7)
    base = first // 50 * 50
    assert disk.file_system.names(queue.files.directory) == [f"{base * 20:020d}"]
    data = disk.bytes_of(queue.files.directory / f"{base * 20:020d}")
    entries = list(struct.iter_unpack(">qiq", data))
    assert entries[: first - base] == [(0, 0x7FFFFFFF, 0)] * (first - base)
    assert entries[first - base] == (1000, 100, 7)
    assert (queue.min_offset, queue.max_offset, queue.max_physical) == (first, first + 1, 1100)
