"""Settings as they are shown on terminals of several widths."""

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
    """What is on a terminal of so many columns, line by line."""
    console = Console(file=StringIO(), width=width)
    print_settings(console, LISTS)
    assert isinstance(console.file, StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_where_there_is_room_they_are_tables() -> None:
    """One setting is one line."""
    assert any("orders.destination" in line and "properties:2 │" in line for line in shown(100))


def test_in_a_narrow_terminal_they_stand_below_each_other() -> None:
    """All lists alike; keys are never folded, and an argument's origin does not repeat its key."""
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
