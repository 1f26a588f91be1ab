"""Profile expressions: which are true of the active profiles, and which are none."""

import pytest

from streamkit.config.profiles import expanded, matches


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a", True),
        ("!a", False),
        ("!!a", True),
        ("b", False),
        ("b,a", True),
        ("a & b", False),
        ("a | b", True),
        ("a & !b", True),
        ("b | !(b | !a)", True),
    ],
)
def test_an_expression_is_true_of_active_profiles(expression: str, expected: bool) -> None:
    """Here of `a` alone."""
    assert matches(expression, {"a"}) is expected


@pytest.mark.parametrize("expression", ["", "a b", "a)", "(a", "(a b)", "!", "a &", "& a", "()", "a,(", "a,"])
def test_what_is_no_expression_is_refused(expression: str) -> None:
    """It would else be true, or false, of what nobody meant."""
    with pytest.raises(ValueError, match="not a profile expression"):
        matches(expression, {"a"})


def test_a_group_that_names_itself_is_expanded_once() -> None:
    """Directly, or by way of another."""
    groups = {"a": ["b", "c"], "b": ["a"], "c": ["c"]}
    assert expanded(["a"], lambda profile: groups.get(profile, [])) == ["a", "b", "c"]
