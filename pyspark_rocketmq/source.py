"""The data source of format ``rocketmq``.

Spark imports this module in every process that plans queries; readers and writers are imported when they are used.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pyspark_rocketmq.batch_reader import FilteringBatchReader, RocketMQBatchReader
from pyspark_rocketmq.options import sink_options, source_options, stream_options, stream_sink_options
from pyspark_rocketmq.schema import check_source_schema, source_schema
from pyspark_rocketmq.stream_reader import RocketMQStreamReader

if TYPE_CHECKING:
    from pyspark_rocketmq.sink import RocketMQStreamWriter, RocketMQWriter


class RocketMQDataSource(DataSource):
    """The data source of RocketMQ topics: source and sink, of batches and of streams."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format("rocketmq")``."""
        return "rocketmq"

    def schema(self) -> StructType:
        """Return the columns, for users that give no schema."""
        return source_schema(source_options(self.options).include_headers)

    def reader(self, schema: StructType) -> RocketMQBatchReader:
        """Return a batch source for these columns."""
        check_source_schema(schema)
        options = source_options(self.options)
        return (FilteringBatchReader if options.filter_pushdown else RocketMQBatchReader)(options, schema)

    def streamReader(self, schema: StructType) -> RocketMQStreamReader:  # noqa: N802 - Spark's name
        """Return a streaming source for these columns."""
        check_source_schema(schema)
        return RocketMQStreamReader(stream_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> "RocketMQWriter":
        """Return a batch sink for these columns."""
        from pyspark_rocketmq.sink import RocketMQWriter, check

        return RocketMQWriter(check(sink_options(self.options), schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> "RocketMQStreamWriter":  # noqa: N802 - Spark's name
        """Return a streaming sink for these columns. Spark asks for a new one for each batch."""
        from pyspark_rocketmq.sink import RocketMQStreamWriter, check

        return RocketMQStreamWriter(check(stream_sink_options(self.options), schema, overwrite))
