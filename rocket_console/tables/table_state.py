"""The state of a table, which is in the address: order, filter, choices, page, rows of a page.

::

    /topics?topics.q=orders&topics.kind=normal&topics.order=-queues&topics.page=2&topics.rows=100
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from rocket_console.tables.table import Table

__all__ = ["ROWS", "TableState"]

ROWS: Final = (20, 50, 100, 500)
"""The numbers of rows that a page can have."""
_LONGEST_FILTER: Final = 200


@dataclass(frozen=True, kw_only=True)
class TableState:
    """The state of a table.

    Attributes:
        text: Only rows with this text in a cell.
        choices: Only rows with these values, by the names of columns.
        order: The name of the column that sorts; with a `-` in front, the largest value comes first.
        page: The number of the page, from 1.
        rows: The rows of a page.
    """

    text: str
    choices: Mapping[str, str]
    order: str
    page: int
    rows: int

    @classmethod
    def of(cls, table: Table[Any], query: Mapping[str, str]) -> Self:
        """Return the state in the parameters of an address; what is missing or wrong has the table's default."""
        order = query.get(f"{table.name}.order", table.order)
        page, rows = query.get(f"{table.name}.page", ""), query.get(f"{table.name}.rows", "")
        chosen = {each.name: query.get(f"{table.name}.{each.name}", "") for each in table.columns if each.is_choice}
        return cls(
            text=query.get(f"{table.name}.q", "").strip()[:_LONGEST_FILTER],
            choices={name: value for name, value in chosen.items() if value},
            order=order if table.column(order.removeprefix("-")) is not None else table.order,
            page=max(1, int(page)) if page.isdecimal() and len(page) < 8 else 1,
            rows=int(rows) if rows.isdecimal() and int(rows[:8]) in ROWS else table.rows,
        )

    def sorted_by(self, order: str) -> Self:
        """Return the state with another order, at the first page."""
        return replace(self, order=order, page=1)

    def at(self, page: int) -> Self:
        """Return the state at another page."""
        return replace(self, page=page)

    def parameters(self, table: Table[Any]) -> Sequence[tuple[str, str]]:
        """Return the parameters of an address with this state, without those that have the defaults of the table."""
        found = [("q", self.text), *self.choices.items()]
        if self.order != table.order:
            found.append(("order", self.order))
        if self.rows != table.rows:
            found.append(("rows", str(self.rows)))
        if self.page > 1:
            found.append(("page", str(self.page)))
        return [(f"{table.name}.{name}", value) for name, value in found if value]
