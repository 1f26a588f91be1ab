"""The board: the totals that have arrived, and their display."""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime

from rich.console import Console, ConsoleOptions, RenderResult
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from samples.pipeline.chart import chart_title, draw_chart
from samples.pipeline.days import Days
from samples.pipeline.progress import BatchProgress
from samples.pipeline.sums import city_of, sums_by
from samples.pipeline.totals import DayTotals, Place

WIDEST = 110


@dataclass(slots=True)
class Board:
    """Keeps the totals of each day, airport and time zone once.

    Attributes:
        expected: The number of totals in the end.
        totals: The totals that have arrived.
        different: Totals that arrived again with other values.
    """

    expected: int
    totals: dict[Place, DayTotals] = field(default_factory=dict)
    different: list[DayTotals] = field(default_factory=list)

    def add(self, totals: DayTotals) -> None:
        """Keep the totals, unless they have arrived before."""
        if self.totals.setdefault(totals.place, totals) != totals:
            self.different.append(totals)

    @property
    def is_complete(self) -> bool:
        """Whether all totals have arrived."""
        return len(self.totals) >= self.expected

    def describe(self) -> str:
        """Return in words how many totals have arrived."""
        if not self.expected:
            return "no total was awaited yet"
        return f"{len(self.totals):,} of {self.expected:,} totals came"


class BoardView:
    """Three progress bars, the last batch of Spark, and the growing chart."""

    def __init__(self, board: Board, flights: int, days: Days) -> None:
        self._board = board
        self._days = days
        self._drawn: tuple[int, int, Text] | None = None
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._sent = self._progress.add_task("flights sent", total=flights)
        self._read = self._progress.add_task("flights read by Spark", total=flights)
        self._arrived = self._progress.add_task("totals on the chart", total=board.expected)
        self._doing = ""
        self._notices: list[str] = []

    def update(self, sent: int, read: int) -> None:
        """Show the current state."""
        self._progress.update(self._sent, completed=sent)
        self._progress.update(self._read, completed=read)
        self._progress.update(self._arrived, completed=len(self._board.totals))

    def show_progress(self, text: str) -> None:
        """Show Spark's progress."""
        self._doing = text

    def notice(self, text: str) -> None:
        """Show a line that stays."""
        self._notices.append(text)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._progress
        yield Text(self._doing, style="dim")
        yield from (Text(notice, style="yellow") for notice in self._notices)
        if self._board.totals:
            yield Text.assemble("\n", chart_title(self._days))
            yield self._drawn_chart(min(options.max_width, WIDEST))

    def _drawn_chart(self, width: int) -> Text:
        """The chart, drawn again when there is more to see."""
        totals = self._board.totals
        if self._drawn is None or self._drawn[:2] != (len(totals), width):
            drawn = Text.from_ansi(draw_chart(totals.values(), self._days, width))
            self._drawn = len(totals), width, drawn
        return self._drawn[2]


def describe(batch: BatchProgress) -> str:
    """Return the description of a batch."""
    said = f"batch {batch.batch}: {batch.flights:,} flights in {batch.seconds:.1f} s"
    passed = datetime.fromisoformat(batch.watermark)
    return f"{said}; all days before {passed.day} {passed:%B} are complete" if passed.year > 1970 else said


def zones_table(totals: Collection[DayTotals]) -> Table:
    """Return a table with a line for each time zone of destinations, the one with the most flights first."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("time zone flown to")
    for heading in ("flights", "cancelled", "late", "brought along", "late in rain", "longest chain"):
        table.add_column(heading, justify="right")
    by_zone = sums_by(lambda each: each.zone, totals)
    for zone, sums in sorted(by_zone.items(), key=lambda item: -item[1].flights):
        table.add_row(
            city_of(zone),
            f"{sums.flights:,}",
            f"{sums.cancelled:,}",
            f"{sums.mean_late:.1f} min",
            f"{sums.mean_inherited:.1f} min",
            f"{sums.mean_late_in_rain:.1f} min" if sums.in_rain else "-",
            f"{sums.longest_chain}",
        )
    return table
