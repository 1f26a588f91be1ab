"""A streaming query that collects what it reads."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.stand import Stand

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

SECONDS = 120


class Reading:
    """A query that collects what it reads, and can be stopped and continued from its checkpoint.

    Attributes:
        batches: The bodies of each batch that was not empty, as text.
    """

    def __init__(self, spark: "SparkSession", stand: Stand, checkpoint: Path) -> None:
        self.batches: dict[int, list[str]] = {}
        self._spark = spark
        self._stand = stand
        self._checkpoint = checkpoint

    @property
    def read(self) -> list[str]:
        """Return all bodies, sorted."""
        return sorted(body for batch in self.batches.values() for body in batch)

    def start(self, *, trigger: dict[str, Any] | None = None, **options: Any) -> "StreamingQuery":
        """Start it."""
        reader = self._spark.readStream.format("rocketmq").options(**self._stand.options)
        frame = reader.options(**{"startingOffsets": "earliest"} | options).load()
        writer = frame.select("body").writeStream.foreachBatch(self._collect)
        writer = writer.option("checkpointLocation", str(self._checkpoint))
        return writer.trigger(**trigger or {"availableNow": True}).start()

    def run(self, **options: Any) -> "StreamingQuery":
        """Run it until it has read everything present."""
        query = self.start(**options)
        assert query.awaitTermination(SECONDS)
        return query

    def _collect(self, frame: "DataFrame", batch: int) -> None:
        bodies = [bytes(row.body).decode() for row in frame.collect()]
        if bodies:
            self.batches[batch] = bodies
