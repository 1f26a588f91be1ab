"""A table whose rows a database filters, sorts and pages, because there are too many to read them all."""

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from rocket_console.tables.table import Table
from rocket_console.tables.table_state import TableState
from rocket_console.tables.table_view import Choice, TableView

__all__ = ["MOST_ROWS", "StoredTableView"]

T = TypeVar("T")

MOST_ROWS: Final = 10_000
"""Rows that all pages of one table have together, and its file."""


class StoredTableView(TableView[T]):
    """The rows of a table that an address asks for.

    Attributes:
        skip: The number of rows before those that the address asks for.
        limit: The most rows that it asks for: those of a page, or of the file.
        is_cut: Whether more than `MOST_ROWS` rows match, so that some are on no page.
    """

    def __init__(
        self,
        table: Table[T],
        path: str,
        query: Mapping[str, str],
        *,
        count: int,
        choices: Mapping[str, Sequence[str]],
    ) -> None:
        """Read the state of the table in an address; `fill` sets the rows.

        Args:
            table: The table.
            path: The path of the page.
            query: The parameters of its address.
            count: The number of rows that match the state's filters; any number above `MOST_ROWS` if there are more.
            choices: The values by which rows can be filtered, by the names of columns.
        """
        super().__init__(table, (), path, query)
        self.total = None
        self.is_cut = count > MOST_ROWS
        self.count = min(count, MOST_ROWS)
        self.pages = max(1, -(-self.count // self.state.rows))
        self.state = self.state.at(min(TableState.of(table, query).page, self.pages))
        self.choices = [
            Choice(
                parameter=f"{table.name}.{column.name}",
                title=column.title,
                # A chosen value that is not in the list has to be seen, too.
                values=sorted({*choices[column.name], *filter(None, (self.state.choices.get(column.name),))}),
                chosen=self.state.choices.get(column.name, ""),
            )
            for column in table.columns
            if column.name in choices
        ]
        is_file = query.get("export") in (f"{table.name}.csv", f"{table.name}.json")
        self.limit = MOST_ROWS if is_file else self.state.rows
        self.skip = 0 if is_file else (self.state.page - 1) * self.state.rows

    def fill(self, rows: Sequence[T]) -> None:
        """Set the rows behind the first `skip`, at most `limit`, in the order of the state."""
        self.shown = self.matching = list(rows)
        self.first = self.skip + 1 if rows else 0
