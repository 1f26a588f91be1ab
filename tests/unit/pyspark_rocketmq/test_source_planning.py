"""Planning a batch: its messages, partitions and the text of its offsets."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from pyspark_rocketmq.admission import TriggerDelay, admitted, admitted_bytes
from pyspark_rocketmq.errors import OffsetError
from pyspark_rocketmq.offsets import StreamOffset
from pyspark_rocketmq.partitions import Plan, partitions
from rocket_client.blocking import MessageQueue, QueueRange

PLAN = Plan(0, 0, 20_000)


def queue(number: int, broker: str = "broker-a") -> MessageQueue:
    """Return a queue of topic t."""
    return MessageQueue("t", broker, number)


@settings(deadline=None)
@given(st.dictionaries(st.integers(0, 20), st.integers(0, 10**6)), st.integers(1, 10**5))
def test_limit_is_shared_by_backlog(backlog: dict[int, int], limit: int) -> None:
    """No queue gets more than its backlog, each with a backlog gets some, and the sum is near the limit."""
    taken = admitted(backlog, limit)
    assert taken.keys() == backlog.keys()
    assert all(min(1, count) <= taken[number] <= count for number, count in backlog.items())
    assert sum(taken.values()) <= max(limit, 0) + len(backlog)
    if sum(backlog.values()) <= limit:
        assert taken == backlog


def test_skewed_backlog_starves_no_queue() -> None:
    """With a thousand to one the large queue gets nearly all."""
    assert admitted({"large": 100_000, "small": 100}, 1000) == {"large": 999, "small": 1}


def test_limit_in_bytes() -> None:
    """Converted to messages by average sizes."""
    assert admitted_bytes({"a": 100, "b": 100}, {"a": 10.0, "b": 30.0}, 1000) == {"a": 25, "b": 25}


def test_small_backlog_waits() -> None:
    """For enough messages or enough time since the last batch."""
    delay = TriggerDelay(10, 60.0, now=0.0)
    assert [delay.is_due(waiting, now) for waiting, now in ((3, 1.0), (10, 2.0), (9, 61.0), (9, 62.0), (1, 63.0))] == [
        False, True, False, True, False,
    ]  # fmt: skip


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 500)), max_size=6),
    st.builds(Plan, st.integers(0, 12), st.integers(0, 3000), st.sampled_from([0, 100, 20_000])),
)
def test_partitions_cover_the_ranges(bounds: list[tuple[int, int]], plan: Plan) -> None:
    """Each message is in exactly one partition; the order of ranges does not matter."""
    ranges = [QueueRange(queue(n), start, start + size) for n, (start, size) in enumerate(bounds)]
    made = partitions(ranges, plan)
    pieces = [piece for partition in made for piece in partition.ranges]
    covered = {(piece.queue, offset) for piece in pieces for offset in range(piece.start, piece.end)}
    assert len(covered) == sum(piece.end - piece.start for piece in pieces)
    assert len(covered) == sum(each.end - each.start for each in ranges)
    assert repr(partitions(ranges[::-1], plan)) == repr(made)
    if plan.max_records:
        assert all(sum(p.end - p.start for p in partition.ranges) <= plan.max_records for partition in made)


@pytest.mark.parametrize(
    ("plan", "count"),
    [
        (Plan(0, 0, 41), 1),
        (Plan(0, 0, 40), 4),
        (Plan(0, 0, 0), 4),
        (Plan(1, 0, 41), 1),
        (Plan(2, 0, 41), 4),
        (Plan(8, 0, 41), 8),
        (Plan(0, 40, 41), 1),
        (Plan(0, 39, 41), 4),
        (Plan(0, 5, 41), 8),
    ],
)
def test_small_batch_is_one_task(plan: Plan, count: int) -> None:
    """Four queues of ten messages, unless more or smaller tasks are configured; otherwise one per queue."""
    ranges = [QueueRange(queue(number), 0, 10) for number in range(4)]
    assert len(partitions(ranges, plan)) == count


def test_offsets_have_one_text_form() -> None:
    """Spark compares texts, so the order of queues must not matter."""
    offsets = {queue(11): 1, queue(2): 2, queue(0, "a"): 3}
    one = StreamOffset(offsets, PLAN).to_json()
    other = StreamOffset(dict(reversed(offsets.items())), PLAN).to_json()
    assert json.dumps(one) == json.dumps(other)
    assert StreamOffset.from_json(json.loads(json.dumps(one))) == StreamOffset(offsets, PLAN)


def test_offsets_of_the_first_release_are_read() -> None:
    """They are in checkpoints."""
    text = (
        '{"v": 1, "offsets": {"t": {"a": {"0": 3}, "b": {"2": 2, "11": 1}}}, "from": {"t": {"b": {"11": 0}}},'
        ' "plan": {"minPartitions": 6, "maxRecordsPerPartition": 100, "packBelow": 10}}'
    )
    offsets = {queue(0, "a"): 3, queue(2, "b"): 2, queue(11, "b"): 1}
    place = StreamOffset(offsets, Plan(6, 100, 10), {queue(11, "b"): 0})
    assert StreamOffset.from_json(json.loads(text)) == place
    assert json.dumps(place.to_json()) == text


def test_batch_reads_between_two_offsets() -> None:
    """New queues from their start offsets; unchanged queues are not read."""
    start = StreamOffset({queue(0): 5, queue(1): 7, queue(3): 9}, PLAN)
    end = StreamOffset({queue(0): 8, queue(1): 7, queue(2): 4, queue(3): 2}, PLAN, {queue(2): 1, queue(3): 0})
    assert end.ranges_from(start) == [
        QueueRange(queue(0), 5, 8),
        QueueRange(queue(2), 1, 4),
        QueueRange(queue(3), 0, 2),
    ]


@pytest.mark.parametrize("place", [{}, {"v": 2}, {"v": 1, "offsets": []}, {"v": 1, "offsets": {"t": 1}}])
def test_unknown_offsets_are_refused(place: dict[str, object]) -> None:
    """Of another version or another source."""
    with pytest.raises(OffsetError, match="checkpoint"):
        StreamOffset.from_json(place)
