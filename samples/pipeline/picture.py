"""The chart as a picture: by day, by the time zone flown to, and by the weather."""

from collections.abc import Collection
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from samples.pipeline.days import Days
from samples.pipeline.sums import city_of, sum_of, sums_by
from samples.pipeline.totals import DayTotals

BLUE, SALMON = "#4477aa", "#ee6677"


def draw_picture(totals: Collection[DayTotals], path: Path) -> None:
    """Write the picture as a PNG."""
    figure = Figure(figsize=(9, 6), layout="constrained")
    figure.suptitle("Departure delays from New York's airports, 2013", fontweight="bold")
    axes = figure.subplot_mosaic([["days", "days"], ["zones", "weather"]], height_ratios=(3, 2), width_ratios=(5, 3))
    _by_day(axes["days"], totals)
    _by_zone(axes["zones"], totals)
    _by_weather(axes["weather"], totals)
    for each in axes.values():
        each.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=100)


def _by_day(axes: Axes, totals: Collection[DayTotals]) -> None:
    by_day = sums_by(lambda each: each.date, totals)
    days = Days.of(by_day)
    numbers = [days.number_of(day) for day in by_day]
    late = [sums.late / 60 for sums in by_day.values()]
    axes.bar(numbers, late, width=1, color=BLUE, label="all")
    inherited = [sums.inherited / 60 for sums in by_day.values()]
    axes.bar(
        numbers,
        inherited,
        width=1,
        color=SALMON,
        label="brought along by the aircraft from its flight before",
    )
    hours, worst = max(zip(late, by_day, strict=True))
    axes.annotate(
        f"{worst.day} {worst:%B}: {hours:,.0f} hours",
        (days.number_of(worst), hours),
        xytext=(0, 3),
        textcoords="offset points",
        ha="center",
    )
    axes.set_title("Hours of delay, day by day", loc="left", fontsize="medium")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    named = days.named()
    axes.set_xticks(list(named), list(named.values()))
    axes.margins(x=0.01, y=0.25)  # room for the legend
    axes.legend(frameon=False, loc="upper right")


def _by_zone(axes: Axes, totals: Collection[DayTotals]) -> None:
    by_zone = sorted(sums_by(lambda each: each.zone, totals).items(), key=lambda item: item[1].mean_late)
    names = [city_of(zone) for zone, _ in by_zone]
    axes.barh(names, [sums.mean_late for _, sums in by_zone], color=BLUE)
    axes.barh(names, [sums.mean_inherited for _, sums in by_zone], color=SALMON)
    axes.set_title("Minutes a flight, by the time zone it goes to", loc="left", fontsize="medium")


def _by_weather(axes: Axes, totals: Collection[DayTotals]) -> None:
    everything = sum_of(totals)
    minutes = [everything.mean_late_in_the_dry, everything.mean_late_in_rain]
    axes.bar_label(axes.bar(["dry", "rain or snow"], minutes, color=BLUE, width=0.6), fmt="%.1f")
    axes.set_title("Minutes a flight, by the weather", loc="left", fontsize="medium")
    axes.margins(y=0.1)
