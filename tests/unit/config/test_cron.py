"""Cron expressions with Spring's six fields."""

from datetime import UTC, datetime

import pytest

from streamkit.config.cron import CronExpression

START = datetime(2026, 11, 21, 11, 30, 5, tzinfo=UTC)  # a Saturday


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        ("*/10 * * * * *", "2026-11-21 11:30:10", "2026-11-21 11:30:20"),
        ("0 0/15 9-17 * * MON-FRI", "2026-11-23 09:00:00", "2026-11-23 09:15:00"),
        ("@hourly", "2026-11-21 12:00:00", "2026-11-21 13:00:00"),
        ("@daily", "2026-11-22 00:00:00", "2026-11-23 00:00:00"),
        ("0 0 0 L * ?", "2026-11-30 00:00:00", "2026-12-31 00:00:00"),
        ("0 0 0 ? * 5L", "2026-11-27 00:00:00", "2026-12-25 00:00:00"),
        ("0 0 0 ? * friL", "2026-11-27 00:00:00", "2026-12-25 00:00:00"),
        ("0 0 0 ? * MON#1", "2026-12-07 00:00:00", "2027-01-04 00:00:00"),
        ("0 0 0 ? * 7", "2026-11-22 00:00:00", "2026-11-29 00:00:00"),
    ],
)
def test_next_times(text: str, first: str, second: str) -> None:
    """The first match after a moment, and the one after that."""
    cron = CronExpression(text)
    one = cron.next(START)
    assert [f"{each:%Y-%m-%d %H:%M:%S}" for each in (one, cron.next(one))] == [first, second]


def test_day_of_month_and_day_of_week_must_both_match() -> None:
    """As in Spring; Unix would match every 13th and every Friday."""
    assert CronExpression("0 0 0 13 * FRI").next(START) == datetime(2027, 8, 13, tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "* * * * *", "0 0 0 30 2 *", "60 * * * * *", "a b c d e f", "@never"])
def test_invalid_cron_expression_is_refused(text: str) -> None:
    """With what is expected or what is wrong."""
    with pytest.raises(ValueError, match=r"expected six|is not a cron expression"):
        CronExpression(text)
