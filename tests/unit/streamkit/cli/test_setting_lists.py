"""Lists of settings on terminals of several widths."""

from io import StringIO

from rich.console import Console
from rich.text import Text

from streamkit.cli.setting_lists import Line, print_settings

LISTS = [
    (
        Text("Wrong"),
        [Line("orders.grup", "g", "argument --orders.grup", "unknown; did you mean orders.group?")],
    ),
    (Text("Honoured"), [Line("orders.destination", "orders", "application.properties:2")]),
]


def shown(width: int) -> list[str]:
    """Return the lines shown on a terminal with so many columns."""
    console = Console(file=StringIO(), width=width)
    print_settings(console, LISTS)
    assert isinstance(console.file, StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_wide_terminal_shows_tables() -> None:
    """One line per setting."""
    assert any("orders.destination" in line and "properties:2 │" in line for line in shown(100))


def test_narrow_terminal_shows_one_field_per_line() -> None:
    """Keys are never folded, and an argument's origin does not repeat its key."""
    assert shown(40) == [
        "Wrong",
        "  orders.grup=g",
        "      argument: unknown; did you mean",
        "      orders.group?",
        "Honoured",
        "  orders.destination=orders",
        "      application.properties:2",
    ]
    assert shown(60)[-1] == "  orders.destination=orders  application.properties:2"
