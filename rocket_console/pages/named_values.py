"""Tables of names with a value each: properties, headers, figures, settings."""

from dataclasses import dataclass

from rocket_console.tables.table import Column, Table

__all__ = ["NamedValue", "named_values"]


@dataclass(frozen=True, kw_only=True)
class NamedValue:
    """A row: a name and its value, as text."""

    name: str
    value: str


def named_values(
    table: str, caption: str, *, empty: str, name_title: str = "Name", value_title: str = "Value"
) -> Table[NamedValue]:
    """Return a table that is sorted by the names at first.

    Args:
        table: The name of the table.
        caption: What it shows.
        empty: What it says without any row.
        name_title: The heading of the names.
        value_title: The heading of the values.
    """
    return Table(
        name=table,
        caption=caption,
        order="name",
        empty=empty,
        rows=100,
        columns=(
            Column(name="name", title=name_title, value=lambda each: each.name),
            Column(name="value", title=value_title, value=lambda each: each.value),
        ),
    )
