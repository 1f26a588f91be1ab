"""Java's String.hashCode."""

import pytest

from rocket_remoting.wire.java_hash import java_hash


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("TagA", 2598919),
        ("hello", 99162322),
        ("polygenelubricants", -2147483648),
        ("订单", 1129459),
        ("😀", 1772899),
    ],
)
def test_known_values_match_java(text: str, value: int) -> None:
    """Characters outside the basic plane count as two UTF-16 units."""
    assert java_hash(text) == value


@pytest.mark.parametrize("length", [127, 128, 129, 256, 1000])
def test_long_texts_match_the_formula(length: int) -> None:
    """Unit by unit."""
    text = "".join(chr(33 + index % 90) for index in range(length))
    value = 0
    for unit in text:
        value = (31 * value + ord(unit)) & 0xFFFFFFFF
    assert java_hash(text) & 0xFFFFFFFF == value
