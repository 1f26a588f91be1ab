"""The chart of `make demo`, as text."""

import re
from datetime import date

from samples.pipeline.board import describe
from samples.pipeline.chart import chart_title, draw_chart
from samples.pipeline.days import Days
from samples.pipeline.progress import BatchProgress
from samples.pipeline.totals import DayTotals

DAYS = Days(date(2013, 1, 1), date(2013, 1, 30))
FIRST = (DAYS.first - date(1970, 1, 1)).days


def test_areas_differ_without_colours() -> None:
    """The title shows the character of each area, and the chart is drawn of both."""
    totals = [
        DayTotals(
            FIRST + day, "JFK", "America/Chicago", 100, 0, 0, late=6000, late_in_rain=0, inherited=3000, longest_chain=2
        )
        for day in range(DAYS.count)
    ]
    chart = re.sub(r"\x1b\[[0-9;]*m", "", draw_chart(totals, DAYS, 60))
    all_delay, inherited = re.findall(r"(\S) (?:all|brought along)", chart_title(DAYS).plain)
    assert all_delay == "■"
    assert "█" in chart
    assert inherited in chart


def test_batch_says_which_days_are_complete() -> None:
    """By the watermark."""
    batch = BatchProgress(28, 2000, 1.5, 300, "2013-12-22T00:00:00")
    assert describe(batch) == "batch 28: 300 flights in 1.5 s; all days before 22 December are complete"
