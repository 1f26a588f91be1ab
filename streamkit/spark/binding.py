"""Queries that feed outputs: given as rows, or as a function of an input's rows."""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from streamkit.binder.binding import OutputBinding
from streamkit.errors import ApplicationError
from streamkit.feeding import FeederDeclaration, note_feeder
from streamkit.spark.channel_query import ChannelQuery, Delivery, QuerySettings
from streamkit.spark.channel_source import source

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from streamkit.application import StreamApplication

__all__ = ["bind", "spark_processor"]

F = TypeVar("F", bound="Callable[[DataFrame], DataFrame]")
_RESTART = timedelta(seconds=30)


def bind(
    app: "StreamApplication",
    rows: "DataFrame",
    output: str,
    *,
    checkpoint: str | None = None,
    trigger: "Mapping[str, str | bool] | None" = None,
    output_mode: str = "append",
    delivery: Delivery | None = None,
    options: "Mapping[str, str] | None" = None,
    restart_after: timedelta | None = _RESTART,
) -> ChannelQuery:
    """Have the rows of a streaming DataFrame leave by an output binding, as long as that is bound.

    Called before the application starts, the query starts with it; called while it runs, at once. See
    :mod:`streamkit.spark.rows` for what the columns mean, :class:`QuerySettings` for the arguments.

    Raises:
        ApplicationError: The application runs and has no such output.
        ConfigurationError: The rows cannot leave by this binding.
    """
    settings = QuerySettings(
        checkpoint=checkpoint,
        trigger=trigger or {},
        output_mode=output_mode,
        delivery=delivery,
        options=options or {},
        restart_after=restart_after,
    )
    query = ChannelQuery(app, output, lambda: rows, settings)
    if not app.is_running:
        app.feed(output, lambda _: query)
        return query
    app.portal.run(_feed(app, output, query))
    return query


async def _feed(app: "StreamApplication", output: str, query: ChannelQuery) -> None:
    if output not in app.bindings and app.container.binding_factory().is_configured(output):
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
    checkpoint: str | None = None,
    trigger: "Mapping[str, str | bool] | None" = None,
    output_mode: str = "append",
    delivery: Delivery | None = None,
    options: "Mapping[str, str] | None" = None,
    restart_after: timedelta | None = _RESTART,
) -> Callable[[F], F]:
    """Have the function's rows, made of an input binding's messages, leave by an output binding.

    The pipeline's counterpart of `stream_listener` with `send_to`: an application that is given the function's module
    runs it. The function gets what :func:`source` returns, and is called once for each start of the query.

    Args:
        input: The input binding.
        output: The output binding.
        schema: The payload's; see :func:`source`.
        spark: Makes the session; the one that is active, or a new one, if not given.
        checkpoint: See :class:`QuerySettings`, as for those that follow.
        trigger: When a batch is made.
        output_mode: `append`, `update` or `complete`.
        delivery: Who sends, and what is promised.
        options: Further options of the query.
        restart_after: How long after a failure the query is started again.
    """
    settings = QuerySettings(
        checkpoint=checkpoint,
        trigger=trigger or {},
        output_mode=output_mode,
        delivery=delivery,
        options=options or {},
        restart_after=restart_after,
    )

    def note(function: F) -> F:
        def make(app: "StreamApplication") -> ChannelQuery:
            def rows() -> "DataFrame":
                session = None if spark is None else spark()
                return function(source(app, input, schema=schema, spark=session))

            return ChannelQuery(app, output, rows, settings)

        return note_feeder(function, FeederDeclaration(output, make))

    return note
