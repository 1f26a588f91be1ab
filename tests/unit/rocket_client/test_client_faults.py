"""Latency fault tolerance: Apache's numbers, and the choice when all brokers are avoided."""

import pytest

from rocket_client.core.faults import FaultTable, not_available_ms


class Ticker:
    """A clock set by hand."""

    def __init__(self) -> None:
        self.ms = 0.0

    def __call__(self) -> float:
        return self.ms


@pytest.mark.parametrize(
    ("latency", "avoided"),
    [
        (0, 0),
        (49, 0),
        (50, 0),
        (100, 0),
        (549, 0),
        (550, 30_000),
        (999, 30_000),
        (1000, 60_000),
        (2000, 120_000),
        (3000, 180_000),
        (14_999, 180_000),
        (15_000, 600_000),
        (10**9, 600_000),
    ],
)
def test_latency_determines_how_long_a_broker_is_avoided(latency: int, avoided: int) -> None:
    """The highest bound not above the latency gives the duration."""
    assert not_available_ms(latency) == avoided


def test_unknown_broker_is_available() -> None:
    """A broker without an entry is not avoided."""
    assert FaultTable(Ticker()).is_available("broker-a")


def test_failed_send_isolates_the_broker_for_ten_minutes() -> None:
    """Isolation counts as 30 s of latency."""
    now = Ticker()
    table = FaultTable(now)
    table.update("broker-a", 3, isolation=True)
    now.ms = 599_999
    assert not table.is_available("broker-a")
    now.ms = 600_000
    assert table.is_available("broker-a")


def test_fast_send_makes_the_broker_available_again() -> None:
    """Only the latest send counts."""
    table = FaultTable(Ticker())
    table.update("broker-a", 5000, isolation=False)
    table.update("broker-a", 5, isolation=False)
    assert table.is_available("broker-a")


def test_with_all_avoided_the_better_half_is_used_in_turn() -> None:
    """Ranked by availability, latency and end of the isolation."""
    table = FaultTable(Ticker())
    for name, latency in (("a", 4000), ("b", 600), ("c", 2000), ("d", 1000)):
        table.update(name, latency, isolation=False)
    assert {table.pick_one_at_least() for _ in range(4)} == {"b", "d"}


def test_single_avoided_broker_is_still_chosen() -> None:
    """Half of one is one; without any broker there is no choice."""
    table = FaultTable(Ticker())
    assert table.pick_one_at_least() is None
    table.update("a", 4000, isolation=False)
    assert table.pick_one_at_least() == "a"


def test_removed_broker_is_available() -> None:
    """Removal deletes its isolation."""
    table = FaultTable(Ticker())
    table.update("a", 4000, isolation=True)
    table.remove("a")
    assert table.is_available("a")
    assert "avoided=[]" in repr(table)
