"""Changes of the rows that a viewer has ticked in a table: the page that asks first, and which rows are changed."""

from dataclasses import dataclass
from typing import Final

from rocket_console.pages.visit import Visit

__all__ = ["AskedChange", "rows_in", "ticked_rows"]

_MOST: Final = 100
"""Rows that one step changes."""


@dataclass(frozen=True, kw_only=True)
class AskedChange:
    """Something that is done to rows after a page has asked.

    Attributes:
        step: The last step of its address.
        title: The title of the page that asks first.
        button: The text of its button.
        effect: What it does, in sentences.
    """

    step: str
    title: str
    button: str
    effect: str


def ticked_rows(visit: Visit, row: str, does: str) -> set[str]:
    """Return the ids of the rows that are ticked in the address.

    Args:
        visit: The request of the page that asks.
        row: What a row is, such as "half message", for the text of an error.
        does: What the step does to the rows, such as "ends", for the text of an error.

    Raises:
        ValueError: No row is ticked, or too many are.
    """
    ticked = rows_in(" ".join(visit.request.query_params.getlist("row")), row, does)
    if not ticked:
        raise ValueError(f"no {row} is chosen: tick rows of the table")
    return ticked


def rows_in(text: str, row: str, does: str) -> set[str]:
    """Return the ids of rows from a text with spaces between them; the arguments are those of `ticked_rows`.

    Raises:
        ValueError: They are too many.
    """
    rows = set(text.split())
    if len(rows) > _MOST:
        raise ValueError(f"{len(rows)} {row}s are chosen: one step {does} {_MOST} at most")
    return rows
