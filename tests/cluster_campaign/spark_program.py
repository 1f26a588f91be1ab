"""A Spark driver that adds up the ordered messages of the campaign, by key, and keeps the totals in a file.

Its query reads the topic with the format `rocketmq`. When the query fails, it is started again from its checkpoint.
"""

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql.functions import count
from pyspark.sql.functions import sum as sum_of

from streamkit.spark import session
from tests.cluster_campaign.spark_query import RESTARTED, TOPIC, TOTALS
from tests.spark.java import SHORT_LIVED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

RESTART_PAUSE: Final = 1.0
SETTINGS: Final = {
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": SHORT_LIVED,
}


def start(spark: "SparkSession", name_server: str, directory: Path) -> "StreamingQuery":
    """Add up all messages of the topic, from the first one on."""
    messages = (
        spark.readStream.format("rocketmq")
        .options(nameServer=name_server, topic=TOPIC, startingOffsets="earliest")
        .load()
        .selectExpr("split(CAST(body AS string), ':') AS name")
    )
    numbers = messages.selectExpr("name[0] AS key", "CAST(name[1] AS long) AS number")
    totals = numbers.groupBy("key").agg(count("*").alias("messages"), sum_of("number").alias("sum"))

    def keep(rows: "DataFrame", _: int) -> None:
        """Replace the file, which is whole at any moment."""
        text = json.dumps({row["key"]: [row["messages"], row["sum"]] for row in rows.collect()})
        new = directory / f"{TOTALS}.new"
        new.write_text(text)
        new.replace(directory / TOTALS)

    writing = totals.writeStream.outputMode("complete").foreachBatch(keep)
    return writing.option("checkpointLocation", str(directory / "checkpoint")).start()


def main(name_server: str, directory: str) -> None:
    """Run the query until the process is killed."""
    spark = session("cluster-campaign", master="local[2]", low_latency=True, settings=SETTINGS)
    spark.sparkContext.setLogLevel("OFF")
    while True:
        try:
            start(spark, name_server, Path(directory)).awaitTermination()
        except Exception as error:
            print(f"{RESTARTED}: {str(error)[-500:]!r}", flush=True)
        time.sleep(RESTART_PAUSE)


if __name__ == "__main__":
    main(*sys.argv[1:])
