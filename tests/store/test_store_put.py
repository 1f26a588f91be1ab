"""Storing a message."""

import asyncio
import errno
import zlib
from collections.abc import Sequence

import pytest

from rocket_broker.store import PutResult, PutStatus
from rocket_remoting.wire.record import (
    BLANK_MAGIC,
    MAGIC_V1,
    decode_record,
    encode_record,
    peek_record,
    read_size_and_magic,
)
from rocket_remoting.wire.sys_flag import (
    BORN_HOST_V6,
    STORE_HOST_V6,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from tests.store.disk import LOG_FILE_SIZE, Disk, message
from tests.store.faulty_file_system import FaultyFileSystem

HOST = ("127.0.0.1", 10911)
HEAD_SIZE = 88
"""Bytes of a record before its body."""


def test_stored_message_is_readable_at_once(disk: Disk) -> None:
    """With every field, in the same call."""
    store = disk.open()
    given = message(
        "orders",
        3,
        b"\x00\x01body",
        properties={"TAGS": "red", "KEYS": "a b"},
        flag=-7,
        sys_flag=0,
        born_timestamp=123,
        born_host=("10.0.0.1", 1234),
        store_host=("10.0.0.2", 10911),
        reconsume_times=2,
        prepared_transaction_offset=99,
    )
    result = store.put(given)
    (record,) = store.get("orders", 3, 0, 32, 10_000).records
    stored = decode_record(record)
    assert result == PutResult(PutStatus.OK, 0, len(record), 0, disk.clock.now)
    assert (stored.topic, stored.queue_id, stored.body) == ("orders", 3, b"\x00\x01body")
    assert stored.properties == {"TAGS": "red", "KEYS": "a b"}
    assert (stored.flag, stored.born_timestamp, stored.reconsume_times) == (-7, 123, 2)
    assert (stored.born_host, stored.store_host) == (("10.0.0.1", 1234), ("10.0.0.2", 10911))
    assert stored.prepared_transaction_offset == 99
    assert stored.store_timestamp == disk.clock.now
    assert stored.body_crc == zlib.crc32(b"\x00\x01body") & 0x7FFFFFFF


def test_queue_offsets_and_log_offsets_are_consecutive(disk: Disk) -> None:
    """Queue offsets per queue, log offsets by record sizes."""
    store = disk.open()
    results = [store.put(message(queue_id=number % 2)) for number in range(6)]
    assert [result.queue_offset for result in results] == [0, 0, 1, 1, 2, 2]
    ends = [result.commit_log_offset + result.size for result in results]
    assert [result.commit_log_offset for result in results] == [0, *ends[:-1]]
    assert store.max_commit_log_offset == ends[-1]
    assert (store.max_offset("orders", 0), store.max_offset("orders", 1)) == (3, 3)


def test_record_is_never_split_between_files(disk: Disk) -> None:
    """One that does not fit begins the next file; a blank fills the rest."""
    store = disk.open()
    first = store.put(message(body=b"x" * (LOG_FILE_SIZE - 300)))
    second = store.put(message(body=b"y" * 300))
    assert second.commit_log_offset == LOG_FILE_SIZE
    log = disk.bytes_of(disk.root / "commitlog" / f"{0:020d}")
    assert read_size_and_magic(log, first.size) == (LOG_FILE_SIZE - first.size, BLANK_MAGIC)
    assert [len(record) for record in store.get("orders", 0, 0, 9, 99_999).records] == [
        first.size,
        second.size,
    ]


@pytest.mark.parametrize("spare", range(7, 10))
def test_eight_bytes_stay_free_behind_a_record(disk: Disk, spare: int) -> None:
    """For a blank, as in Apache's broker."""
    store = disk.open()
    overhead = store.put(message(body=b"")).size
    fitting = LOG_FILE_SIZE - overhead - overhead - spare
    result = store.put(message(body=b"x" * fitting))
    assert result.commit_log_offset == (LOG_FILE_SIZE if spare < 8 else overhead)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_body_may_be_any_bytes_like_object(disk: Disk, kind: type) -> None:
    """It need not be copied from the request."""
    store = disk.open()
    store.put(message(body=kind(b"abc")))
    assert decode_record(store.get("orders", 0, 0, 1, 999).records[0]).body == b"abc"


@pytest.mark.parametrize(
    ("born", "stored", "flags"),
    [
        ("10.0.0.1", "10.0.0.2", 0),
        ("::1", "10.0.0.2", BORN_HOST_V6),
        ("10.0.0.1", "fe80::2", STORE_HOST_V6),
        ("::1", "fe80::2", BORN_HOST_V6 | STORE_HOST_V6),
    ],
)
def test_host_flags_follow_the_hosts(disk: Disk, born: str, stored: str, flags: int) -> None:
    """The IPv6 flags are set by the addresses, whatever the client sent."""
    store = disk.open()
    claimed = BORN_HOST_V6 | STORE_HOST_V6
    store.put(message(born_host=(born, 1), store_host=(stored, 2), sys_flag=claimed))
    header = peek_record(store.get("orders", 0, 0, 1, 999).records[0])
    assert (header.sys_flag, header.born_host, header.store_host) == (flags, (born, 1), (stored, 2))


@pytest.mark.parametrize(
    ("refused", "status"),
    [
        (message(body=b"x" * 1001), PutStatus.MESSAGE_ILLEGAL),
        (message(properties=b"k\x01" + b"v" * 32766), PutStatus.PROPERTIES_SIZE_EXCEEDED),
        (message(properties=b"k\x01v\0v\x02"), PutStatus.MESSAGE_ILLEGAL),
        (message("a/b", sys_flag=TRANSACTION_PREPARED), PutStatus.MESSAGE_ILLEGAL),
        (message("t" * 128), PutStatus.MESSAGE_ILLEGAL),
        (message("é" * 64), PutStatus.MESSAGE_ILLEGAL),
        (message("../../etc"), PutStatus.MESSAGE_ILLEGAL),
        (message(".."), PutStatus.MESSAGE_ILLEGAL),
        (message(""), PutStatus.MESSAGE_ILLEGAL),
        (message("a\0b"), PutStatus.MESSAGE_ILLEGAL),
        (message("\ud800"), PutStatus.MESSAGE_ILLEGAL),
        (message(queue_id=-1), PutStatus.MESSAGE_ILLEGAL),
        (message(queue_id=2**31), PutStatus.MESSAGE_ILLEGAL),
        (message(flag=2**31), PutStatus.MESSAGE_ILLEGAL),
        (message(born_timestamp=2**63), PutStatus.MESSAGE_ILLEGAL),
        (message(tags_code=2**63), PutStatus.MESSAGE_ILLEGAL),
        (message(born_host=("localhost", 1)), PutStatus.MESSAGE_ILLEGAL),
        (message(born_host=("10.0.0.1", 2**31)), PutStatus.MESSAGE_ILLEGAL),
    ],
    ids=lambda value: value.name if isinstance(value, PutStatus) else "",
)
def test_refused_message_leaves_no_trace(disk: Disk, refused: object, status: PutStatus) -> None:
    """It has a status, and the next message is stored as if it had not been sent."""
    store = disk.open(max_message_size=1000)
    before = store.put(message())
    assert store.put(refused).status is status  # type: ignore[arg-type]
    after = store.put(message())
    assert after.commit_log_offset == before.commit_log_offset + before.size
    assert after.queue_offset == 1
    log = disk.bytes_of(disk.root / "commitlog" / f"{0:020d}")
    assert read_size_and_magic(log, after.commit_log_offset) == (after.size, MAGIC_V1)


def test_message_at_all_limits_is_stored(disk: Disk) -> None:
    """And found after a restart."""
    store = disk.open(max_message_size=1000, mapped_file_size_commit_log=64 * 1024)
    properties = b"k\x01" + b"v" * 32764 + b"\x02"
    topic, queue_id, most = "t" * 127, 2**31 - 1, 2**63 - 1
    result = store.put(
        message(
            topic,
            queue_id,
            b"x" * 1000,
            properties=properties,
            flag=-(2**31),
            born_timestamp=most,
            tags_code=most,
            born_host=("255.255.255.255", 2**31 - 1),
        )
    )
    assert result.status is PutStatus.OK
    disk = disk.kill()
    store = disk.open(max_message_size=1000, mapped_file_size_commit_log=64 * 1024)
    found = store.message_in_queue(topic, queue_id, 0)
    assert found is not None
    header = peek_record(found)
    assert (header.body_length, header.properties, header.topic) == (1000, properties, topic)
    assert (header.queue_id, header.flag, header.born_timestamp) == (queue_id, -(2**31), most)
    disk.close()


def test_message_larger_than_a_file_is_refused(disk: Disk) -> None:
    """As illegal; the log is unchanged."""
    store = disk.open()
    assert store.put(message(body=b"x" * LOG_FILE_SIZE)).status is PutStatus.MESSAGE_ILLEGAL
    assert store.put(message()).commit_log_offset == 0


@pytest.mark.parametrize(
    ("transaction", "in_queue"),
    [(0, True), (TRANSACTION_PREPARED, False), (TRANSACTION_COMMIT, True), (TRANSACTION_ROLLBACK, False)],
)
def test_prepared_and_rolled_back_messages_are_in_no_queue(disk: Disk, transaction: int, in_queue: bool) -> None:
    """They are in the log with queue offset 0."""
    store = disk.open()
    result = store.put(message(sys_flag=transaction))
    assert (result.status, result.queue_offset) == (PutStatus.OK, 0)
    assert store.max_offset("orders", 0) == int(in_queue)
    assert store.message_at(result.commit_log_offset) is not None


def test_listeners_are_called_for_each_message(disk: Disk) -> None:
    """In the same call, when it is readable."""
    store = disk.open()
    heard: list[tuple[object, ...]] = []

    def listener(topic: str, queue_id: int, queue_offset: int, tags_codes: Sequence[int], stored_at: int) -> None:
        found = store.get(topic, queue_id, queue_offset, 1, 999).records
        heard.append((topic, queue_id, queue_offset, tags_codes, stored_at, len(found)))

    store.arrival_listeners.append(listener)
    store.put(message(queue_id=1, tags_code=77))
    store.put(message(sys_flag=TRANSACTION_PREPARED))
    assert heard == [("orders", 1, 0, (77,), disk.clock.now, 1)]


def test_queue_listener_is_called_for_the_queues_in_its_set(disk: Disk) -> None:
    """The set may change at any time; other listeners are called as well."""
    store = disk.open()
    queues: set[tuple[str, int]] = {("orders", 1)}
    heard: list[tuple[object, ...]] = []
    store.queue_listeners.append((queues, lambda *arrival: heard.append(arrival)))
    store.arrival_listeners.append(lambda *arrival: heard.append(arrival[:2]))
    for queue_id in (0, 1):
        store.put(message(queue_id=queue_id, tags_code=77))
    queues.clear()
    store.put(message(queue_id=1))
    everything = [("orders", 0), ("orders", 1), ("orders", 1, 0, (77,), disk.clock.now), ("orders", 1)]
    assert heard == everything


def test_failing_listener_has_no_effect_on_others(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    """The message is stored."""
    store = disk.open()
    heard: list[int] = []

    def failing(*arrival: object) -> None:
        raise RuntimeError("no")

    store.arrival_listeners += [failing, lambda *arrival: heard.append(arrival[2])]
    assert store.put(message()).status is PutStatus.OK
    assert heard == [0]
    assert "an arrival listener failed" in caplog.text


def test_stopped_store_refuses_messages(disk: Disk) -> None:
    """And one that is not loaded."""
    store = disk.store()
    assert store.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE
    store.load()
    asyncio.run(store.stop())
    assert store.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE


def test_refused_message_leaves_no_record(disk: Disk) -> None:
    """Whatever was written before a number was out of range, the next start ends the log before it."""
    store = disk.open()
    assert store.put(message(body=b"", reconsume_times=2**31)).status is PutStatus.MESSAGE_ILLEGAL
    report = disk.kill().store().load()
    assert (report.records, report.end, report.torn) == (0, 0, "")


def forged_record(commit_log_offset: int) -> bytes:
    """Return the bytes of a record that claims to be at an offset."""
    return encode_record(
        "orders",
        b"forged",
        b"",
        queue_id=0,
        queue_offset=0,
        commit_log_offset=commit_log_offset,
        sys_flag=0,
        flag=0,
        born_timestamp=0,
        born_host=HOST,
        store_timestamp=0,
        store_host=HOST,
    )


def test_record_behind_the_end_is_not_readable(disk: Disk) -> None:
    """A refused message's body may look like a record."""
    store = disk.open()
    refused = message(body=forged_record(HEAD_SIZE), reconsume_times=2**31)
    assert store.put(refused).status is PutStatus.MESSAGE_ILLEGAL
    assert store.message_at(HEAD_SIZE) is None


def test_record_with_another_offset_is_not_readable(disk: Disk) -> None:
    """A body may look like a record, but not at its own offset."""
    store = disk.open()
    assert store.put(message(body=forged_record(0))).status is PutStatus.OK
    assert store.message_at(HEAD_SIZE) is None
    assert store.message_at(0) is not None


def test_failed_file_creation_leaves_the_log_unchanged(faulty_disk: Disk) -> None:
    """The full file is ended only once the next one exists."""
    store = faulty_disk.open()
    store.put(message(body=bytes(LOG_FILE_SIZE // 2)))
    end = store.max_commit_log_offset
    assert isinstance(faulty_disk.file_system, FaultyFileSystem)
    faulty_disk.file_system.create_error = PermissionError(errno.EACCES, "permission denied")
    refused = store.put(message(body=bytes(LOG_FILE_SIZE // 2)))
    assert refused.status is PutStatus.CREATE_MAPPED_FILE_FAILED
    assert faulty_disk.kill().store().load().end == store.max_commit_log_offset == end
