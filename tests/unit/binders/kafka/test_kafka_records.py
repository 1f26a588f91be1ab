"""Fetches are read completely whatever bytes they contain; on a real Kafka: `test_kafka_foreign_records`."""

import gzip
import struct
import tracemalloc
import zlib
from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from kafka import TopicPartition, codec
from kafka.consumer.fetcher import Fetcher
from kafka.errors import UnsupportedCodecError
from kafka.protocol.consumer import IsolationLevel
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatchBuilder

from binders.kafka.handling import to_framework
from binders.kafka.partition import AssignedPartition, Delivery
from binders.kafka.repairs.batches import LIMIT
from binders.kafka.repairs.partition_records import read_all
from binders.kafka.unreadable import Unreadable
from streamkit import Message, Reject
from tests.peer.raw_kafka import HEADER, RawRecord, batch, records, sized, varint, with_sum

KEY = TopicPartition("orders", 0)
GZIP, SNAPPY, LZ4, ZSTD, TRANSACTIONAL, CONTROL = 1, 2, 3, 4, 0x10, 0x20
ABORT = RawRecord(b"\0\0\0\0\0\0", b"\0\0\0\0")
COMMIT = RawRecord(b"\0\0\0\0\0\0", b"\0\0\0\1")
LENGTH_AT, EPOCH_AT, FORMAT_AT, CRC_AT, ATTRIBUTES_AT, LAST_AT = 8, 12, 16, 17, 21, 23


def of(offset: int, *values: bytes, **more: int) -> bytes:
    """Return a batch of records with these values that begins at an offset."""
    return batch(records(*map(RawRecord, values)), len(values), offset=offset, **more)


@dataclass
class Reader:
    """Reads a partition as a consumer does, each fetch from the end of the last one.

    Attributes:
        position: The offset of the next record.
        found: What was read: values, by offset.
    """

    end: int
    position: int = 0
    found: dict[int, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._fetcher = SimpleNamespace()
        read_all(self._fetcher, lambda key: self.end)

    def fetched(self, data: bytes, **settings: object) -> Any:
        """Return the result of one fetch."""
        return self._fetcher.PartitionRecords(self.position, KEY, MemoryRecords(data), **settings)

    def fetch(self, data: bytes, **settings: object) -> None:
        """Fetch and read."""
        fetched = self.fetched(data, **settings)
        while fetched:
            for record in fetched.take(2):
                assert record.offset >= self.position
                self.found[record.offset] = record.value
            self.position = fetched.next_fetch_offset


def read(*batches: bytes, end: int, fetches: int = 1, **settings: object) -> Reader:
    """Return a reader that has fetched the same data so many times."""
    reader = Reader(end)
    for _ in range(fetches):
        reader.fetch(b"".join(batches), **settings)
    return reader


def values(reader: Reader) -> list[bytes]:
    """Return the values read, without unreadable ones."""
    return [value for _, value in sorted(reader.found.items()) if not isinstance(value, Unreadable)]


def test_damaged_batch_is_fetched_again_before_it_is_skipped() -> None:
    """It may have been damaged in transit."""
    good = of(0, b"a") + of(1, b"b") + of(2, b"c")
    reader = Reader(3)
    reader.fetch(good.replace(b"\x02b", b"\x02!", 1))
    assert (values(reader), reader.position) == ([b"a"], 1)
    reader.fetch(good)
    assert values(reader) == [b"a", b"b", b"c"]


def test_permanently_damaged_batch_becomes_one_unreadable_record() -> None:
    """At the batch's last offset, so that no consumer starts within it."""
    damaged = of(1, b"b1", b"b2").replace(b"b1", b"!1")
    reader = read(of(0, b"a"), damaged, of(3, b"c"), end=4, fetches=2)
    assert reader.found == {0: b"a", 2: damaged, 3: b"c"}
    unreadable = reader.found[2]
    assert isinstance(unreadable, Unreadable)
    assert str(unreadable.error).startswith("the batch at orders-0, offset 1, cannot be read")


@pytest.mark.parametrize(
    ("letters", "fate"),
    [
        ("error.orders.kitchen", "It goes to 'error.orders.kitchen'"),
        (None, "It is lost: the binding has no dead letters"),
    ],
)
def test_log_says_where_an_unreadable_record_goes(
    letters: str | None, fate: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As the lines of other rejected messages do."""
    damaged = of(1, b"b1", b"b2").replace(b"b1", b"!1")
    fetcher = SimpleNamespace()
    read_all(fetcher, lambda key: 3)
    for _ in range(2):  # the first time, the bytes may have been damaged in transit
        records_of = fetcher.PartitionRecords(1, KEY, MemoryRecords(damaged)).take()
    assert isinstance(to_framework(Delivery(AssignedPartition(KEY), records_of[0]), "in", "kitchen", letters), Reject)
    line = caplog.messages[-1]
    assert line.startswith("Binding 'in' gives up the record at orders-0, offset 2, which cannot be read: ")
    assert line.endswith(f". {fate}")


@pytest.mark.parametrize("last", [2**31 - 1, -5])
def test_damaged_batch_does_not_determine_the_next_offset(last: int) -> None:
    """It lies neither beyond the partition's end, where a consumer would be reset, nor before the batch."""
    damaged = of(0, b"a")
    damaged = damaged[:LAST_AT] + struct.pack(">i", last) + damaged[LAST_AT + 4 :]
    reader = read(damaged, end=1, fetches=2)
    assert reader.found == {0: damaged}
    assert reader.position == 1


def test_records_before_the_damage_in_a_batch_are_kept() -> None:
    """The rest is one unreadable record with the bytes of the batch."""
    cut = batch(records(RawRecord(b"a")) + b"\x7f\0", 3)
    reader = read(cut, of(3, b"d"), end=4)
    assert reader.found == {0: b"a", 2: cut, 3: b"d"}


def test_excess_bytes_after_the_last_record_are_ignored() -> None:
    """All records were read."""
    reader = read(batch(records(RawRecord(b"a")) + b"more", 1), of(1, b"b"), end=2)
    assert reader.found == {0: b"a", 1: b"b"}


def test_missing_compression_library_skips_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names it; the messages are read once it is installed."""
    monkeypatch.setattr(codec, "snappy", None)
    data = of(0, b"a") + batch(b"snappy", 1, offset=1, attributes=SNAPPY)
    reader = read(data, end=2)
    with pytest.raises(UnsupportedCodecError, match=r"orders-0, offset 1, .* needs python-snappy: install it"):
        reader.fetch(data)
    assert (reader.found, reader.position) == ({0: b"a"}, 1)


@pytest.mark.slow
def test_batch_that_exceeds_the_decompression_limit_is_unreadable() -> None:
    """A few kilobytes may become any size and end the process."""
    packer = zlib.compressobj(1, wbits=31)
    zeros = bytes(1 << 20)
    packed = b"".join(packer.compress(zeros) for _ in range((LIMIT >> 20) + 1)) + packer.flush()
    reader = read(batch(packed, 1, attributes=GZIP), of(1, b"b"), end=2)
    assert isinstance(reader.found[0], Unreadable)
    assert f"exceeds {LIMIT} bytes when decompressed" in str(reader.found[0].error)
    assert reader.found[1] == b"b"


@pytest.mark.parametrize("marker", [b"", records(RawRecord(b"", b"\0"))], ids=["emptied", "unreadable"])
def test_unreadable_marker_ends_its_transaction(marker: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Later records of the same producer do not count as aborted."""
    found = read(
        of(0, b"aborted", attributes=TRANSACTIONAL, producer=7),
        batch(marker, 1 if marker else 0, offset=1, last=0, attributes=TRANSACTIONAL | CONTROL, producer=7),
        of(2, b"later", attributes=TRANSACTIONAL, producer=7),
        end=3,
        isolation_level=IsolationLevel.READ_COMMITTED,
        aborted_transactions=[SimpleNamespace(producer_id=7, first_offset=0)],
    )
    assert found.found == {2: b"later"}


def test_aborted_records_are_skipped() -> None:
    """For readers of committed records; other readers get everything but the markers."""
    log = [
        of(0, b"aborted", attributes=TRANSACTIONAL, producer=7),
        batch(records(ABORT), 1, offset=1, attributes=TRANSACTIONAL | CONTROL, producer=7),
        of(2, b"later"),
    ]
    aborted = [SimpleNamespace(producer_id=7, first_offset=0)]
    committed = {"isolation_level": IsolationLevel.READ_COMMITTED, "aborted_transactions": aborted}
    assert read(*log, end=3, **committed).found == {2: b"later"}
    assert read(*log, end=3).found == {0: b"aborted", 2: b"later"}


def test_records_after_an_aborted_transaction_are_read() -> None:
    """The position moves behind the last marker."""
    found = read(
        of(0, b"aborted", attributes=TRANSACTIONAL, producer=7),
        batch(records(ABORT), 1, offset=1, attributes=TRANSACTIONAL | CONTROL, producer=7),
        of(2, b"later", attributes=TRANSACTIONAL, producer=7),
        batch(records(COMMIT), 1, offset=3, attributes=TRANSACTIONAL | CONTROL, producer=7),
        end=4,
        isolation_level=IsolationLevel.READ_COMMITTED,
        aborted_transactions=[SimpleNamespace(producer_id=7, first_offset=0)],
    )
    assert (found.found, found.position) == ({2: b"later"}, 4)


def test_position_moves_behind_compacted_records() -> None:
    """Otherwise the same place would be fetched again and again."""
    assert read(batch(records(RawRecord(b"a")), 1, last=4), end=5).position == 5


def record_of(number: int, headers: bytes) -> bytes:
    """Return a record with the value `x` and these header bytes."""
    return sized(b"\0" + varint(0) + varint(number) + sized(None) + sized(b"x") + headers)


@pytest.mark.parametrize(
    "written",
    [
        record_of(0, varint(-1)),
        record_of(0, varint(1) + varint(-1)),
        record_of(0, varint(0) + b"more"),
        record_of(0, varint(1) + sized(b"name") + sized(b"value"))[:-2],
        record_of(5, varint(0)),
    ],
    ids=[
        "-1 headers",
        "a header without a name",
        "bytes behind headers",
        "a cut header",
        "an offset behind the batch",
    ],
)
def test_malformed_record_is_unreadable(written: bytes) -> None:
    """Although the checksum of its batch is valid."""
    reader = read(batch(written, 1), of(1, b"next"), end=2)
    assert reader.found[1] == b"next"
    assert isinstance(reader.found[0], Unreadable)


def test_repeated_offset_in_a_batch_is_unreadable() -> None:
    """The first record with it is kept."""
    twice = record_of(0, varint(0)) * 2
    reader = read(batch(twice, 2), of(2, b"next"), end=3)
    assert (reader.found[0], reader.found[2]) == (b"x", b"next")
    assert isinstance(reader.found[1], Unreadable)


@given(some.binary(max_size=200), some.integers(0, 4), some.booleans())
def test_batches_around_a_malformed_one_are_read(body: bytes, kind: int, is_summed: bool) -> None:
    """Whatever it contains and whatever its checksum."""
    written = batch(body, 2, offset=1, attributes=kind)
    if not is_summed:
        written = written[:CRC_AT] + b"\0\0\0\0" + written[CRC_AT + 4 :]
    reader = read(of(0, b"first"), written, of(3, b"last"), end=4, fetches=2)
    assert reader.position == 4
    assert (reader.found[0], reader.found[3]) == (b"first", b"last")


def read_log(*log: bytes, begins: Sequence[int], end: int) -> Reader:
    """Return a reader that has read the whole log, fetching from the batch that its position is in."""
    reader = Reader(end)
    while reader.position < end:
        found = bisect(begins, reader.position) - 1
        before = reader.position
        reader.fetch(b"".join(log[found:]))
        if reader.position == before:  # it was damaged, and is fetched once more
            reader.fetch(b"".join(log[found:]))
            assert reader.position > before
    return reader


@given(some.integers(0, HEADER + 10), some.integers(0, 255), some.booleans())
def test_batches_around_one_with_a_changed_byte_are_read(place: int, byte: int, is_summed: bool) -> None:
    """In any field: offset, length, format, compression, counts or records."""
    written = bytearray(of(1, b"b1", b"b2"))
    written[place] = byte
    changed = with_sum(bytes(written)) if is_summed else bytes(written)
    reader = read_log(of(0, b"first"), changed, of(3, b"last"), begins=[0, 1, 3], end=4)
    assert reader.position == 4
    assert (reader.found[0], reader.found[3]) == (b"first", b"last")


def with_length(data: bytes, length: int) -> bytes:
    return data[:LENGTH_AT] + struct.pack(">i", length) + data[LENGTH_AT + 4 :]


@pytest.mark.parametrize("length", [-(2**31), -12, -5, -1, 0, 1, 3, 4, 20, 49, 60, 120, 127, 1 << 30])
def test_batches_after_one_with_a_wrong_length_are_found(length: int) -> None:
    """By their checksums; the bytes before them are one record."""
    damaged = with_length(of(1, b"b1", b"b2"), length)
    reader = read_log(of(0, b"a"), damaged, of(3, b"c"), begins=[0, 1, 3], end=4)
    assert reader.found == {0: b"a", 2: damaged, 3: b"c"}
    assert isinstance(reader.found[2], Unreadable)


@pytest.mark.parametrize("length", [-12, 0, 20, 1 << 30])
@pytest.mark.parametrize("behind", [b"", of(5, b"cut")[:-1]], ids=["nothing", "one that is cut"])
def test_position_moves_behind_a_last_batch_with_a_wrong_length(length: int, behind: bytes) -> None:
    """As precisely as possible, and within the partition."""
    damaged = with_length(of(3, b"b"), length)
    for offset, last in ((struct.pack(">q", 3), 3), (b"\x7f" * 8, 3)):
        data = offset + damaged[8:] + behind
        reader = Reader(6, position=3)
        for _ in range(2):
            reader.fetch(data)
        assert (reader.found, reader.position) == ({last: data}, last + 1)
    beyond = Reader(3, position=3)
    for _ in range(2):
        beyond.fetch(damaged)
    assert (beyond.found, beyond.position) == ({}, 3)


def test_damaged_batch_is_skipped_when_a_fetch_begins_within_it() -> None:
    """The broker finds batches by its own offsets and would return this one for ever."""
    damaged = bytearray(of(1, b"b1", b"b2"))
    damaged[FORMAT_AT] = 1
    reader = read_log(bytes(damaged), begins=[1], end=3)
    assert set(reader.found) == {1, 2}


@pytest.mark.parametrize("offset", [-1, 0, 1, 3, 5, 9, 18, 1 << 40])
def test_batch_with_a_wrong_offset_is_not_read_elsewhere(offset: int) -> None:
    """Its records would replace others or be read twice, and others would be lost."""
    damaged = struct.pack(">q", offset) + of(2, b"b1", b"b2", b"b3")[8:]
    behind = range(5, 20)
    log = (of(0, b"a1", b"a2"), damaged, *(of(each, b"%d" % each) for each in behind))
    reader = read_log(*log, begins=[0, 2, *behind], end=20)
    assert reader.found == {0: b"a1", 1: b"a2", 4: damaged, **{each: b"%d" % each for each in behind}}


def test_damaged_batch_alone_in_its_fetch_hides_no_later_one() -> None:
    """It states its last offset twice; the smaller one is used."""
    changed = of(1, b"b1", b"b2")
    damaged = changed[:LAST_AT] + struct.pack(">i", 1 << 20) + changed[LAST_AT + 4 :]
    reader = Reader(40, position=1)
    for _ in range(2):
        reader.fetch(damaged)
    assert (reader.found, reader.position) == ({2: damaged}, 3)


def test_records_appended_during_the_fetch_are_valid(caplog: pytest.LogCaptureFixture) -> None:
    """The broker reported the partition's end before, and a fetch may begin there."""
    log = [of(0, b"a"), of(1, b"b1", b"b2"), of(3, b"c")]
    assert read(*log, end=1).found == {0: b"a", 1: b"b1", 2: b"b2", 3: b"c"}
    late = Reader(1, position=1)
    late.fetch(b"".join(log[1:]))
    assert late.found == {1: b"b1", 2: b"b2", 3: b"c"}
    assert caplog.text == ""


def test_kafka_python_accepts_a_truncated_first_batch() -> None:
    """Otherwise it would raise at every poll, because bytes without a batch remain."""
    fetcher = SimpleNamespace()
    read_all(fetcher, lambda key: 1)
    fetched = MemoryRecords(with_length(of(0, b"a"), 1 << 30))
    fetcher.PartitionRecords(0, KEY, fetched)
    assert not fetched.has_next()
    assert fetched.size_in_bytes() == 0


def test_out_of_memory_does_not_skip_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error reaches the reader without a busy loop, and the messages are fetched later."""
    data = batch(zlib.compress(records(RawRecord(b"good")), wbits=31), 1, attributes=GZIP)
    reader = Reader(1)
    with monkeypatch.context() as patch:
        patch.setattr(zlib, "decompressobj", no_memory)
        fetched = reader.fetched(data)
        with pytest.raises(MemoryError):
            fetched.take()
        assert not fetched
    reader.fetch(data)
    assert reader.found == {0: b"good"}


def no_memory(**settings: object) -> object:
    raise MemoryError


@pytest.mark.parametrize("members", [1, 3])
def test_multi_member_gzip_is_read_completely(members: int) -> None:
    """A gzip stream may have several members."""
    written = [RawRecord(b"%d" % number * 100_000) for number in range(3)]
    size = len(records(*written)) // members + 1
    pieces = [records(*written)[at : at + size] for at in range(0, len(records(*written)), size)]
    packed = b"".join(map(gzip.compress, pieces)) + b"\0\0"
    reader = read(batch(packed, 3, attributes=GZIP), end=3)
    assert values(reader) == [each.value for each in written]


@pytest.mark.parametrize(("kind", "pack"), [(LZ4, codec.lz4_encode), (ZSTD, codec.zstd_encode)])
def test_decompression_memory_grows_with_the_output(kind: int, pack: Callable[[bytes], bytes]) -> None:
    """A small batch uses little memory, and a large one is read."""
    values_of_it = [bytes([number]) * 300_000 for number in range(3)]
    data = batch(pack(records(*map(RawRecord, values_of_it))), 3, attributes=kind)
    assert values(read(data, end=3)) == values_of_it
    small = batch(pack(records(RawRecord(b"a"))), 1, attributes=kind)
    tracemalloc.start()
    try:
        assert values(read(small, end=1)) == [b"a"]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


HEADER_NAMES = some.binary(max_size=20) | some.sampled_from([b"contentType", b"spring_json_header_types", b"id"])


@given(some.lists(some.tuples(HEADER_NAMES, some.none() | some.binary(max_size=30)), max_size=5))
def test_record_with_any_headers_becomes_a_message(
    headers: list[tuple[bytes, bytes | None]],
) -> None:
    """Names and values in any bytes, compressed or not."""
    written = records(RawRecord(b"value", b"\xff", headers))
    fetcher = SimpleNamespace()
    read_all(fetcher, lambda key: 2)
    data = batch(written, 1) + batch(gzip.compress(written), 1, offset=1, attributes=GZIP)
    fetched = fetcher.PartitionRecords(0, KEY, MemoryRecords(data)).take()
    for record in fetched:
        message = to_framework(Delivery(AssignedPartition(KEY), record), "in", "kitchen", None)
        assert isinstance(message, Message)
        assert message.payload == b"value"
    assert [name for name, _ in fetched[0].headers] == [name.decode(errors="replace") for name, _ in headers]


RECORDS = some.lists(
    some.tuples(
        some.integers(1_700_000_000_000, 1_800_000_000_000),
        some.none() | some.binary(max_size=100),
        some.none() | some.binary(max_size=100),
        some.lists(some.tuples(some.text(max_size=10), some.none() | some.binary(max_size=10)), max_size=3),
    ),
    min_size=1,
    max_size=5,
)


@given(RECORDS, some.integers(0, 4), some.booleans(), some.integers(0, 1000))
def test_valid_records_are_read_as_by_kafka_python(
    written: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    kind: int,
    is_log_append_time: bool,
    epoch: int,
) -> None:
    """Times, keys, values, headers, sizes, position and metrics, with each compression."""
    builder = DefaultRecordBatchBuilder(2, kind, False, -1, -1, -1, 1 << 20)
    for number, (timestamp, key, value, headers) in enumerate(written):
        builder.append(number, timestamp, key, value, headers)
    data = bytearray(builder.build())
    data[EPOCH_AT : EPOCH_AT + 4] = struct.pack(">i", epoch)
    if is_log_append_time:
        data[ATTRIBUTES_AT + 1] |= 0x08
    data = bytearray(with_sum(bytes(data)))
    ours = Reader(len(written)).fetched(bytes(data))
    theirs = Fetcher.PartitionRecords(0, KEY, MemoryRecords(bytes(data)))
    assert ours.take() == theirs.take()
    for name in ("next_fetch_offset", "leader_epoch", "bytes_read", "records_read"):
        assert getattr(ours, name) == getattr(theirs, name), name


def test_configured_deserializers_are_used_for_keys_and_values() -> None:
    """As in kafka-python; sizes are those of the bytes."""
    fetcher = SimpleNamespace()
    read_all(fetcher, lambda key: 1)
    data = MemoryRecords(batch(records(RawRecord(b"value", b"key", [(b"name", b"")])), 1))
    (record,) = fetcher.PartitionRecords(0, KEY, data, key_deserializer=Upper(), value_deserializer=Upper()).take()
    assert (record.key, record.value) == ("orders name KEY", "orders name VALUE")
    assert (record.serialized_key_size, record.serialized_value_size) == (3, 5)


class Upper:
    """A deserializer that returns topic, first header and bytes as text."""

    def deserialize(self, topic: str, headers: list[tuple[str, bytes]], data: bytes) -> str:
        return f"{topic} {headers[0][0]} {data.decode().upper()}"
