"""No expression does anything but compute a value or say what is wrong with it."""

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from streamkit.errors import ExpressionError
from streamkit.expression import compile_expression
from streamkit.messaging import Message

MESSAGE = Message({"a": [1, "x", None], "b": {"c": 2.5}}, {"k": "v", "n": 7})

TOKENS = """
payload headers . ?. [ ] ( ) { } , ? : ?: 'a' 'k' 1 2.5 true null + - * / % ^ == != < >= && || ! not and
matches between a b c k n length() size() contains('a') __class__ #root @x T = ~ '
"""
PIECES = st.sampled_from(TOKENS.split())


@given(st.lists(PIECES, max_size=12).map(" ".join))
def test_random_tokens(source):
    """Whatever tokens follow each other, only ExpressionError comes out."""
    with suppress(ExpressionError):
        compile_expression(source)(MESSAGE)


@given(st.text(max_size=30))
def test_random_text(source):
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
    """Quotient and remainder belong together, and the remainder has the dividend's sign."""
    quotient = compile_expression(f"({left}) / ({right})")(None)
    remainder = compile_expression(f"({left}) % ({right})")(None)
    assert quotient * right + remainder == left
    assert abs(remainder) < abs(right)
    assert remainder * left >= 0
