"""The board: the events of the sink so far, by carrier, and whether they arrived once and in order."""

from dataclasses import dataclass, field

from rich.console import Group
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from samples.flights.table import Totals


@dataclass(frozen=True, slots=True)
class DelayEvent:
    """The processor's event for one flight. `delay` is in minutes, None for a cancelled flight."""

    row: int
    aircraft: str
    carrier: str
    delay: int | None


@dataclass(slots=True)
class Board:
    """Counts each row of the table once, however often it arrives.

    Attributes:
        expected: How many rows there are.
        totals: The totals of the rows so far.
        duplicates: Repeated deliveries of a row.
        out_of_order: Rows that arrived after a later row of the same aircraft.
    """

    expected: int
    totals: Totals = field(default_factory=Totals)
    duplicates: int = 0
    out_of_order: int = 0
    seen: int = 0
    _rows: bytearray = field(init=False, repr=False)
    _last_row: dict[str, int] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._rows = bytearray(self.expected)

    def add(self, event: DelayEvent) -> None:
        """Count the event, unless its row was counted before."""
        if self._rows[event.row]:
            self.duplicates += 1
            return
        self._rows[event.row] = 1
        self.seen += 1
        if event.row < self._last_row.get(event.aircraft, -1):
            self.out_of_order += 1
        else:
            self._last_row[event.aircraft] = event.row
        self.totals.add(event.carrier, event.delay)

    @property
    def is_complete(self) -> bool:
        """Whether every row of the table has arrived."""
        return self.seen == self.expected


class BoardView:
    """The display of the board: progress bars above a table of carriers."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._progress = Progress(
            TextColumn("{task.description:<9}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]:>9,.0f} msg/s"),
            TimeElapsedColumn(),
        )
        self._sent = self._progress.add_task("sent", total=board.expected, rate=0.0)
        self._received = self._progress.add_task("received", total=board.expected, rate=0.0)
        self._notice = ""

    def update(self, sent: int, seconds: float) -> None:
        """Show the state after `seconds`."""
        rates = (sent / seconds, self._board.seen / seconds) if seconds > 0 else (0.0, 0.0)
        self._progress.update(self._sent, completed=sent, rate=rates[0])
        self._progress.update(self._received, completed=self._board.seen, rate=rates[1])

    def notice(self, text: str) -> None:
        """Show a line below the table."""
        self._notice = text

    def __rich__(self) -> Group:
        return Group(self._progress, carriers_table(self._board.totals), self._notice)


def carriers_table(totals: Totals) -> Table:
    """Return a table with a line for each carrier, the largest first."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("carrier")
    for heading in ("flights", "cancelled", "mean delay"):
        table.add_column(heading, justify="right")
    for carrier, figures in sorted(totals.carriers.items(), key=lambda item: -item[1].flights):
        mean = figures.mean_delay
        table.add_row(
            carrier,
            f"{figures.flights:,}",
            f"{figures.cancelled:,}",
            "-" if mean is None else f"{mean:.1f} min",
        )
    return table
