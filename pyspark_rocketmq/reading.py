"""The reader of a task, which reads its ranges and passes them to Spark as Arrow record batches."""

import logging
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.types import StructType

from pyspark_rocketmq import pool
from pyspark_rocketmq.decode import Decoder
from pyspark_rocketmq.errors import DataLossError
from pyspark_rocketmq.options import SourceOptions
from pyspark_rocketmq.partitions import RangePartition
from rocket_client.blocking import RangePart, Subscription

logger = logging.getLogger(__name__)

BATCH_BYTES = 1024 * 1024
"""The bytes that are decoded together: some thousand small messages."""


def read(options: SourceOptions, schema: StructType, partition: RangePartition) -> Iterator[pa.RecordBatch]:
    """Yield the messages of the partition's ranges, those of a queue in order.

    Raises:
        DataLossError: Messages are gone, and that is not to be borne.
        UnreadableBodyError: A body cannot be decompressed, likewise.
    """
    client = pool.client(options.cluster)
    subscription = Subscription(options.cluster.group, options.expression, 0.0, options.expression_type)
    decoder = Decoder(
        schema,
        subscription.tags,
        max_body_size=options.max_decompressed_body_size,
        fails=options.fail_on_data_loss,
    )
    parts = client.read_ranges(
        partition.ranges,
        expression=options.expression,
        expression_type=options.expression_type,
        max_messages=options.pull_batch_size,
        depth=options.pull_depth,
        patience=options.patience,
    )
    for group in _grouped(_checked(parts, options.fail_on_data_loss), not subscription.takes_all):
        records = group[0].records if len(group) == 1 else b"".join([part.records for part in group])
        before = None if subscription.takes_all else group[0].end
        yield from decoder.decode(records, group[0].queue.broker_name, before)


def _grouped(parts: Iterator[RangePart], is_filtered: bool) -> Iterator[list[RangePart]]:
    """Yield parts of one broker that are decoded together, up to a size; with a filter, each part by itself."""
    group: list[RangePart] = []
    size = 0
    for part in parts:
        if not part.records:
            continue
        if group and (size >= BATCH_BYTES or is_filtered or part.queue.broker_name != group[0].queue.broker_name):
            yield group
            group, size = [], 0
        group.append(part)
        size += len(part.records)
    if group:
        yield group


def _checked(parts: Iterator[RangePart], fail: bool) -> Iterator[RangePart]:
    for part in parts:
        if part.is_lost:
            loss = (
                f"messages {part.start} to {part.end} of {part.queue} are gone: it holds {part.min_offset} to"
                f" {part.max_offset} ({part.status.name})"
            )
            if fail:
                raise DataLossError(f"{loss}; with failOnDataLoss=false reading continues behind them")
            logger.warning("%s; reading continues behind them", loss)
        yield part
