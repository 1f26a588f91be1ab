"""Expressions compute a value or fail with an ExpressionError."""

import sys
from contextlib import suppress
from types import FrameType

from hypothesis import assume, given
from hypothesis import strategies as st

from streamkit.errors import ExpressionError, ExpressionLimitExceeded
from streamkit.expression import compile_expression
from streamkit.expression.evaluation import Evaluation
from streamkit.expression.limits import MAX_NUMBER_BITS, MAX_WORK
from streamkit.expression.patterns import PatternError, compile_pattern
from streamkit.expression.tokens import tokenize
from streamkit.messaging import Message

MESSAGE = Message({"a": [1, "x", None], "b": {"c": 2.5}}, {"k": "v", "n": 7})

TOKENS = """
payload headers . ?. [ ] ( ) { } , ? : ?: 'a' 'k' 1 2.5 true null + - * / % ^ == != < >= && || ! not and
matches between a b c k n length() size() contains('a') __class__ #root @x T = ~ '
"""
PIECES = st.sampled_from(TOKENS.split())


@given(st.lists(PIECES, max_size=12).map(" ".join))
def test_random_tokens_raise_only_expression_errors(source):
    """Whatever tokens follow each other, only ExpressionError comes out."""
    with suppress(ExpressionError):
        compile_expression(source)(MESSAGE)


@given(st.text(max_size=30))
def test_random_text_raises_errors_with_a_position(source):
    """Whatever the text, the error points into it."""
    try:
        compile_expression(source)(MESSAGE)
    except ExpressionError as error:
        position = error.position
    else:
        position = 0
    assert 0 <= position <= len(source)


@given(st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6).filter(bool))
def test_java_division(left, right):
    """Quotient and remainder are consistent, and the remainder has the dividend's sign."""
    quotient = compile_expression(f"({left}) / ({right})")(None)
    remainder = compile_expression(f"({left}) % ({right})")(None)
    assert quotient * right + remainder == left
    assert abs(remainder) < abs(right)
    assert remainder * left >= 0


OPERANDS = st.sampled_from(
    [
        "payload.t",
        "payload.l",
        "payload.m",
        "payload.n",
        "payload.d",
        "headers.p",
        "headers.t",
        "'aaaa'",
        "''",
        "7",
        "2.5",
        "null",
        "true",
    ]
)
BINARY = st.sampled_from(["+", "-", "*", "/", "%", "^", "==", "!=", "<", ">=", "&&", "||", "matches", "?:"])
METHODS = st.sampled_from(
    [
        "toString()",
        "length()",
        "trim()",
        "toUpperCase()",
        "size()",
        "isEmpty()",
        "intValue()",
        "replace('a',{0})",
        "replace('',{0})",
        "contains({0})",
        "indexOf({0})",
        "equals({0})",
        "matches({0})",
        "substring(1,{0})",
        "equalsIgnoreCase({0})",
        "get({0})",
        "getOrDefault('x',{0})",
    ]
)


def larger(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Generate expressions of parts."""
    return st.one_of(
        st.builds("({} {} {})".format, parts, BINARY, parts),
        st.builds(lambda target, method, part: f"{target}.{method.format(part)}", parts, METHODS, parts),
        st.builds("{{{}}}".format, st.lists(parts, min_size=1, max_size=5).map(", ".join)),
        st.builds("({} ? {} : {})".format, parts, parts, parts),
        st.builds("{}[{}]".format, parts, parts),
        st.builds("-({})".format, parts),
    )


EXPRESSIONS = st.recursive(OPERANDS, larger, max_leaves=25)
TEXTS = st.one_of(
    st.text(max_size=20),
    st.builds(lambda text, times: text * times, st.text("ab\u00df\U0001f600", min_size=1), st.integers(1, 20_000)),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda values: st.lists(values, max_size=6) | st.dictionaries(st.text(max_size=3), values, max_size=4),
    max_leaves=20,
)
MESSAGES = st.builds(
    lambda t, values, m, n, d, p, header: Message(
        {"t": t, "l": values * 50, "m": m, "n": n, "d": d}, {"p": p, "t": header}
    ),
    TEXTS,
    st.lists(VALUES, max_size=4),
    st.dictionaries(st.text(max_size=3), VALUES, max_size=4),
    st.integers(-(2**MAX_NUMBER_BITS), 2**MAX_NUMBER_BITS),
    st.decimals(),
    st.text("ab|()+*?.[]{}1\\^$", max_size=12),
    TEXTS,
)


compile_pattern("a")  # imports RE2, whose calls belong to no evaluation


class Steps:
    """Counts function calls as the interpreter's profiler.

    Attributes:
        parts: Calls of the parser's closures: the parts of an expression.
        all: Calls of all functions, those of C included.
    """

    def __init__(self) -> None:
        self.parts = 0
        self.all = 0

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """Count one event."""
        self.all += event in ("call", "c_call")
        self.parts += event == "call" and frame.f_code.co_filename.endswith("expression/parser.py")


@given(EXPRESSIONS, MESSAGES)
def test_evaluation_ends_within_its_budget(source, message):
    """Each part is evaluated at most once, and other calls are in proportion to the charged work."""
    try:
        expression = compile_expression(source)
    except ExpressionError:
        assume(False)
    evaluation = Evaluation(message, source)
    steps = Steps()
    value: object = None
    before = sys.getprofile()
    sys.setprofile(steps)
    try:
        value = expression.evaluate(evaluation)
    except ExpressionLimitExceeded:
        pass
    except ExpressionError:
        assert evaluation.work_left >= 0
    finally:
        sys.setprofile(before)
    tokens = len(tokenize(source))
    assert steps.parts <= 3 * tokens
    assert steps.all <= 50 * tokens + (MAX_WORK - evaluation.work_left)
    if isinstance(value, str):
        longest = max(len(message.payload["t"]), len(message.headers["t"]), 30)
        assert len(value) <= longest + MAX_WORK - evaluation.work_left
    if type(value) is int:
        assert value.bit_length() <= MAX_NUMBER_BITS + 1


@given(st.text("ab|()+*?.[]{}1,\\^$&:<>=!iUQE", max_size=20), st.text("ab", max_size=10))
def test_pattern_matches_or_is_refused(pattern, text):
    """Whatever the pattern, with the same result each time."""
    try:
        compiled = compile_pattern(pattern)
    except PatternError:
        return
    assert compiled.matches(text) is compiled.matches(text)
    assert compiled.cost(text) >= len(text)
