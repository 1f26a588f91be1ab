"""Lists of settings on a terminal: a table if the terminal is wide enough, else one setting below the other."""

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

__all__ = ["Line", "console_for_settings", "print_settings"]

_UNFOLDED = 1000


class Line(NamedTuple):
    """A setting in a list.

    Attributes:
        key: The setting's key.
        value: Its value.
        origin: Where it was set.
        why: Why it is in this list, or None.
        is_dim: Whether it is printed dim, as less important.
    """

    key: str
    value: str
    origin: str
    why: str | None = None
    is_dim: bool = False


def console_for_settings() -> Console:
    """Return a console that wraps lines only on a terminal; redirected output is not wrapped."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(width=_UNFOLDED)


def print_settings(console: Console, lists: Sequence[tuple[Text, Sequence[Line]]]) -> None:
    """Print each list below its title: as tables, or line by line if a table would not fit the width."""
    tables = [_table(lines) for _, lines in lists]
    unfolded = console.options.update(width=_UNFOLDED)
    is_wide = all(Measurement.get(console, unfolded, table).maximum <= console.width for table in tables)
    for (title, lines), table in zip(lists, tables, strict=True):
        console.print(title)
        if is_wide:
            console.print(table)
        else:
            for line in lines:
                _print_line(console, line)


def _table(lines: Sequence[Line]) -> Table:
    table = Table("setting", "value", "origin")
    has_reasons = any(line.why for line in lines)
    if has_reasons:
        table.add_column("why")
    for line in lines:
        cells = [line.key, line.value, line.origin, *([line.why or ""] if has_reasons else [])]
        table.add_row(*map(Text, cells), style="dim" if line.is_dim else None)
    return table


def _print_line(console: Console, line: Line) -> None:
    setting = Text(f"  {line.key}={line.value}", style="dim" if line.is_dim else "")
    origin = line.origin.removesuffix(f" --{line.key}")
    place = Text(origin if line.why is None else f"{origin}: {line.why}", style="dim")
    if line.why is None and setting.cell_len + place.cell_len + 2 <= console.width:
        console.print(Text.assemble(setting, "  ", place))
        return
    console.print(setting, soft_wrap=True)
    console.print(Padding(place, (0, 0, 0, 6)))
