"""A driver process that copies a topic to two others, and can be killed."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from streamkit.spark import session
from tests.spark.java import SHORT_LIVED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

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
    return writer.option("checkpointLocation", str(directory / delivery)).start()


def main(name_server: str, source: str, once: str, at_least_once: str, directory: str) -> None:
    """Run both queries for ever."""
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": SHORT_LIVED,
    }
    spark = session("pipeline", master="local[2,4]", low_latency=True, settings=settings)
    spark.sparkContext.setLogLevel("OFF")
    queries: dict[str, StreamingQuery] = {}
    targets = {"deduplicated": once, "at-least-once": at_least_once}
    while True:
        for delivery, target in targets.items():
            if delivery not in queries or not queries[delivery].isActive:
                queries[delivery] = start(spark, name_server, (source, target), Path(directory), delivery)
        print("running", flush=True)
        try:
            spark.streams.awaitAnyTermination()
        except Exception as error:
            print(f"a query ended: {str(error)[-300:]!r}", flush=True)
        spark.streams.resetTerminated()


if __name__ == "__main__":
    main(*sys.argv[1:])
