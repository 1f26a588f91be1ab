"""What a table shows: its columns, its order, and the text where it has no rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rocket_console.rendering.formats import Format

__all__ = ["Column", "Table"]

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Column(Generic[T]):
    """One column.

    Attributes:
        name: Its name in addresses and exports; letters, digits and underscores.
        title: Its heading.
        value: Returns the value of an item; None if it is not known.
        format: How the value is written.
        link: Returns the address that the cell leads to; None if it leads nowhere.
        mark: Returns `bad`, `warn` or `good` for a cell that stands out; None for others.
        is_choice: Whether rows can be filtered by one value of the column, because it has few.
    """

    name: str
    title: str
    value: Callable[[T], object]
    format: Format = Format.TEXT
    link: Callable[[T], str | None] | None = None
    mark: Callable[[T], str | None] | None = None
    is_choice: bool = False


@dataclass(frozen=True, kw_only=True)
class Table(Generic[T]):
    """A table.

    Attributes:
        name: Begins the names of its parameters in addresses, and names its exports; letters and digits.
        caption: What it shows.
        columns: The columns.
        order: The name of the column that sorts it at first; with a `-` in front, the largest value comes first. Empty
            to leave the items as they come.
        empty: What it says without any row, and what to do.
        rows: The number of rows of a page at first.
        search: What the text of the filter is compared with, for the label of its field.
        tick: Returns the value that a ticked row sends; None for a row that cannot be ticked. Without it, no row can.
    """

    name: str
    caption: str
    columns: Sequence[Column[T]]
    order: str = ""
    empty: str
    rows: int = 50
    search: str = "Text in a row"
    tick: Callable[[T], str | None] | None = None

    def column(self, name: str) -> Column[T] | None:
        """Return the column of a name; None if there is none."""
        return next((column for column in self.columns if column.name == name), None)
