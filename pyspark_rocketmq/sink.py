"""The sinks. A row has the same id in each attempt, so a repeated row can be recognized."""

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_rocketmq import pool
from pyspark_rocketmq.asking import ask
from pyspark_rocketmq.errors import ClusterError, OptionError, SchemaError
from pyspark_rocketmq.options import Delivery, SinkOptions
from pyspark_rocketmq.requests import deduplicated_request
from pyspark_rocketmq.schema import SinkColumns, sink_columns
from pyspark_rocketmq.writing import Identity, TaskWriter, not_deduplicating
from rocket_client.blocking import (
    UNREACHABLE_ERRORS,
    MessageQueue,
    Patience,
    ResponseError,
    TopicNotFoundError,
)
from rocket_remoting.wire.codes import ResponseCode

QUERY_PROPERTY = "sql.streaming.queryId"
EPOCH_PROPERTY = "streaming.sql.batchId"
"""Local properties of a streaming query's tasks. Spark does not document them; it sets them since 2.x."""

_deduplicating: set[tuple[str, str]] = set()
"""The name servers and brokers that are known to deduplicate; kept because Spark makes a writer for each batch."""


@dataclass(frozen=True)
class SinkPlan:
    """The checked options and columns, which are pickled for writers.

    Attributes:
        options: How to write.
        columns: What is in which column.
        queues: The queues that every attempt of every task writes to: a row that is stored already is recognized by its
            place. None: the queues that the task finds.
    """

    options: SinkOptions
    columns: SinkColumns
    queues: tuple[MessageQueue, ...] | None = None


@dataclass
class RowsStored(WriterCommitMessage):
    """The result of a task."""

    rows: int


def check(options: SinkOptions, schema: StructType, overwrite: bool) -> SinkPlan:
    """Check the options and the schema, and return the plan of the sink.

    Raises:
        OptionError: What the options ask cannot be done.
        SchemaError: The columns do not fit.
        ClusterError: The topic cannot be had.
    """
    if overwrite:
        raise OptionError("a topic cannot be overwritten: use mode 'append'")
    columns = sink_columns(schema, topic=options.topic, order_key=options.order_key, id_column=options.id_column)
    is_deduplicated = options.delivery is Delivery.DEDUPLICATED
    for name in (columns.delay_level, columns.deliver_at):
        if is_deduplicated and name is not None:
            raise SchemaError(f"column {name!r} cannot be used with delivery=deduplicated: it delays messages")
    if options.topic is None:
        return SinkPlan(options, columns)
    try:
        queues = _writable_queues(options, options.topic)
        if is_deduplicated:
            ask(options.cluster, partial(_check_deduplicating, options, queues))
    except (*UNREACHABLE_ERRORS, ResponseError) as error:
        raise ClusterError(f"{error} (nameServer {options.cluster.name_servers})") from error
    return SinkPlan(options, columns, queues if is_deduplicated else None)


class RocketMQWriter(DataSourceArrowWriter):
    """The batch sink: rows are known by the option ``writeId``, or by an id of this write alone."""

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = plan
        if plan.options.delivery is Delivery.DEDUPLICATED and plan.options.write_id is None:
            raise OptionError(
                "delivery=deduplicated of a batch needs option 'writeId': the same when the write is done again"
            )
        self._write_id = plan.options.write_id or uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsStored:
        """Send the rows of one task, on an executor; return when they are stored."""
        context = _context()
        identity = Identity(self._write_id, 0, context.partitionId())
        return _stored(self._plan, identity, iterator)


class RocketMQStreamWriter(DataSourceStreamArrowWriter):
    """The streaming sink: rows are identified by query, batch, partition and place in it."""

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsStored:
        """Send the rows of one task, on an executor; return when they are stored.

        Raises:
            OptionError: Spark does not pass query and batch to its tasks.
        """
        context = _context()
        query = context.getLocalProperty(QUERY_PROPERTY)
        epoch = context.getLocalProperty(EPOCH_PROPERTY)
        if query is None or epoch is None:
            raise OptionError(
                f"this Spark does not pass the query and the batch to tasks ({QUERY_PROPERTY}, {EPOCH_PROPERTY})"
            )
        identity = Identity(query, int(epoch), context.partitionId())
        return _stored(self._plan, identity, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: tasks return when their rows are stored."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: stored rows cannot be taken back. The batch is written again, with the same keys."""


def _stored(plan: SinkPlan, identity: Identity, rows: Iterator[pa.RecordBatch]) -> RowsStored:
    return RowsStored(TaskWriter(plan.options, plan.columns, identity, plan.queues).write(rows))


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "Spark calls `write` in tasks only"
    return context


def _writable_queues(options: SinkOptions, topic: str) -> tuple[MessageQueue, ...]:
    """Return the writable queues of a topic; wait while it has none because its brokers are drained."""
    client = pool.client(options.cluster)
    # Rows of a topic that is only to be created would go to other queues once it is there.
    create = options.delivery is not Delivery.DEDUPLICATED
    waiting = Patience(options.patience)
    while True:
        try:
            return ask(options.cluster, partial(client.publish_queues, topic, create=create))
        except TopicNotFoundError as error:
            client.queues(topic)
            waiting.failed(error)
        time.sleep(waiting.pause())


def _check_deduplicating(options: SinkOptions, queues: tuple[MessageQueue, ...]) -> None:
    client = pool.client(options.cluster)
    for queue in {each.broker_name: each for each in queues}.values():
        known = (options.cluster.name_servers, queue.broker_name)
        if known in _deduplicating:
            continue
        response = client.ask(queue, deduplicated_request(options, queue, b"", writer="", epoch=0, sequence=0))
        if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise OptionError(not_deduplicating(queue.broker_name))
        if response.code != ResponseCode.SUCCESS:
            raise ResponseError(response.code, response.remark, address=queue.broker_name)
        _deduplicating.add(known)
