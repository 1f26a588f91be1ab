"""The writers of the sink, which send the rows of a task; `streamkit.spark.rows` explains the columns.

::

    the binder has a Python format     rows ─► its columns, payloads converted here ─► its own writer
    the binder has none                rows ─► messages ─► the binding itself, opened in the task ─► the binder's client
"""

import asyncio
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, MapType, StringType, StructType

from pyspark_streamkit.options import ChannelOptions
from streamkit import StreamApplication
from streamkit.messaging import headers
from streamkit.messaging.converter import CompositeMessageConverter
from streamkit.messaging.message import Message
from streamkit.spark.rows import EPOCH_PROPERTY, HEADERS, KEY, QUERY_PROPERTY, TAGS, Columns, messages_of
from streamkit.spark.snapshot import ChannelSnapshot

_IN_FLIGHT: Final = 500
"""Messages that a task sends concurrently."""


@dataclass(frozen=True)
class SinkPlan:
    """The state of a writer, which is pickled for executors.

    Attributes:
        channel: The binding.
        columns: The meaning of the rows' columns.
    """

    channel: ChannelSnapshot
    columns: Columns

    @staticmethod
    def of(chosen: ChannelOptions, schema: StructType) -> "SinkPlan":
        """Return the plan for rows of this schema.

        Raises:
            ConfigurationError: There is no payload, or the headers are not a map.
        """
        return SinkPlan(chosen.channel, Columns.of_schema(schema))

    @property
    def native_schema(self) -> StructType:
        """Return the schema of the columns that :meth:`native` makes."""
        schema = StructType().add("body", BinaryType()).add("properties", MapType(StringType(), StringType()))
        if self.columns.has_key:
            schema = schema.add("keys", StringType()).add("order_key", StringType())
        return schema.add("tags", StringType()) if self.columns.has_tags else schema

    def native(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with the columns of the binder's own format."""
        columns = {"body": self._bodies(batch), "properties": self._properties(batch)}
        if self.columns.has_key:
            columns["keys"] = columns["order_key"] = batch[KEY].cast(pa.string())
        if self.columns.has_tags:
            columns["tags"] = batch[TAGS].cast(pa.string())
        return pa.RecordBatch.from_pydict(columns)

    def _bodies(self, batch: pa.RecordBatch) -> pa.Array:
        names = self.columns.payload
        if self.columns.is_whole:
            whole = batch[names[0]]
            if pa.types.is_string(whole.type) or pa.types.is_binary(whole.type):
                return whole.cast(pa.binary())
            payloads = whole.to_pylist(maps_as_pydicts="strict")
        else:
            payloads = batch.select(list(names)).to_pylist(maps_as_pydicts="strict")
        place = f"binding {self.channel.binding!r}"
        write = CompositeMessageConverter().payload_writer(self.channel.content_type, place=place)
        return pa.array([write(Message(payload)).payload for payload in payloads], pa.binary())

    def _properties(self, batch: pa.RecordBatch) -> pa.Array:
        kind = pa.map_(pa.string(), pa.string())
        said = {headers.CONTENT_TYPE: self.channel.content_type}
        if not self.columns.has_headers:
            return pa.repeat(pa.scalar(list(said.items()), kind), batch.num_rows)
        given = batch[HEADERS].to_pylist(maps_as_pydicts="strict")
        return pa.array([list({**(own or {}), **said}.items()) for own in given], kind)


class NativeWriter(DataSourceArrowWriter):
    """The batch sink by the binder's own format."""

    def __init__(self, plan: SinkPlan, writer: DataSourceWriter) -> None:
        self._plan = plan
        self._writer = writer

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one task, on an executor; return when they are stored."""
        return self._writer.write(map(self._plan.native, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Finish a batch whose tasks are all done."""
        self._writer.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort a batch: a task has failed for good."""
        self._writer.abort(messages)


class NativeStreamWriter(DataSourceStreamArrowWriter):
    """The streaming sink by the binder's own format."""

    def __init__(self, plan: SinkPlan, writer: DataSourceStreamWriter) -> None:
        self._plan = plan
        self._writer = writer

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one task, on an executor; return when they are stored."""
        return self._writer.write(map(self._plan.native, iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Finish the batch: all its tasks are done."""
        self._writer.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Abort a batch: a task has failed for good."""
        self._writer.abort(messages, batchId)


class BindingWriter(DataSourceArrowWriter):
    """The batch sink by the binding itself."""

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = plan
        self._write_id = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one task, on an executor; return when the binder has accepted them."""
        return _send(self._plan, iterator, self._write_id, 0)


class BindingStreamWriter(DataSourceStreamArrowWriter):
    """The streaming sink by the binding itself."""

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one task, on an executor; return when the binder has accepted them."""
        context = _context()
        query = context.getLocalProperty(QUERY_PROPERTY) or ""
        return _send(self._plan, iterator, query, int(context.getLocalProperty(EPOCH_PROPERTY) or 0))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: tasks return when their rows are accepted."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: sent messages cannot be taken back. The batch is sent again, with the same ids."""


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "Spark calls `write` in tasks only"
    return context


def _send(plan: SinkPlan, batches: Iterator[pa.RecordBatch], query: str, epoch: int) -> WriterCommitMessage:
    """Send the rows through the output binding, which is bound during the task."""
    rows: Iterator[dict[str, Any]] = (row for batch in batches for row in batch.to_pylist(maps_as_pydicts="strict"))
    messages = messages_of(rows, plan.columns, f"{query}/{_context().partitionId()}", epoch)
    app = StreamApplication(environment=plan.channel.environment)
    channel = app.channel(plan.channel.binding)
    binding = app.container.binding_factory().output(plan.channel.binding, channel)

    async def send_all(window: list[Message[object]]) -> None:
        await asyncio.gather(*(channel.asend(message) for message in window))

    with asyncio.Runner() as runner:
        try:
            runner.run(binding.start())
            while window := list(islice(messages, _IN_FLIGHT)):
                runner.run(send_all(window))
        finally:
            runner.run(binding.stop())
            runner.run(app.container.binders().stop())
    return WriterCommitMessage()
