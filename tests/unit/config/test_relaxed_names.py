"""One setting, many spellings."""

import pytest

from streamkit.config.relaxed import format_key, kebab, parse_key, uniform_key


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ("a.b-c.dE", ("a", "b-c", "dE")),
        ("a[0].b", ("a", "0", "b")),
        ("a[x.y].b", ("a", "x.y", "b")),
        ("a.[x|y].b", ("a", "x|y", "b")),
        ("NAME_SERVER", ("NAME_SERVER",)),
    ],
)
def test_names_are_split_at_dots(text, segments):
    """Text in brackets is one segment."""
    assert parse_key(text) == segments
    assert parse_key(format_key(segments)) == segments


def test_equal_names():
    """Camel case, kebab case, snake case and upper case are equal."""
    spellings = ["a.nameServer", "a.name-server", "a.name_server", "A.NAME_SERVER", "a.NameServer"]
    assert len({uniform_key(spelling) for spelling in spellings}) == 1


def test_bars_do_not_count():
    """The binding of the functions `a|b` is called `ab-in-0`."""
    assert uniform_key("bindings.a|b-in-0") == uniform_key("bindings[a|b-in-0]") == uniform_key("bindings.abIn0")


def test_documented_spelling_is_kebab_case():
    """In errors and tables."""
    assert kebab("maxAttempts") == kebab("max_attempts") == "max-attempts"
