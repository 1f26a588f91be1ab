"""The batch source, which reads the messages between two positions."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from pyspark_rocketmq.cluster import Cluster
from pyspark_rocketmq.errors import OffsetError
from pyspark_rocketmq.options import SourceOptions
from pyspark_rocketmq.partitions import RangePartition, partitions
from pyspark_rocketmq.starting import Position, Strategy
from rocket_client.blocking import MessageQueue, QueueRange

if TYPE_CHECKING:
    import pyarrow as pa


class RocketMQBatchReader(DataSourceReader):
    """Reads from the starting position to the ending one, both looked up when the query is planned."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return the part of each task."""
        cluster = Cluster(self._options)
        try:
            ranges = self._ranges(cluster)
        finally:
            cluster.close()
        # Spark takes an empty list for: one partition, of which nothing is known.
        return partitions(ranges, self._options.plan) or [RangePartition([])]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Yield the partition's messages."""
        # What decodes takes half a second to import: not on the driver.
        from pyspark_rocketmq.reading import read

        assert isinstance(partition, RangePartition)
        return read(self._options, self._schema, partition)

    def _ranges(self, cluster: Cluster) -> list[QueueRange]:
        options = self._options
        queues = cluster.queues()
        starts = cluster.at(options.starting or Position("earliest"), queues)
        ends = cluster.at(options.ending, queues)
        for queue in queues:
            if options.starting is not None and starts[queue] > ends[queue]:
                raise OffsetError(
                    f"{queue}: the starting offset {starts[queue]} is behind the ending offset {ends[queue]}"
                )
        return [QueueRange(queue, starts[queue], ends[queue]) for queue in self._wanted(queues)]

    def _wanted(self, queues: list[MessageQueue]) -> list[MessageQueue]:
        return queues


class FilteringBatchReader(RocketMQBatchReader):
    """A batch reader that applies the query's filters early.

    Spark refuses a reader that can do this unless ``spark.sql.python.filterPushdown.enabled`` is set; the option
    ``filterPushdown`` chooses it. Spark looks at all rows again: the broker compares hashes of tags, and times in
    milliseconds.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._queue_ids: set[int] | None = None
        self._least: int | None = None
        self._below: int | None = None
        self._since_ms: int | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Use the filters that brokers can apply; Spark applies all of them again."""
        for each in filters:
            self._note(each)
        return filters

    def _note(self, each: Filter) -> None:
        column = getattr(each, "attribute", ())
        value: Any = getattr(each, "value", None)
        if column in {("queue_id",), ("partition",)}:
            self._note_queues(each, value)
        elif column in {("queue_offset",), ("offset",)} and isinstance(value, int):
            self._note_offsets(each, value)
        elif column in {("store_timestamp",), ("timestamp",)} and isinstance(value, datetime):
            if isinstance(each, EqualTo | GreaterThan | GreaterThanOrEqual):
                since = int(value.timestamp() * 1000)
                self._since_ms = max(since, self._since_ms or 0)
        elif column == ("tags",) and self._options.expression == "*":
            self._note_tags(each, value)

    def _note_queues(self, each: Filter, value: Any) -> None:
        ids = {value} if isinstance(each, EqualTo) else set(value) if isinstance(each, In) else None
        if ids is not None:
            self._queue_ids = ids if self._queue_ids is None else self._queue_ids & ids

    def _note_offsets(self, each: Filter, value: int) -> None:
        least = {EqualTo: value, GreaterThan: value + 1, GreaterThanOrEqual: value}.get(type(each))
        below = {EqualTo: value + 1, LessThan: value, LessThanOrEqual: value + 1}.get(type(each))
        if least is not None:
            self._least = least if self._least is None else max(self._least, least)
        if below is not None:
            self._below = below if self._below is None else min(self._below, below)

    def _note_tags(self, each: Filter, value: Any) -> None:
        tags = [value] if isinstance(each, EqualTo) else list(value) if isinstance(each, In) else []
        # An expression cannot say all tags: none with `||` in it, nor spaces around it, and `*` means any.
        if tags and all(isinstance(tag, str) and tag and tag == tag.strip() and "||" not in tag for tag in tags):
            self._options = replace(self._options, expression=" || ".join(tags), expression_type="TAG")

    def _ranges(self, cluster: Cluster) -> list[QueueRange]:
        ranges = super()._ranges(cluster)
        since = {}
        if self._since_ms is not None:
            moment = Position("timestamp", option="filter", timestamp=self._since_ms, strategy=Strategy.LATEST)
            since = cluster.at(moment, [each.queue for each in ranges])
        return [
            QueueRange(each.queue, start, end)
            for each in ranges
            if (start := max(each.start, self._least or 0, since.get(each.queue, 0)))
            < (end := each.end if self._below is None else min(each.end, self._below))
        ]

    def _wanted(self, queues: list[MessageQueue]) -> list[MessageQueue]:
        if self._queue_ids is None:
            return queues
        return [queue for queue in queues if queue.queue_id in self._queue_ids]
