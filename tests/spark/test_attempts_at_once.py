"""Two concurrent attempts of one task, as in speculation, which Spark does on another host only."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pyarrow as pa
from pyspark.sql.types import StringType, StructType

from pyspark_rocketmq.options import sink_options
from pyspark_rocketmq.schema import sink_columns
from pyspark_rocketmq.writing import Identity, TaskWriter
from tests.spark.stand import Stand

BATCHES, ROWS, SECONDS = 20, 150, 60.0


def test_concurrent_attempts_store_each_row_once(bundled_stand: Stand) -> None:
    """The second send of a row is refused as stored, and both attempts succeed."""
    topic = bundled_stand.topic()
    columns = sink_columns(StructType().add("body", StringType()), topic=topic, order_key=None, id_column=None)
    together = Barrier(2)

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(BATCHES):
            together.wait(SECONDS)
            rows = [str(number * ROWS + row) for row in range(ROWS)]
            yield pa.RecordBatch.from_pydict({"body": rows})

    def attempt(number: int) -> int:
        # Clients are shared by what they are asked for: another time-out makes another connection.
        options = {"requestTimeoutMs": str(20_000 + number), "batchSize": "7", "delivery": "deduplicated"}
        chosen = sink_options({**bundled_stand.options, "topic": topic, **options})
        return TaskWriter(chosen, columns, Identity("query", 3, 1)).write(batches())

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(attempt, range(2))) == [BATCHES * ROWS] * 2
    stored = Counter(bundled_stand.bodies(topic))
    assert stored == Counter(str(number) for number in range(BATCHES * ROWS))
