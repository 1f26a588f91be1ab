"""A query runs as long as its output is bound, whatever state Spark is in; Spark is a fake here."""

import asyncio
import contextlib
from datetime import timedelta
from threading import Condition, Event
from types import SimpleNamespace
from typing import Any, Self

import pytest

pytest.importorskip("pyspark")

from py4j.protocol import Py4JError
from pyspark.sql.types import StructType

from streamkit import StreamApplication
from streamkit.binder.binder import BindingState, HealthStatus
from streamkit.errors import ConfigurationError
from streamkit.spark.channel_query import ChannelQuery
from streamkit.spark.events import query_failed, query_started
from streamkit.spark.listener import QueryListener
from streamkit.spark.query_settings import QuerySettings
from tests.end_to_end.client_stage import until

STREAM = "spring.cloud.stream"


class Spark:
    """The parts of Spark that a query uses: session, rows and queries.

    Attributes:
        may_start: Starting waits for it.
        running: The queries that run.
        listeners: Who is told of them.
        dies: What each query ends with before its start returns.
        refuses: What starting a query raises.
    """

    def __init__(self) -> None:
        self.may_start = Event()
        self.may_start.set()
        self.starting = Event()
        self.running: list[str] = []
        self.listeners: list[QueryListener] = []
        self.dies: str | None = None
        self.refuses: Exception | None = None
        self._is_gone = False
        self._ended = Condition()
        self.schema = StructType().add("body", "string")
        self.sparkSession = self.streams = self.writeStream = self
        self.conf: dict[str, str] = {}
        self._name = ""

    def rows(self) -> Any:
        """A DataFrame: itself."""
        return self

    def createDataFrame(self, rows: object, schema: str) -> None:
        """Do nothing."""

    def addListener(self, listener: QueryListener) -> None:
        """Add a listener of queries."""
        self.listeners.append(listener)

    def removeListener(self, listener: QueryListener) -> None:
        """Remove a listener of queries."""
        self.listeners.remove(listener)

    def queryName(self, name: str) -> Self:
        """Name the next query."""
        self._name = name
        return self

    def foreachBatch(self, send: object) -> Self:
        """Accept the batch function."""
        return self

    def outputMode(self, mode: str) -> Self:
        """Accept any mode."""
        return self

    def options(self, **options: str) -> Self:
        """Accept any options."""
        return self

    def start(self) -> Any:
        """Start a query once starting is allowed."""
        name = self._name
        self.starting.set()
        assert self.may_start.wait(30)
        if self.refuses is not None:
            raise self.refuses
        self.running.append(name)
        self._tell("onQueryStarted", name)
        if self.dies is not None:
            self.fail(name, self.dies)
        return SimpleNamespace(id=name, stop=lambda: self._stop(name), awaitTermination=lambda: self._await_end(name))

    def fail(self, name: str, error: str) -> None:
        """End the query with an error."""
        self._end(name)
        self._tell("onQueryTerminated", name, exception=error)

    def go(self) -> None:
        """Kill the JVM: no listener is called, and every request fails."""
        with self._ended:
            self._is_gone = True
            self._ended.notify_all()

    def _stop(self, name: str) -> None:
        if self._is_gone:
            raise Py4JError("An error occurred while calling o1.stop")
        with contextlib.suppress(ValueError):
            self._end(name)

    def _end(self, name: str) -> None:
        with self._ended:
            self.running.remove(name)
            self._ended.notify_all()

    def _await_end(self, name: str) -> None:
        with self._ended:
            self._ended.wait_for(lambda: self._is_gone or name not in self.running)
            if self._is_gone:
                raise Py4JError("An error occurred while calling o1.awaitTermination")

    def _tell(self, what: str, name: str, **more: object) -> None:
        for listener in list(self.listeners):
            getattr(listener, what)(SimpleNamespace(name=name, runId=name, **more))


def application() -> StreamApplication:
    """Return an application with one output, in memory."""
    settings = {f"{STREAM}.default-binder": "inmemory", f"{STREAM}.bindings.out.destination": "numbers"}
    return StreamApplication(config_location="optional:/none", properties=settings)


def fed(app: StreamApplication, spark: Spark, restart_after: timedelta | None = None) -> ChannelQuery:
    """Return a query that feeds the output."""
    query = ChannelQuery(app, "out", spark.rows, QuerySettings(restart_after=restart_after))
    app.feed("out", lambda _: query)
    return query


def test_query_stopped_during_its_start_does_not_keep_running() -> None:
    """The stop does not wait for Spark, and the query is stopped once it has started."""

    async def main() -> None:
        spark = Spark()
        app = application()
        query = fed(app, spark)
        async with app:
            binding = app.binding("out")
            await binding.stop()
            spark.starting.clear()
            spark.may_start.clear()
            starting = asyncio.create_task(binding.start())
            await asyncio.to_thread(spark.starting.wait, 30)
            await binding.stop()
            spark.may_start.set()
            await starting
            assert (spark.running, spark.listeners) == ([], [])
            assert query.health().status is HealthStatus.UNKNOWN
            await binding.start()
            assert len(spark.running) == len(spark.listeners) == 1
        assert (spark.running, spark.listeners) == ([], [])

    asyncio.run(main())


def test_query_that_fails_at_once_is_restarted() -> None:
    """Even if its end is reported before its start; its health is down until it runs."""

    async def main() -> None:
        spark = Spark()
        spark.dies = "no such topic"
        app = application()
        query = fed(app, spark, restart_after=timedelta(milliseconds=1))
        reported: list[object] = []

        def tell(application: object, **about: object) -> None:
            reported.append(about.get("error", "started"))
            if len(reported) == 4:
                assert query.health().status is HealthStatus.DOWN
                spark.dies = None

        with query_failed.connected_to(tell), query_started.connected_to(tell):
            async with app:
                await until(lambda: len(reported) == 5)
                assert query.health().status is HealthStatus.UP
                assert len(spark.running) == len(spark.listeners) == 1
        assert reported == ["started", "no such topic", "started", "no such topic", "started"]
        assert (spark.running, spark.listeners) == ([], [])

    asyncio.run(main())


def test_failed_query_makes_the_application_unhealthy() -> None:
    """As long as the output is to be bound."""

    async def main() -> None:
        spark = Spark()
        app = application()
        query = fed(app, spark)
        async with app:
            assert (await app.health()).status is HealthStatus.UP
            spark.fail(spark.running[0], "the disk is full")
            await until(lambda: query.health().status is HealthStatus.DOWN)
            bindings = (await app.health()).find("bindings")
            assert bindings is not None
            assert (bindings.status, bindings.details["out"]) == (
                HealthStatus.DOWN,
                "running, but what feeds it is down: query: the disk is full",
            )
            await app.binding("out").stop()
            assert (await app.health()).status is HealthStatus.UP

    asyncio.run(main())


def test_output_that_failed_to_start_can_be_started_later() -> None:
    """Starting the output again starts its query too."""

    async def main() -> None:
        spark = Spark()
        app = application()
        fed(app, spark)
        async with app:
            binding = app.binding("out")
            await binding.stop()
            spark.refuses = OSError("the checkpoint cannot be written")
            with pytest.raises(OSError, match="the checkpoint"):
                await binding.start()
            assert (binding.state, spark.listeners) == (BindingState.STOPPED, [])
            spark.refuses = None
            await binding.start()
            assert (binding.state, len(spark.running)) == (BindingState.RUNNING, 1)

    asyncio.run(main())


def test_query_that_never_ran_is_forgotten() -> None:
    """Its error was reported: the output continues and is restarted without it."""

    async def main() -> None:
        spark = Spark()
        app = application()
        async with app:
            binding = await app.controller.define_output("out")
            spark.refuses = ConfigurationError("no payload")
            query = ChannelQuery(app, "out", spark.rows, QuerySettings())
            with pytest.raises(ConfigurationError, match="no payload"):
                await binding.feed(query)
            assert binding.state is BindingState.RUNNING
            await binding.stop()
            await binding.start()
            assert binding.state is BindingState.RUNNING

    asyncio.run(main())


def test_processor_without_a_result_is_an_error() -> None:
    """A forgotten `return` is reported as such."""

    async def main() -> None:
        def forgetful() -> Any:
            return None

        app = application()
        app.feed("out", lambda _: ChannelQuery(app, "out", forgetful, QuerySettings()))
        with pytest.raises(ConfigurationError, match="binding 'out': its processor returns None"):
            await app.start()

    asyncio.run(main())


def test_killed_spark_makes_its_queries_unhealthy() -> None:
    """It reports nothing; the application can still be stopped."""

    async def main() -> None:
        spark = Spark()
        app = application()
        query = fed(app, spark)
        failed: list[object] = []

        def tell(application: object, **about: object) -> None:
            failed.append(about["error"])

        with query_failed.connected_to(tell):
            async with app:
                spark.go()
                await until(lambda: failed != [])
                assert query.health().status is HealthStatus.DOWN
        assert "Spark's JVM is gone" in str(failed)

    asyncio.run(main())


@pytest.mark.parametrize("mode", ["update", "Complete"])
def test_send_mode_that_executors_do_not_support_is_refused_at_startup(mode: str) -> None:
    """The query would fail with each restart; sending from the application works."""
    with pytest.raises(ConfigurationError, match=f"output_mode='{mode}'.*leave delivery out"):
        QuerySettings(output_mode=mode, delivery="deduplicated")
    QuerySettings(output_mode=mode)
    QuerySettings(output_mode="Append", delivery="deduplicated")
