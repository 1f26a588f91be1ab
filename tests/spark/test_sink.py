"""What a query writes, and how often."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rocket_client.blocking import MessageQueue
from rocket_remoting.wire.message import MessageExt
from tests.spark.stand import Stand

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def save(frame: "DataFrame", stand: Stand, **options: Any) -> None:
    """Write the rows."""
    frame.write.format("rocketmq").options(**stand.options, **options).mode("append").save()


def by_body(stand: Stand, topic: str) -> dict[str, MessageExt]:
    """Return the topic's messages by body."""
    return {message.body.decode(): message for message in stand.messages(topic)}


def own(message: MessageExt) -> dict[str, str]:
    """Return the properties that neither broker nor client added."""
    return {
        name: value
        for name, value in message.properties.items()
        if name not in {"UNIQ_KEY", "CLUSTER", "TAGS", "KEYS", "WAIT", "TRACE_ON", "MSG_REGION"}
    }


def test_every_column_is_written(spark: "SparkSession", stand: Stand) -> None:
    """Tags, keys, properties and flag; null writes nothing."""
    topic = stand.topic()
    frame = spark.sql(
        "SELECT * FROM VALUES"
        " ('one', 'TagA', 'k1 k2', map('colour', 'red', 'TAGS', 'not this', 'empty', ''), 7),"
        " ('two', null, null, null, null)"
        " AS t(body, tags, keys, properties, flag)"
    )
    save(frame, stand, topic=topic)
    found = by_body(stand, topic)
    one, two = found["one"], found["two"]
    assert (one.tags, one.keys, own(one), one.flag) == ("TagA", "k1 k2", {"colour": "red"}, 7)
    assert (two.tags, two.keys, own(two), two.flag) == (None, None, {}, 0)


def test_kafkas_column_names_are_written(spark: "SparkSession", stand: Stand) -> None:
    """A job for Kafka needs only another format and address."""
    topic = stand.topic()
    frame = spark.sql(
        f"SELECT '{topic}' AS topic, 'k' AS key, 'body' AS value, 1 AS partition,"
        " array(named_struct('key', 'h', 'value', CAST('v' AS BINARY))) AS headers"
    )
    save(frame, stand)
    (message,) = stand.messages(topic)
    assert (message.keys, message.body, message.queue_id, own(message)) == ("k", b"body", 1, {"h": "v"})


def test_rows_of_one_key_stay_in_order(spark: "SparkSession", stand: Stand) -> None:
    """In the queue that Java's selector takes for the key, request by request."""
    topic = stand.topic()
    frame = spark.range(4000).coalesce(1).selectExpr("cast(id AS string) AS body", "concat('user-', id % 5) AS user")
    save(frame, stand, topic=topic, orderKey="user", batchSize="10")
    queues: dict[int, set[MessageQueue]] = {}
    order: dict[int, dict[int, None]] = {}  # what is sent again was there in its place
    for message in stand.messages(topic):
        number = int(message.body)
        queues.setdefault(number % 5, set()).add(message.queue)
        order.setdefault(number % 5, {})[number] = None
    assert {key: len(found) for key, found in queues.items()} == dict.fromkeys(range(5), 1)
    assert all(list(numbers) == list(range(key, 4000, 5)) for key, numbers in order.items())


def test_rows_are_distributed_over_the_queues(spark: "SparkSession", stand: Stand) -> None:
    """Several topics by column, every queue, each row once with its own key."""
    topics = [stand.topic(), stand.topic()]
    frame = spark.range(20_000).repartition(2).selectExpr(
        "cast(id AS string) AS body", f"IF(id % 2 = 0, '{topics[0]}', '{topics[1]}') AS topic"
    )  # fmt: skip
    save(frame, stand)
    for number, topic in enumerate(topics):
        messages = stand.messages(topic)
        assert sorted(int(message.body) for message in messages) == list(range(number, 20_000, 2))
        assert len({message.queue_id for message in messages}) == 4
        assert len({message.unique_key for message in messages}) == 10_000


def test_large_and_delayed_rows(spark: "SparkSession", stand: Stand) -> None:
    """A row that does not fit a batch is sent alone, up to the broker's limit; a delayed row arrives later."""
    topic = stand.topic(queues=1)
    frame = spark.sql("SELECT repeat('x', 4 * 1024 * 1024 - 600) AS body, 'big' AS tags UNION ALL SELECT 'small', 't'")
    save(frame, stand, topic=topic)
    assert sorted(len(message.body) for message in stand.messages(topic)) == [5, 4 * 1024 * 1024 - 600]
    save(spark.sql("SELECT 'later' AS body, 1 AS delay_level, 7 AS flag"), stand, topic=topic)
    (queue,) = stand.queues(topic)
    while not (later := stand.client.pull(queue, 2, wait=20.0).messages()):
        pass
    assert [(message.body, message.flag) for message in later] == [(b"later", 7)]


def stream(
    spark: "SparkSession",
    stand: Stand,
    topics: tuple[str, str],
    checkpoint: Path,
    expression: str,
    **options: Any,
) -> None:
    """Copy one topic to another by a streaming query, all that is present."""
    source, target = topics
    reader = spark.readStream.format("rocketmq").options(**stand.options)
    frame = reader.options(topic=source, startingOffsets="earliest", maxOffsetsPerTrigger="400").load()
    writer = frame.selectExpr(f"{expression} AS body").writeStream.format("rocketmq")
    writer = writer.options(**stand.options, topic=target, checkpointLocation=str(checkpoint), **options)
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(120)


@pytest.mark.parametrize("delivery", ["at-least-once", "deduplicated"])
def test_task_that_fails_halfway_is_repeated(
    spark: "SparkSession", bundled_stand: Stand, tmp_path: Path, delivery: str
) -> None:
    """Its second attempt sends the same rows with the same keys: stored once where the broker deduplicates."""
    from pyspark import TaskContext

    source, target = bundled_stand.topic(), bundled_stand.topic()
    bodies = bundled_stand.fill(source, 1200)

    def fail_once(body: bytes) -> str:
        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0 and int(body) % 400 == 399:
            raise OSError("this attempt fails")
        return bytes(body).decode()

    spark.udf.register("fail_once", lambda body: fail_once(body), "string")  # noqa: PLW0108 - no type hints
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
    try:
        stream(
            spark, bundled_stand, (source, target), tmp_path, "fail_once(body)",
            delivery=delivery, batchSize="20",
        )  # fmt: skip
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    found = Counter(bundled_stand.bodies(target))
    assert set(found) == set(bodies)
    if delivery == "deduplicated":
        assert set(found.values()) == {1}
    else:
        keys = {message.unique_key for message in bundled_stand.messages(target)}
        assert len(keys) == len(bodies)


@pytest.mark.parametrize("delivery", ["at-least-once", "deduplicated"])
def test_repeated_batch_stores_no_duplicates(
    spark: "SparkSession", bundled_stand: Stand, tmp_path: Path, delivery: str
) -> None:
    """As after a crash between the sink's end and the commit log, whose last entry is missing."""
    source, target = bundled_stand.topic(), bundled_stand.topic()
    bundled_stand.fill(source, 1000)
    for _ in range(2):
        stream(spark, bundled_stand, (source, target), tmp_path, "cast(body AS string)", delivery=delivery)
        last = max((tmp_path / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        last.unlink()
    found = Counter(bundled_stand.bodies(target))
    assert len(found) == 1000
    assert max(found.values()) == (1 if delivery == "deduplicated" else 2)
    assert len({message.unique_key for message in bundled_stand.messages(target)}) == 1000


def test_repeated_batch_write(spark: "SparkSession", bundled_stand: Stand) -> None:
    """Under the same writeId rows are stored once, under another again."""
    topic = bundled_stand.topic()
    frame = spark.range(0, 3000, 1, 2).selectExpr("cast(id AS string) AS body")
    for write_id in ("first", "first", "second"):
        save(frame, bundled_stand, topic=topic, delivery="deduplicated", writeId=write_id)
    assert set(Counter(bundled_stand.bodies(topic)).values()) == {2}


@pytest.mark.peer
def test_apaches_broker_cannot_deduplicate(spark: "SparkSession", apache_stand: Stand) -> None:
    """An error before anything is written."""
    topic = apache_stand.topic()
    with pytest.raises(Exception, match="delivery=deduplicated: broker broker-a cannot refuse"):
        save(spark.sql("SELECT 'x' AS body"), apache_stand, topic=topic, delivery="deduplicated", writeId="w")
    assert apache_stand.count(topic) == 0


def test_key_column_identifies_rows(spark: "SparkSession", bundled_stand: Stand) -> None:
    """Rows with one id have one key in every write; null has none."""
    topic = bundled_stand.topic()
    frame = spark.sql("SELECT * FROM VALUES ('a', 1), ('b', 2), ('c', 1) AS t(body, id)").repartition(2)
    save(frame, bundled_stand, topic=topic, idColumn="id")
    keys = {body: message.unique_key for body, message in by_body(bundled_stand, topic).items()}
    assert keys["a"] == keys["c"] != keys["b"]
    with pytest.raises(Exception, match="option 'idColumn': column 'id' is null in a row"):
        save(
            spark.sql("SELECT 'x' AS body, CAST(null AS int) AS id"),
            bundled_stand,
            topic=topic,
            idColumn="id",
        )


@pytest.mark.parametrize(
    ("query", "options", "message"),
    [
        ("SELECT 1 AS body", {}, "column 'body' is int, it must be string or binary"),
        ("SELECT 'x' AS body", {"delivery": "deduplicated"}, "needs option 'writeId'"),
        ("SELECT '' AS body", {}, "column 'body' is empty in a row"),
        ("SELECT CAST(null AS string) AS body", {}, "column 'body' is null in a row"),
        ("SELECT 'x' AS body, 9 AS queue_id", {}, "asks for queue 9 of .*, which has"),
        ("SELECT 'x' AS body, 'a' || char(1) AS keys", {}, "column 'KEYS': a value has a character"),
        ("SELECT repeat('x', 5000000) AS body", {}, "5000000 bytes in a row, at most 4194304"),
    ],
)
def test_option_and_column_errors_are_clear(
    spark: "SparkSession", bundled_stand: Stand, query: str, options: dict[str, str], message: str
) -> None:
    """And so are errors of a row's value that cannot be sent."""
    with pytest.raises(Exception, match=message):
        save(spark.sql(query), bundled_stand, topic=bundled_stand.topic(), **options)


def test_missing_topic_is_created_unless_deduplicated(spark: "SparkSession", bundled_stand: Stand) -> None:
    """The broker creates it for at-least-once rows; to deduplicate it must exist before."""
    frame = spark.sql("SELECT 'x' AS body")
    with pytest.raises(Exception, match="no route for topic 'made-by-a-row'"):
        save(frame, bundled_stand, topic="made-by-a-row", delivery="deduplicated", writeId="w")
    save(frame, bundled_stand, topic="made-by-a-row")
    assert bundled_stand.bodies("made-by-a-row") == ["x"]


def test_write_without_a_topic_or_with_overwrite_is_refused(spark: "SparkSession", bundled_stand: Stand) -> None:
    """Nothing says where to; and a topic cannot be overwritten."""
    with pytest.raises(Exception, match="neither an option 'topic' nor a column 'topic'"):
        save(spark.sql("SELECT 'x' AS body"), bundled_stand)
    with pytest.raises(Exception, match="a topic cannot be overwritten"):
        spark.sql("SELECT 'x' AS body").write.format("rocketmq").options(**bundled_stand.options, topic="x").mode(
            "overwrite"
        ).save()
