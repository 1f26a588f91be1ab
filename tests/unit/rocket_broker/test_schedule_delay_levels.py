"""The table of delay levels."""

import pytest

from rocket_broker.settings.delay_levels import DelayLevels

APACHE = DelayLevels("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")


@pytest.mark.parametrize(
    ("level", "seconds"), [(1, 1), (3, 10), (5, 60), (14, 600), (16, 1800), (17, 3600), (18, 7200)]
)
def test_apaches_delay_levels_are_the_default(level: int, seconds: int) -> None:
    """Level 1 is the first."""
    assert APACHE.delay_ms(level) == seconds * 1000
    assert APACHE.deliver_at(level, 5) == seconds * 1000 + 5


def test_level_above_the_highest_is_the_highest() -> None:
    """Zero and negative levels mean no delay."""
    assert [APACHE.bounded(level) for level in (-1, 0, 1, 18, 19, 2**31)] == [0, 0, 1, 18, 18, 18]


def test_every_time_unit_is_understood() -> None:
    """Seconds, minutes, hours and days."""
    levels = DelayLevels("2s 3m 4h 5d")
    assert [levels.delay_ms(level) for level in levels] == [2_000, 180_000, 14_400_000, 432_000_000]


def test_removed_delay_level_waits_one_second() -> None:
    """As in Apache's broker: messages with that level may still be stored."""
    assert DelayLevels("1m").delay_ms(2) == 1_000


@pytest.mark.parametrize("text", ["1", "s", "1w", "-1s", "1 s", "1.5s"])
def test_invalid_delay_is_refused(text: str) -> None:
    """The error names it."""
    with pytest.raises(ValueError, match="is not a delay"):
        DelayLevels(text)
