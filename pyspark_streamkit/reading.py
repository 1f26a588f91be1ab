"""The readers of a binder's own format, with their columns renamed to those of this format."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    import pyarrow as pa

Json = dict[str, Any]


class _Reads(Protocol):
    """A reader of Arrow record batches."""

    def read(self, partition: InputPartition) -> Iterator[Any]: ...


def _renamed(reader: _Reads, partition: InputPartition, schema: StructType) -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    names = to_arrow_schema(schema, timezone="UTC")
    for batch in reader.read(partition):
        yield pa.RecordBatch.from_arrays(batch.columns, schema=names)


class ChannelReader(DataSourceReader):
    """The reader of a batch."""

    def __init__(self, reader: DataSourceReader, schema: StructType) -> None:
        self._reader = reader
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return the part of each task."""
        return self._reader.partitions()

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Yield the partition's messages."""
        return _renamed(self._reader, partition, self._schema)


class ChannelStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a stream."""

    def __init__(self, reader: DataSourceStreamReader, schema: StructType) -> None:
        self._reader = reader
        self._schema = schema

    def initialOffset(self) -> Json:  # noqa: N802 - Spark's name
        """Return where the first batch begins."""
        return self._reader.initialOffset()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit that options set."""
        return self._reader.getDefaultReadLimit()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of the stream at the messages that are there now."""
        if isinstance(self._reader, SupportsTriggerAvailableNow):
            self._reader.prepareForTriggerAvailableNow()

    def latestOffset(self, start: Json, limit: ReadLimit = ReadAllAvailable()) -> Json:  # noqa: N802, B008
        """Return where the next batch ends."""
        return self._reader.latestOffset(start, limit)

    def reportLatestOffset(self) -> Json | None:  # noqa: N802 - Spark's name
        """Return where the queues end, for the query's progress."""
        return self._reader.reportLatestOffset()

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """Return the part of each task of a batch."""
        return self._reader.partitions(start, end)

    def commit(self, end: Json) -> None:
        """Commit the batch that ends here."""
        self._reader.commit(end)

    def stop(self) -> None:
        """Close the connections."""
        self._reader.stop()

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Yield the partition's messages."""
        return _renamed(self._reader, partition, self._schema)
