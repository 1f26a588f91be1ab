"""A streaming query whose rows leave by an output binding.

::

    delivery not given         foreachBatch: the application converts and sends; any binder
    at-least-once,             the binder's own Spark format: executors send; the application only starts, watches
    deduplicated               and stops the query

The query lives as long as the binding is bound: started with it, stopped before it. When it fails, it is started again
from its checkpoint after a while. Spark's calls block, so they run in threads; what Spark tells comes on a thread of
its own and is handed to the application's loop.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal

from streamkit.binder.binder import Health, HealthStatus
from streamkit.binder.binding import OutputBinding
from streamkit.errors import ConfigurationError
from streamkit.events import notify
from streamkit.messaging.message import Message
from streamkit.spark.channel_source import content_type_of
from streamkit.spark.events import query_failed, query_progressed, query_started, query_stopped
from streamkit.spark.rows import Columns, messages_of, sink_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from streamkit.application import StreamApplication

__all__ = ["ChannelQuery", "Delivery", "QuerySettings"]

log = logging.getLogger(__name__)

Delivery = Literal["at-least-once", "deduplicated"]

_IN_FLIGHT: Final = 500
"""Messages of a batch that the application sends at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySettings:
    """How a query runs.

    Attributes:
        checkpoint: Directory of its checkpoint: where it goes on. Without one it begins anew with each start.
        trigger: When a batch is made, as for `DataStreamWriter.trigger`; as soon as the last one is done if not given.
        output_mode: `append`, `update` or `complete`.
        delivery: Have executors send by the binder's Spark format, `deduplicated` where its broker can refuse what a
            repeated batch has stored already; if not given, the application sends, at least once.
        options: Further options of the query, or of the binder's format.
        restart_after: How long after a failure it is started again; None: never.
    """

    checkpoint: str | None = None
    trigger: Mapping[str, str | bool] = field(default_factory=dict)
    output_mode: str = "append"
    delivery: Delivery | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    restart_after: timedelta | None = timedelta(seconds=30)


class ChannelQuery:
    """One query, started and stopped with the output binding it feeds."""

    def __init__(
        self,
        app: "StreamApplication",
        output: str,
        make_rows: "Callable[[], DataFrame]",
        settings: QuerySettings,
    ) -> None:
        self.output = output
        self.settings = settings
        self._app = app
        self._make_rows = make_rows
        self._query: StreamingQuery | None = None
        self._session: SparkSession | None = None
        self._listener: StreamingQueryListener | None = None
        self._error: str | None = None
        self._is_wanted = False
        self._restart: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def query(self) -> "StreamingQuery | None":
        """Spark's query, while it runs."""
        return self._query

    async def start(self) -> None:
        """Start the query; what is wrong with it is raised.

        Raises:
            ConfigurationError: Its rows cannot leave by this binding.
        """
        self._is_wanted = True
        self._loop = asyncio.get_running_loop()
        await self._launch(self._destination())

    async def stop(self, timeout: float) -> None:
        """Stop the query; a batch under way is given up, and repeated at the next start."""
        self._is_wanted = False
        restart, self._restart = self._restart, None
        if restart is not None:
            restart.cancel()
        query, self._query = self._query, None
        if query is None:
            return
        try:
            await asyncio.wait_for(asyncio.to_thread(self._end, query), timeout)
        except TimeoutError:
            log.error("The query of binding %r did not stop within %g s", self.output, timeout)
        if query_stopped.receivers:
            notify(query_stopped, self._app, binding=self.output)

    def health(self) -> Health:
        """Down, with its error, from a failure until it runs again."""
        if self._error is not None:
            return Health(HealthStatus.DOWN, {"query": self._error})
        return Health(HealthStatus.UP if self._query is not None else HealthStatus.UNKNOWN)

    def _destination(self) -> OutputBinding:
        binding = self._app.binding(self.output)
        assert isinstance(binding, OutputBinding), "only outputs are fed"
        return binding

    async def _launch(self, output: OutputBinding) -> None:
        self._query = await asyncio.to_thread(self._begin, output)
        self._error = None
        if query_started.receivers:
            notify(query_started, self._app, binding=self.output, query=self._query)

    # In a thread

    def _begin(self, output: OutputBinding) -> "StreamingQuery":
        rows = self._make_rows()
        if type(rows).__module__.startswith("pyspark.sql.connect") and self.settings.delivery is None:
            raise ConfigurationError(
                f"the rows for binding {self.output!r} are of a Spark Connect session, where the application cannot "
                "send them: choose a delivery, so that executors do"
            )
        # Spark looks for sinks written in Python by the session that is active in the calling thread, and of all one
        # can do with a session only this makes it so.
        rows.sparkSession.createDataFrame([], "nothing int")
        self._listen(rows)
        return self._writer(rows, output).start()

    def _writer(self, rows: "DataFrame", output: OutputBinding) -> "DataStreamWriter":
        settings = self.settings
        if settings.delivery is None:
            columns = Columns.of(rows.columns)
            writer = rows.writeStream.foreachBatch(lambda batch, epoch: self._send(batch, epoch, columns))
        else:
            binder = output.binder.binder
            found = binder.spark_sink(output.destination)
            if found is None:
                raise ConfigurationError(
                    f"binding {self.output!r}: binder {binder.name!r} of type {binder.type!r} has no Spark format, so "
                    f"delivery={settings.delivery!r} cannot be had; leave it out, and the application sends"
                )
            content_type = content_type_of(self._app, self.output)
            columns_of_sink = sink_columns(rows, self.output, content_type)
            writer = columns_of_sink.writeStream.format(found.name).options(
                **found.options, delivery=settings.delivery
            )
        writer = writer.queryName(f"{self.output}-{id(self):x}").outputMode(settings.output_mode)
        for name, value in settings.options.items():
            writer = writer.option(name, value)
        if settings.checkpoint is not None:
            writer = writer.option("checkpointLocation", settings.checkpoint)
        return writer.trigger(**settings.trigger) if settings.trigger else writer  # type: ignore[arg-type]

    def _end(self, query: "StreamingQuery") -> None:
        query.stop()
        listener, self._listener = self._listener, None
        if listener is not None and self._session is not None:
            self._session.streams.removeListener(listener)

    def _send(self, batch: "DataFrame", epoch: int, columns: Columns) -> None:
        query = self._query_id(batch)
        messages = messages_of(batch.toLocalIterator(), columns, query, epoch)
        while window := list(islice(messages, _IN_FLIGHT)):
            self._app.portal.run(self._send_all(window))

    def _query_id(self, batch: "DataFrame") -> str:
        """The query's id, which is the checkpoint's and so the same after a restart."""
        local = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        return local or (str(self._query.id) if self._query is not None else "")

    async def _send_all(self, messages: list[Message[object]]) -> None:
        channel = self._app.channel(self.output)
        await asyncio.gather(*(channel.asend(message) for message in messages))

    # What Spark tells, on a thread of its own

    def _listen(self, rows: "DataFrame") -> None:
        from streamkit.spark.listener import QueryListener

        if self._listener is not None:
            rows.sparkSession.streams.removeListener(self._listener)
        self._listener = QueryListener(f"{self.output}-{id(self):x}", self._progressed, self._terminated)
        self._session = rows.sparkSession
        self._session.streams.addListener(self._listener)

    def _progressed(self, progress: object) -> None:
        self._on_loop(lambda: self._tell_progress(progress))

    def _terminated(self, error: str | None) -> None:
        if error is not None:
            self._on_loop(lambda: self._failed(error))

    def _on_loop(self, call: Callable[[], None]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call)

    # On the application's loop

    def _tell_progress(self, progress: object) -> None:
        if query_progressed.receivers:
            notify(query_progressed, self._app, binding=self.output, progress=progress)

    def _failed(self, error: str) -> None:
        if not self._is_wanted or self._restart is not None:
            return
        self._query, self._error = None, error
        after = self.settings.restart_after
        what = "is not started again" if after is None else f"is started again in {after.total_seconds():g} s"
        log.error("The query of binding %r failed and %s: %s", self.output, what, error)
        if query_failed.receivers:
            notify(query_failed, self._app, binding=self.output, error=error)
        if after is not None:
            self._restart = asyncio.create_task(self._start_again(after), name=f"restart query {self.output}")

    async def _start_again(self, after: timedelta) -> None:
        while self._is_wanted:
            await asyncio.sleep(after.total_seconds())
            try:
                await self._launch(self._destination())
            except Exception as error:  # the reason may pass: a broker that is away, a disk that is full
                self._error = str(error)
                log.exception("The query of binding %r could not be started again", self.output)
            else:
                self._restart = None
                return

    def __repr__(self) -> str:
        return f"<ChannelQuery {self.output!r} {self.health().status.value}>"
