"""A sink task without Spark: the stored messages depend only on the rows and their order."""

import itertools
from collections.abc import Iterator, Sequence

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from pyspark_rocketmq import pool
from pyspark_rocketmq.errors import ClusterError, UnsendableError
from pyspark_rocketmq.options import sink_options
from pyspark_rocketmq.schema import sink_columns
from pyspark_rocketmq.writing import Identity, TaskWriter
from rocket_broker.threaded_broker import ThreadedBroker
from tests.spark.stand import BUNDLED, Stand

QUEUES, TURN = 4, 1024
ROWS = TURN + 200


@pytest.fixture(scope="module")
def stand() -> Iterator[Stand]:
    """One broker for all tests of this module."""
    with ThreadedBroker() as broker:
        made = Stand(BUNDLED, broker.name_server)
        # Executors keep their client from task to task.
        with made.client, pool.client(sink_options(made.options | {"topic": "t"}).cluster):
            yield made


def written(
    stand: Stand, topic: str, splits: Sequence[int], identity: Identity, rows: int = ROWS, **options: str
) -> int:
    """Write so many rows, `0`, `1`, …, in batches that end at these rows; column `user` has five values."""
    chosen = sink_options(stand.options | {"topic": topic, "batchSize": "100"} | options)
    fields = ["body", "user"] if chosen.order_key else ["body"]
    schema = StructType([StructField(name, StringType()) for name in fields])
    columns = sink_columns(schema, topic=topic, order_key=chosen.order_key, id_column=None)
    bodies = [str(number) for number in range(rows)]
    users = [f"user-{number % 5}" for number in range(rows)]
    whole = pa.record_batch({"body": bodies, "user": users})
    ends = [*sorted(splits), rows]
    batches = (whole.slice(begin, end - begin) for begin, end in zip([0, *ends], ends, strict=False))
    return TaskWriter(chosen, columns, identity).write(batches)


splits = st.lists(st.integers(0, ROWS), max_size=4)


@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.integers(0, 6), splits, splits)
def test_repeated_task_stores_nothing_twice(stand: Stand, partition: int, first: list[int], second: list[int]) -> None:
    """Deduplicated: Spark may split the rows differently; each 1024 rows go to one queue."""
    topic = stand.topic(QUEUES)
    for epoch, number in itertools.product((7, 8), (first, second)):
        identity = Identity("query", epoch, partition)
        assert written(stand, topic, number, identity, delivery="deduplicated") == ROWS
    stored: dict[int, list[int]] = {}
    for message in stand.messages(topic):
        stored.setdefault(message.queue_id, []).append(int(message.body))
    expected: dict[int, list[int]] = {}
    for row in [*range(ROWS)] * 2:
        expected.setdefault((partition + row // TURN) % QUEUES, []).append(row)
    assert stored == expected


@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(splits, splits, st.booleans())
def test_row_has_the_same_key_and_queue_each_time(
    stand: Stand, first: list[int], second: list[int], by_user: bool
) -> None:
    """At least once: duplicates share a key that no other row, task or batch has."""
    topic = stand.topic(QUEUES)
    options = {"orderKey": "user"} if by_user else {}
    identities = [
        Identity("query", 7, 0),
        Identity("query", 8, 0),
        Identity("query", 7, 1),
        Identity("other", 7, 0),
    ]
    for number in (first, second):
        written(stand, topic, number, identities[0], **options)
    for identity in identities[1:]:
        written(stand, topic, first, identity, **options)
    places: dict[str | None, list[tuple[int, bytes]]] = {}
    for message in stand.messages(topic):
        places.setdefault(message.unique_key, []).append((message.queue_id, message.body))
    assert len(places) == len(identities) * ROWS
    twice = [found for found in places.values() if len(found) == 2]
    assert len(twice) == ROWS
    assert all(one == other for one, other in twice)


def test_refused_row_fails_the_task(stand: Stand) -> None:
    """Also the last one: a task ends when its rows are stored."""
    topic = stand.topic(QUEUES)
    columns = sink_columns(StructType([StructField("body", StringType())]), topic=topic, order_key=None, id_column=None)
    options = sink_options(stand.options | {"topic": topic, "maxMessageSize": str(9 << 20)})
    writer = TaskWriter(options, columns, Identity("q", 0, 0))
    with pytest.raises(ClusterError, match="a broker refused rows"):
        writer.write(iter([pa.record_batch({"body": ["x", "x" * (5 << 20)]})]))


def test_row_without_a_body_is_refused(stand: Stand) -> None:
    """Null or empty; Apache's Java consumers could not read it."""
    topic = stand.topic(QUEUES)
    columns = sink_columns(StructType([StructField("body", StringType())]), topic=topic, order_key=None, id_column=None)
    for bodies, reported in ((["x", None], "is null"), (["x", ""], "is empty"), (["xy" * 50], "has 100 bytes")):
        options = sink_options(stand.options | {"topic": topic, "maxMessageSize": "99"})
        writer = TaskWriter(options, columns, Identity("q", 0, 0))
        with pytest.raises(UnsendableError, match=f"column 'body' {reported} in a row"):
            writer.write(iter([pa.record_batch({"body": pa.array(bodies, pa.string())})]))
    assert stand.count(topic) == 0


def test_binary_keys_select_a_queue_but_must_be_text_as_properties(stand: Stand) -> None:
    """Rows of one order key go to one queue, whatever its bytes."""
    topic = stand.topic(QUEUES)
    schema = StructType().add("body", StringType()).add("order_key", BinaryType())
    columns = sink_columns(schema, topic=topic, order_key=None, id_column=None)
    options = sink_options(stand.options | {"topic": topic})
    keys = [bytes([number % 5, 0xFF]) for number in range(50)]
    rows = pa.record_batch({"body": [str(n) for n in range(50)], "order_key": pa.array(keys, pa.binary())})
    TaskWriter(options, columns, Identity("q", 0, 0)).write(iter([rows]))
    places: dict[int, set[int]] = {}
    for message in stand.messages(topic):
        places.setdefault(int(message.body) % 5, set()).add(message.queue_id)
    assert {key: len(found) for key, found in places.items()} == dict.fromkeys(range(5), 1)
    schema = StructType().add("body", StringType()).add("key", BinaryType())
    columns = sink_columns(schema, topic=topic, order_key=None, id_column=None)
    rows = pa.record_batch({"body": ["x"], "key": pa.array([b"\xff"], pa.binary())})
    with pytest.raises(UnsendableError, match="column 'KEYS': the bytes of a value are not UTF-8 text"):
        TaskWriter(options, columns, Identity("q", 0, 0)).write(iter([rows]))
