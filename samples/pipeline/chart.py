"""The chart in the terminal: hours of delay by day, and the part of them that aircraft brought along."""

from collections.abc import Iterable, Mapping
from datetime import date
from statistics import fmean

import plotext
from rich.text import Text

from samples.pipeline.days import Days
from samples.pipeline.sums import sums_by
from samples.pipeline.totals import DayTotals

BLUE, SALMON = 68, 209
"""Colours among the terminal's 256: of all delay, and of what was brought along."""

SHADE = "░"

HEIGHT = 15
MOST_TICKS = 5
WEEK = 7


def draw_chart(totals: Iterable[DayTotals], days: Days, width: int) -> str:
    """Return the chart as text of at most `width` columns; days without totals stay empty."""
    sums = sums_by(lambda each: each.date, totals)
    late = _means({day: each.late / 60 for day, each in sums.items()}, days)
    inherited = _means({day: each.inherited / 60 for day, each in sums.items()}, days)
    figure = plotext.figure
    figure.clear()
    figure.plot_size(width, HEIGHT)
    figure.theme("colorless")
    # The second marker is another character too, because a terminal may have no colours.
    for hours, marker in ((late, plotext.marker("hd", BLUE)), (inherited, plotext.marker(SHADE, SALMON))):
        figure.draw(figure.signal(list(hours), list(hours.values()), marker=marker).lines().fillx())
    named = days.named()
    figure.ruler("x").lim(0, max(days.count - 1, 1))
    figure.ruler("x").ticks(list(named), list(named.values()))
    highest = max(late.values(), default=1.0)
    ticks = _round_ticks(highest)
    figure.ruler("y").lim(0, highest)
    figure.ruler("y").ticks(ticks, [str(tick) for tick in ticks])
    return str(figure.build())


def chart_title(days: Days) -> Text:
    """Return the title of the chart, with the meaning of its areas."""
    return Text.assemble(
        ("Hours of departure delay a day", "bold"),
        ", weekly mean" if days.are_many else "",
        ":  ",
        ("■", f"color({BLUE})"),
        " all  ",
        (SHADE, f"color({SALMON})"),
        " brought along",
    )


def _means(hours: Mapping[date, float], days: Days) -> dict[int, float]:
    """Return the mean hours a day by the number of the day, or of the first day of each week if there are many days."""
    step = WEEK if days.are_many else 1
    weeks: dict[int, list[float]] = {}
    for day in sorted(hours):
        weeks.setdefault(days.number_of(day) // step * step, []).append(hours[day])
    return {first: fmean(values) for first, values in weeks.items()}


def _round_ticks(highest: float) -> list[int]:
    """Return round numbers from 0 to the highest, as ticks of an axis."""
    steps = (factor * 10**power for power in range(6) for factor in (1, 2, 5))
    step = next(step for step in steps if highest / step < MOST_TICKS)
    return list(range(0, int(highest) + 1, step))
