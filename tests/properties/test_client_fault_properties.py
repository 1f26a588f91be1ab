"""The fault table for arbitrary latencies: avoidance grows with latency and ends."""

from hypothesis import given
from hypothesis import strategies as st

from rocket_client.core.faults import LATENCY_MAX_MS, NOT_AVAILABLE_MS, FaultTable, not_available_ms

latencies = st.floats(0, 1e6, allow_nan=False)


@given(one=latencies, other=latencies)
def test_longer_latency_is_avoided_at_least_as_long(one: float, other: float) -> None:
    """Only the documented durations occur."""
    low, high = sorted((one, other))
    assert not_available_ms(low) <= not_available_ms(high)
    assert not_available_ms(low) in {0, *NOT_AVAILABLE_MS}


@given(sends=st.lists(st.tuples(st.sampled_from("abcd"), latencies, st.booleans()), min_size=1))
def test_a_broker_is_always_chosen_and_all_become_available(sends: list[tuple[str, float, bool]]) -> None:
    """After the longest duration none is avoided."""
    now = [0.0]
    table = FaultTable(lambda: now[0])
    for broker, latency, isolation in sends:
        table.update(broker, latency, isolation=isolation)
        now[0] += 1
    brokers = {broker for broker, _, _ in sends}
    assert table.pick_one_at_least() in brokers
    now[0] += max(NOT_AVAILABLE_MS)
    assert all(table.is_available(broker) for broker in brokers)


def test_latency_bounds_and_durations_correspond() -> None:
    """Each bound has its duration, and both increase."""
    assert list(LATENCY_MAX_MS) == sorted(LATENCY_MAX_MS)
    assert list(NOT_AVAILABLE_MS) == sorted(NOT_AVAILABLE_MS)
    assert len(LATENCY_MAX_MS) == len(NOT_AVAILABLE_MS)
