"""How the commands print: tables for people, or lines of JSON for programs.

::

    streamkit topic list             a table, as wide as the terminal, or as its texts if there is none
    streamkit topic list --json      one object a line; fields that are not known are left out
    streamkit topic list --watch 2   again every 2 seconds

Tables and JSON go to standard output, warnings to standard error.
"""

import functools
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import click

from streamkit.printable_text import printable
from streamkit.terminal_tables import ColumnLayout, fitted_widths, natural_widths, table_lines, terminal_width

if TYPE_CHECKING:
    from rocket_admin.broker_answers import BrokerFailure

__all__ = ["UNKNOWN", "Column", "Output", "json_option", "output_options", "plain", "time_text"]

T = TypeVar("T")
R = TypeVar("R")

UNKNOWN: Final = "-"
"""What a table shows for a value that is not known."""

ROWS_AT_ONCE: Final = 100
"""Rows of a stream that are printed together; the first ones set the widths of the columns."""
SECONDS_AT_MOST: Final = 0.25
"""Seconds after which fewer rows of a stream are printed, too."""

_C1_CONTROLS: Final = {number: f"\\u{number:04x}" for number in range(127, 160)}
"""Control characters that JSON leaves as they are, and that would reach the terminal."""


@dataclass(frozen=True, kw_only=True)
class Column(ColumnLayout, Generic[T]):
    """One column of a table.

    Attributes:
        text: Returns the cell of an item; None if the value is not known.
    """

    text: Callable[[T], object]

    def cell(self, item: T) -> str:
        """Return the text of the item's cell; numbers have separators of thousands."""
        value = self.text(item)
        if value is None:
            return UNKNOWN
        # Names and remarks come from other programs.
        return f"{value:,}" if type(value) is int else printable(str(value))


class Output:
    """What a command prints with.

    Attributes:
        as_json: Whether to print JSON.
        watch: Seconds between two rounds; None to print once.
        rounds: How many rounds there are; None for no end.
        has_failures: Whether a broker did not answer, so that the command ends with status 1.
    """

    def __init__(self, *, as_json: bool, watch: float | None = None, rounds: int | None = None) -> None:
        self.as_json = as_json
        self.watch = watch
        self.rounds = rounds
        self.has_failures = False
        self._is_new_round = False

    async def repeat(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work, with `--watch` until Ctrl-C; on a terminal each round takes the place of the one before."""
        if self.watch is None:
            await work()
            return
        import asyncio

        from rocket_remoting import RemotingError

        for number in count(1):
            self._is_new_round = not self.as_json and sys.stdout.isatty()
            try:
                await work()
            except RemotingError as error:  # the server may be back in the next round
                self.warn(str(error))
            if number == self.rounds:
                return
            await asyncio.sleep(self.watch)

    def _begin(self) -> None:
        """Clear the terminal if this is the first output of a round: not before, or it would be blank meanwhile."""
        if self._is_new_round:
            self._is_new_round = False
            click.clear()
            now = datetime.now(UTC).astimezone()
            click.secho(f"Every {self.watch:g} s, now {now:%H:%M:%S}; Ctrl-C ends.\n", dim=True)

    def table(self, items: Sequence[T], columns: Sequence[Column[T]], *, title: str | None = None) -> None:
        """Print items as the rows of a table, or as lines of JSON.

        Args:
            items: Dataclasses.
            columns: The columns of the table.
            title: A line above the table; JSON has none.
        """
        if self.as_json:
            for start in range(0, len(items), ROWS_AT_ONCE):
                self.json(*items[start : start + ROWS_AT_ONCE])
            return
        self._begin()
        if title is not None:
            click.secho(title, bold=True)
        rows = [[column.cell(item) for column in columns] for item in items]
        widths = _widths(columns, rows)
        _print_rows(columns, widths, [[column.title for column in columns]], bold=True)
        for start in range(0, len(rows), ROWS_AT_ONCE):
            _print_rows(columns, widths, rows[start : start + ROWS_AT_ONCE])

    def preview(self, items: Sequence[T], columns: Sequence[Column[T]], note: str) -> None:
        """Print a table that the next output of this round replaces; nothing where that cannot be done, as in a pipe.

        Args:
            items: Dataclasses.
            columns: The columns of the table.
            note: A sentence below it that says what is missing yet.
        """
        if self.watch is None or self.as_json or not sys.stdout.isatty():
            return
        self._is_new_round = True
        self.table(items, columns)
        self.hint(note)
        self._is_new_round = True

    async def stream(self, items: AsyncIterator[T], columns: Sequence[Column[T]]) -> None:
        """Print items as they arrive, as the rows of a table or as lines of JSON.

        Args:
            items: Dataclasses.
            columns: The columns of the table. The first rows set their widths; longer texts that come later wrap.
        """
        import asyncio

        now = asyncio.get_running_loop().time
        waiting: list[list[str]] = []
        widths: list[int] = []
        printed_at = now()
        async for item in items:
            if self.as_json:
                self.json(item)
                continue
            waiting.append([column.cell(item) for column in columns])
            if len(waiting) == ROWS_AT_ONCE or now() >= printed_at + SECONDS_AT_MOST:
                self._begin()
                widths = _continue(columns, widths, waiting)
                waiting.clear()
                printed_at = now()
        if not self.as_json and (waiting or not widths):
            self._begin()
            _continue(columns, widths, waiting)

    def facts(self, item: object, rows: Iterable[tuple[str, object]]) -> None:
        """Print what is known about one thing: a line for each fact, or one line of JSON.

        Args:
            item: The structure that JSON shows.
            rows: Names and values; a value of None is not known, and its line is left out.
        """
        if self.as_json:
            self.json(item)
            return
        self._begin()
        known = [row for row in rows if row[1] is not None]
        columns: list[Column[tuple[str, object]]] = [
            Column(title="", text=lambda row: row[0]),
            Column(title="", text=lambda row: row[1], may_wrap=True),
        ]
        cells = [[column.cell(row) for column in columns] for row in known]
        _print_rows(columns, _widths(columns, cells), cells)

    def json(self, *items: object) -> None:
        """Print a line of JSON for each item."""
        import json

        click.echo("\n".join(json.dumps(plain(item), ensure_ascii=False).translate(_C1_CONTROLS) for item in items))

    def say(self, text: str) -> None:
        """Print a sentence for people; nothing with `--json`."""
        if not self.as_json:
            self._begin()
            click.echo(text)

    def done(self, text: str, **facts: object) -> None:
        """Print a sentence about what was changed for people, or the facts of it as one line of JSON."""
        if self.as_json:
            self.json({name: value for name, value in facts.items() if value is not None})
        else:
            self.say(text)

    def hint(self, text: str) -> None:
        """Print on standard error what else the command can do."""
        if not self.as_json:
            self._begin()
            click.secho(text, dim=True, err=True)

    def warn(self, text: str) -> None:
        """Print a sentence on standard error, in yellow."""
        self._begin()
        click.secho(printable(text), fg="yellow", err=True)

    def failures(self, failures: "Iterable[BrokerFailure]", missing: str) -> None:
        """Warn of brokers that did not answer; the command will end with status 1.

        Args:
            failures: The brokers.
            missing: What the output lacks without them, such as `its topics are missing`.
        """
        for failure in failures:
            self.has_failures = True
            self.warn(f"broker {failure.broker_name} at {failure.address}: {missing}: {failure.reason}")


def json_option(command: Callable[..., R]) -> Callable[..., R]:
    """Add `--json` to a command that prints once, which gets an `Output` as its argument `output`."""

    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
    @functools.wraps(command)
    def run(*args: object, as_json: bool, **options: object) -> R:
        return command(*args, output=Output(as_json=as_json), **options)

    return run


def output_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add `--json` and `--watch` to a command, which gets an `Output` as its argument `output`."""

    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
    @click.option(
        "--watch",
        type=click.FloatRange(min=0.1),
        metavar="SECONDS",
        help="Print again every SECONDS seconds, until Ctrl-C.",
    )
    @functools.wraps(command)
    def run(*args: object, as_json: bool, watch: float | None, **options: object) -> R:
        return command(*args, output=Output(as_json=as_json, watch=watch), **options)

    return run


def plain(value: object) -> Any:
    """Return a value as JSON has it: objects without the fields that are None, times in ISO 8601 and UTC."""
    if hasattr(value, "__struct_fields__"):  # a msgspec.Struct; msgspec is not imported for help texts
        pairs = ((name, getattr(value, name)) for name in value.__struct_fields__)
        return {name: plain(item) for name, item in pairs if item is not None}
    if is_dataclass(value):
        pairs = ((field.name, getattr(value, field.name)) for field in fields(value))
        return {name: plain(item) for name, item in pairs if item is not None}
    if isinstance(value, datetime):
        from rocket_admin.times import iso_text

        return iso_text(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return [plain(item) for item in value]
    return value


def time_text(time: datetime | None) -> str | None:
    """Return a time as tables show it: local, to the second; None for None."""
    return None if time is None else f"{time.astimezone():%Y-%m-%d %H:%M:%S}"


def _continue(columns: Sequence[Column[T]], widths: list[int], rows: Sequence[Sequence[str]]) -> list[int]:
    """Print rows of a stream, after the heading if they are the first; return the widths of the columns."""
    if not widths:
        widths = _widths(columns, rows)
        _print_rows(columns, widths, [[column.title for column in columns]], bold=True)
    _print_rows(columns, widths, rows)
    return widths


def _widths(columns: Sequence[Column[T]], rows: Iterable[Sequence[str]]) -> list[int]:
    return fitted_widths(columns, natural_widths(columns, rows), terminal_width())


def _print_rows(
    columns: Sequence[Column[T]], widths: Sequence[int], rows: Iterable[Sequence[str]], *, bold: bool = False
) -> None:
    lines = list(table_lines(columns, widths, rows))
    if lines:
        click.secho("\n".join(lines), bold=bold or None)
