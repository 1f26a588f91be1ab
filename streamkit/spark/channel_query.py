"""A streaming query whose rows are sent to an output binding.

::

    delivery not given         foreachBatch: the application converts and sends; any binder
    at-least-once,             the binder's own Spark format: executors send; the application only starts, watches
    deduplicated               and stops the query

The query runs while the output is bound: it starts with the binding and stops before it. A query that fails is started
again from its checkpoint after a pause. Spark's calls block, so they run in threads; Spark's events arrive on a thread
of its own and are passed to the application's loop.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from threading import Lock, Thread
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from streamkit.binder.binder import Health, HealthStatus
from streamkit.binder.binding import OutputBinding
from streamkit.binder.capabilities import Capability
from streamkit.errors import ConfigurationError
from streamkit.events import notify
from streamkit.messaging.headers import KEY
from streamkit.messaging.message import Message
from streamkit.spark.channel_source import content_type_of
from streamkit.spark.events import query_failed, query_progressed, query_started, query_stopped
from streamkit.spark.query_settings import QuerySettings
from streamkit.spark.rows import QUERY_PROPERTY, Columns, messages_of, moments, sink_columns, with_partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from streamkit.application import StreamApplication

__all__ = ["ChannelQuery"]

logger = logging.getLogger(__name__)

_CHECKPOINTS: Final = "spark.sql.streaming.checkpointLocation"
"""A session's setting: the parent directory of checkpoints, for queries without a checkpoint of their own."""

_IN_FLIGHT: Final = 500
"""Messages of a batch that the application sends at once."""


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of a query, from its start to its end, and its listener."""

    query: "StreamingQuery"
    session: "SparkSession"
    listener: "StreamingQueryListener"

    def end(self) -> None:
        """Stop the query, if it has not ended by itself; blocks."""
        self.query.stop()
        self.session.streams.removeListener(self.listener)


class ChannelQuery:
    """One query, started and stopped with the output binding it feeds."""

    # Invariants: Spark's start of a query cannot be cancelled, so each stop increments _stops, and a thread that
    # started a query for an earlier count ends that query. _run, changed under _lock, is the query of the current
    # count; with _error set it has failed, and the next start or stop ends it.

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
        self._lock = Lock()
        self._run: _Run | None = None
        self._error: str | None = None
        self._stops = 0
        self._is_launching = False
        self._unheard: list[Callable[[], None]] = []
        self._restart: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def query(self) -> "StreamingQuery | None":
        """Spark's query while it runs, else None."""
        run = self._run
        return None if run is None or self._error is not None else run.query

    async def start(self) -> None:
        """Start the query.

        Raises:
            ConfigurationError: Its rows cannot be sent to this binding.
        """
        self._loop = asyncio.get_running_loop()
        await self._launch(self._destination())

    async def stop(self, timeout: float) -> None:
        """Stop the query; a batch under way is abandoned, and repeated at the next start."""
        restart, self._restart = self._restart, None
        if restart is not None:
            restart.cancel()
        with self._lock:
            self._stops += 1
            run, self._run = self._run, None
        error, self._error = self._error, None
        if run is None:
            return
        try:
            await asyncio.wait_for(asyncio.to_thread(run.end), timeout)
        except TimeoutError:
            logger.error("The query of binding %r did not stop within %g s", self.output, round(timeout, 1))
        except (
            Exception
        ) as failure:  # an exception of Spark, which may have ended: the binding must be unbound all the same
            logger.error("The query of binding %r could not be stopped: %s", self.output, failure)
        if error is None and query_stopped.receivers:
            notify(query_stopped, self._app, binding=self.output)

    def health(self) -> Health:
        """Return the query's health: down, with its error, from a failure until it runs again."""
        if self._error is not None:
            return Health(HealthStatus.DOWN, {"query": self._error})
        return Health(HealthStatus.UP if self._run is not None else HealthStatus.UNKNOWN)

    def _destination(self) -> OutputBinding:
        binding = self._app.binding(self.output)
        assert isinstance(binding, OutputBinding), "only outputs are fed"
        return binding

    async def _launch(self, output: OutputBinding) -> None:
        self._is_launching = True
        try:
            run = await asyncio.to_thread(self._begin, output, self._stops)
            if run is not None and query_started.receivers:
                notify(query_started, self._app, binding=self.output, query=run.query)
        finally:
            # Events that Spark has sent meanwhile, such as the query's end, are handled after the start is known.
            asyncio.get_running_loop().call_soon(self._catch_up)

    # In a thread

    def _begin(self, output: OutputBinding, stops: int) -> _Run | None:
        """Start the query; None if it was stopped meanwhile."""
        with self._lock:
            failed, self._run = self._run, None
        if failed is not None:
            failed.end()
        run = self._started(output, stops)
        with self._lock:
            if self._stops == stops:
                self._run, self._error = run, None
                return run
        run.end()
        return None

    def _started(self, output: OutputBinding, stops: int) -> _Run:
        rows = self._make_rows()
        if rows is None:
            raise ConfigurationError(
                f"there are no rows for binding {self.output!r}: its processor returns None, not a DataFrame"
            )
        is_connected = type(rows).__module__.startswith("pyspark.sql.connect")
        if is_connected and self.settings.delivery is None:
            raise ConfigurationError(
                f"the rows for binding {self.output!r} are of a Spark Connect session, from which the application "
                "cannot send them: set delivery to have the executors send them"
            )
        # Spark looks up sinks in Python in the session that is active in the calling thread, and only this call
        # makes a session active.
        rows.sparkSession.createDataFrame([], "nothing int")
        from streamkit.spark.listener import QueryListener

        name, session = self._name(rows.sparkSession), rows.sparkSession
        listener = QueryListener(name, self._progressed, lambda error: self._terminated(error, stops))
        session.streams.addListener(listener)
        try:
            run = _Run(self._writer(rows, output).queryName(name).start(), session, listener)
        except BaseException:
            session.streams.removeListener(listener)
            raise
        if not is_connected:
            Thread(target=self._watch, args=(run.query, stops), name=f"query {self.output}", daemon=True).start()
        return run

    def _name(self, session: "SparkSession") -> str:
        """Return the query's name in Spark. If the session has a directory for checkpoints, the name finds the
        checkpoint.

        Otherwise the name identifies this object, as several may feed an output.
        """
        given = {name.lower() for name in self.settings.options}
        if self.settings.checkpoint is None and "checkpointlocation" not in given:
            if session.conf.get(_CHECKPOINTS, None):
                return f"{quote(self._app.name, safe='')}-{quote(self.output, safe='')}"
            logger.warning(
                "The query of binding %r has no checkpoint: when it is started again, also after a failure, it skips "
                "rows or sends them again; set its checkpoint, or set %s",
                self.output,
                _CHECKPOINTS,
            )
        return f"{self.output}-{id(self):x}"

    def _watch(self, query: "StreamingQuery", stops: int) -> None:
        """Wait for the end of a query, because listeners receive no event when Spark's JVM ends."""
        from py4j.protocol import Py4JError, Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            query.awaitTermination()
        except (Py4JJavaError, PySparkException):
            pass  # it failed, and listeners receive the failure
        except (Py4JError, OSError) as error:
            self._terminated(f"Spark's JVM is gone ({error})", stops)

    def _writer(self, rows: "DataFrame", output: OutputBinding) -> "DataStreamWriter":
        settings = self.settings
        if settings.delivery is None:
            columns, is_keyed = Columns.of_schema(rows.schema), _goes_by_key(output)
            writer = rows.writeStream.foreachBatch(lambda batch, epoch: self._send(batch, epoch, columns, is_keyed))
            writer = writer.options(**settings.options)
        else:
            binder = output.binder.binder
            found = binder.spark_sink(output.destination)
            if found is None:
                raise ConfigurationError(
                    f"binding {self.output!r}: binder {binder.name!r} of type {binder.type!r} has no Spark format, so "
                    f"delivery={settings.delivery!r} is not possible; leave delivery out to have the application "
                    "send the rows"
                )
            content_type = content_type_of(self._app, self.output)
            columns_of_sink = sink_columns(rows, self.output, content_type)
            given = {**settings.options, "delivery": settings.delivery}
            chosen = found.options_with(given, self.output)
            writer = columns_of_sink.writeStream.format(found.name).options(**chosen)
        writer = writer.outputMode(settings.output_mode)
        if settings.checkpoint is not None:
            writer = writer.option("checkpointLocation", settings.checkpoint)
        return writer.trigger(**settings.trigger) if settings.trigger else writer  # type: ignore[arg-type]

    def _send(self, batch: "DataFrame", epoch: int, columns: Columns, is_keyed: bool) -> None:
        query = self._query_id(batch)
        rows = (row.asDict(recursive=True) for row in batch.toLocalIterator())
        messages = messages_of(map(moments(batch.schema), rows), columns, query, epoch)
        if is_keyed:
            messages = map(with_partition, messages)
        while window := list(islice(messages, _IN_FLIGHT)):
            self._app.portal.run(self._send_all(_by_key(window) if is_keyed else [[each] for each in window]))

    def _query_id(self, batch: "DataFrame") -> str:
        """Return the query's id, which is stored in the checkpoint and so the same after a restart."""
        local = batch.sparkSession.sparkContext.getLocalProperty(QUERY_PROPERTY)
        return local or (str(self.query.id) if self.query is not None else "")

    async def _send_all(self, series: list[list[Message[object]]]) -> None:
        """Send all series concurrently, and the messages of each series one after the other."""
        channel = self._app.channel(self.output)

        async def send(messages: list[Message[object]]) -> None:
            for message in messages:
                await channel.asend(message)

        await asyncio.gather(*map(send, series))

    # Spark's events, on a thread of its own

    def _progressed(self, progress: object) -> None:
        self._on_loop(lambda: self._send_progress(progress))

    def _terminated(self, error: str | None, stops: int) -> None:
        if error is not None:
            self._on_loop(lambda: self._failed(error, stops))

    def _on_loop(self, call: Callable[[], None]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._hear, call)

    # On the application's loop

    def _hear(self, call: Callable[[], None]) -> None:
        if self._is_launching:
            self._unheard.append(call)
        else:
            call()

    def _catch_up(self) -> None:
        self._is_launching = False
        unheard, self._unheard = self._unheard, []
        for call in unheard:
            call()

    def _send_progress(self, progress: object) -> None:
        if query_progressed.receivers:
            notify(query_progressed, self._app, binding=self.output, progress=progress)

    def _failed(self, error: str, stops: int) -> None:
        if self._stops != stops or self._restart is not None:
            return
        self._error = error
        after = self.settings.restart_after
        what = "is not started again" if after is None else f"is started again in {after.total_seconds():g} s"
        logger.error("The query of binding %r failed and %s: %s", self.output, what, error)
        if query_failed.receivers:
            notify(query_failed, self._app, binding=self.output, error=error)
        if after is not None:
            self._restart = asyncio.create_task(self._start_again(after, stops), name=f"restart query {self.output}")

    async def _start_again(self, after: timedelta, stops: int) -> None:
        while True:
            await asyncio.sleep(after.total_seconds())
            try:
                await self._launch(self._destination())
            except Exception as error:  # the cause may pass: a broker that is away, a disk that is full
                if self._stops != stops:
                    return
                self._error = str(error)
                logger.exception("The query of binding %r could not be started again", self.output)
            else:
                self._restart = None
                return

    def __repr__(self) -> str:
        return f"<ChannelQuery {self.output!r} {self.health().status.value}>"


def _goes_by_key(output: OutputBinding) -> bool:
    """Return whether this module must choose the partition of a key and keep its order; Kafka's client does both."""
    binder = output.binder.binder
    chooses_itself = not binder.is_local and binder.spark_sink(output.destination) is None
    return Capability.PARTITION in binder.capabilities() and not chooses_itself


def _by_key(messages: list[Message[object]]) -> list[list[Message[object]]]:
    """Group messages into series: those of one key in their order; each message without a key alone."""
    series: dict[object, list[Message[object]]] = {}
    for number, message in enumerate(messages):
        key = message.headers.get(KEY)
        series.setdefault((number,) if key is None else key, []).append(message)
    return list(series.values())
