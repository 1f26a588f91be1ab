"""A driver process that copies a topic to two others, and can be killed."""

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from samples.pipeline import cluster
from streamkit.spark import session
from tests.spark.java import SHORT_LIVED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

LONGEST_ERROR = 2000
POLL_SECONDS = 0.1
FAILURES_IN_A_ROW = 20
"""So many starts of queries fail only if Spark's JVM is damaged (`main`): a kill makes one or two fail."""
EXPRESSION = "concat('seen-', CAST(body AS string))"


def start(
    spark: "SparkSession", name_server: str, topics: tuple[str, str], directory: Path, delivery: str
) -> "StreamingQuery":
    """Copy one topic to another, some rows per batch."""
    source, target = topics
    reader = spark.readStream.format("rocketmq").options(nameServer=name_server, topic=source)
    reader = reader.options(startingOffsets="earliest", maxOffsetsPerTrigger="150", packBelow="100")
    writer = reader.load().selectExpr(f"{EXPRESSION} AS body").writeStream.format("rocketmq")
    writer = writer.options(nameServer=name_server, topic=target, delivery=delivery, batchSize="20")
    return writer.option("checkpointLocation", str(directory / "checkpoint" / delivery)).start()


def main(master: str, name_server: str, directory: str, *topics: str) -> None:
    """Run both queries for ever: from the first topic to the second, deduplicated, and to the third.

    Two kinds of damage remain in a JVM of Spark until it ends. After one of them this program starts anew:

    - If the Python worker is killed that lists the formats, Spark remembers that there are none, and each query fails:
      DATA_SOURCE_NOT_FOUND.
    - See `wait_for_batch`.
    """
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": SHORT_LIVED,
        "spark.sql.streaming.pollingDelay": "100ms",  # the query that is ahead leaves the processors to the other one
        **cluster.settings(os.environ[cluster.DRIVER_HOST]),
    }
    spark = session("pipeline", master=master, low_latency=True, settings=settings)
    spark.sparkContext.setLogLevel("OFF")
    queries: dict[str, StreamingQuery] = {}
    source, once, at_least_once = topics
    targets = {"deduplicated": once, "at-least-once": at_least_once}
    failures = 0
    while failures < FAILURES_IN_A_ROW:
        try:
            for delivery, target in targets.items():
                if delivery not in queries or not queries[delivery].isActive:
                    queries[delivery] = start(spark, name_server, (source, target), Path(directory), delivery)
                    wait_for_batch(queries[delivery])
            print("running", flush=True)
            if all(query.lastProgress is not None for query in queries.values()):
                failures = 0
            spark.streams.awaitAnyTermination()
        except (PySparkException, Py4JJavaError) as error:  # also while a query is planned: its processes are killed
            print(f"a query ended: {cause_of(error)!r}", flush=True)
            failures += 1
        spark.streams.resetTerminated()
    print("starting anew", flush=True)
    os.execv(sys.executable, sys.orig_argv)  # the JVM ends with its standard input


def wait_for_batch(query: "StreamingQuery") -> None:
    """Wait until a query has finished a batch, or failed.

    If two queries of one driver do their first batches at once, a map in Spark's JVM is sometimes damaged. Then each
    later start of a query fails: "Task not serializable", caused by "Illegal size 5 of collection, expected 6".
    """
    while query.isActive and query.lastProgress is None:
        time.sleep(POLL_SECONDS)


def cause_of(error: Exception) -> str:
    """Return the text of an error without the plan of the query, which follows it."""
    return str(error).partition("=== Streaming Query ===")[0][:LONGEST_ERROR]


if __name__ == "__main__":
    main(*sys.argv[1:])
