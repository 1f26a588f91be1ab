"""Texts of others without characters that change the state of a terminal."""

from streamkit.printable_text import LINES, printable


def test_text_cannot_steer_a_terminal() -> None:
    """Escapes and marks that turn the direction of writing are shown as what they are."""
    assert printable("a\x1b[2J\u202eb\n") == r"a\x1b[2J\u202eb\n"


def test_text_of_several_lines_keeps_them() -> None:
    assert printable("a\n\tb\x9b", keep=LINES) == "a\n\tb\\x9b"
