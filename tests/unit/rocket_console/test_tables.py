"""Tables: what an address says about order, filter and page, and what files have."""

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from starlette.datastructures import QueryParams

from rocket_console.rendering.formats import Format
from rocket_console.tables.table import Column, Table
from rocket_console.tables.table_view import TableView


@dataclass(frozen=True)
class Cake:
    """A row."""

    name: str
    kind: str
    weight: int | None
    baked: datetime = datetime(2026, 11, 26, 9, 30, tzinfo=UTC)


CAKES = Table[Cake](
    name="cakes",
    caption="Cakes",
    order="name",
    empty="Bake one.",
    rows=20,
    columns=(
        Column(name="name", title="Name", value=lambda cake: cake.name, link=lambda cake: f"/cakes/{cake.name}"),
        Column(name="kind", title="Kind", value=lambda cake: cake.kind, is_choice=True),
        Column(name="weight", title="Weight", value=lambda cake: cake.weight, format=Format.NUMBER),
        Column(name="baked", title="Baked", value=lambda cake: cake.baked, format=Format.TIME),
    ),
)
MANY = [Cake(f"cake-{number:03}", "round" if number % 3 else "square", number * 1000 or None) for number in range(100)]


def view(query: Mapping[str, str], cakes: list[Cake] = MANY) -> TableView[Cake]:
    """Return the table that an address shows."""
    return TableView(CAKES, cakes, "/cakes", query)


def names(shown: TableView[Cake]) -> list[str]:
    """Return the names of the rows."""
    return [row[0].text for row in shown.rows]


@pytest.mark.parametrize(
    ("query", "first", "found"),
    [
        ({}, "cake-000", 100),
        ({"cakes.order": "-name"}, "cake-099", 100),
        ({"cakes.order": "-weight"}, "cake-099", 100),
        ({"cakes.order": "weight"}, "cake-001", 100),
        ({"cakes.order": "nothing"}, "cake-000", 100),
        ({"cakes.page": "2"}, "cake-020", 100),
        ({"cakes.page": "99999"}, "cake-080", 100),
        ({"cakes.page": "-1"}, "cake-000", 100),
        ({"cakes.q": "CAKE-01"}, "cake-010", 10),
        ({"cakes.q": "12,000"}, "cake-012", 1),
        ({"cakes.kind": "square"}, "cake-000", 34),
        ({"cakes.kind": "square", "cakes.q": "cake-01", "cakes.order": "-weight"}, "cake-018", 3),
        ({"other.q": "x"}, "cake-000", 100),
    ],
)
def test_an_address_says_order_filter_and_page(query: Mapping[str, str], first: str, found: int) -> None:
    """What it says wrongly is as at first."""
    shown = view(query)
    assert (names(shown)[0], len(shown.matching), shown.total) == (first, found, 100)


def test_unknown_values_come_last_in_both_orders() -> None:
    """They are neither small nor large."""
    for order in ("weight", "-weight"):
        assert view({"cakes.order": order}).matching[-1].name == "cake-000"


def test_links_keep_the_state_of_the_other_tables() -> None:
    """But not what was asked for once."""
    shown = view({"cakes.q": "cake", "pies.page": "3", "done": "x", "export": "cakes.csv"})
    assert shown.link(2) == "/cakes?pies.page=3&cakes.q=cake&cakes.page=2"
    assert shown.headings[0].link == "/cakes?pies.page=3&cakes.q=cake&cakes.order=-name"
    assert shown.headings[2].link == "/cakes?pies.page=3&cakes.q=cake&cakes.order=-weight"
    assert shown.reset == "/cakes?pies.page=3"


def test_links_keep_parameters_that_come_several_times() -> None:
    """Such as those of ticked rows."""
    shown = view(QueryParams("row=1&row=2&cakes.page=2"))
    assert shown.link(1) == "/cakes?row=1&row=2"


def test_a_file_has_all_rows_that_the_filters_leave() -> None:
    """Whole values, and not the ones that are written for people."""
    shown = view({"cakes.kind": "square", "cakes.page": "2"})
    file = shown.export("cakes.csv")
    assert file is not None
    rows = list(csv.DictReader(file.content.splitlines()))
    assert len(rows) == 34
    assert rows[4] == {"name": "cake-012", "kind": "square", "weight": "12000", "baked": "2026-11-26T09:30:00.000Z"}
    as_json = shown.export("cakes.json")
    assert as_json is not None
    assert json.loads(as_json.content)[0] == {"name": "cake-000", "kind": "square", "baked": "2026-11-26T09:30:00.000Z"}
    assert shown.export("pies.csv") is None


@pytest.mark.parametrize("name", ["=HYPERLINK(1)", "+1", "-1", "@x", "\t=1"])
def test_a_spreadsheet_computes_no_name(name: str) -> None:
    """A cell that begins as a formula would be one."""
    file = view({}, [Cake(name, "x", -5)]).export("cakes.csv")
    assert file is not None
    assert next(csv.DictReader(file.content.splitlines()))["name"] == f"'{name}"
    assert ",-5," in file.content


def test_a_table_of_few_rows_has_no_fields_to_filter_them() -> None:
    """Unless an address filters it: then everybody sees why rows are missing."""
    assert [view({}, MANY[:number]).is_worth_filtering for number in (0, 9, 10)] == [False, False, True]
    assert view({"cakes.q": "cake"}, MANY[:1]).is_worth_filtering


def test_short_cells_are_kept_in_one_line() -> None:
    """Names, statuses and times are not broken; long texts are."""
    cells = view({}, [Cake("black forest", "round", 1), Cake("x" * 31, "round", 1)]).rows
    assert [row[0].css for row in cells] == ["short", ""]
    assert cells[0][2].css == "number short"
