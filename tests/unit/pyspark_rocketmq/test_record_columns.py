"""The decoders of many records at once equal the decoder of `rocket_remoting.wire.record`."""

from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from pyspark_rocketmq.columns import ReadColumns
from pyspark_rocketmq.decode import Decoder
from pyspark_rocketmq.errors import UnreadableBodyError
from pyspark_rocketmq.numpy_columns import numpy_columns
from pyspark_rocketmq.schema import COLUMNS, KAFKA_COLUMNS
from rocket_remoting.native import has_native_core
from rocket_remoting.wire.compression import CompressionType, compress
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.record import encode_record
from rocket_remoting.wire.sys_flag import COMPRESSED
from tests.traced_memory import memory_below

READERS: dict[str, ReadColumns] = {"numpy": partial(numpy_columns, few_bytes=0)}
if has_native_core():
    from pyspark_rocketmq.native_columns import native_columns

    READERS["native core"] = native_columns

each_reader = pytest.mark.parametrize("read_columns", READERS.values(), ids=READERS.keys())

EVERYTHING = StructType([StructField(name, kind) for name, kind in {**COLUMNS, **KAFKA_COLUMNS}.items()])

_text = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=12)
_pairs = st.lists(
    st.tuples(st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "colour", "é", "KEYT", "TAG"]) | _text, _text),
    max_size=6,
)
_hosts = st.sampled_from([("127.0.0.1", 10911), ("::1", 10911), ("10.0.0.255", 1)])
_longs = st.integers(0, 2**40)


@st.composite
def properties(draw: st.DrawFn) -> bytes:
    """Generate properties, mostly well-formed, with and without the last separator."""
    if draw(st.integers(0, 30)) == 0:
        return draw(st.binary(max_size=40).filter(is_utf8))
    data = "".join(f"{name}\x01{value}\x02" for name, value in draw(_pairs)).encode()
    return data[:-1] if data and draw(st.booleans()) else data


def is_utf8(data: bytes) -> bool:
    """Return whether the bytes are UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@st.composite
def record(draw: st.DrawFn) -> bytes:
    """Generate a record as a broker may store it."""
    body, sys_flag = draw(st.binary(max_size=60)), draw(st.sampled_from([0, 0, 2, 8]))
    if draw(st.integers(0, 30)) == 0:
        kind = draw(st.sampled_from(list(CompressionType)))
        body, sys_flag = compress(body, kind), COMPRESSED | kind.sys_flag
    return encode_record(
        draw(st.sampled_from(["orders", "orders", "other", "%RETRY%g", "x" * 200])),
        body,
        draw(properties()),
        queue_id=draw(st.integers(0, 9)),
        queue_offset=draw(_longs),
        commit_log_offset=draw(_longs),
        sys_flag=sys_flag,
        flag=draw(st.integers(-5, 5)),
        born_timestamp=draw(_longs),
        born_host=draw(_hosts),
        store_timestamp=draw(_longs),
        store_host=draw(_hosts),
        reconsume_times=draw(st.integers(0, 20)),
    )


def table(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """Return all rows of the batches."""
    return pa.Table.from_batches(batches, schema=to_arrow_schema(EVERYTHING, timezone="UTC"))


def every_way(records: bytes, before: int | None = None, *, tags: frozenset[str] = frozenset()) -> list[pa.Table]:
    """Return the results of all decoders, that of the decoder for one record first."""
    one_by_one = Decoder(EVERYTHING, tags, read_columns=lambda records, wanted: None)
    decoders = [one_by_one, *(Decoder(EVERYTHING, tags, read_columns=each) for each in READERS.values())]
    return [table(decoder.decode(records, "broker-a", before)) for decoder in decoders]


@settings(deadline=None)
@given(st.lists(record(), min_size=1, max_size=12), st.booleans(), st.sampled_from([None, 5, 2**39]))
def test_all_decoders_agree(records: list[bytes], filtered: bool, before: int | None) -> None:
    """For hosts of both families, both versions, malformed properties, compressed bodies and filters."""
    tags = frozenset({"", "a", "0"}) if filtered else frozenset()
    one_by_one, *at_once = every_way(b"".join(records), before, tags=tags)
    for each in at_once:
        assert each.equals(one_by_one)


@settings(deadline=None)
@given(st.lists(record(), min_size=1, max_size=4), st.data())
def test_all_decoders_agree_about_damaged_records(records: list[bytes], data: st.DataObject) -> None:
    """They return the same rows, or refuse the records."""
    damaged = bytearray(b"".join(records))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        one_by_one, *at_once = every_way(bytes(damaged))
    except (RemoteProtocolError, UnreadableBodyError):
        for each in READERS.values():
            with pytest.raises((RemoteProtocolError, UnreadableBodyError)):
                list(Decoder(EVERYTHING, read_columns=each).decode(bytes(damaged), "broker-a"))
    else:
        assert all(each.equals(one_by_one) for each in at_once)


def plain(number: int, properties: bytes = b"KEYS\x01k\x02TAGS\x01t\x02UNIQ_KEY\x01u\x02", **more: Any) -> bytes:
    """Return an ordinary record."""
    fields: dict[str, Any] = {
        "topic": "orders", "queue_id": 1, "queue_offset": number, "commit_log_offset": 0, "sys_flag": 0, "flag": 0,
        "born_timestamp": 1, "born_host": ("1.2.3.4", 5), "store_timestamp": 2, "store_host": ("1.2.3.4", 5),
    }  # fmt: skip
    return encode_record(body=b"%d" % number, properties=properties, **fields | more)


def at_once(schema: StructType, read_columns: ReadColumns, records: bytes) -> pa.RecordBatch:
    """Return the records' batch; fail if they are decoded one by one."""

    def read(*arguments: Any) -> Any:
        columns = read_columns(*arguments)
        assert columns is not None, "these records are not unusual"
        return columns

    (batch,) = Decoder(schema, read_columns=read).decode(records, "broker-a")
    return batch


@each_reader
def test_ordinary_records_are_decoded_at_once(read_columns: ReadColumns) -> None:
    """Those of common clients, and those without properties."""
    records = b"".join(plain(number) + plain(number, b"") for number in range(10))
    batch = at_once(EVERYTHING, read_columns, records)
    assert batch.num_rows == 20
    assert batch["tags"].to_pylist()[:2] == ["t", None]
    assert batch["properties"].to_pylist()[0] == [("KEYS", "k"), ("TAGS", "t"), ("UNIQ_KEY", "u")]
    assert batch["msg_id"].to_pylist()[:2] == ["u", "01020304000000050000000000000000"]


@each_reader
def test_hosts_and_versions_are_decoded_at_once(read_columns: ReadColumns) -> None:
    """A cluster may have IPv6 addresses only, and a topic a long name."""
    records = plain(1, born_host=("::1", 1)) + plain(2, store_host=("::1", 1)) + plain(3, topic="x" * 200)
    assert at_once(EVERYTHING, read_columns, records)["queue_offset"].to_pylist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("said", "read"),
    [(2**63 - 1, 9223372036854775000), (-(2**63), -9223372036854775000), (2**53, 2**53 * 1000)],
)
def test_time_out_of_range_is_clamped(said: int, read: int) -> None:
    """Producers may send any; the message is read."""
    for rows in every_way(plain(1, born_timestamp=said) * 3):
        assert rows["born_timestamp"].cast("int64").to_pylist() == [read] * 3


@pytest.mark.parametrize("cut", [1, 50, 90])
def test_truncated_record_is_an_error(cut: int) -> None:
    """It is not skipped."""
    records = plain(1) * 1000
    with pytest.raises(RemoteProtocolError, match="record at"):
        list(Decoder(EVERYTHING).decode(records[:-cut], "broker-a"))


MIB = 1 << 20


def large(number: int, size: int, kind: CompressionType = CompressionType.ZSTD) -> bytes:
    """Return a record whose body decompresses to a thousand times its size."""
    fields = {"queue_id": 1, "queue_offset": number, "sys_flag": COMPRESSED | kind.sys_flag}
    return encode_record(
        "orders",
        compress(bytes(size), kind),
        b"",
        commit_log_offset=0,
        flag=0,
        born_timestamp=1,
        born_host=("1.2.3.4", 5),
        store_timestamp=2,
        store_host=("1.2.3.4", 5),
        **fields,
    )


BODIES = StructType([StructField(name, COLUMNS[name]) for name in ("queue_offset", "body")])


def test_large_bodies_come_in_separate_batches() -> None:
    """Sixty of 4 MiB use the memory of a few."""
    records = b"".join(large(number, 4 * MIB) for number in range(60))
    offsets: list[int] = []
    with memory_below(48 * MIB):
        for batch in Decoder(BODIES).decode(records, "broker-a"):
            assert batch.nbytes < 17 * MIB
            offsets += batch["queue_offset"].to_pylist()
            del batch
    assert offsets == list(range(60))


@pytest.mark.parametrize("kind", list(CompressionType))
def test_body_beyond_the_limit_fails_the_task_or_is_skipped(
    kind: CompressionType, caplog: pytest.LogCaptureFixture
) -> None:
    """As other lost data: the error names the message and both options."""
    records = plain(1) + large(2, 8 * MIB, kind) + plain(3)
    with pytest.raises(UnreadableBodyError) as caught:
        list(Decoder(BODIES, max_body_size=MIB).decode(records, "broker-a"))
    assert "message 2 of queue 1 of orders at broker-a cannot be decompressed" in str(caught.value)
    assert "maxDecompressedBodySize" in str(caught.value)
    assert "failOnDataLoss" in str(caught.value)
    (batch,) = Decoder(BODIES, max_body_size=MIB, fails=False).decode(records, "broker-a")
    assert batch["queue_offset"].to_pylist() == [1, 3]
    assert "message 2 of queue 1" in caplog.text


def test_unselected_body_is_not_decompressed() -> None:
    """It may have any size."""
    offsets = StructType(BODIES.fields[:1])
    (batch,) = Decoder(offsets, max_body_size=1).decode(large(2, 8 * MIB), "broker-a")
    assert batch["queue_offset"].to_pylist() == [2]


@each_reader
def test_bodies_with_the_bytes_of_a_record_are_decoded_at_once(read_columns: ReadColumns) -> None:
    """A whole record as a body is not taken for one."""
    records = b"".join(plain(number) for number in range(3))
    inside = encode_record(
        "orders", records, b"KEYS\x01k\x02", queue_id=1, queue_offset=3, commit_log_offset=0, sys_flag=0, flag=0,
        born_timestamp=1, born_host=("1.2.3.4", 5), store_timestamp=2, store_host=("1.2.3.4", 5),
    )  # fmt: skip
    batch = at_once(EVERYTHING, read_columns, records + inside + plain(4))
    assert batch["queue_offset"].to_pylist() == [0, 1, 2, 3, 4]
    assert batch["body"].to_pylist()[3] == records
