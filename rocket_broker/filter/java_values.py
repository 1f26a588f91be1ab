"""The values of an expression, converted and compared by Java's rules.

::

    Java      here                    Java      here
    String    str (every property)    Double    float
    Integer   int                     Boolean   bool
    Long      Long                    null      None

A text is converted to the type of the value that it is compared with: ``a > 5`` needs a text that is an Integer in
Java, ``a > 5.0`` a Double. If the text cannot be converted, the comparison has no answer, and neither has the
expression.
"""

import math
import re
from collections.abc import Callable

__all__ = ["ComparisonError", "Long", "Present", "Value", "compare", "is_equal"]

INTEGER_BITS = 31
LONG_BITS = 63
_MOST_DIGITS = 4000  # the longest text that Python converts to an int; a Long has 19 digits

_INTEGER_TEXT = re.compile(r"[+-]?\d+")
_DOUBLE_TEXT = re.compile(
    r"(?P<special>[+-]?(?:NaN|Infinity))"
    r"|(?P<hexadecimal>[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
    r"|(?P<decimal>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
)
_TRIMMED = "".join(map(chr, range(0x21)))


class Long(int):
    """A Long in Java; a plain int is an Integer."""


Present = str | int | float | bool
Value = Present | None


class ComparisonError(Exception):
    """Apache's broker fails at this comparison, and so the message does not match."""


def integer_of(text: str, bits: int = INTEGER_BITS) -> int:
    """``Integer.valueOf(text)``; with 63 bits ``Long.valueOf(text)``.

    Raises:
        ComparisonError: The text is not such a number.
    """
    if len(text) > _MOST_DIGITS or not _INTEGER_TEXT.fullmatch(text):
        raise ComparisonError
    number = int(text)
    if not -(1 << bits) <= number < 1 << bits:
        raise ComparisonError
    return number


def long_of(text: str) -> Long:
    """``Long.valueOf(text)``.

    Raises:
        ComparisonError: The text is not a Long.
    """
    return Long(integer_of(text, LONG_BITS))


def double_of(text: str) -> float:
    """``Double.valueOf(text)``.

    Raises:
        ComparisonError: The text is not a Double.
    """
    match = _DOUBLE_TEXT.fullmatch(text.strip(_TRIMMED))
    if match is None:
        raise ComparisonError
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
    """Return a number less than, equal to or greater than 0 as ``left`` is to ``right``; two texts count as Doubles.

    Raises:
        ComparisonError: A text cannot be converted to the other value's type.
    """
    if isinstance(left, str):
        if isinstance(right, str):
            return _order_doubles(double_of(left), double_of(right))
        left = _READ[type(right)](left)
    elif isinstance(right, str):
        if isinstance(left, bool):
            raise ComparisonError  # Apache's broker casts the Boolean to a String here, and fails
        right = _READ[type(left)](right)
    elif isinstance(left, bool) is not isinstance(right, bool):
        return -1
    if isinstance(left, float) or isinstance(right, float):
        return _order_doubles(float(left), float(right))
    return (left > right) - (left < right)


def is_equal(left: Value, right: Value) -> bool | None:
    """``left = right``: unknown if only ``left`` is missing, false if only ``right`` is.

    Raises:
        ComparisonError: A text cannot be converted to the other value's type.
    """
    if left is None:
        return True if right is None else None
    if right is None:
        return False
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    return compare(left, right) == 0


def _order_doubles(left: float, right: float) -> int:
    """Compare as ``Double.compareTo`` does: -0.0 is less than 0.0, and NaN is the greatest."""
    if left < right:
        return -1
    if left > right:
        return 1
    left_rank, right_rank = _rank(left), _rank(right)
    return (left_rank > right_rank) - (left_rank < right_rank)


def _rank(number: float) -> int:
    """Return a rank that orders -0.0, 0.0 and NaN, which ``<`` and ``>`` do not order."""
    if math.isnan(number):
        return 2
    return 0 if number == 0 and math.copysign(1.0, number) < 0 else 1
