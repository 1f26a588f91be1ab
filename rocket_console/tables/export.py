"""Tables as files: CSV for spreadsheets, JSON for programs. Values are whole there, and not written for people."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

from rocket_admin.times import iso_text
from rocket_console.tables.table import Table

__all__ = ["Export", "exported"]

T = TypeVar("T")

_FORMULAS: Final = ("=", "+", "-", "@", "\t", "\r")
"""What begins a formula: a spreadsheet would compute a name that begins so."""


@dataclass(frozen=True, kw_only=True)
class Export:
    """A file.

    Attributes:
        name: Its name.
        media_type: What it is.
        content: Its content.
    """

    name: str
    media_type: str
    content: str


def exported(table: Table[T], items: Sequence[T], file: str) -> Export | None:
    """Return a table as a file; None if the file is not one of this table's.

    Args:
        table: The table.
        items: The items.
        file: `<name of the table>.csv` or `.json`.
    """
    if file == f"{table.name}.csv":
        return Export(name=file, media_type="text/csv; charset=utf-8", content=_csv(table, items))
    if file == f"{table.name}.json":
        return Export(name=file, media_type="application/json", content=_json(table, items))
    return None


def _csv(table: Table[T], items: Sequence[T]) -> str:
    file = io.StringIO()
    lines = csv.writer(file)
    lines.writerow([column.name for column in table.columns])
    for item in items:
        lines.writerow([_field(_plain(column.value(item))) for column in table.columns])
    return file.getvalue()


def _field(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, list):
        value = " ".join(map(str, value))
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULAS) else value


def _json(table: Table[T], items: Sequence[T]) -> str:
    rows = [{column.name: _plain(column.value(item)) for column in table.columns} for item in items]
    known = [{name: value for name, value in row.items() if value is not None} for row in rows]
    return json.dumps(known, indent=1) + "\n"


def _plain(value: object) -> Any:
    if isinstance(value, datetime):
        return iso_text(value)
    if isinstance(value, tuple | list | set | frozenset):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, bool | int | float) else str(value)
