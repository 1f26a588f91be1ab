"""Bindings as sources and sinks of queries."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from threading import Condition
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import MapType, StringType, StructType

import streamkit.spark
from streamkit import MessageHeaders, StreamApplication
from streamkit.binder.binder import BindingState, HealthStatus
from streamkit.binder.feeding import FeederDeclaration
from streamkit.binder.partitioning import java_hash
from streamkit.declarations import declarations_on
from streamkit.errors import ApplicationError, ConfigurationError, MessageConversionError
from streamkit.spark import spark_processor
from streamkit.spark.channel_query import ChannelQuery
from streamkit.spark.events import query_failed, query_progressed
from streamkit.spark.rows import Columns, messages_of, sink_columns
from tests.spark.stand import Stand

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATIENCE = 100.0
BINDINGS = "spring.cloud.stream.bindings"
ROCKET = "spring.cloud.stream.rocketmq"
SCHEMA = "carrier string, delay int"


class RecordingListener:
    """A listener or signal receiver whose arguments can be awaited."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._changed = Condition()

    def add(self, item: object) -> None:
        with self._changed:
            self.items.append(item)
            self._changed.notify_all()

    def wait(self, is_enough: Callable[[list[Any]], bool]) -> list[Any]:
        with self._changed:
            assert self._changed.wait_for(lambda: is_enough(self.items), PATIENCE), self.items
            return list(self.items)


@pytest.fixture
def progress() -> Iterator[RecordingListener]:
    """Return the numbers of rows in the batches of all queries."""
    heard = RecordingListener()

    def tell(application: object, **reported: Any) -> None:
        heard.add(reported["progress"].numInputRows)

    with query_progressed.connected_to(tell):
        yield heard


def application(stand: Stand, flights: str, delays: str, **more: object) -> StreamApplication:
    """Return an application with an input `flights` and an output `delays`."""
    properties = {
        f"{ROCKET}.binder.name-server": stand.name_server,
        f"{BINDINGS}.flights.destination": flights,
        f"{BINDINGS}.flights.group": f"{flights}-readers",
        f"{ROCKET}.bindings.flights.consumer.consume-from-where": "CONSUME_FROM_FIRST_OFFSET",
        f"{BINDINGS}.delays.destination": delays,
        **more,
    }
    return StreamApplication(config_location="optional:/none", properties=properties)


def in_memory(**bindings: str) -> StreamApplication:
    """Return an application whose bindings are in memory."""
    properties = {f"{BINDINGS}.{name}.destination": topic for name, topic in bindings.items()}
    return StreamApplication(
        config_location="optional:/none",
        properties={"spring.cloud.stream.default-binder": "inmemory", **properties},
    )


def run(app: StreamApplication, processor: object) -> ChannelQuery:
    """Add the query of a processor to the application, and return it."""
    (declaration,) = declarations_on(processor, FeederDeclaration)
    query = declaration.make(app)
    assert isinstance(query, ChannelQuery)
    app.feed(declaration.output, lambda _: query)
    return query


def doubled(flights: "DataFrame") -> "DataFrame":
    return flights.selectExpr("carrier as key", "carrier", "delay * 2 as delay")


def flights_of(count: int) -> list[bytes]:
    return [b'{"carrier":"AA","delay":%d}' % number for number in range(count)]


def test_input_is_a_dataframe(spark: "SparkSession", stand: Stand) -> None:
    """With payloads by their schema, and the other columns of a message."""
    topic = stand.topic()
    stand.send(topic, flights_of(3))
    app = application(stand, topic, "unused")
    rows = streamkit.spark.source(app, "flights", schema=SCHEMA, spark=spark)
    seen = rows.select("carrier", "delay", "message.key", "message.tags", "message.topic", "message.offset")
    query = seen.writeStream.format("memory").queryName("seen").trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE)
    assert sorted(map(tuple, spark.sql("select * from seen").collect())) == [
        ("AA", number, f"k{number}", "odd" if number % 2 else "even", topic, number) for number in range(3)
    ]


def test_processor_may_limit_its_input(
    spark: "SparkSession", bundled_stand: Stand, tmp_path: Path, progress: RecordingListener
) -> None:
    """By options of the input's format, including the start; not those that settings decide."""
    flights, delays = bundled_stand.topic(queues=1), bundled_stand.topic(queues=1)
    bundled_stand.send(flights, flights_of(25))
    app = application(bundled_stand, flights, delays)
    broker = bundled_stand.queues(flights)[0].broker_name
    begin = {"startingOffsets": f'{{"{flights}":{{"{broker}":{{"0":5}}}}}}'}

    @spark_processor(
        "flights",
        "delays",
        schema=SCHEMA,
        checkpoint=str(tmp_path),
        delivery="deduplicated",
        spark=lambda: spark,
        read_options={"maxOffsetsPerTrigger": "10", **begin},
    )
    def processor(rows: "DataFrame") -> "DataFrame":
        return doubled(rows)

    run(app, processor)
    with app:
        assert [count for count in progress.wait(lambda rows: sum(rows) >= 20) if count] == [10, 10]
    with pytest.raises(ConfigurationError, match=r"'Subscribe' is given for binding 'flights', whose settings"):
        streamkit.spark.source(app, "flights", spark=spark, options={"Subscribe": "other"})


@pytest.mark.parametrize("delivery", [None, "at-least-once", "deduplicated"])
def test_processors_rows_are_sent_by_an_output(
    spark: "SparkSession", bundled_stand: Stand, tmp_path: Path, progress: RecordingListener, delivery: Any
) -> None:
    """Converted by its content type, with keys, and received by a listener, from executors or the application."""
    flights, delays = bundled_stand.topic(), bundled_stand.topic()
    bundled_stand.send(flights, flights_of(20))
    listening = {f"{BINDINGS}.in.destination": delays, f"{BINDINGS}.in.group": "listeners"}
    app = application(bundled_stand, flights, delays, **listening)
    heard = RecordingListener()

    @app.stream_listener("in")
    def listen(delay: dict[str, object], headers: MessageHeaders) -> None:
        heard.add((delay["delay"], headers["streamkit_key"], headers.content_type))

    @spark_processor(
        "flights", "delays", schema=SCHEMA, checkpoint=str(tmp_path), delivery=delivery, spark=lambda: spark
    )
    def processor(rows: "DataFrame") -> "DataFrame":
        return doubled(rows)

    query = run(app, processor)
    with app:
        found = heard.wait(lambda items: len(items) >= 20)
        progress.wait(lambda rows: sum(rows) == 20)
        assert query.health().status is HealthStatus.UP
    assert sorted(found) == [(2 * number, "AA", "application/json") for number in range(20)]
    assert query.query is None


@pytest.mark.parametrize("delivery", [None, "at-least-once"])
def test_rows_of_one_key_stay_in_order(
    spark: "SparkSession", stand: Stand, tmp_path: Path, progress: RecordingListener, delivery: Any
) -> None:
    """In one queue for either kind of sender, also with fast failure on the broker."""
    numbers, sorted_out = stand.topic(queues=1), stand.topic()
    stand.send(numbers, [b"%d" % number for number in range(1500)])
    app = application(stand, numbers, sorted_out)
    rows = streamkit.spark.source(app, "flights", spark=spark).selectExpr(
        "concat('k', cast(cast(body as string) as int) % 5) as key", "cast(body as string) as body"
    )
    given = {} if delivery is None else {"batchSize": "10"}
    streamkit.spark.bind(app, rows, "delays", checkpoint=str(tmp_path), delivery=delivery, options=given)
    with app:
        progress.wait(lambda counts: sum(counts) >= 1500)
    queues: dict[int, set[int]] = {}
    order: dict[int, dict[int, None]] = {}  # what is sent again was there in its place
    for message in stand.messages(sorted_out):
        number = int(message.body)
        queues.setdefault(number % 5, set()).add(message.queue_id)
        order.setdefault(number % 5, {})[number] = None
    assert queues == {key: {abs(java_hash(f"k{key}")) % 4} for key in range(5)}
    assert all(list(found) == list(range(key, 1500, 5)) for key, found in order.items())


def test_rows_are_sent_by_any_binder(spark: "SparkSession", tmp_path: Path) -> None:
    """The application sends for one without a format."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"key": "x", "n": 1}\n{"key": "y", "n": 2}\n')
    app = in_memory(**{"out": "numbers", "in": "numbers"})
    heard = RecordingListener()

    @app.stream_listener("in")
    def listen(number: dict[str, object], headers: MessageHeaders) -> None:
        heard.add((number, headers["streamkit_key"], headers["streamkit_spark_row"]))

    rows = spark.readStream.schema("key string, n int").json(str(tmp_path / "in"))
    with app:
        streamkit.spark.bind(app, rows, "out", checkpoint=str(tmp_path / "checkpoint"))
        found = heard.wait(lambda items: len(items) >= 2)
    assert sorted(found, key=str) == [({"n": 1}, "x", 0), ({"n": 2}, "y", 1)]


def test_checkpoint_is_below_the_sessions(
    spark: "SparkSession", tmp_path: Path, progress: RecordingListener, caplog: pytest.LogCaptureFixture
) -> None:
    """By default, so that a restarted application continues; without any a warning is logged."""
    (tmp_path / "in").mkdir()
    rows = spark.readStream.schema("n int").json(str(tmp_path / "in"))

    def heard_of(number: int, rows_due: int = 1) -> list[int]:
        (tmp_path / "in" / f"{number}.json").write_text(f'{{"n": {number}}}\n')
        app, heard = in_memory(**{"out": "numbers", "in": "numbers"}), RecordingListener()

        @app.stream_listener("in")
        def listen(row: dict[str, object]) -> None:
            heard.add(row["n"])

        progress.items.clear()
        with app:
            streamkit.spark.bind(app, rows, "out")
            progress.wait(lambda counts: sum(counts) >= rows_due)
            return sorted(heard.wait(lambda items: len(items) >= rows_due))

    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "checkpoints"))
    try:
        assert [heard_of(1), heard_of(2)] == [[1], [2]]
        assert "has no checkpoint" not in caplog.text
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["application-out"]
    assert heard_of(3, rows_due=3) == [1, 2, 3]
    assert "The query of binding 'out' has no checkpoint" in caplog.text


def test_timestamps_have_their_time_zone(spark: "SparkSession", tmp_path: Path) -> None:
    """At any depth of a row; otherwise they would be the reader's local time."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"at": "2024-07-01T12:00:00+02:00"}\n')
    app = in_memory(**{"out": "moments", "in": "moments"})
    heard = RecordingListener()

    @app.stream_listener("in")
    def listen(row: dict[str, object]) -> None:
        heard.add(row)

    read = spark.readStream.schema("at timestamp").json(str(tmp_path / "in"))
    rows = read.selectExpr(
        "at", "window(at, '1 hour') as hour", "array(at, null) as all", "map('a', at) as named",
        "map(at, 1) as counts", "cast(null as timestamp) as none", "timestamp_ntz'2024-07-01 10:00:00' as local",
    )  # fmt: skip
    with app:
        streamkit.spark.bind(app, rows, "out", checkpoint=str(tmp_path / "checkpoint"))
        found = heard.wait(lambda items: len(items) >= 1)
    at = "2024-07-01T10:00:00Z"
    assert found == [
        {
            "at": at,
            "hour": {"start": at, "end": "2024-07-01T11:00:00Z"},
            "all": [at, None],
            "named": {"a": at},
            "counts": {at: 1},
            "none": None,
            "local": "2024-07-01T10:00:00",
        }
    ]


def test_query_follows_its_bindings_lifecycle(
    spark: "SparkSession", bundled_stand: Stand, tmp_path: Path, progress: RecordingListener
) -> None:
    """Stopped and started with it, it continues where it was."""
    flights, delays = bundled_stand.topic(queues=1), bundled_stand.topic(queues=1)
    app = application(bundled_stand, flights, delays)

    @spark_processor(
        "flights",
        "delays",
        schema=SCHEMA,
        checkpoint=str(tmp_path),
        delivery="deduplicated",
        spark=lambda: spark,
    )
    def processor(rows: "DataFrame") -> "DataFrame":
        return doubled(rows)

    query = run(app, processor)
    with app:
        bundled_stand.send(flights, flights_of(3))
        progress.wait(lambda rows: sum(rows) >= 3)
        app.portal.run(app.binding("delays").stop())
        assert (app.binding("delays").state, query.query) == (BindingState.STOPPED, None)
        bundled_stand.send(flights, flights_of(2))
        app.portal.run(app.binding("delays").start())
        progress.wait(lambda rows: sum(rows) >= 5)
    assert bundled_stand.count(delays) == 5


def test_failed_query_is_reported_and_restarted(
    spark: "SparkSession", bundled_stand: Stand, tmp_path: Path, progress: RecordingListener
) -> None:
    """Health is down in between, and nothing is lost."""
    flights, delays = bundled_stand.topic(queues=1), bundled_stand.topic(queues=1)
    stumble = tmp_path / "stumble"
    stumble.touch()
    app = application(bundled_stand, flights, delays)

    @spark_processor(
        "flights",
        "delays",
        schema=SCHEMA,
        checkpoint=str(tmp_path / "checkpoint"),
        restart_after=timedelta(milliseconds=100),
        spark=lambda: spark,
    )
    def fragile(rows: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as f

        def twice(delay):  # without hints: Spark would take them for the kind of function
            if stumble.exists():
                raise ValueError("stumbled")
            return 2 * delay

        return rows.select("carrier", f.udf(twice, "int")("delay").alias("delay"))

    query = run(app, fragile)
    failed = RecordingListener()

    def tell(application: object, **reported: Any) -> None:
        failed.add((reported["error"], query.health()))

    with query_failed.connected_to(tell), app:
        bundled_stand.send(flights, flights_of(3))
        error, health = failed.wait(lambda items: len(items) >= 1)[0]
        assert "stumbled" in error
        assert health.status is HealthStatus.DOWN
        stumble.unlink()
        progress.wait(lambda rows: sum(rows) >= 3)
    assert bundled_stand.count(delays) >= 3


def test_unsupported_queries_are_refused_at_startup(
    spark: "SparkSession", bundled_stand: Stand, tmp_path: Path
) -> None:
    """With the binding's name and what to do."""
    app = application(bundled_stand, "a", "b", **{f"{BINDINGS}.flights.content-type": "text/plain"})
    with pytest.raises(ConfigurationError, match=r"binding 'flihgts'.*did you mean 'flights'"):
        streamkit.spark.source(app, "flihgts", spark=spark)
    with pytest.raises(ConfigurationError, match="content type text/plain: only JSON"):
        streamkit.spark.source(app, "flights", schema=SCHEMA, spark=spark)
    rows = spark.readStream.schema("n int").json(str(tmp_path))
    with app, pytest.raises(ApplicationError, match="there is no binding 'c'"):
        streamkit.spark.bind(app, rows, "c")
    memory = in_memory(flights="x", out="y")
    with pytest.raises(ConfigurationError, match="has no Spark format"):
        streamkit.spark.source(memory, "flights", spark=spark)
    streamkit.spark.bind(memory, rows, "out", delivery="at-least-once")
    with pytest.raises(ConfigurationError, match=r"binder 'inmemory'.*leave delivery out"), memory:
        pass


def test_query_can_be_bound_in_a_coroutine(spark: "SparkSession", tmp_path: Path) -> None:
    """In a thread; on the loop itself it would deadlock."""
    rows = spark.readStream.schema("n int").json(str(tmp_path))
    checkpoint = str(tmp_path / "checkpoint")

    async def main() -> HealthStatus:
        async with in_memory(out="x") as app:
            with pytest.raises(ApplicationError, match=r"await asyncio\.to_thread\(streamkit\.spark\.bind"):
                streamkit.spark.bind(app, rows, "out", checkpoint=checkpoint)
            query = await asyncio.to_thread(streamkit.spark.bind, app, rows, "out", checkpoint=checkpoint)
            return query.health().status

    assert asyncio.run(main()) is HealthStatus.UP


def test_read_headers_can_be_sent(spark: "SparkSession") -> None:
    """Their content type is replaced by the output's, if it has one."""
    frame = spark.sql(
        "SELECT * FROM VALUES ('a', map('contentType', 'text/plain', 'colour', 'red')), ('b', null) AS t(body, headers)"
    )
    sent = sink_columns(frame, "out", "application/json").orderBy("body").collect()
    said = {"contentType": "application/json"}
    assert [row.properties for row in sent] == [{"colour": "red", **said}, said]


def test_payloads_sent_by_executors(spark: "SparkSession") -> None:
    """Columns may have any name; a single payload column is text or bytes, since an integer's bytes cannot be read."""
    frame = spark.sql("SELECT 1 AS `a.b`, 2 AS ```c`, 3L AS value")
    (row,) = sink_columns(frame, "out", "application/json").collect()
    assert bytes(row.body) == b'{"a.b":1,"`c":2,"value":3}'
    with pytest.raises(ConfigurationError, match=r"'out': column 'value', alone, .* not bigint: cast it to string"):
        sink_columns(frame.select("value"), "out", "application/json")


def test_columns_are_identified_by_name() -> None:
    """A body alone is the payload; without any payload there is nothing to send."""
    assert Columns.of(["key", "body"]) == Columns(("body",), True, True, False, False)
    assert Columns.of(["tags", "a", "body"]) == Columns(("a", "body"), False, False, True, False)
    with pytest.raises(ConfigurationError, match="no payload: beside key, headers"):
        Columns.of(["key", "headers"])
    with pytest.raises(ConfigurationError, match="several columns 'n', as after a join"):
        Columns.of(["key", "n", "m", "n"])


@pytest.mark.parametrize("binary", [bytes, bytearray])
def test_binary_keys_are_text(binary: type[bytes | bytearray]) -> None:
    """As Kafka's source returns them, sent by application or task; invalid UTF-8 is refused."""
    columns = Columns.of(["key", "tags", "body"])
    row = {"key": binary("Zürich".encode()), "tags": binary(b"a"), "body": binary(b"{}")}
    (message,) = messages_of(iter([row]), columns, "query", 0)
    assert (message.headers["streamkit_key"], message.headers["streamkit_tags"]) == ("Zürich", "a")
    with pytest.raises(MessageConversionError, match=r"column 'key'.*not UTF-8 text: b'\\xff'.*base64\(key\)"):
        list(messages_of(iter([row | {"key": binary(b"\xff")}]), columns, "query", 0))


def test_headers_are_a_map_of_strings() -> None:
    """Any other column of that name is refused before a row is sent."""
    schema = StructType().add("body", StringType())
    headers = MapType(StringType(), StringType())
    assert Columns.of_schema(schema.add("headers", headers)) == Columns(("body",), True, False, False, True)
    wrong = StructType().add("body", StringType()).add("headers", StringType())
    with pytest.raises(ConfigurationError, match=r"column 'headers' is string.*map<string,string>"):
        Columns.of_schema(wrong)
