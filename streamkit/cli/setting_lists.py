"""Lists of settings on a terminal: a table if the terminal is wide enough, else one setting below the other."""

import textwrap
from collections.abc import Sequence
from typing import Final, NamedTuple

import click

from streamkit.printable_text import printable
from streamkit.terminal_tables import GAP, ColumnLayout, natural_widths, table_lines, table_width

__all__ = ["Line", "SettingList", "print_settings"]

_COLUMNS: Final = tuple(ColumnLayout(title=title) for title in ("SETTING", "VALUE", "ORIGIN", "WHY"))
_INDENT: Final = "      "


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


class SettingList(NamedTuple):
    """Settings below a title.

    Attributes:
        title: The title.
        lines: The settings.
        color: The color of the title, as click names it; None for that of texts.
    """

    title: str
    lines: Sequence[Line]
    color: str | None = None


def print_settings(lists: Sequence[SettingList], columns: int | None) -> None:
    """Print each list below its title: as tables, or line by line if a table would not fit.

    Args:
        lists: The lists.
        columns: The width of the terminal; None if lines may have any length.
    """
    tables = [_Table(each.lines) for each in lists]
    is_wide = columns is None or all(table_width(table.widths) <= columns for table in tables)
    for each, table in zip(lists, tables, strict=True):
        click.secho(each.title, bold=True, fg=each.color)
        if is_wide:
            table.print()
            continue
        for line in each.lines:
            _print_line(line, columns or 0)


class _Table:
    """The lines of a list as a table; without the last column if no line has a reason."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = lines
        self._columns = _COLUMNS if any(line.why for line in lines) else _COLUMNS[:-1]
        cells = ((line.key, line.value, line.origin, line.why or "") for line in lines)
        self._rows = [[printable(cell) for cell in row[: len(self._columns)]] for row in cells]
        self.widths = natural_widths(self._columns, self._rows)

    def print(self) -> None:
        heading = [column.title for column in self._columns]
        texts = table_lines(self._columns, self.widths, [heading, *self._rows])
        click.secho(next(texts), bold=True)
        for line, text in zip(self._lines, texts, strict=True):  # no column wraps
            click.secho(text, dim=line.is_dim or None)


def _print_line(line: Line, columns: int) -> None:
    from rich.cells import cell_len

    setting = printable(f"  {line.key}={line.value}")
    origin = line.origin.removesuffix(f" --{line.key}")
    place = printable(origin if line.why is None else f"{origin}: {line.why}")
    shown = click.style(setting, dim=line.is_dim or None)
    if line.why is None and cell_len(setting) + len(GAP) + cell_len(place) <= columns:
        click.echo(f"{shown}{GAP}{click.style(place, dim=True)}")
        return
    click.echo(shown)
    wrapped = textwrap.wrap(place, columns, initial_indent=_INDENT, subsequent_indent=_INDENT, break_on_hyphens=False)
    click.secho("\n".join(wrapped), dim=True)
