"""Pending half messages, compared with a model of plain sets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocket_broker.limits.refusal import Refusal
from rocket_broker.transaction import pending as pending_module
from rocket_broker.transaction.op_messages import ended_offsets, op_body
from rocket_broker.transaction.pending import PendingHalves

COUNT = 60_000
"""More half messages than the bits of one block."""


@given(st.integers(0, 50), st.lists(st.lists(st.integers(0, 120), max_size=4), max_size=60), st.integers(0, 120))
def test_pending_set_agrees_with_plain_sets(first: int, ops: list[list[int]], end: int) -> None:
    """A half message without an op message is pending; both offsets stay before every pending message."""
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
def test_long_runs_of_ended_messages_are_skipped(first: int, gaps: set[int], steps: list[int]) -> None:
    """Whole blocks at a time, up to the next gap or the queue's end."""
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


def test_ended_messages_release_their_memory() -> None:
    """After millions of ends, bits and op offsets below the consumed offsets are freed."""
    halves = PendingHalves(0, 0)
    for offset in range(COUNT):
        halves.end([offset])
        if offset % 100 == 0:
            assert halves.advance(offset + 1) == offset + 1
            assert halves.op_offset == offset + 1
    assert len(halves._ended) < 8192
    assert len(halves._op_highest) < 8192
    assert halves.is_pending(COUNT)


def test_half_message_can_be_ended_by_any_of_its_copies() -> None:
    """After it has ended, by none of them."""
    halves = PendingHalves(0, 0)
    for offset in range(5):
        halves.move(offset, offset + 1)
        halves.end([offset])
    assert [halves.live(offset) for offset in range(6)] == [5] * 6
    halves.end([5])
    assert [halves.live(offset) for offset in range(6)] == [None] * 6
    assert not halves._moved_to
    assert not halves._moved_from


def test_deleted_messages_are_skipped() -> None:
    """The queue now begins at a later offset."""
    halves = PendingHalves(0, 0)
    halves.skip(70_000)
    assert halves.first == 70_000
    assert not halves.is_pending(69_999)
    assert halves.is_pending(70_000)


def test_op_bodies_of_both_versions_are_read() -> None:
    """4.9 writes one offset, 5.x a comma-separated list."""
    assert ended_offsets(op_body(417)) == [417]
    assert ended_offsets(b"1,22,333,") == [1, 22, 333]
    assert ended_offsets(b"") == ended_offsets(b"d,,-1") == []


STEPS = st.lists(
    st.tuples(st.sampled_from(["begin", "resume", "end", "move", "skip"]), st.integers(0, 40)), max_size=40
)


@given(st.integers(0, 5), st.sets(st.integers(0, 9)), STEPS)
def test_half_message_counts_for_its_producer_until_it_ends(
    first: int, ended: set[int], steps: list[tuple[str, int]]
) -> None:
    """Also when it is stored anew or deleted with its file; those from before the start have no owner."""
    halves = PendingHalves(first, 0)
    halves.end(ended)
    halves.count_loaded(10)
    model: dict[int, str] = dict.fromkeys(set(range(first, 10)) - ended, "")
    end = 10
    for what, number in steps:
        chosen = sorted(model)[number % len(model)] if model else None
        if what == "begin":
            halves.begin(end, f"group {number % 3}")
            model[end] = f"group {number % 3}"
            end += 1
        elif what == "resume":
            halves.begin(end)
            model[end] = ""
            end += 1
        elif what == "end" and chosen is not None:
            halves.end([chosen])
            del model[chosen]
        elif what == "move" and chosen is not None:
            halves.move(chosen, end)
            halves.end([chosen])
            model[end] = model.pop(chosen)
            end += 1
        elif what == "skip" and chosen is not None:
            halves.skip(chosen)
            model = {offset: owner for offset, owner in model.items() if offset >= chosen}
        assert halves.count == len(model)
        of_owner = {f"group {k}": list(model.values()).count(f"group {k}") for k in range(3)}
        assert halves._quota._counts == {owner: count for owner, count in of_owner.items() if count}


def test_producer_group_may_hold_a_quarter_of_the_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other groups can still begin theirs, and each end frees a place."""
    monkeypatch.setattr(pending_module, "MAX_PENDING", 8)
    halves = PendingHalves(0, 0)
    for offset in range(2):
        halves.begin(offset, "group p", "10.0.0.2")
    assert halves.full_owners == []
    with pytest.raises(
        Refusal, match=r"group p has 2 open transactions .*: commit them or roll them back, or start a pr"
    ):
        halves.check_capacity("group p", "10.0.0.3")
    with pytest.raises(Refusal, match=r"address 10.0.0.2 has 2 open transactions"):
        halves.check_capacity("group q", "10.0.0.2")
    assert halves.full_owners == ["10.0.0.2", "group p"]
    halves.check_capacity("group q", "10.0.0.3")
    halves.end([0])
    assert halves.full_owners == []
    halves.check_capacity("group p", "10.0.0.2")
    for offset in range(2, 9):
        halves.begin(offset)
    with pytest.raises(Refusal, match="8 transactions are open"):
        halves.check_capacity("group q", "")
