"""The data source of format ``streamkit``.

A binding is looked up once, when Spark makes the data source. Readers and writers are those of the binder's own Python
format, if it has one; otherwise each task opens the binding itself.
"""

from importlib import import_module
from importlib.util import find_spec

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pyspark_streamkit.columns import SCHEMA, native_schema
from pyspark_streamkit.options import ChannelOptions, channel_options
from pyspark_streamkit.reading import ChannelReader, ChannelStreamReader
from streamkit.binder.spark_format import SparkFormat
from streamkit.errors import ConfigurationError
from streamkit.spark.snapshot import Direction


class StreamkitDataSource(DataSource):
    """The data source of bindings: source and sink, of batches and of streams."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._chosen: ChannelOptions = channel_options(options)

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format("streamkit")``."""
        return "streamkit"

    def schema(self) -> StructType:
        """Return the columns, for users that give no schema."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch source for these columns."""
        return ChannelReader(self._source().reader(native_schema(schema)), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a streaming source for these columns."""
        return ChannelStreamReader(self._source().streamReader(native_schema(schema)), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a batch sink for these columns.

        Raises:
            ConfigurationError: The mode is `overwrite`, or the columns cannot be written to the binding.
        """
        from pyspark_streamkit import writing

        if overwrite:
            raise ConfigurationError("messages cannot be overwritten: use mode 'append'")
        plan = writing.SinkPlan.of(self._chosen, schema)
        sink = self._sink()
        if sink is None:
            return writing.BindingWriter(plan)
        return writing.NativeWriter(plan, sink.writer(plan.native_schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """Return a streaming sink for these columns. Spark asks for a new one for each batch."""
        from pyspark_streamkit import writing

        plan = writing.SinkPlan.of(self._chosen, schema)
        sink = self._sink()
        if sink is None:
            return writing.BindingStreamWriter(plan)
        return writing.NativeStreamWriter(plan, sink.streamWriter(plan.native_schema, overwrite))

    def _source(self) -> DataSource:
        channel = self._chosen.channel
        native = self._native(channel.source)
        if native is None:
            raise ConfigurationError(
                f"binding {channel.binding!r} cannot be read by format 'streamkit': binder {channel.binder!r} of type "
                f"{channel.type!r} has no Python format for Spark"
                + (
                    f", but Spark's own {channel.source.format.name!r}: use streamkit.spark.source"
                    if channel.source.format is not None
                    else ": read its destination by a format that Spark has for the system"
                )
            )
        return native

    def _sink(self) -> DataSource | None:
        native = self._native(self._chosen.channel.sink)
        if native is None and self._chosen.given:
            raise ConfigurationError(
                f"unknown option {min(self._chosen.given)!r}: binder {self._chosen.channel.binder!r} has no Python "
                "format for Spark, so no options are possible beside the binding's settings"
            )
        return native

    def _native(self, direction: Direction) -> DataSource | None:
        """Return the binder's own format for the binding, if Spark's Python processes can use it."""
        channel = self._chosen.channel
        if channel.is_local:
            raise ConfigurationError(
                f"binding {channel.binding!r} is of binder {channel.binder!r}, whose messages live in the "
                "application's process alone, out of reach of Spark's: have the application send them, by "
                f"streamkit.spark.bind(app, rows, {channel.binding!r}) in a session that is not Connect's"
            )
        if direction.refusal is not None:
            raise ConfigurationError(direction.refusal)
        return None if direction.format is None else _data_source(direction.format, self._chosen)


def _data_source(found: SparkFormat, chosen: ChannelOptions) -> DataSource | None:
    package = f"pyspark_{found.name}"
    if find_spec(package) is None:
        return None
    kind: type[DataSource] = import_module(package).DefaultSource
    return kind(found.options_with(chosen.given, chosen.channel.binding))
