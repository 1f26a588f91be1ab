"""Reading ranges: the pulls that are sent, and the order in which answers are returned."""

import itertools
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocket_client.blocking.pulls import PullRequest, PullResult
from rocket_client.blocking.ranges import BYTES_UNDER_WAY, QueueRange, RangePart, RangePulls
from rocket_client.core.pull_answer import PullStatus
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.message import MessageQueue

QUEUE = MessageQueue("t", "broker-a", 0)


def found(asked: PullRequest, given: int, end: int = 1 << 30, size: int = 10) -> PullResult:
    """Return an answer with at most so many messages."""
    next_offset = min(asked.offset + min(given, asked.max_messages), end)
    return PullResult(asked, PullStatus.FOUND, next_offset, 0, end, b"x" * size)


def serve(
    pulls: RangePulls, answer: Callable[[PullRequest], PullResult], random: Random
) -> tuple[list[RangePart], list[PullRequest]]:
    """Answer all pulls, in any order; return the parts and the pulls."""
    parts: list[RangePart] = []
    asked: list[PullRequest] = []
    open_: dict[int, PullRequest] = {}
    while True:
        for pull in pulls:
            open_[len(asked)] = pull
            asked.append(pull)
        if not open_:
            return parts, asked
        number = random.choice(list(open_))
        parts += pulls.answered(number, answer(open_.pop(number)))


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), max_size=4),
    st.integers(1, 100),
    st.integers(1, 100),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_ranges_are_read_once_and_in_order(
    bounds: list[tuple[int, int]], asked: int, given_: int, is_filtered: bool, random: Random
) -> None:
    """Whatever a broker returns per pull, and in whatever order its answers arrive."""
    ranges = [
        QueueRange(MessageQueue("t", "broker-a", n), start, start + size) for n, (start, size) in enumerate(bounds)
    ]
    pulls = RangePulls(ranges, max_messages=asked, depth=8, is_filtered=is_filtered)
    parts, _ = serve(pulls, lambda pull: found(pull, random.randint(1, given_)), random)
    expected = [asked_ for asked_ in ranges if asked_.start < asked_.end]
    joined: list[QueueRange] = []
    for part in parts:
        if joined and joined[-1].queue == part.queue and joined[-1].end == part.start:
            joined[-1] = joined[-1]._replace(end=part.end)
        else:
            joined.append(QueueRange(part.queue, part.start, part.end))
    assert joined == expected
    assert pulls.unread() == []


def test_first_answer_determines_the_size_of_pulls() -> None:
    """Later pulls match it: a broker that returns 32 messages gets many pulls of 32 at once."""
    pulls = RangePulls([QueueRange(QUEUE, 0, 320)], max_messages=4096, depth=64, is_filtered=False)
    assert [next(pulls)] == [PullRequest(QUEUE, 0, 320)]
    assert list(pulls) == []
    list(pulls.answered(0, found(PullRequest(QUEUE, 0, 320), 32)))
    assert list(pulls) == [PullRequest(QUEUE, offset, 32) for offset in range(32, 320, 32)]


def test_few_large_answers_are_requested_at_once() -> None:
    """Memory is bounded, however many concurrent pulls are allowed."""
    pulls = RangePulls([QueueRange(QUEUE, 0, 100)], max_messages=1, depth=64, is_filtered=False)
    first = next(pulls)
    list(pulls.answered(0, found(first, 1, size=BYTES_UNDER_WAY // 3)))
    assert len(list(pulls)) == 3


def test_returned_parts_are_not_read_again() -> None:
    """After a failure the remaining ranges begin where the returned parts ended."""
    pulls = RangePulls([QueueRange(QUEUE, 0, 100)], max_messages=10, depth=4, is_filtered=False)
    first = next(pulls)
    parts = list(pulls.answered(0, found(first, 10)))
    _, third, *_ = list(pulls)
    parts += pulls.answered(2, found(third, 10))
    assert [(part.start, part.end) for part in parts] == [(0, 10)]
    left = pulls.unread()
    assert (left[0].start, left[-1].end) == (10, 100)
    assert all(one.end == other.start for one, other in itertools.pairwise(left))


@pytest.mark.parametrize("status", [PullStatus.OFFSET_ILLEGAL, PullStatus.NO_NEW_MSG])
def test_queue_that_ends_before_the_range(status: PullStatus) -> None:
    """The rest of the range is reported as lost."""
    pulls = RangePulls([QueueRange(QUEUE, 50, 60)], max_messages=10, depth=4, is_filtered=False)
    asked = next(pulls)
    (part,) = pulls.answered(0, PullResult(asked, status, 7, 0, 7, b""))
    assert (part.start, part.end, part.is_lost, part.max_offset) == (50, 60, True, 7)


def test_queue_that_begins_after_the_start_of_the_range() -> None:
    """Deleted messages are reported as lost; reading continues at the oldest message."""
    pulls = RangePulls([QueueRange(QUEUE, 0, 60)], max_messages=100, depth=4, is_filtered=False)
    asked = next(pulls)
    (lost,) = pulls.answered(0, PullResult(asked, PullStatus.OFFSET_ILLEGAL, 40, 40, 90, b""))
    assert (lost.start, lost.end, lost.is_lost) == (0, 40, True)
    (again,) = list(pulls)
    (part,) = pulls.answered(1, found(again, 100))
    assert (part.start, part.end, part.is_lost) == (40, 60, False)


@pytest.mark.parametrize("is_filtered", [True, False])
def test_no_matching_message_means_lost_messages(is_filtered: bool) -> None:
    """Without a filter, only deletion explains that no message matched."""
    pulls = RangePulls([QueueRange(QUEUE, 0, 60)], max_messages=60, depth=4, is_filtered=is_filtered)
    asked = next(pulls)
    (part,) = pulls.answered(0, PullResult(asked, PullStatus.NO_MATCHED_MSG, 60, 0, 60, b""))
    assert part.is_lost is not is_filtered


def test_answer_without_progress_is_an_error() -> None:
    """A broker whose next offset is the requested one would be asked for ever."""
    pulls = RangePulls([QueueRange(QUEUE, 5, 60)], max_messages=60, depth=4, is_filtered=False)
    asked = next(pulls)
    with pytest.raises(RemoteProtocolError, match="queue 0 of t at broker-a: a pull at offset 5"):
        list(pulls.answered(0, PullResult(asked, PullStatus.NO_MATCHED_MSG, 5, 0, 60, b"")))
