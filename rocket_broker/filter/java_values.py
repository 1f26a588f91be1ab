"""The values of an expression, converted and compared as Java does it.

::

    Java      here                    Java      here
    String    str (every property)    Double    float
    Integer   int                     Boolean   bool
    Long      Long                    null      None

A text is read as the type of what it is compared with: ``a > 5`` needs a text that is an Integer in Java,
``a > 5.0`` a Double. When that fails, the comparison has no answer, and neither has the expression around it.
"""

import math
import re
from collections.abc import Callable

__all__ = ["Long", "NoAnswer", "Present", "Value", "compare", "is_equal"]

INTEGER_BITS = 31
LONG_BITS = 63
_MOST_DIGITS = 4000  # of a text that Python turns into an int without complaint; a Long has 19

_INTEGER_TEXT = re.compile(r"[+-]?\d+")
_DOUBLE_TEXT = re.compile(
    r"(?P<special>[+-]?(?:NaN|Infinity))"
    r"|(?P<hexadecimal>[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
    r"|(?P<decimal>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
)
_TRIMMED = "".join(map(chr, range(0x21)))


class Long(int):
    """A number that is a Long in Java; a bare int is an Integer."""


Present = str | int | float | bool
Value = Present | None


class NoAnswer(Exception):  # noqa: N818 - what Apache's broker throws is no mistake of the message's
    """Apache's broker fails at this comparison, and the message does not match."""


def integer_of(text: str, bits: int = INTEGER_BITS) -> int:
    """``Integer.valueOf(text)``, or ``Long.valueOf`` with 63 bits.

    Raises:
        NoAnswer: The text is no such number.
    """
    if len(text) > _MOST_DIGITS or not _INTEGER_TEXT.fullmatch(text):
        raise NoAnswer
    number = int(text)
    if not -(1 << bits) <= number < 1 << bits:
        raise NoAnswer
    return number


def long_of(text: str) -> Long:
    """``Long.valueOf(text)``; raises `NoAnswer` as `integer_of` does."""
    return Long(integer_of(text, LONG_BITS))


def double_of(text: str) -> float:
    """``Double.valueOf(text)``.

    Raises:
        NoAnswer: The text is no such number.
    """
    match = _DOUBLE_TEXT.fullmatch(text.strip(_TRIMMED))
    if match is None:
        raise NoAnswer
    if match["hexadecimal"] is None:
        return float(match["special"] or match["decimal"])
    try:
        return float.fromhex(match["hexadecimal"])
    except OverflowError:
        return -math.inf if text.lstrip(_TRIMMED).startswith("-") else math.inf


def boolean_of(text: str) -> bool:
    """``Boolean.valueOf(text)``."""
    return text.lower() == "true"


_READ: dict[type, Callable[[str], float]] = {
    int: integer_of,
    Long: long_of,
    float: double_of,
    bool: boolean_of,
}


def compare(left: Present, right: Present) -> int:
    """Less than, equal to or greater than 0 as the left value is to the right one; two texts count as Doubles.

    Raises:
        NoAnswer: A text is not of the other value's type.
    """
    if isinstance(left, str):
        if isinstance(right, str):
            return _order_doubles(double_of(left), double_of(right))
        left = _READ[type(right)](left)
    elif isinstance(right, str):
        if isinstance(left, bool):
            raise NoAnswer  # Apache's broker takes the Boolean for a String here
        right = _READ[type(left)](right)
    elif isinstance(left, bool) is not isinstance(right, bool):
        return -1
    if isinstance(left, float) or isinstance(right, float):
        return _order_doubles(float(left), float(right))
    return (left > right) - (left < right)


def is_equal(left: Value, right: Value) -> bool | None:
    """``left = right``: unknown when only the left is missing, false when only the right is.

    Raises:
        NoAnswer: A text is not of the other value's type.
    """
    if left is None:
        return True if right is None else None
    if right is None:
        return False
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    return compare(left, right) == 0


def _order_doubles(left: float, right: float) -> int:
    """Compare as ``Double.compareTo`` does: -0.0 is less than 0.0, and NaN the greatest."""
    if left < right:
        return -1
    if left > right:
        return 1
    left_rank, right_rank = _rank(left), _rank(right)
    return (left_rank > right_rank) - (left_rank < right_rank)


def _rank(number: float) -> int:
    """Tell apart what ``<`` and ``>`` do not."""
    if math.isnan(number):
        return 2
    return 0 if number == 0 and math.copysign(1.0, number) < 0 else 1
