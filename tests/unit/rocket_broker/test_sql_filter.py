"""SQL92 expressions over properties: semantics, error positions and limits."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocket_broker.filter.sql import SqlError, compile_sql


def matches(text: str, **properties: str) -> bool:
    """Return whether a message with these properties matches."""
    return compile_sql(text).matches(properties)


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("a = 'x'", "x", True),
        ("a <> 'x'", "y", True),
        ("a = 5", "5", True),
        ("a = 5", "+5", True),
        ("a > 5", "6", True),
        ("a > 5", "5", False),
        ("a >= 5", "5", True),
        ("a < 5.5", "5", True),
        ("a <= 1e3", "1000", True),
        ("a = TRUE", "tRuE", True),
        ("a = false", "anything", True),
        ("a BETWEEN 1 AND 3", "0", False),
        ("a BETWEEN 1 AND 3", "1", True),
        ("a BETWEEN 1 AND 3", "3", True),
        ("a BETWEEN 1 AND 3", "4", False),
        ("a NOT BETWEEN 1 AND 3", "0", True),
        ("a NOT BETWEEN 1 AND 3", "1", False),
        ("a NOT BETWEEN 1 AND 3", "3", False),
        ("a NOT BETWEEN 1 AND 3", "4", True),
        ("a BETWEEN -3 AND -1", "-2", True),
        ("a IN ('x', 'y')", "y", True),
        ("a NOT IN ('x', 'y')", "z", True),
        ("a = 'it''s'", "it's", True),
        ("a IS NOT NULL", "x", True),
        ("a IS NULL", "x", False),
        ("a CONTAINS 'el'", "hello", True),
        ("a NOT CONTAINS 'el'", "hello", False),
        ("a STARTSWITH 'he'", "hello", True),
        ("a NOT ENDSWITH 'he'", "hello", True),
        ("a CONTAINS ''", "hello", False),
        ("NOT (a = 'x')", "y", True),
        ("a = 3000000000", "3000000000", True),
    ],
)
def test_expressions_have_sql_semantics(text: str, value: str, expected: bool) -> None:
    """Comparisons, BETWEEN, IN, IS NULL, numbers, texts and booleans."""
    assert matches(text, a=value) is expected


def test_and_or_and_not_are_three_valued() -> None:
    """An unknown operand decides nothing unless the other side cannot change the result."""
    assert matches("missing = 1 OR a = 1", a="1")
    assert not matches("missing = 1 AND a = 1", a="1")
    assert not matches("NOT (missing = 1)", a="1")
    assert matches("NOT (missing = 1 AND a = 2)", a="1")
    assert matches("missing IS NULL")


LEAVES = [("a = 1", True), ("a = 2", False), ("missing = 1", None)]


def _joined(clauses: list[tuple[str, bool | None]], word: str) -> tuple[str, bool | None]:
    deciding = word == "OR"
    truths = [truth for _, truth in clauses]
    truth = deciding if deciding in truths else None if None in truths else not deciding
    return f"({f' {word} '.join(text for text, _ in clauses)})", truth


def _negated(clause: tuple[str, bool | None]) -> tuple[str, bool | None]:
    text, truth = clause
    return f"(NOT {text})" if text[0] == "(" else f"(NOT ({text}))", None if truth is None else not truth


CLAUSES = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: (
        st.builds(_joined, st.lists(inner, min_size=2, max_size=4), st.sampled_from(["AND", "OR"]))
        | st.builds(_negated, inner)
    ),
    max_leaves=8,
)


@given(CLAUSES)
@settings(max_examples=50)
def test_combined_operators_follow_three_valued_logic(clause: tuple[str, bool | None]) -> None:
    """An expression matches if it is true, and its negation if it is false."""
    text, truth = clause
    assert matches(text, a="1") is (truth is True)
    assert matches(f"NOT ({text})", a="1") is (truth is False)


@pytest.mark.parametrize("sign", ["CONTAINS", "STARTSWITH", "ENDSWITH"])
def test_missing_property_matches_neither_like_nor_not_like(sign: str) -> None:
    """Both are false, as in Apache's broker."""
    assert not matches(f"missing {sign} 'x'")
    assert not matches(f"missing NOT {sign} 'x'")


def test_two_missing_properties_are_equal() -> None:
    """As in Apache's broker."""
    assert matches("a = b")
    assert not matches("a = b", a="x")
    assert not matches("a <> b", b="x")


def test_not_binds_tighter_than_a_comparison() -> None:
    """As in Apache's broker: ``NOT a = 5`` means ``(NOT a) = 5``, and no property is a boolean."""
    assert not matches("NOT a = 5", a="4")
    assert matches("NOT a", a="4")
    assert not matches("a", a="true")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a > 5", "many"),
        ("a > 5", "5.5"),
        ("a > 5", "3000000000"),
        ("a <> 5", "many"),
        ("TRUE = a", "true"),
        ("a > b", "x"),
        ("NOT (a > 5) OR TRUE", "x"),
    ],
)
def test_incomparable_text_fails_the_whole_expression(text: str, value: str) -> None:
    """As in Apache's broker, whatever follows."""
    assert not matches(text, a=value, b="1")


def test_or_short_circuits() -> None:
    """A failing operand after a true one has no effect."""
    assert matches("a = 'x' OR a > 5", a="x")
    assert not matches("a > 5 OR a = 'x'", a="x")


@pytest.mark.parametrize(
    ("text", "java", "expected"),
    [
        ("a = 5.0", " 5 ", True),
        ("a = 5.0", "5f", True),
        ("a = 2.5", "0x1.4p1", True),
        ("a > 5.0", "NaN", True),
        ("a > 5.0", "Infinity", True),
        ("a > 5.0", "1e999", True),
        ("a > 5.0", "0x1p9999", True),
        ("a < 5.0", "-0x1p9999d", True),
        ("a < 5.0", "1_0", False),
        ("a = 5", " 5", False),
        ("a = 5", "٥", True),
        ("a = 5", "9" * 5000, False),
    ],
)
def test_numbers_are_parsed_as_java_does(text: str, java: str, expected: bool) -> None:
    """``Double.valueOf`` and ``Integer.valueOf``, with all forms they accept."""
    assert matches(text, a=java) is expected


def test_properties_are_compared_as_doubles() -> None:
    """Two properties have no other type; minus zero comes before zero, and NaN last."""
    assert matches("a < b", a="9", b="10")
    assert matches("a < b", a="-0", b="0")
    assert matches("a <= b AND a >= b", a="NaN", b="NaN")
    assert not matches("-a < 5", a="1")


@pytest.mark.parametrize(
    ("text", "line", "column", "reason"),
    [
        ("", 1, 1, "ends too early"),
        ("a =", 1, 4, "ends too early"),
        ("a = 1 b = 2", 1, 7, "'b = 2' is not expected here"),
        ("a ; b", 1, 3, "not understood"),
        ("a = 1 AND\n  b IN (1)", 2, 9, "'1)' is not expected here"),
        ("'x'", 1, 1, "expected a condition"),
        ("a > 'x'", 1, 5, "need numbers or properties"),
        ("TRUE > 1", 1, 1, "need numbers or properties"),
        ("a > 5 > 3", 1, 1, "need numbers or properties"),
        ("a = NULL", 1, 5, "write IS NULL"),
        ("TRUE = 'x'", 1, 8, "a boolean cannot be compared"),
        ("a BETWEEN 5 AND 3", 1, 11, "the first value is greater than the second"),
        ("a BETWEEN 2.5 AND 2", 1, 11, "the first value is greater than the second"),
        ("NOT a IN ('x')", 1, 5, "IN needs a property"),
        ("a = 9223372036854775808", 1, 5, "does not fit a Long"),
        ("a = 1e400", 1, 5, "does not fit a Double"),
        ("a = 0.0", 1, 5, "does not fit a Double"),
    ],
)
def test_syntax_error_has_line_column_and_token(text: str, line: int, column: int, reason: str) -> None:
    """Lines and columns count from 1."""
    with pytest.raises(SqlError, match=r"line \d+, column \d+: ") as caught:
        compile_sql(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert reason in caught.value.reason


@pytest.mark.parametrize(("before", "after"), [("NOT (", ")"), ("NOT ", ""), ("-(", ")"), ("(a = 1 AND (", " OR b))")])
def test_deep_nesting_is_refused(before: str, after: str) -> None:
    """The limit does not depend on Python's stack."""
    with pytest.raises(SqlError, match="nested more than 100 levels deep"):
        compile_sql(before * 150 + "a" + after * 150 + " = 1")


def test_redundant_parentheses_do_not_count_as_nesting() -> None:
    """They vanish when the expression is compiled."""
    assert matches("(" * 2000 + "a = 1" + ")" * 2000, a="1")


def test_long_chain_does_not_count_as_nesting() -> None:
    """A thousand alternatives are one level."""
    expression = compile_sql(" OR ".join(f"a={n}" for n in range(800)))
    assert expression.matches({"a": "799"})
    assert expression.cost > 800


def test_too_long_expression_is_refused() -> None:
    """Parsing it would block the loop."""
    with pytest.raises(SqlError, match="at most 8192 characters, not 9000"):
        compile_sql("a" * 9000)


def test_comments_and_names_like_keywords_are_parsed() -> None:
    """Keywords are whole words in any case; comments are ignored."""
    text = "/* in */ inner = 'x' and NotHere is null -- or not\n or ANDROID = 'y' -- end"
    assert matches(text, inner="x")
    assert matches(text, ANDROID="y", NotHere="z")
