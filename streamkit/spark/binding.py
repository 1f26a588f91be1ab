"""Queries that feed outputs: as rows, or as a function of an input's rows."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, Unpack

from streamkit.binder.binding import OutputBinding
from streamkit.binder.feeding import FeederDeclaration
from streamkit.declarations import declare
from streamkit.errors import ApplicationError
from streamkit.messaging.channel import running_loop
from streamkit.spark.channel_query import ChannelQuery
from streamkit.spark.channel_source import source
from streamkit.spark.query_settings import QueryArguments, QuerySettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from streamkit.application import StreamApplication

__all__ = ["bind", "spark_processor"]

F = TypeVar("F", bound="Callable[[DataFrame], DataFrame]")


def bind(app: "StreamApplication", rows: "DataFrame", output: str, **settings: Unpack[QueryArguments]) -> ChannelQuery:
    """Send the rows of a streaming DataFrame to an output binding while that is bound.

    The query starts with the application, or at once if the application runs. See :mod:`streamkit.spark.rows` for the
    columns and :class:`QuerySettings` for the settings.

    Raises:
        ApplicationError: The application runs and has no such output, or this thread runs the application's loop,
            which the start of a query must not block.
        ConfigurationError: The rows cannot be sent to this binding.
    """
    query = ChannelQuery(app, output, lambda: rows, QuerySettings(**settings))
    if not app.is_running:
        app.feed(output, lambda _: query)
        return query
    portal = app.portal
    if running_loop() is portal.loop:
        raise ApplicationError(
            f"streamkit.spark.bind(app, rows, {output!r}) would block the loop that has to start the query: use "
            f"`await asyncio.to_thread(streamkit.spark.bind, app, rows, {output!r})` here"
        )
    portal.run(_feed(app, output, query))
    return query


async def _feed(app: "StreamApplication", output: str, query: ChannelQuery) -> None:
    if output not in app.bindings and app.container.binding_factory().settings.is_configured(output):
        await app.controller.define_output(output)
    binding = app.binding(output)
    if not isinstance(binding, OutputBinding):
        raise ApplicationError(f"binding {output!r} is an input: rows leave by outputs")
    await binding.feed(query)


def spark_processor(
    input: str,  # noqa: A002 - as binding interfaces call it
    output: str,
    *,
    schema: "StructType | str | None" = None,
    spark: "Callable[[], SparkSession] | None" = None,
    read_options: "Mapping[str, str] | None" = None,
    **settings: Unpack[QueryArguments],
) -> Callable[[F], F]:
    """Send the rows that a function makes of an input binding's messages to an output binding.

    This is for queries what `stream_listener` with `send_to` is for functions: an application that is given the
    function's module runs the query. The function receives the result of :func:`source`, and is called once for each
    start.

    Args:
        input: The input binding.
        output: The output binding.
        schema: The schema of the payload; see :func:`source`.
        spark: Makes the session; by default the running session of this process, or a new one.
        read_options: Further options of the input's format, such as `maxOffsetsPerTrigger`; see :func:`source`.
        settings: How the query runs; see :class:`QuerySettings`.
    """
    chosen = QuerySettings(**settings)

    def note(function: F) -> F:
        def make(app: "StreamApplication") -> ChannelQuery:
            def rows() -> "DataFrame":
                session = None if spark is None else spark()
                return function(source(app, input, schema=schema, spark=session, options=read_options))

            return ChannelQuery(app, output, rows, chosen)

        return declare(function, FeederDeclaration(output, make))

    return note
