"""Rows of a topic on two brokers, one of which is away for a while."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType

from pyspark_rocketmq.errors import ClusterError
from pyspark_rocketmq.options import SinkOptions, sink_options
from pyspark_rocketmq.schema import sink_columns
from pyspark_rocketmq.sink import check
from pyspark_rocketmq.writing import TURN, Identity, TaskWriter
from tests.spark.cluster import NAMES, Cluster, two_brokers
from tests.spark.stand import BUNDLED

A, B = NAMES
ROWS = 6 * TURN
SCHEMA = StructType().add("body", StringType())


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Two brokers."""
    with two_brokers(BUNDLED, tmp_path) as made:
        yield made


def write(cluster: Cluster, topic: str, epoch: int, **options: str) -> None:
    """Make one attempt to write all rows."""
    chosen = options_of(cluster, topic, **options)
    columns = sink_columns(SCHEMA, topic=topic, order_key=None, id_column=None)
    TaskWriter(chosen, columns, Identity("query", epoch, 0)).write(iter([all_rows()]))


def options_of(cluster: Cluster, topic: str, **options: str) -> SinkOptions:
    """Return options of a sink."""
    given = {
        "topic": topic,
        "requestTimeoutMs": "20000",
        "sendTimeoutMs": "60000",
        "batchSize": "500",
    } | options
    return sink_options(cluster.options | given)


def all_rows() -> pa.RecordBatch:
    """Return everything written."""
    return pa.record_batch({"body": [str(number) for number in range(ROWS)]})


@pytest.mark.promise
@pytest.mark.parametrize("delivery", ["at-least-once", "deduplicated"])
def test_rows_moved_to_other_queues_are_not_taken_for_duplicates(cluster: Cluster, delivery: str) -> None:
    """The next attempt has fewer queues, so rows have other positions: none has a key that another one had."""
    topic = cluster.topic(queues=1)
    cluster.await_brokers(topic, A, B)
    write(cluster, topic, 0, delivery=delivery)
    cluster.kill(B)
    with suppress(ClusterError):  # it still knows the route with both
        write(cluster, topic, 1, delivery=delivery, sendTimeoutMs="1000")
    cluster.await_brokers(topic, A)
    write(cluster, topic, 1, delivery=delivery)
    cluster.start(B)
    cluster.await_brokers(topic, A, B)
    rows: dict[str, set[bytes]] = {}
    keys: dict[bytes, set[str]] = {}
    for message in cluster.messages(topic):
        assert message.unique_key is not None
        rows.setdefault(message.unique_key, set()).add(message.body)
        if message.unique_key[16:24] == f"{1:08X}":
            keys.setdefault(message.body, set()).add(message.unique_key)
    assert len(keys) == ROWS
    assert all(len(bodies) == 1 for bodies in rows.values())


@pytest.mark.promise
def test_all_attempts_of_a_batch_use_the_same_queues(cluster: Cluster) -> None:
    """Those that the driver found: with one of their brokers away a task fails, and later stores each row once."""
    topic = cluster.topic(queues=1)
    cluster.await_brokers(topic, A, B)
    plan = check(options_of(cluster, topic, delivery="deduplicated"), SCHEMA, overwrite=False)

    def attempt(patience: float) -> int:
        options = replace(plan.options, patience=patience)
        writer = TaskWriter(options, plan.columns, Identity("query", 0, 0), plan.queues)
        return writer.write(iter([all_rows()]))

    cluster.kill(B)
    cluster.await_brokers(topic, A)
    for _ in range(2):
        with pytest.raises(ClusterError, match="rows could not be sent within 1 s"):
            attempt(1.0)
    cluster.start(B)
    cluster.await_brokers(topic, A, B)
    assert attempt(60.0) == ROWS
    assert cluster.bodies(topic) == sorted(str(number) for number in range(ROWS))
