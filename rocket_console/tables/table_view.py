"""A table as one address shows it: the rows of a page, and the links to other states."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from starlette.datastructures import QueryParams

from rocket_console.rendering.addresses import with_query
from rocket_console.rendering.formats import Format, text_of
from rocket_console.tables.export import Export, exported
from rocket_console.tables.table import Column, Table
from rocket_console.tables.table_state import ROWS, TableState

__all__ = ["Cell", "Choice", "Heading", "TableView"]

T = TypeVar("T")

_ONCE: Final = ("export", "done")
"""Parameters of a single request, which no link repeats."""
_FEW: Final = 10
"""Rows that everybody sees at a glance: a table with fewer has no fields to filter them."""
_SHORT: Final = 30
"""Characters of a cell that is kept in one line, such as a name, a status or a time; others may be broken anywhere."""


@dataclass(frozen=True, kw_only=True)
class Heading:
    """The heading of a column.

    Attributes:
        title: Its text.
        link: The address with the table sorted by the column, or the other way round if it is.
        sorted: `ascending`, `descending` or `none`.
        is_number: Whether the column is aligned to the right.
    """

    title: str
    link: str
    sorted: str
    is_number: bool


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell.

    Attributes:
        title: The heading of its column, for narrow screens.
        text: Its text.
        link: The address that it leads to, if there is one.
        mark: `bad`, `warn`, `good`, or empty.
        is_number: Whether it is aligned to the right.
    """

    title: str
    text: str
    link: str | None
    mark: str
    is_number: bool

    @property
    def css(self) -> str:
        """The classes of the style sheet, separated by spaces."""
        short = "short" if len(self.text) <= _SHORT else ""
        return " ".join(filter(None, ("number" if self.is_number else "", short, self.mark)))


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A filter by the value of a column.

    Attributes:
        parameter: Its name in addresses.
        title: The heading of the column.
        values: The values of all items, as text.
        chosen: The chosen one; empty for all.
    """

    parameter: str
    title: str
    values: Sequence[str]
    chosen: str


class TableView(Generic[T]):
    """The rows of a table that an address asks for.

    Attributes:
        table: The table.
        state: Its state.
        total: The number of all items; None if it is not known.
        matching: The items that the filters leave, in the table's order.
        count: How many items the filters leave.
        shown: Those on this page. They may be replaced by items with more details before they are written.
    """

    def __init__(self, table: Table[T], items: Iterable[T], path: str, query: Mapping[str, str]) -> None:
        """Filter, sort and page.

        Args:
            table: The table.
            items: All items.
            path: The path of the page.
            query: The parameters of its address, those of other tables included.
        """
        every = list(items)
        self.table = table
        self._lower_texts: dict[tuple[object, ...], str] = {}
        self.state = TableState.of(table, query)
        self.total: int | None = len(every)
        self._path = path
        # A parameter may come several times, such as those of ticked rows.
        given = query.multi_items() if isinstance(query, QueryParams) else query.items()
        self._others = [pair for pair in given if not pair[0].startswith(f"{table.name}.") and pair[0] not in _ONCE]
        self.choices = [self._choice(column, every) for column in table.columns if column.is_choice]
        self.matching = _sorted(table, self.state.order, [item for item in every if self._takes(item)])
        self.count = len(self.matching)
        self.pages = max(1, -(-len(self.matching) // self.state.rows))
        self.state = self.state.at(min(self.state.page, self.pages))
        first = (self.state.page - 1) * self.state.rows
        self.shown: Sequence[T] = self.matching[first : first + self.state.rows]
        self.first = first + 1 if self.matching else 0

    @property
    def last(self) -> int:
        """The number of the last row of this page."""
        return max(0, self.first + len(self.shown) - 1)

    @property
    def is_filtered(self) -> bool:
        """Whether a filter is set."""
        return bool(self.state.text or self.state.choices)

    @property
    def is_worth_filtering(self) -> bool:
        """Whether the table has fields to filter its rows."""
        return self.is_filtered or self.total is None or self.total >= _FEW

    @property
    def headings(self) -> Sequence[Heading]:
        """The headings of the columns."""
        return [self._heading(column) for column in self.table.columns]

    @property
    def rows(self) -> Sequence[Sequence[Cell]]:
        """The cells of this page."""
        return [[_cell(column, item) for column in self.table.columns] for item in self.shown]

    @property
    def ticks(self) -> Sequence[str | None]:
        """What each row of this page sends if it is ticked; None for rows that cannot be."""
        tick = self.table.tick
        return [None if tick is None else tick(item) for item in self.shown]

    @property
    def row_choices(self) -> Sequence[int]:
        """The numbers of rows that a page can have."""
        return sorted({*ROWS, self.table.rows})

    @property
    def kept(self) -> Sequence[tuple[str, str]]:
        """The parameters that the form of the filter keeps: those of other tables, and the order."""
        own = [("order", self.state.order)] if self.state.order != self.table.order else []
        return [*self._others, *((f"{self.table.name}.{name}", text) for name, text in own)]

    def link(self, page: int) -> str:
        """Return the address of another page of the table."""
        return self._address(self.state.at(page))

    @property
    def reset(self) -> str:
        """The address without filters."""
        return with_query(self._path, self._others)

    def export_link(self, kind: str) -> str:
        """Return the address of the table as a file, `csv` or `json`: all rows that the filters leave."""
        return self._address(self.state.at(1), ("export", f"{self.table.name}.{kind}"))

    def export(self, file: str) -> Export | None:
        """Return the file of a name, if it is this table's; None if not."""
        return exported(self.table, self.matching, file)

    def _address(self, state: TableState, *more: tuple[str, str]) -> str:
        return with_query(self._path, [*self._others, *state.parameters(self.table), *more])

    def _heading(self, column: Column[T]) -> Heading:
        order, is_number = self.state.order, column.format.is_number
        largest_first = is_number or column.format is Format.TIME
        by = f"-{column.name}" if largest_first else column.name
        if order.removeprefix("-") == column.name:
            by = order.removeprefix("-") if order.startswith("-") else f"-{order}"
        states = {column.name: "ascending", f"-{column.name}": "descending"}
        return Heading(
            title=column.title,
            link=self._address(self.state.sorted_by(by)),
            sorted=states.get(order, "none"),
            is_number=is_number,
        )

    def _choice(self, column: Column[T], items: Sequence[T]) -> Choice:
        return Choice(
            parameter=f"{self.table.name}.{column.name}",
            title=column.title,
            values=sorted(text_of(value, column.format) for value in {column.value(item) for item in items}),
            chosen=self.state.choices.get(column.name, ""),
        )

    def _takes(self, item: T) -> bool:
        for column in self.table.columns:
            chosen = self.state.choices.get(column.name)
            if chosen and text_of(column.value(item), column.format) != chosen:
                return False
        wanted = self.state.text.lower()
        if not wanted:
            return True
        return any(wanted in self._lower_text(column.value(item), column.format) for column in self.table.columns)

    def _lower_text(self, value: object, how: Format) -> str:
        """Return a value as text in lower case. Equal values, of which most columns have many, are written once."""
        # The type, too: True and 1 are equal, but written differently.
        key = type(value), value, how
        try:
            text = self._lower_texts.get(key)
        except TypeError:  # a list
            return text_of(value, how).lower()
        if text is None:
            text = self._lower_texts[key] = text_of(value, how).lower()
        return text


def _sorted(table: Table[T], order: str, items: list[T]) -> list[T]:
    """Return the items in order; those whose value is not known come last either way."""
    column = table.column(order.removeprefix("-"))
    if column is None:
        return items
    value: Callable[[T], Any] = column.value
    known = [item for item in items if value(item) is not None]
    known.sort(key=lambda item: _key(value(item)), reverse=order.startswith("-"))
    return known + [item for item in items if value(item) is None]


def _key(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _cell(column: Column[T], item: T) -> Cell:
    return Cell(
        title=column.title,
        text=text_of(column.value(item), column.format),
        link=None if column.link is None else column.link(item),
        mark=(column.mark(item) if column.mark is not None else None) or "",
        is_number=column.format.is_number,
    )
