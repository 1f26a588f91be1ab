"""Planning a stream whose queues appear, disappear, shrink or lose messages."""

from collections.abc import Container, Mapping, Sequence
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from pyspark_rocketmq.errors import ClusterError, DataLossError
from pyspark_rocketmq.offsets import StreamOffset
from pyspark_rocketmq.options import source_options
from pyspark_rocketmq.schema import source_schema
from pyspark_rocketmq.starting import Position
from pyspark_rocketmq.stream_reader import RocketMQStreamReader
from rocket_client.blocking import MessageQueue, QueueRange

ALL = ReadAllAvailable()


def queue(number: int, broker: str = "a") -> MessageQueue:
    """Return a queue of topic t."""
    return MessageQueue("t", broker, number)


class Brokers:
    """A cluster with given queues.

    Attributes:
        bounds: Where each queue begins and ends.
        committed: What was published last.
        deleted: Topics that the pattern is for, and that no name server knows any more.
        away: Brokers that are away.
    """

    def __init__(self, bounds: Mapping[MessageQueue, tuple[int, int]]) -> None:
        self.bounds = dict(bounds)
        self.committed: list[Mapping[MessageQueue, int]] = []
        self.deleted: set[str] = set()
        self.away: set[str] = set()

    def is_deleted(self, topic: str, broker_name: str) -> bool:
        """Whether it was deleted."""
        return topic in self.deleted and broker_name not in self.away

    def queues(self, known: Container[MessageQueue] | None = ()) -> list[MessageQueue]:
        """Those that are there."""
        return sorted(self.bounds)

    def begins(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """Their first messages."""
        return {each: self.bounds[each][0] for each in queues}

    def ends(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """Their ends."""
        return {each: self.bounds[each][1] for each in queues}

    def at(self, position: Position, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """Their first messages, or their ends."""
        return self.begins(queues) if position.kind == "earliest" else self.ends(queues)

    def average_sizes(self, starts: Mapping[MessageQueue, int]) -> dict[MessageQueue, float]:
        """A hundred bytes each."""
        return dict.fromkeys(starts, 100.0)

    def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Note it."""
        self.committed.append(offsets)


def reader(brokers: Brokers, **options: str) -> RocketMQStreamReader:
    """A reader that sees these brokers."""
    given = {"nameServer": "x:1", "topic": "t", "packBelow": "0"} | options
    made = RocketMQStreamReader(source_options(given), source_schema(False))
    made._cluster = brokers  # type: ignore[assignment]
    return made


def at(made: RocketMQStreamReader, **offsets: int) -> dict[str, Any]:
    """Return offsets: ``a0=5`` is offset 5 of queue 0 of broker a."""
    found = {queue(int(name[1:]), name[0]): offset for name, offset in offsets.items()}
    return StreamOffset(found, made._options.plan).to_json()


def planned(made: RocketMQStreamReader, start: dict[str, Any], limit: Any = ALL) -> list[QueueRange]:
    """Return what the next batch reads."""
    partitions = made.partitions(start, made.latestOffset(start, limit))
    return [piece for partition in partitions for piece in partition.ranges]  # type: ignore[attr-defined]


def test_no_new_messages_plan_nothing() -> None:
    """The offsets object is unchanged."""
    made = reader(Brokers({queue(0): (0, 5)}))
    start = at(made, a0=5)
    assert made.latestOffset(start, ALL) is start
    assert made.partitions(start, start) == []


def test_new_queue_and_new_broker_are_read_from_the_beginning() -> None:
    """Also when the batch is planned again."""
    brokers = Brokers({queue(0): (0, 5), queue(1): (3, 9), queue(0, "b"): (2, 4)})
    made = reader(brokers)
    start = at(made, a0=5)
    end = made.latestOffset(start, ALL)
    expected = [QueueRange(queue(1), 3, 9), QueueRange(queue(0, "b"), 2, 4)]
    for bounds in (brokers.bounds, {queue(0): (5, 50)}):
        brokers.bounds = dict(bounds)
        assert [p.ranges[0] for p in made.partitions(start, end)] == expected  # type: ignore[attr-defined]
    assert made.partitions(end, end) == []


@pytest.mark.parametrize(
    ("bounds", "message", "read"),
    [
        ((7, 9), "queue 0 of t at a was read up to 5 and now holds 7 to 9", [QueueRange(queue(0), 7, 9)]),
        ((0, 3), "queue 0 of t at a was read up to 5 and now holds 0 to 3", [QueueRange(queue(0), 0, 3)]),
    ],
)
def test_lost_messages_are_an_error_or_skipped(bounds: tuple[int, int], message: str, read: list[QueueRange]) -> None:
    """Deleted before they were read, or the topic was recreated."""
    brokers = Brokers({queue(0): bounds})
    with pytest.raises(DataLossError, match=message):
        planned(reader(brokers), at(reader(brokers), a0=5))
    made = reader(brokers, failOnDataLoss="false")
    assert planned(made, at(made, a0=5)) == read


def test_missing_queue_is_lost_or_waits() -> None:
    """Lost if its broker is available; if the broker is not, reading continues when it returns."""
    brokers = Brokers({queue(0): (0, 5)})
    made = reader(brokers)
    with pytest.raises(DataLossError, match="queue 1 of t at a, read up to 4, is not there any more"):
        made.latestOffset(at(made, a0=5, a1=4), ALL)
    away = made.latestOffset(at(made, a0=3, b0=4), ALL)
    assert StreamOffset.from_json(away).offsets == {queue(0): 5, queue(0, "b"): 4}
    brokers.bounds[queue(0, "b")] = (0, 6)
    assert planned(made, away) == [QueueRange(queue(0, "b"), 4, 6)]


def test_broker_that_fails_while_it_is_asked_is_skipped() -> None:
    """The others are read; if it is still in the route, the error names it."""

    class Going(Brokers):
        is_known_to_be_away = True

        def ends(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
            if queue(0, "b") in queues:
                if self.is_known_to_be_away:
                    del self.bounds[queue(0, "b")]
                raise ClusterError("no address of broker 'b' is known")
            return super().ends(queues)

    brokers = Going({queue(0): (0, 5), queue(0, "b"): (0, 9)})
    made = reader(brokers)
    start = at(made, a0=3, b0=4)
    assert planned(made, start) == [QueueRange(queue(0), 3, 5)]
    brokers.is_known_to_be_away = False
    brokers.bounds[queue(0, "b")] = (0, 9)
    with pytest.raises(ClusterError, match="no address of broker 'b'"):
        made.latestOffset(start, ALL)


def test_deleted_topic_of_a_pattern_is_lost() -> None:
    """If its broker is available; an unreadable topic, or one of an unavailable broker, waits."""
    brokers = Brokers({MessageQueue("t1", "a", 0): (0, 5)})
    start = at(reader(brokers), a0=4)
    assert planned(reader(brokers), start) == [QueueRange(MessageQueue("t1", "a", 0), 0, 5)]
    brokers.deleted = {"t"}
    with pytest.raises(DataLossError, match="queue 0 of t at a, read up to 4, is not there any more"):
        reader(brokers).latestOffset(start, ALL)
    passed = reader(brokers, failOnDataLoss="false").latestOffset(start, ALL)
    assert StreamOffset.from_json(passed).offsets == {MessageQueue("t1", "a", 0): 5}
    brokers.bounds.clear()  # no topic is left
    with pytest.raises(DataLossError, match="queue 0 of t at a, read up to 4, is not there any more"):
        reader(brokers).latestOffset(start, ALL)
    away = at(reader(brokers), b0=4)
    brokers.away = {"b"}
    assert queue(0, "b") in StreamOffset.from_json(reader(brokers).latestOffset(away, ALL)).offsets


def test_returning_broker_waits_for_the_next_run_with_available_now() -> None:
    """Its offsets are kept, and new queues wait."""
    brokers = Brokers({queue(0): (0, 5)})
    made = reader(brokers)
    made.prepareForTriggerAvailableNow()
    brokers.bounds |= {queue(0, "b"): (0, 9), queue(1, "b"): (0, 7)}
    end = made.latestOffset(at(made, a0=3, b0=4), ALL)
    assert StreamOffset.from_json(end) == StreamOffset({queue(0): 5, queue(0, "b"): 4}, made._options.plan)


def test_limits_apply_where_spark_asks_for_a_limit() -> None:
    """Not where it asks for all."""
    made = reader(Brokers({queue(0): (0, 1000), queue(1): (0, 10)}), maxOffsetsPerTrigger="100")
    assert made.getDefaultReadLimit() == ReadMaxRows(100)
    start = at(made, a0=0, a1=0)
    assert sum(each.end - each.start for each in planned(made, start, ReadMaxRows(100))) == 100
    assert sum(each.end - each.start for each in planned(made, start)) == 1010


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ALL),
        ({"maxOffsetsPerTrigger": "7"}, ReadMaxRows(7)),
        ({"maxBytesPerTrigger": "800"}, ReadMaxBytes(800)),
        ({"minOffsetsPerTrigger": "9"}, ReadMinRows(9)),
        (
            {"maxOffsetsPerTrigger": "7", "maxBytesPerTrigger": "300", "minOffsetsPerTrigger": "9"},
            ReadMaxRows(7),
        ),
    ],
    ids=str,
)
def test_available_now_reads_to_the_present_end(options: dict[str, str], limit: Any) -> None:
    """Within the limits, in several batches, without later messages or minimum sizes."""
    brokers = Brokers({queue(0): (0, 50), queue(1): (2, 5)})
    made = reader(brokers, **options)
    made.prepareForTriggerAvailableNow()
    brokers.bounds = {queue(0): (0, 500), queue(1): (2, 50), queue(2): (0, 9)}
    assert made.getDefaultReadLimit() == limit
    place, sizes, read = at(made, a0=0, a1=2), [], set[tuple[int, int]]()
    while (end := made.latestOffset(place, limit)) is not place:
        pieces = [piece for each in made.partitions(place, end) for piece in each.ranges]  # type: ignore[attr-defined]
        sizes.append(sum(piece.end - piece.start for piece in pieces))
        read |= {(piece.queue.queue_id, offset) for piece in pieces for offset in range(piece.start, piece.end)}
        place = end
    assert sum(sizes) == len(read)
    assert read == {(0, offset) for offset in range(50)} | {(1, offset) for offset in range(2, 5)}
    most = min(int(options.get("maxOffsetsPerTrigger", 53)), int(options.get("maxBytesPerTrigger", 5300)) // 100)
    assert max(sizes) <= most + 1


def test_few_messages_wait_for_more() -> None:
    """Until the minimum is reached."""
    brokers = Brokers({queue(0): (0, 9)})
    made = reader(brokers, minOffsetsPerTrigger="10")
    start = at(made, a0=0)
    assert made.latestOffset(start, ReadMinRows(10)) is start
    brokers.bounds[queue(0)] = (0, 10)
    assert planned(made, start, ReadMinRows(10)) == [QueueRange(queue(0), 0, 10)]


def test_progress_is_committed_once() -> None:
    """When a batch is committed, or when the next one is requested after the last."""
    brokers = Brokers({queue(0): (0, 5)})
    made = reader(brokers, consumerGroup="g")
    made.commit(at(made, a0=3))
    made.latestOffset(at(made, a0=3), ALL)
    made.latestOffset(at(made, a0=5), ALL)
    assert brokers.committed == [{queue(0): 3}, {queue(0): 5}]


def test_first_batch_is_replanned_equally() -> None:
    """Messages and options that came meanwhile do not matter."""
    brokers = Brokers({queue(0): (0, 10), queue(1): (2, 5)})
    made = reader(brokers)
    start = made.initialOffset()
    assert made.latestOffset(start, ALL) is start
    brokers.bounds[queue(0)] = (0, 12)
    end = made.latestOffset(start, ALL)
    brokers.bounds = {queue(0): (0, 50), queue(1): (2, 50)}
    for options in ({}, {"startingOffsets": "earliest"}):
        again = reader(brokers, **options)
        pieces = [p.ranges[0] for p in again.partitions(again.initialOffset(), end)]  # type: ignore[attr-defined]
        assert pieces == [QueueRange(queue(0), 10, 12)]


def test_partitions_of_a_replanned_batch_are_the_same() -> None:
    """Whatever options were changed meanwhile."""
    brokers = Brokers({queue(0): (0, 100), queue(1): (0, 100)})
    before, after = reader(brokers), reader(brokers, minPartitions="10")
    start = at(before, a0=0, a1=0)
    end = before.latestOffset(start, ALL)
    assert repr(after.partitions(start, end)) == repr(before.partitions(start, end))
