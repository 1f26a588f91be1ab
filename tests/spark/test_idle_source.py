"""A source that is idle for a long time."""

import gc
import sys
from pathlib import Path

from pyspark.sql.streaming.datasource import ReadAllAvailable

from pyspark_rocketmq.options import source_options
from pyspark_rocketmq.schema import source_schema
from pyspark_rocketmq.stream_reader import RocketMQStreamReader
from tests.spark.stand import Stand

TRIGGERS = 10_000
A_TRIGGER = 0.3
"""Far below one: whatever is kept of each trigger is one block of memory or one file at least.

Others in this process, Spark's gateway for one, have some of their own now and then.
"""


def test_ten_thousand_idle_triggers(bundled_stand: Stand) -> None:
    """Offsets stay equal, and neither memory nor files nor connections grow."""
    topic = bundled_stand.topic(queues=2)
    bundled_stand.fill(topic, 10)
    options = source_options({**bundled_stand.options, "topic": topic, "startingOffsets": "earliest"})
    reader = RocketMQStreamReader(options, source_schema(False))
    limit = ReadAllAvailable()
    try:
        place = reader.latestOffset(reader.initialOffset(), limit)
        for _ in range(TRIGGERS // 10):  # caches are full now
            assert reader.latestOffset(place, limit) is place
        gc.collect()
        files, blocks = _open_files(), sys.getallocatedblocks()
        for _ in range(TRIGGERS):
            assert reader.latestOffset(place, limit) is place
            reader.reportLatestOffset()
            assert reader.partitions(place, place) == []
        gc.collect()
        assert _open_files() - files < TRIGGERS * A_TRIGGER
        assert sys.getallocatedblocks() - blocks < TRIGGERS * A_TRIGGER
    finally:
        reader.stop()


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
