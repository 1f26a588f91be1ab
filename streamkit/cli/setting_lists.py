"""Lists of settings on a terminal: a table if the terminal is wide enough, else one setting below the other.

Rich measures the texts. It does not lay the tables out: the import of what does takes longer than all of the command.
"""

import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Final, NamedTuple

import click

from streamkit.printable_text import printable

__all__ = ["Line", "SettingList", "print_settings", "terminal_columns"]

_HEADING: Final = ("SETTING", "VALUE", "ORIGIN", "WHY")
_GAP: Final = "  "
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


def terminal_columns() -> int | None:
    """Return the columns of the terminal; None if the output is no terminal, so that lines may have any length."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_settings(lists: Sequence[SettingList], columns: int | None) -> None:
    """Print each list below its title: as tables, or line by line if a table would not fit.

    Args:
        lists: The lists.
        columns: The width of the terminal, as `terminal_columns` returns it.
    """
    tables = [_rows(each.lines) for each in lists]
    widths = [_widths(rows) for rows in tables]
    is_wide = columns is None or all(sum(each) + len(_GAP) * (len(each) - 1) <= columns for each in widths)
    for each, rows, widths_of in zip(lists, tables, widths, strict=True):
        click.secho(each.title, bold=True, fg=each.color)
        if is_wide:
            _print_table(each.lines, rows, widths_of)
            continue
        for line in each.lines:
            _print_line(line, columns or 0)


def _rows(lines: Sequence[Line]) -> list[Sequence[str]]:
    """Return the cells of a table, the heading first."""
    has_reasons = any(line.why for line in lines)
    rows = [_HEADING, *((line.key, line.value, line.origin, line.why or "") for line in lines)]
    return [[printable(cell) for cell in row[: 4 if has_reasons else 3]] for row in rows]


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    from rich.cells import cell_len

    return [max(map(cell_len, column)) for column in zip(*rows, strict=True)]


def _print_table(lines: Sequence[Line], rows: Sequence[Sequence[str]], widths: Sequence[int]) -> None:
    from rich.cells import cell_len

    for line, row in zip((None, *lines), rows, strict=True):
        cells = (cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True))
        text = _GAP.join(cells).rstrip()
        click.echo(click.style(text, bold=True) if line is None else click.style(text, dim=line.is_dim or None))


def _print_line(line: Line, columns: int) -> None:
    from rich.cells import cell_len

    setting = printable(f"  {line.key}={line.value}")
    origin = line.origin.removesuffix(f" --{line.key}")
    place = printable(origin if line.why is None else f"{origin}: {line.why}")
    shown = click.style(setting, dim=line.is_dim or None)
    if line.why is None and cell_len(setting) + len(_GAP) + cell_len(place) <= columns:
        click.echo(f"{shown}{_GAP}{click.style(place, dim=True)}")
        return
    click.echo(shown)
    wrapped = textwrap.wrap(place, columns, initial_indent=_INDENT, subsequent_indent=_INDENT, break_on_hyphens=False)
    click.secho("\n".join(wrapped), dim=True)
