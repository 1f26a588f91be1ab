"""Profile expressions: evaluation and syntax errors."""

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
        ("(a & b) | a", True),
        ("a & (b | c)", False),
        ("a | b | c", True),
    ],
)
def test_profile_expressions_are_evaluated(expression: str, expected: bool) -> None:
    """With only `a` active."""
    assert matches(expression, {"a"}) is expected


@pytest.mark.parametrize("expression", ["", "a b", "a)", "(a", "(a b)", "!", "a &", "& a", "()", "a,(", "a,"])
def test_invalid_profile_expression_is_refused(expression: str) -> None:
    """Instead of being silently true or false."""
    with pytest.raises(ValueError, match="not a profile expression"):
        matches(expression, {"a"})


@pytest.mark.parametrize("expression", ["a & b | c", "a | b & c", "!(a | b & c)"])
def test_and_and_or_are_mixed_only_with_brackets(expression: str) -> None:
    """As in Spring, where neither binds stronger."""
    with pytest.raises(ValueError, match=r"mixes & and \| without brackets"):
        matches(expression, {"a"})


def test_recursive_profile_group_is_expanded_once() -> None:
    """Directly or through another group."""
    groups = {"a": ["b", "c"], "b": ["a"], "c": ["c"]}
    assert expanded(["a"], lambda profile: groups.get(profile, [])) == ["a", "b", "c"]
