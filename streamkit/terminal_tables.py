"""Tables as wide as the terminal; as wide as their texts if the output is not a terminal.

Rich measures the texts but does not lay out the tables: importing its tables takes longer than the whole of
`streamkit config report`, and they need half a millisecond a row.

This module imports nothing of the framework, because `rocket_admin` uses it, too.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["GAP", "ColumnLayout", "fitted_widths", "natural_widths", "table_lines", "table_width", "terminal_width"]

GAP: Final = "  "
"""What is between two columns."""
NARROWEST: Final = 12
"""Cells that a column which may wrap keeps in a narrow terminal."""


@dataclass(frozen=True, kw_only=True)
class ColumnLayout:
    """How a column of a table is laid out.

    Attributes:
        title: Its heading.
        is_number: Whether to align it to the right.
        may_wrap: Whether texts continue on the next line where the terminal is narrow; others are never broken.
        width: Cells that the column has at least.
    """

    title: str
    is_number: bool = False
    may_wrap: bool = False
    width: int = 0


def terminal_width() -> int | None:
    """Return the terminal's width in cells; None if the output is not a terminal and COLUMNS is not set."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError):  # no terminal, or no file at all
        return None


def natural_widths(columns: Sequence[ColumnLayout], rows: Iterable[Sequence[str]]) -> list[int]:
    """Return the cells that each column needs so that no text wraps."""
    from rich.cells import cell_len

    widths = [max(column.width, cell_len(column.title)) for column in columns]
    for row in rows:
        for number, text in enumerate(row):
            widths[number] = max(widths[number], cell_len(text))
    return widths


def table_width(widths: Sequence[int]) -> int:
    """Return the cells of a table with columns of these widths."""
    return sum(widths) + len(GAP) * (len(widths) - 1)


def fitted_widths(columns: Sequence[ColumnLayout], widths: Sequence[int], free: int | None) -> list[int]:
    """Return the widths so that the table fits into `free` cells, if columns that may wrap allow it.

    Args:
        columns: The columns.
        widths: Their natural widths.
        free: The width of the terminal; None for any width.
    """
    fitted = list(widths)
    if free is None:
        return fitted
    excess = table_width(fitted) - free
    wrapping = [number for number, column in enumerate(columns) if column.may_wrap and fitted[number] > NARROWEST]
    for number in sorted(wrapping, key=lambda number: -fitted[number]):
        if excess > 0:
            narrower = max(NARROWEST, fitted[number] - excess)
            excess -= fitted[number] - narrower
            fitted[number] = narrower
    return fitted


def table_lines(columns: Sequence[ColumnLayout], widths: Sequence[int], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of rows: one each, and more where texts wrap."""
    from rich.cells import cell_len

    for row in rows:
        parts = [
            [text] if cell_len(text) <= width or not column.may_wrap else _wrapped(text, width)
            for column, width, text in zip(columns, widths, row, strict=True)
        ]
        for number in range(max(map(len, parts))):
            cells = [part[number] if number < len(part) else "" for part in parts]
            padded = (
                " " * (width - cell_len(text)) + text if column.is_number else text + " " * (width - cell_len(text))
                for column, width, text in zip(columns, widths, cells, strict=True)
            )
            yield GAP.join(padded).rstrip()


def _wrapped(text: str, width: int) -> list[str]:
    """Return the lines of a text: broken at spaces, and within words that are longer than a line."""
    from rich.cells import cell_len, chop_cells

    lines = [""]
    for word in text.split(" "):
        if cell_len(lines[-1]) + 1 + cell_len(word) <= width and lines[-1]:
            lines[-1] += " " + word
            continue
        if lines[-1]:
            lines.append("")
        *whole, lines[-1] = chop_cells(word, width) or [""]
        lines[-1:-1] = whole
    return lines
