"""The streaming source, which reads exactly once, because the position is kept in Spark's checkpoint only.

::

    trigger      latestOffset ─► the batch's end        how much is taken (`admission`)
                 partitions   ─► what each task reads   a pure function of start and end (`partitions`)
                 read         ─► rows                   on executors (`reading`)
                 commit       ─► the group's offsets    only sent to the brokers, never read back

All but `read` runs in one process for each query, which keeps its connections.
"""

import logging
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pyspark_rocketmq.admission import TriggerDelay, admitted, admitted_bytes
from pyspark_rocketmq.cluster import Cluster
from pyspark_rocketmq.errors import ClusterError, DataLossError
from pyspark_rocketmq.offsets import StreamOffset
from pyspark_rocketmq.options import SourceOptions
from pyspark_rocketmq.partitions import RangePartition, partitions
from pyspark_rocketmq.starting import Position
from rocket_client.blocking import MessageQueue

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

Json = dict[str, Any]


class RocketMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics batch after batch."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._cluster: Cluster | None = None
        self._delay: TriggerDelay | None = None
        self._ends: dict[MessageQueue, int] = {}
        self._target: dict[MessageQueue, int] | None = None
        self._published: Mapping[MessageQueue, int] = {}
        self._initial: Mapping[MessageQueue, int] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for executors, without connections."""
        return self.__dict__ | {"_cluster": None, "_ends": {}, "_published": {}, "_initial": None}

    # On the driver

    def initialOffset(self) -> Json:  # noqa: N802 - Spark's name
        """Return where the first batch begins.

        Spark does not store this position, but asks again if it repeats the batch, when the latest message is
        another one. So the end of the batch contains it as well.
        """
        cluster = self._connected()
        queues = cluster.queues()
        position = self._options.starting or Position("latest")
        self._initial = cluster.at(position, queues)
        return StreamOffset(self._initial, self._options.plan).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit that options set; `latestOffset` applies all of them."""
        options = self._options
        if options.max_offsets is not None:
            return ReadMaxRows(options.max_offsets)
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        if options.min_offsets is not None:
            return ReadMinRows(options.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of the stream at the messages that are there now."""
        _, self._target, _ = self._bounds(known=None)

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802 - Spark's name
        """Return where the next batch ends; `start` if there should be no batch."""
        begin = StreamOffset.from_json(start)
        self._publish(begin.offsets)
        ends, begins = self._look(begin)
        backlog = {queue: max(0, end - begins.get(queue, begin.offsets.get(queue, 0))) for queue, end in ends.items()}
        taken = self._admitted(backlog, {**begin.offsets, **begins}, limit)
        offsets = {queue: begins.get(queue, begin.offsets.get(queue, 0)) + taken[queue] for queue in ends}
        if offsets == begin.offsets:
            return start
        if begin.offsets == self._initial:
            begins = {queue: offset for queue, offset in begin.offsets.items() if queue in offsets} | begins
        return StreamOffset(offsets, self._options.plan, begins).to_json()

    def reportLatestOffset(self) -> Json | None:  # noqa: N802 - Spark's name
        """Return where the queues end, for the query's progress."""
        return StreamOffset(self._ends, self._options.plan).to_json() if self._ends else None

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """Return the part of each task of a batch."""
        if start == end:  # that says where the batch before began as well
            return []
        until = StreamOffset.from_json(end)
        return partitions(until.ranges_from(StreamOffset.from_json(start)), until.plan)

    def commit(self, end: Json) -> None:
        """Commit the batch that ends here."""
        self._publish(StreamOffset.from_json(end).offsets)

    def stop(self) -> None:
        """Close the connections."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    # On executors

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Yield the partition's messages."""
        # What decodes takes half a second to import: not on the driver.
        from pyspark_rocketmq.reading import read

        assert isinstance(partition, RangePartition)
        return read(self._options, self._schema, partition)

    # What is there

    def _connected(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self._options)
        return self._cluster

    def _look(self, begin: StreamOffset) -> tuple[dict[MessageQueue, int], dict[MessageQueue, int]]:
        """Return where the queues end, and where queues begin that were not in the batch before."""
        cluster = self._connected()
        queues, self._ends, oldest = self._bounds(known=begin.offsets)
        ends = self._ends
        if self._target is not None:  # of a broker that was away then nothing is read, and nothing forgotten
            until = {**begin.offsets, **self._target}
            ends = {queue: min(end, until[queue]) for queue, end in ends.items() if queue in until}
        begins: dict[MessageQueue, int] = {}
        for queue in ends:
            offset = begin.offsets.get(queue)
            if offset is None:
                begins[queue] = oldest[queue]
            elif self._ends[queue] < offset or offset < oldest[queue]:
                self._lost(f"{queue} was read up to {offset} and now holds {oldest[queue]} to {self._ends[queue]}")
                begins[queue] = oldest[queue]
        gone = set(begin.offsets) - set(queues)
        there = {(queue.topic, queue.broker_name) for queue in queues}
        deleted = {
            each for each in {(queue.topic, queue.broker_name) for queue in gone} - there if cluster.is_deleted(*each)
        }
        for queue in gone:
            if (queue.topic, queue.broker_name) in there | deleted:
                self._lost(f"{queue}, read up to {begin.offsets[queue]}, is not there any more")
            else:  # its broker is away: it is read on when the broker is back
                ends[queue] = begin.offsets[queue]
        return dict(sorted(ends.items())), begins

    def _bounds(
        self, known: Container[MessageQueue] | None
    ) -> tuple[list[MessageQueue], dict[MessageQueue, int], dict[MessageQueue, int]]:
        """Return the queues that exist, their ends and their beginnings; without those of a broker that goes away
        while it is asked, once name servers know that it is gone."""
        cluster = self._connected()
        queues = cluster.queues(known)
        try:
            return queues, cluster.ends(queues), cluster.begins(queues)
        except ClusterError:
            left = cluster.queues(known)
            if left == queues:
                raise
            return left, cluster.ends(left), cluster.begins(left)

    def _lost(self, loss: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"messages were lost, or the topic was made anew: {loss};"
                " with failOnDataLoss=false reading continues with the messages that exist"
            )
        logger.warning("messages were lost, or the topic was made anew: %s; reading continues", loss)

    def _admitted(
        self, backlog: dict[MessageQueue, int], starts: Mapping[MessageQueue, int], limit: ReadLimit
    ) -> dict[MessageQueue, int]:
        options = self._options
        if isinstance(limit, ReadAllAvailable):
            return backlog
        if self._target is None and options.min_offsets is not None:
            now = time.monotonic()
            if self._delay is None:
                self._delay = TriggerDelay(options.min_offsets, options.max_delay, now)
            if not self._delay.is_due(sum(backlog.values()), now):
                return dict.fromkeys(backlog, 0)
        taken = backlog
        if options.max_offsets is not None:
            taken = admitted(taken, options.max_offsets)
        if options.max_bytes is not None and any(taken.values()):
            sampled = {queue: starts[queue] for queue, count in taken.items() if count}
            sizes = dict.fromkeys(taken, 0.0) | self._connected().average_sizes(sampled)
            taken = admitted_bytes(taken, sizes, options.max_bytes)
        return taken

    def _publish(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit the group's offsets to the brokers, for other tools.

        Spark commits a batch when it plans the next one, and the last one never; asking for the latest offset
        says as much and happens once more, so both count.
        """
        if self._options.commit_offsets and offsets and offsets != self._published:
            self._published = offsets
            self._connected().commit(offsets)
