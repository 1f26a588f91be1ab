"""Lists of settings on terminals of several widths."""

import pytest

from streamkit.cli.setting_lists import Line, SettingList, print_settings

LISTS = [
    SettingList("Wrong", [Line("orders.grup", "g", "argument --orders.grup", "unknown; did you mean orders.group?")]),
    SettingList("Honoured", [Line("orders.destination", "orders", "application.properties:2")]),
]


@pytest.mark.parametrize("columns", [None, 100])
def test_wide_terminal_shows_tables(columns: int | None, capsys: pytest.CaptureFixture[str]) -> None:
    """One line per setting; and as wide as they must be where there is no terminal."""
    print_settings(LISTS, columns)
    assert capsys.readouterr().out.splitlines() == [
        "Wrong",
        "SETTING      VALUE  ORIGIN                  WHY",
        "orders.grup  g      argument --orders.grup  unknown; did you mean orders.group?",
        "Honoured",
        "SETTING             VALUE   ORIGIN",
        "orders.destination  orders  application.properties:2",
    ]


def test_narrow_terminal_shows_one_field_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Keys are never folded, and an argument's origin does not repeat its key."""
    print_settings(LISTS, 40)
    assert capsys.readouterr().out.splitlines() == [
        "Wrong",
        "  orders.grup=g",
        "      argument: unknown; did you mean",
        "      orders.group?",
        "Honoured",
        "  orders.destination=orders",
        "      application.properties:2",
    ]
    print_settings(LISTS, 60)
    assert capsys.readouterr().out.splitlines()[-1] == "  orders.destination=orders  application.properties:2"


def test_value_cannot_change_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters are written as escapes."""
    print_settings([SettingList("Honoured", [Line("tea", "\x1b[2J\n", "here")])], None)
    assert r"tea      \x1b[2J\n  here" in capsys.readouterr().out
