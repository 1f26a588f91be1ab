"""Limits of expressions: an evaluation does a bounded amount of work, whatever expression and data."""

import sys
import tracemalloc
from decimal import Decimal
from fractions import Fraction

import pytest

from streamkit.errors import ExpressionError, ExpressionLimitExceeded
from streamkit.expression import compile_expression
from streamkit.expression.evaluation import Evaluation, comparison_work
from streamkit.expression.limits import (
    MAX_DEPTH,
    MAX_LENGTH,
    MAX_NUMBER_BITS,
    MAX_PATTERN_LENGTH,
    MAX_TOKENS,
    MAX_WORK,
)
from streamkit.messaging import Message

BACKTRACKING = "payload.matches('(a|aa)+$') ? 'a' : 'b'"
TEXT = "a" * 60 + "b"
REPLACING = "payload" + ".replace('a', 'aaaaaaaaaaaaaaaa')" * 6
BIG = "x" * (1024 * 1024)


def value_of(source: str, payload: object = None, **headers: object) -> object:
    return compile_expression(source)(Message(payload, headers))


def work_of(source: str, payload: object = None, **headers: object) -> int:
    """Return the units of work of an evaluation."""
    evaluation = Evaluation(Message(payload, headers), source)
    compile_expression(source).evaluate(evaluation)
    return MAX_WORK - evaluation.work_left


def peak_of(source: str, payload: object) -> int:
    """Return the bytes that an evaluation allocates before it is refused."""
    expression = compile_expression(source)
    tracemalloc.start()
    try:
        with pytest.raises(ExpressionLimitExceeded, match="more than 16,777,216 units of work"):
            expression(Message(payload))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_pattern_matching_is_linear() -> None:
    """Twice the text is twice the work, not 2^30 times, for a pattern that makes backtracking engines hang."""
    assert value_of(BACKTRACKING, TEXT) == "b"
    once, twice, thrice = (work_of(BACKTRACKING, "a" * (1000 * times) + "b") for times in (1, 2, 3))
    assert thrice - twice == twice - once < 10_000


def test_chain_of_replacements_is_refused_before_its_text_is_built() -> None:
    """It would have 16^6 characters; no intermediate text exceeds the limit."""
    assert peak_of(REPLACING, "a") < 2 * MAX_WORK
    assert peak_of("payload.replace('', payload)", "a" * 100_000) < MAX_WORK


@pytest.mark.parametrize(
    "source",
    [
        "payload.![#root.payload.![#root.payload.![1]]]",
        "payload.?[#root.payload.?[#this == 1].size() == 0].?[#root.payload.?[#this == 1].size() == 0]",
        "payload.![#root.payload.toString()]",
    ],
)
def test_loops_in_loops_are_refused(source: str) -> None:
    """Each item is charged before the part between the brackets is evaluated for it."""
    assert peak_of(source, list(range(2000))) < MAX_WORK


def test_a_selection_takes_work_in_proportion_to_items_and_tokens() -> None:
    """Twice the items, or twice the tokens, is twice the work."""
    once, twice, longer = (
        work_of("payload.?[#this > 1]", [1] * 1000),
        work_of("payload.?[#this > 1]", [1] * 2000),
        work_of("payload.?[#this > 1 && #this > 1]", [1] * 1000),
    )
    assert twice == 2 * once
    assert once < longer < 2 * once


def test_the_item_of_a_failed_loop_is_forgotten() -> None:
    """The next evaluation has a root of its own."""
    expression = compile_expression("payload.![1 / #this]")
    with pytest.raises(ExpressionError, match="1 / 0"):
        expression(Message([1, 0]))
    assert expression(Message([1, 2])) == [1, 0]


@pytest.mark.parametrize(
    "source",
    [
        "payload" + " + payload" * 20,
        "'' + {" + ", ".join(["payload"] * 20) + "}",
        "{" + ", ".join(["payload"] * 20) + "}.toString()",
        "'' + {" + ", ".join(["{payload, payload}"] * 20) + "}",
        "payload" + ".toUpperCase().toLowerCase()" * 10,
        " || ".join(["payload.contains('y')"] * 20),
    ],
)
def test_evaluation_with_too_much_text_is_refused(source: str) -> None:
    """The memory is bounded by the work."""
    assert peak_of(source, BIG) < 3 * MAX_WORK


def test_comparison_of_lists_is_bounded() -> None:
    """Comparing two lists counts all their elements; comparing a list with a number counts nothing."""
    items = [["x"] * 1000] * 1000
    assert work_of("payload == payload", items) > 1_000_000
    assert work_of("payload == 1", items) == 0
    with pytest.raises(ExpressionLimitExceeded):
        value_of(" && ".join(["payload == payload"] * 20), items)
    with pytest.raises(ExpressionLimitExceeded):
        value_of(" || ".join(["payload.contains({1})"] * 20), items)
    with pytest.raises(ExpressionLimitExceeded):
        value_of(" && ".join(["payload <= payload"] * 20), items)


def test_comparison_of_a_recursive_list_is_refused() -> None:
    """Counting stops at the limit."""
    items: list[object] = []
    items.append(items)
    assert MAX_WORK < comparison_work(items, items) < 2 * MAX_WORK
    with pytest.raises(ExpressionLimitExceeded):
        value_of("payload == payload", items)
    with pytest.raises(ExpressionLimitExceeded, match="nested too deeply"):
        value_of("'' + payload", items)


@pytest.mark.parametrize("source", ["payload.a", "payload['a']"])
def test_deeply_nested_payload_is_an_expression_error(source: str) -> None:
    """msgspec raises RecursionError for 100,000 brackets."""
    with pytest.raises(ExpressionError, match="the payload is not JSON"):
        value_of(source, b"[" * 100_000)


def test_payload_is_parsed_once() -> None:
    """Per evaluation, for any number of accesses; other documents are charged."""
    data = b'{"a": 1, "b": "' + b"x" * 1000 + b'"}'
    assert work_of(" + ".join(["payload.a"] * 100), data) == 0
    assert 1000 < work_of("payload.a + headers.h.a", data, h=b'{"a":' + b" " * 1000 + b"1}") < 1100


@pytest.mark.parametrize(
    "source",
    [
        "2 ^ 1000 * 2 ^ 1000",
        "3 ^ 1000",
        "(2 ^ 500) ^ 500",
        "payload ^ 2",
        "payload + 1",
        "headers.fraction ^ 1000",
        "-payload",
    ],
)
def test_integers_have_a_maximum_size(source: str) -> None:
    """In multiplication, power and addition."""
    with pytest.raises(ExpressionLimitExceeded, match=f"more than {MAX_NUMBER_BITS:,} bits"):
        value_of(source, 2**5000, fraction=Fraction(3, 2))


def test_integers_up_to_the_limit_are_calculated() -> None:
    """As they were."""
    assert value_of("2 ^ 1000 + 1") == 2**1000 + 1
    assert value_of("payload * 2", 2**64) == 2**65
    assert value_of("payload % 7", Decimal("15.5")) == Decimal("1.5")
    assert value_of("payload.intValue()", Decimal("15.5")) == 15


@pytest.mark.parametrize(
    "source", ["payload.intValue()", "payload % 7", "(1e999).intValue()", "headers.n.doubleValue()"]
)
def test_number_too_large_to_be_printed_is_an_expression_error(source: str) -> None:
    """A decimal of eight characters may have a million digits."""
    with pytest.raises(ExpressionError, match=r"too large|infinity"):
        value_of(source, Decimal("1E+999999"), n=2**5000)


@pytest.mark.parametrize("number", ["NaN", "sNaN"])
def test_nan_decimal_has_no_order_and_equals_nothing(number: str) -> None:
    """Python raises `InvalidOperation`."""
    assert value_of("payload == 1", Decimal(number)) is False
    assert value_of("{payload}.contains(1)", Decimal(number)) is False
    for source in ("payload < 1", "1 <= payload", "payload between {1, 2}"):
        with pytest.raises(ExpressionError, match="cannot be ordered"):
            value_of(source, Decimal(number))


def test_text_of_a_huge_integer_is_refused() -> None:
    """Python converts at most 4,300 digits and raises `ValueError`."""
    with pytest.raises(ExpressionLimitExceeded, match="limit"):
        value_of("'' + payload", 10**5000)


@pytest.mark.parametrize(
    ("source", "position", "reason"),
    [
        ("a" * (MAX_LENGTH + 1), MAX_LENGTH, "the expression has 10,001 characters, more than 10,000"),
        ("1" + "+1" * MAX_TOKENS, MAX_TOKENS, "the expression is too long: more than 500 tokens"),
        ("(" * 400, MAX_DEPTH, "the expression is nested too deeply: more than 50 levels"),
        ("!" * 400 + "a", MAX_DEPTH, "the expression is nested too deeply: more than 50 levels"),
        ("9" * 5000, 0, "the number has more than 1,024 bits"),
        (str(2**MAX_NUMBER_BITS), 0, "the number has more than 1,024 bits"),
    ],
)
def test_too_large_expression_does_not_compile(source: str, position: int, reason: str) -> None:
    """The error names the limit and the position without repeating all of the text."""
    with pytest.raises(ExpressionLimitExceeded) as caught:
        compile_expression(source)
    assert caught.value.reason == reason
    assert caught.value.position == position
    assert len(str(caught.value)) < 3200


def test_longest_chain_uses_a_bounded_part_of_the_stack() -> None:
    """Fewer than 300 of 1,000 frames; it is refused if they are not available."""
    frame, used = sys._getframe(), 0
    while frame is not None:
        frame, used = frame.f_back, used + 1

    def deep(left: int) -> object:
        """Evaluate the chain with so many frames left."""
        calls = sys.getrecursionlimit() - used - left

        def call(frames: int) -> object:
            return call(frames - 1) if frames else value_of("1" + "+1" * 249)

        return call(calls)

    assert deep(300) == 250
    with pytest.raises(ExpressionLimitExceeded, match="nested too deeply"):
        deep(200)


def test_error_shows_an_expression_on_one_line() -> None:
    """A message's expression cannot inject a log line."""
    with pytest.raises(ExpressionError) as caught:
        compile_expression("1 +\nWARNING: something else ~")
    assert len(str(caught.value).splitlines()) == 3


def test_unhashable_key_is_an_expression_error() -> None:
    """A list cannot be a map's key."""
    with pytest.raises(ExpressionError, match="has no item a list"):
        value_of("headers[{1}]")


def test_ordinary_expressions_take_little_work() -> None:
    """Header access and comparisons are free; text operations are charged by length."""
    assert work_of("headers['type'] == 'refund' && payload.amount > 100", {"amount": 150}, type="refund") == 0
    assert work_of("headers.type + '-' + headers.n", type="refund", n=1) == 15
    assert work_of("headers.type matches '[a-z]+'", type="refund") < 1000


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("[a-z]+", "abc", True),
        ("b", "abc", False),
        (r"\d{4}-\d{2}", "2024-05", True),
        ("a|ab", "ab", True),
        (r"\p{L}+", "Größe", True),
        ("(?i)abc", "ABC", True),
        ("(?s).*", "a\nb", True),
        (".*", "a\nb", False),
        (r"\Q[a&&[\E", "[a&&[", True),
        (r"[]a\[&]+", "]a[&", True),
        ("", "", True),
        ("", "a", False),
        ("a?", "\ud800", False),
    ],
)
def test_pattern_matches_the_whole_text(pattern: str, text: str, expected: bool) -> None:
    """As Java's `String.matches`."""
    assert value_of("payload.matches(headers.p)", text, p=pattern) is expected
    assert value_of(f"payload matches '{pattern}'", text) is expected


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (r"(a)\1", "back references"),
        (r"(a)\12", "back references"),
        ("(?=a)a", "look-around"),
        ("(?<!b)a", "look-around"),
        ("a*+", "possessive quantifiers"),
        ("(?>a)", "not a regular expression"),
        ("(", "not a regular expression"),
        (r"\012", "octal escapes"),
        (r"\v", "vertical white space"),
        ("[a-z&&[^b]]", "nested character classes"),
        ("[a[bc]]", "nested character classes"),
        ("[[:alpha:]]", "nested character classes"),
        ("(?U)a", "the flag U"),
        ("(?iU:a)", "the flag U"),
        (r"\p{L}{1,1000}", "pattern too large"),
        ("a" * (MAX_PATTERN_LENGTH + 1), "1,001 characters, more than 1,000"),
    ],
)
def test_pattern_without_linear_matching_is_refused(pattern: str, reason: str) -> None:
    """A constant one when the expression is compiled, another when it is evaluated;

    also where Java's meaning differs.
    """
    for source in (f"payload matches '{pattern}'", f"payload.matches('{pattern}')"):
        with pytest.raises(ExpressionError, match=reason) as caught:
            compile_expression(source)
        assert caught.value.position == source.index("'")
    with pytest.raises(ExpressionError, match=reason):
        value_of("payload matches headers.p", "a", p=pattern)


def test_patterns_of_one_expression_share_a_limit() -> None:
    """A hundred large ones are refused, although one is accepted."""
    great = [f"payload matches '{number}\\p{{L}}{{1,40}}'" for number in range(60)]
    compile_expression(great[0])
    with pytest.raises(ExpressionLimitExceeded):
        compile_expression(" || ".join(great))


def test_pattern_matching_cost_depends_on_the_pattern() -> None:
    """RE2's automaton may run all instructions in parallel."""
    plain = work_of("payload matches '[ab]+'", "ab" * 1000)
    slow = work_of("payload matches '(a|b)*a(a|b){60}'", "ab" * 1000)
    assert plain < slow
    with pytest.raises(ExpressionLimitExceeded):
        value_of(" || ".join(["payload matches '(a|b)*a(a|b){60}c'"] * 20), "ab" * 100_000)
