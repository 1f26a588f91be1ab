"""A query lives as long as its output is bound, whatever Spark is in the middle of; Spark is a stand-in here."""

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
    """What a query uses of Spark: its session, its rows, and the queries that it starts.

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
        """Nothing to do."""

    def addListener(self, listener: QueryListener) -> None:
        """Tell it of queries."""
        self.listeners.append(listener)

    def removeListener(self, listener: QueryListener) -> None:
        """Tell it nothing more."""
        self.listeners.remove(listener)

    def queryName(self, name: str) -> Self:
        """Name the query to come."""
        self._name = name
        return self

    def foreachBatch(self, send: object) -> Self:
        """Batches stay where they are."""
        return self

    def outputMode(self, mode: str) -> Self:
        """Any will do."""
        return self

    def options(self, **options: str) -> Self:
        """Any will do."""
        return self

    def start(self) -> Any:
        """Start a query, as slowly as it may be."""
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
        """The query ends by itself."""
        self._end(name)
        self._tell("onQueryTerminated", name, exception=error)

    def go(self) -> None:
        """The JVM is killed: nobody is told, and nothing can be asked of it."""
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
    """One output, in memory."""
    settings = {f"{STREAM}.default-binder": "inmemory", f"{STREAM}.bindings.out.destination": "numbers"}
    return StreamApplication(config_location="optional:/none", properties=settings)


def fed(app: StreamApplication, spark: Spark, restart_after: timedelta | None = None) -> ChannelQuery:
    """A query that feeds the output."""
    query = ChannelQuery(app, "out", spark.rows, QuerySettings(restart_after=restart_after))
    app.feed("out", lambda _: query)
    return query


def test_what_is_stopped_while_it_starts_does_not_run_on() -> None:
    """Nobody waits for Spark; once it has started the query, that is stopped, too."""

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


def test_a_query_that_fails_at_once_is_started_again() -> None:
    """Even if its end is heard of before its start; its health is down until it runs."""

    async def main() -> None:
        spark = Spark()
        spark.dies = "no such topic"
        app = application()
        query = fed(app, spark, restart_after=timedelta(milliseconds=1))
        told: list[object] = []

        def tell(application: object, **about: object) -> None:
            told.append(about.get("error", "started"))
            if len(told) == 4:
                assert query.health().status is HealthStatus.DOWN
                spark.dies = None

        with query_failed.connected_to(tell), query_started.connected_to(tell):
            async with app:
                await until(lambda: len(told) == 5)
                assert query.health().status is HealthStatus.UP
                assert len(spark.running) == len(spark.listeners) == 1
        assert told == ["started", "no such topic", "started", "no such topic", "started"]
        assert (spark.running, spark.listeners) == ([], [])

    asyncio.run(main())


def test_a_failed_query_is_the_application_s_matter() -> None:
    """Its health is down with it, as long as the output is to be bound."""

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


def test_what_could_not_be_started_can_be_started_later() -> None:
    """An output whose query cannot start is not bound either: starting it again starts both."""

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


def test_a_query_that_never_ran_is_forgotten() -> None:
    """What is wrong with it was told: the output goes on without it, and is started anew without it."""

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


def test_a_processor_without_a_result() -> None:
    """A forgotten `return` is told as such."""

    async def main() -> None:
        def forgetful() -> Any:
            return None

        app = application()
        app.feed("out", lambda _: ChannelQuery(app, "out", forgetful, QuerySettings()))
        with pytest.raises(ConfigurationError, match="binding 'out': its processor returns None"):
            await app.start()

    asyncio.run(main())


def test_a_spark_that_is_gone_is_told() -> None:
    """Killed, as where memory is short, it tells nobody; its queries are down, and the application can be stopped."""

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
def test_a_mode_that_executors_cannot_send_in_is_refused_where_it_is_said(mode: str) -> None:
    """The query would fail with each restart; sent by the application it is all right."""
    with pytest.raises(ConfigurationError, match=f"output_mode='{mode}'.*leave delivery out"):
        QuerySettings(output_mode=mode, delivery="deduplicated")
    QuerySettings(output_mode=mode)
    QuerySettings(output_mode="Append", delivery="deduplicated")
