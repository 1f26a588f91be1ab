"""Placeholders in texts."""

import pytest

from streamkit.config.placeholders import resolve


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${a}", "1"),
        ("\\${a}", "${a}"),
        ("\\${a} and ${a}", "${a} and 1"),
        ("${missing:\\${a}}", "${a}"),
        ("${a", "${a"),
    ],
)
def test_a_backslash_makes_a_placeholder_plain_text(text: str, expected: str) -> None:
    """So a value may contain what another program is to replace."""
    assert resolve(text, {"a": "1"}.get) == expected
