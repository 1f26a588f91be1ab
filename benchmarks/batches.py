"""`python -m benchmarks.batches`: CPU per message of the large batches that Spark's sink sends, without Spark.

CPU of the bundled broker and of the sending task, for messages of 100 bytes; it hardly moves with the machine's
load.
"""

import os
from collections.abc import Iterator

import click
import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField, StructType
from rich.console import Console
from rich.table import Table

from benchmarks.brokers import MeasuredBroker, bundled_broker
from benchmarks.process import cpu_seconds
from pyspark_rocketmq.options import sink_options
from pyspark_rocketmq.schema import sink_columns
from pyspark_rocketmq.writing import Identity, TaskWriter

ROWS = 10_000
"""Rows that Spark hands a sink at once."""
_SCHEMA = StructType([StructField("body", BinaryType())])


@click.command()
@click.option("--messages", default=500_000, show_default=True, help="Messages sent, by each delivery.")
def main(*, messages: int) -> None:
    """Measure batches of 1024 messages with each delivery guarantee."""
    table = Table("", "broker", "sender", title="CPU of a message, µs", title_justify="left")
    with bundled_broker() as broker:
        _send(broker, "at-least-once", "warm-up", ROWS)
        for delivery in ("at-least-once", "deduplicated"):
            broker_cpu, own_cpu = cpu_seconds(broker.pid), cpu_seconds(os.getpid())
            _send(broker, delivery, delivery, messages)
            spent = (cpu_seconds(broker.pid) - broker_cpu, cpu_seconds(os.getpid()) - own_cpu)
            table.add_row(delivery, *(f"{seconds / messages * 1e6:.2f}" for seconds in spent))
    Console().print(table)


def _send(broker: MeasuredBroker, delivery: str, query: str, messages: int) -> None:
    options = sink_options({"nameServer": broker.name_server, "topic": "bench", "delivery": delivery})
    columns = sink_columns(_SCHEMA, topic="bench", order_key=None, id_column=None)
    TaskWriter(options, columns, Identity(query, 0, 0)).write(_batches(messages))


def _batches(messages: int) -> Iterator[pa.RecordBatch]:
    bodies = pa.array([f"{number:<100}".encode() for number in range(ROWS)], pa.binary())
    batch = pa.RecordBatch.from_arrays([bodies], ["body"])
    for first in range(0, messages, ROWS):
        yield batch.slice(0, messages - first)


if __name__ == "__main__":
    main()
