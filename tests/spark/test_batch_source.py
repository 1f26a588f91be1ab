"""Batch queries on the bundled broker and Apache's."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from rocket_remoting.wire.message import Message, MessageExt
from tests.spark.stand import Stand

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def load(spark: "SparkSession", stand: Stand, topic: str, schema: str | None = None, **options: Any) -> "DataFrame":
    """Return the topic as a DataFrame."""
    reader = spark.read.format("rocketmq").options(**stand.options)
    if not {"assign", "subscribePattern"} & set(options):
        reader = reader.option("topic", topic)
    if schema is not None:
        reader = reader.schema(schema)
    return reader.options(**options).load()


def texts(frame: "DataFrame") -> list[str]:
    """Return the bodies as text, sorted."""
    return sorted(bytes(row[0]).decode() for row in frame.select("body").collect())


def expected(message: MessageExt) -> dict[str, Any]:
    """Return the row of a message that the client has read."""
    return {
        "topic": message.topic,
        "broker_name": message.broker_name,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "body": message.body,
        "tags": message.tags,
        "keys": message.keys,
        "msg_id": message.msg_id,
        "born_timestamp": _moment(message.born_timestamp),
        "store_timestamp": _moment(message.store_timestamp),
        "reconsume_times": message.reconsume_times,
        "sys_flag": message.sys_flag,
        "flag": message.flag,
        "properties": message.properties,
    }


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).replace(microsecond=milliseconds % 1000 * 1000)


def test_columns_equal_the_clients_messages(spark: "SparkSession", stand: Stand) -> None:
    """Bodies of nearly 4 MiB and compressed ones, no tags, many properties, and non-ASCII text."""
    topic = stand.topic(queues=2)
    for message in (
        Message(topic, b"plain"),
        Message(topic, b"\x00\x01\x02\xff", tags="TagA", keys=["k1", "k2"], flag=7),
        Message(topic, "Grüße, 你好".encode(), properties={"colour": "rot=grün", "名": "值", "a": " b "}),
        Message(topic, b"packed " * 5000, tags="TagB"),
        Message(topic, bytes(range(256)) * (4 * 4096 - 4), keys="nearly four megabytes"),
    ):
        stand.client.send(message)
    stand.fill(topic, 300)
    rows = load(spark, stand, topic, includeHeaders="true").collect()
    found = [{name: bytes(value) if name == "body" else value for name, value in row.asDict().items()} for row in rows]
    for row in found:
        for name in ("born_timestamp", "store_timestamp"):
            row[name] = row[name].astimezone(UTC)
    key = lambda row: (row["queue_id"], row["queue_offset"])  # noqa: E731
    assert sorted(found, key=key) == sorted(map(expected, stand.messages(topic)), key=key)


def test_schema_selects_the_columns(spark: "SparkSession", stand: Stand) -> None:
    """In any order, under RocketMQ's names or Kafka's."""
    topic = stand.topic(queues=1)
    stand.send(topic, [b"one", b"two"])
    frame = load(
        spark, stand, topic,
        "offset long, value binary, queue_id int, key binary, timestampType int, keys string,"
        " properties map<string,string>, headers array<struct<key:string,value:binary>>",
    )  # fmt: skip
    first = frame.orderBy("offset").first()
    assert first is not None
    assert (first.offset, bytes(first.value), first.queue_id, bytes(first.key)) == (0, b"one", 0, b"k0")
    assert (first.timestampType, first["keys"], first.properties["n"]) == (1, "k0", "0")
    assert ("n", b"0") in [(header["key"], bytes(header["value"])) for header in first.headers]


def test_starting_and_ending_offsets(spark: "SparkSession", stand: Stand) -> None:
    """For each queue, counted from either end; the rest is not read."""
    topic = stand.topic(queues=2)
    stand.send(topic, [b"a%d" % n for n in range(10)], 0)
    stand.send(topic, [b"b%d" % n for n in range(10)], 1)
    broker = stand.queues(topic)[0].broker_name
    frame = load(
        spark, stand, topic,
        startingOffsets=f'{{"{topic}":{{"{broker}":{{"0":8,"1":-2}}}}}}',
        endingOffsets=f'{{"{topic}":{{"{broker}":{{"0":-1,"1":2}}}}}}',
    )  # fmt: skip
    assert texts(frame) == ["a8", "a9", "b0", "b1"]
    assert texts(load(spark, stand, "", assign=f'{{"{topic}":{{"{broker}":[1]}}}}')) == [f"b{n}" for n in range(10)]


def test_several_topics_by_list_and_by_pattern(spark: "SparkSession", stand: Stand) -> None:
    """Comma-separated, or all whose whole name matches."""
    one, other = stand.topic(queues=1), stand.topic(queues=1)
    stand.send(one, [b"one"])
    stand.send(other, [b"other"])
    assert texts(load(spark, stand, f"{one}, {other}")) == ["one", "other"]
    assert texts(load(spark, stand, "", subscribePattern=f"({one}|{other})")) == ["one", "other"]


def test_starting_timestamp(spark: "SparkSession", stand: Stand) -> None:
    """Before the first message it selects all, between two the later; after the last it is an error, or none."""
    topic = stand.topic(queues=1)
    stand.send(topic, [b"early"])
    (early,) = stand.messages(topic)
    while True:
        stand.send(topic, [b"late"])
        late = stand.messages(topic)[-1]
        if late.store_timestamp > early.store_timestamp:
            break
    assert texts(load(spark, stand, topic, startingTimestamp="1000"))[0] == "early"
    later = load(spark, stand, topic, startingTimestamp=str(late.store_timestamp))
    assert set(texts(later)) == {"late"}
    after = str(late.store_timestamp + 3_600_000)
    none = load(spark, stand, topic, startingTimestamp=after, startingOffsetsByTimestampStrategy="latest")
    assert texts(none) == []
    with pytest.raises(Exception, match="has no message stored at or after"):
        load(spark, stand, topic, startingTimestamp=after).count()


def test_committed_offsets_of_a_group_are_the_start(spark: "SparkSession", stand: Stand) -> None:
    """With `committed`, those at the broker."""
    topic = stand.topic(queues=1)
    stand.send(topic, [b"%d" % n for n in range(5)])
    (queue,) = stand.queues(topic)
    stand.client.pull(queue, 0)
    stand.client.commit_offset(queue, 3)
    frame = load(spark, stand, topic, startingOffsets="committed", consumerGroup="stand")
    assert texts(frame) == ["3", "4"]


@pytest.mark.parametrize(
    ("option", "value", "wanted"),
    [
        ("tag", "even", [0, 2, 4, 6, 8]),
        ("tag", "odd || rare", [1, 3, 5, 7, 9, 999]),
        ("tag", "none", []),
        ("tag", "rare", [999]),
    ],
)
def test_tags_are_filtered_by_the_broker(
    spark: "SparkSession", stand: Stand, option: str, value: str, wanted: list[int]
) -> None:
    """However many messages do not match."""
    topic = stand.topic(queues=1)
    stand.send(topic, [b"%d" % n for n in range(10)])
    stand.client.send_batch([Message(topic, b"x", tags="other") for _ in range(500)])
    stand.client.send(Message(topic, b"999", tags="rare"))
    assert texts(load(spark, stand, topic, **{option: value})) == [str(number) for number in wanted]


def test_sql_filters_by_properties(spark: "SparkSession", stand: Stand) -> None:
    """With an SQL92 expression."""
    topic = stand.topic(queues=1)
    stand.send(topic, [b"%d" % n for n in range(100)])
    frame = load(spark, stand, topic, sql="n BETWEEN 97 AND 200 OR n = 3")
    assert texts(frame) == ["3", "97", "98", "99"]


def test_query_filters_are_pushed_down(spark: "SparkSession", stand: Stand) -> None:
    """With filterPushdown only the requested queues, offsets and tags are read."""
    topic = stand.topic(queues=2)
    stand.fill(topic, 40)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = load(spark, stand, topic, filterPushdown="true", packBelow="0")
        narrow = frame.where("queue_id = 1 AND queue_offset >= 5 AND queue_offset < 9 AND tags = 'odd'")
        assert narrow.rdd.getNumPartitions() == 1
        assert texts(narrow) == ["11", "15"]
        assert texts(frame.where("tags IN ('even') AND store_timestamp > '2020-01-01'")) == sorted(
            str(number) for number in range(40) if number // 2 % 2 == 0
        )
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.parametrize(
    ("options", "partitions"),
    [
        ({}, 1),
        ({"packBelow": "0"}, 3),
        ({"packBelow": "0", "minPartitions": "6"}, 6),
        ({"maxRecordsPerPartition": "5"}, 9),
    ],
)
def test_partitions_follow_queues_and_options(
    spark: "SparkSession", bundled_stand: Stand, options: dict[str, str], partitions: int
) -> None:
    """Few messages are one task; otherwise one per queue, or more as configured."""
    topic = bundled_stand.topic(queues=3)
    bodies = bundled_stand.fill(topic, 45)
    frame = load(spark, bundled_stand, topic, **options)
    assert frame.rdd.getNumPartitions() == partitions
    assert texts(frame) == sorted(bodies)


def test_empty_topic_has_no_rows(spark: "SparkSession", stand: Stand) -> None:
    """No messages, no rows."""
    assert texts(load(spark, stand, stand.topic())) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nameServer": "127.0.0.1:1", "fetchOffset.retryIntervalMs": "10"}, "127.0.0.1:1"),
        ({"topics": "x"}, "unknown option 'topics'.*did you mean 'topic'"),
        ({"topic": "no-such-topic"}, "no route for topic 'no-such-topic'"),
        (
            {"startingOffsets": '{"x":{"broker-a":{"0":1}}}'},
            "must name all queues that are read and no other",
        ),
        ({"sql": "b >> 1"}, "SUBSCRIPTION_PARSE_FAILED|expression"),
    ],
)
def test_option_errors_are_clear(
    spark: "SparkSession", bundled_stand: Stand, options: dict[str, str], message: str
) -> None:
    """With the option's name and what to write, when the query is planned."""
    topic = bundled_stand.topic(queues=1)
    bundled_stand.send(topic, [b"x"])
    reader = spark.read.format("rocketmq").options(**(bundled_stand.options | {"topic": topic} | options))
    with pytest.raises(Exception, match=message):
        reader.load().count()


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("bodies binary", "column 'bodies' is not a column of format 'rocketmq'; did you mean 'body'"),
        ("body string", "column 'body' is asked for as string, it is binary"),
    ],
)
def test_column_errors_are_clear(spark: "SparkSession", bundled_stand: Stand, schema: str, message: str) -> None:
    """A missing column or one of another type is named."""
    with pytest.raises(Exception, match=message):
        load(spark, bundled_stand, bundled_stand.topic(), schema).count()
