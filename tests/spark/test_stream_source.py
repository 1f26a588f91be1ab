"""Streaming queries read every message once, whatever stops them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.reading import SECONDS, Reading
from tests.spark.stand import Stand

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def reading(spark: "SparkSession", tmp_path: Path) -> Callable[[Stand], Reading]:
    """Return a query of a stand's topics."""
    return lambda stand: Reading(spark, stand, tmp_path / "checkpoint")


def test_stream_continues_from_its_checkpoint(reading: Callable[[Stand], Reading], stand: Stand) -> None:
    """Messages between two runs are read by the second, none twice; the group's offsets follow."""
    topic, of = stand.topic(), reading(stand)
    bodies = stand.fill(topic, 100)
    of.run(topic=topic, consumerGroup="followed", maxOffsetsPerTrigger="40")
    assert of.read == sorted(bodies)
    assert [len(batch) for batch in of.batches.values()] == [40, 40, 20]
    bodies += stand.fill(topic, 50, start=100)
    of.run(topic=topic, consumerGroup="followed")
    assert of.read == sorted(bodies)
    client, group = stand.client, stand.client.group
    client.group = "followed"
    try:
        committed = {queue: client.committed_offset(queue) for queue in stand.queues(topic)}
    finally:
        client.group = group
    assert committed == client.max_offsets(stand.queues(topic))


def test_repeated_first_batch_has_the_same_messages(reading: Callable[[Stand], Reading], stand: Stand) -> None:
    """Whatever has come since, and whatever the start options are now."""
    topic, of = stand.topic(), reading(stand)
    bodies = stand.fill(topic, 20)
    collect = of._collect

    def fail(frame: "DataFrame", batch: int) -> None:
        raise ValueError("stumbled")

    of._collect = fail  # type: ignore[method-assign]
    with pytest.raises(Exception, match="stumbled"):
        of.run(topic=topic)
    of._collect = collect  # type: ignore[method-assign]
    bodies += stand.fill(topic, 20, start=20)
    of.run(topic=topic, startingOffsets="latest")
    assert of.read == sorted(bodies)
    assert sorted(of.batches[0]) == sorted(bodies[:20])


def test_new_queue_is_read_from_its_beginning(reading: Callable[[Stand], Reading], stand: Stand) -> None:
    """Also if the topic grew while nobody read it."""
    topic, of = stand.topic(queues=1), reading(stand)
    stand.send(topic, [b"before"])
    of.run(topic=topic)
    stand.set_queues(topic, 3)
    stand.send(topic, [b"new"], queue_id=2)
    of.run(topic=topic)
    stand.send(topic, [b"after"], queue_id=2)
    of.run(topic=topic)
    assert list(of.batches.values()) == [["before"], ["new"], ["after"]]


def test_limits_are_shared_by_backlog(reading: Callable[[Stand], Reading], bundled_stand: Stand) -> None:
    """A long queue gets most of a batch, a short one is not starved."""
    topic, of = bundled_stand.topic(queues=2), reading(bundled_stand)
    bundled_stand.send(topic, [b"long-%d" % n for n in range(1000)], 0)
    bundled_stand.send(topic, [b"short"], 1)
    of.run(topic=topic, maxOffsetsPerTrigger="500")
    assert "short" in next(iter(of.batches.values()))
    assert len(of.read) == 1001


def test_once_trigger_takes_everything(reading: Callable[[Stand], Reading], bundled_stand: Stand) -> None:
    """In one batch, whatever the limits."""
    topic, of = bundled_stand.topic(), reading(bundled_stand)
    bodies = bundled_stand.fill(topic, 60)
    query = of.start(topic=topic, maxOffsetsPerTrigger="10", trigger={"once": True})
    assert query.awaitTermination(SECONDS)
    assert list(map(sorted, of.batches.values())) == [sorted(bodies)]


def test_limit_in_bytes(reading: Callable[[Stand], Reading], bundled_stand: Stand) -> None:
    """By the average message size."""
    topic, of = bundled_stand.topic(queues=1), reading(bundled_stand)
    bundled_stand.send(topic, [b"x" * 1000 for _ in range(200)])
    of.run(topic=topic, maxBytesPerTrigger="60000")
    sizes = [len(batch) for batch in of.batches.values()]
    assert (sum(sizes), max(sizes) < 60, len(sizes) > 3) == (200, True, True)


def test_available_now_reads_nothing_newer_than_its_start(reading: Callable[[Stand], Reading], stand: Stand) -> None:
    """It ends although messages keep coming."""
    topic, of = stand.topic(), reading(stand)
    bodies = stand.fill(topic, 90)
    collect = of._collect

    def collect_and_send(frame: "DataFrame", batch: int) -> None:
        collect(frame, batch)
        stand.fill(topic, 50, start=1000 + 50 * batch)

    of._collect = collect_and_send  # type: ignore[method-assign]
    of.run(topic=topic, maxOffsetsPerTrigger="30")
    assert of.read == sorted(bodies)


@pytest.mark.parametrize("remade", [3, 20])
def test_recreated_topic_is_an_error_or_read_from_its_beginning(
    reading: Callable[[Stand], Reading], bundled_stand: Stand, remade: int
) -> None:
    """It has fewer messages than were read: the error names the queue."""
    topic, of = bundled_stand.topic(queues=1), reading(bundled_stand)
    bundled_stand.send(topic, [b"old-%d" % n for n in range(10)])
    of.run(topic=topic)
    bundled_stand.delete(topic)
    bundled_stand.set_queues(topic, 1)
    bundled_stand.send(topic, [b"new-%d" % n for n in range(remade)])
    if remade < 10:
        with pytest.raises(Exception, match=f"queue 0 of {topic} .* was read up to 10 and now holds 0 to 3"):
            of.run(topic=topic)
        of.run(topic=topic, failOnDataLoss="false")
        assert of.batches.popitem()[1] == ["new-0", "new-1", "new-2"]
    else:  # nobody can tell a topic made anew from one that has grown
        of.run(topic=topic)
        assert of.batches.popitem()[1] == [f"new-{n}" for n in range(10, 20)]


@pytest.mark.parametrize("is_only_one", [False, True])
def test_deleted_topic_of_a_pattern_is_reported(
    reading: Callable[[Stand], Reading], bundled_stand: Stand, is_only_one: bool
) -> None:
    """Its messages are lost; recreated, it is read from its beginning."""
    topic, other, of = bundled_stand.topic(queues=1), bundled_stand.topic(queues=1), reading(bundled_stand)
    options = {"subscribePattern": topic if is_only_one else f"{topic}|{other}"}
    bundled_stand.send(topic, [b"old-0", b"old-1"])
    of.run(**options)
    bundled_stand.send(topic, [b"never read"])
    bundled_stand.delete(topic)
    with pytest.raises(Exception, match=f"queue 0 of {topic} .* read up to 2, is not there any more"):
        of.run(**options)
    of.run(**options, failOnDataLoss="false")
    bundled_stand.set_queues(topic, 1)
    bundled_stand.send(topic, [b"new-0", b"new-1", b"new-2"])
    of.run(**options)
    assert of.read == ["new-0", "new-1", "new-2", "old-0", "old-1"]


def test_two_queries_of_one_group_read_everything(spark: "SparkSession", tmp_path: Path, bundled_stand: Stand) -> None:
    """The group names committed progress, not a share of the queues."""
    topic = bundled_stand.topic()
    bodies = bundled_stand.fill(topic, 60)
    for number in range(2):
        of = Reading(spark, bundled_stand, tmp_path / str(number))
        of.run(topic=topic, consumerGroup="shared")
        assert of.read == sorted(bodies)


def test_idle_triggers_make_no_batches(reading: Callable[[Stand], Reading], bundled_stand: Stand) -> None:
    """Offsets keep their text, so Spark plans nothing."""
    topic, of = bundled_stand.topic(), reading(bundled_stand)
    bundled_stand.fill(topic, 10)
    query = of.start(topic=topic, trigger={"processingTime": "10 milliseconds"})
    try:
        query.processAllAvailable()
        bundled_stand.fill(topic, 10)
        query.processAllAvailable()
        assert len(of.read) == 20
        # An empty batch would have a number, too.
        assert sorted(of.batches) == list(range(len(of.batches)))
    finally:
        query.stop()


def test_progress_includes_the_backlog(reading: Callable[[Stand], Reading], bundled_stand: Stand) -> None:
    """The queues' ends are beside the batch's."""
    topic, of = bundled_stand.topic(queues=1), reading(bundled_stand)
    bundled_stand.fill(topic, 30)
    query = of.run(topic=topic, maxOffsetsPerTrigger="10")
    source = query.recentProgress[0]["sources"][0]
    ends = [json.loads(source[name])["offsets"][topic] for name in ("endOffset", "latestOffset")]
    assert [next(iter(each.values())) for each in ends] == [{"0": 10}, {"0": 30}]


def test_small_backlog_waits(reading: Callable[[Stand], Reading], bundled_stand: Stand) -> None:
    """Until it is large enough for a batch, or has waited long enough."""
    topic, of = bundled_stand.topic(queues=1), reading(bundled_stand)
    query = of.start(
        topic=topic,
        trigger={"processingTime": "10 milliseconds"},
        minOffsetsPerTrigger="10",
        maxTriggerDelay="1h",
    )
    try:
        bundled_stand.send(topic, [b"%d" % n for n in range(9)])
        bundled_stand.send(topic, [b"9", b"10"])
        query.processAllAvailable()
        assert of.read == sorted(str(n) for n in range(11))
        assert len(next(iter(of.batches.values()))) >= 10
    finally:
        query.stop()


def test_checkpoint_of_a_newer_version_is_refused(
    reading: Callable[[Stand], Reading], bundled_stand: Stand, tmp_path: Path
) -> None:
    """With the found version."""
    topic, of = bundled_stand.topic(queues=1), reading(bundled_stand)
    bundled_stand.fill(topic, 3)
    of.run(topic=topic)
    log = tmp_path / "checkpoint" / "offsets" / "0"
    log.write_text(log.read_text().replace('"v": 1', '"v": 2'))
    with pytest.raises(Exception, match="offsets of version 2, this release reads version 1"):
        of.run(topic=topic)
