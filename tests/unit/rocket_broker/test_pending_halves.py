"""Which half messages are pending, against the plain sets it stands for."""

from hypothesis import given
from hypothesis import strategies as st

from rocket_broker.transaction.op_messages import ended_offsets, op_body
from rocket_broker.transaction.pending import PendingHalves

COUNT = 60_000
"""More half messages than the bits of one block."""


@given(
    st.integers(0, 50), st.lists(st.lists(st.integers(0, 120), max_size=4), max_size=60), st.integers(0, 120)
)
def test_it_agrees_with_plain_sets(first: int, ops: list[list[int]], end: int) -> None:
    """Pending is what no op message names; both offsets stand before all that still matters."""
    halves = PendingHalves(first, 7)
    named: set[int] = set()
    for op in ops:
        halves.end(op)
        named |= set(op)
    pending = [offset for offset in range(first, 130) if offset not in named]
    assert [offset for offset in range(130) if halves.is_pending(offset)] == pending
    reached = halves.advance(max(first, end))
    assert reached == min([*pending, max(first, end)])
    done = 0
    while done < len(ops) and all(offset < reached for offset in ops[done]):
        done += 1
    assert halves.op_offset == 7 + done


@given(
    st.integers(0, 9),
    st.sets(st.integers(0, 80_000), max_size=40),
    st.lists(st.integers(1, 30_000), max_size=12),
)
def test_long_runs_of_ended_ones_are_passed_over(first: int, gaps: set[int], steps: list[int]) -> None:
    """Whole blocks of them; advancing stops at each gap, and at the queue's end."""
    halves = PendingHalves(first, 0)
    halves._ended = bytearray(b"\xff" * 10_001)
    for gap in gaps:
        index = gap - first
        if index >= 0:
            halves._ended[index >> 3] &= ~(1 << (index & 7))
    end = reached = first
    for step in steps:
        end += step
        pending = [gap for gap in gaps if gap >= reached]
        reached = min([*pending, end, first + 80_008])
        assert halves.advance(end) == reached


def test_millions_of_ends_leave_little_behind() -> None:
    """Bits and op offsets of what is done with are given up."""
    halves = PendingHalves(0, 0)
    for offset in range(COUNT):
        halves.end([offset])
        if offset % 100 == 0:
            assert halves.advance(offset + 1) == offset + 1
            assert halves.op_offset == offset + 1
    assert len(halves._ended) < 8192
    assert len(halves._op_highest) < 8192
    assert halves.is_pending(COUNT)


def test_a_message_is_ended_by_every_place_it_was_stored_at() -> None:
    """Until it ends; then by none of them."""
    halves = PendingHalves(0, 0)
    for offset in range(5):
        halves.move(offset, offset + 1)
        halves.end([offset])
    assert [halves.live(offset) for offset in range(6)] == [5] * 6
    halves.end([5])
    assert [halves.live(offset) for offset in range(6)] == [None] * 6
    assert not halves._moved_to
    assert not halves._moved_from


def test_what_was_deleted_is_skipped() -> None:
    """The queue begins later than it did."""
    halves = PendingHalves(0, 0)
    halves.skip(70_000)
    assert halves.first == 70_000
    assert not halves.is_pending(69_999)
    assert halves.is_pending(70_000)


def test_op_bodies_of_both_versions_are_read() -> None:
    """4.9 names one offset, 5.x many with commas behind them."""
    assert ended_offsets(op_body(417)) == [417]
    assert ended_offsets(b"1,22,333,") == [1, 22, 333]
    assert ended_offsets(b"") == ended_offsets(b"d,,-1") == []
