"""The operators of expressions, with the results that Spring's expression language gives.

Every function takes the evaluation, which is charged for work in proportion to data, and the position for errors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from numbers import Number, Rational
from operator import ge, gt, le, lt
from typing import Any, Final

from streamkit.expression.evaluation import CONTAINERS, PLAIN, Evaluation, comparison_work
from streamkit.expression.limits import ITEM_WORK, MAX_EXPONENT, MAX_NUMBER_BITS
from streamkit.messaging.message import Message

COMPARISONS: Final = {"<": lt, "<=": le, ">": gt, ">=": ge}

_BYTES: Final = (bytes, bytearray, memoryview)
_MISSING: Final = object()


def as_boolean(value: object, run: Evaluation, position: int) -> bool:
    """Return a boolean, or the boolean of the text `true` or `false`.

    Raises:
        ExpressionError: The value is neither.
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and len(value) <= 5 and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise run.error(f"expected true or false, found {shown(value)}", position)


def equal(left: object, right: object) -> bool:
    """Return whether two values are equal; unlike in Python, true is not 1.

    An enum's member equals its name and its value.
    """
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    if isinstance(left, Enum) and not isinstance(right, Enum):
        return right in (left.name, left.value)
    if isinstance(right, Enum) and not isinstance(left, Enum):
        return left in (right.name, right.value)
    try:
        return bool(left == right)
    except ArithmeticError:  # a decimal that is a signaling NaN, which equals nothing
        return False


def equals(left: object, right: object, run: Evaluation, position: int) -> bool:
    """Return whether two values are equal, charging the comparison of lists and maps."""
    if type(left) in PLAIN and type(left) is type(right):
        return left == right
    run.charge(comparison_work(left, right), position)
    return equal(left, right)


def compare(operator: str, left: object, right: object, run: Evaluation, position: int) -> bool:
    """Return whether two values are in the order that ``operator`` names; null comes before everything.

    Raises:
        ExpressionError: The values cannot be ordered.
    """
    if left is None or right is None:
        return bool(COMPARISONS[operator](left is not None, right is not None))
    first: Any = left
    second: Any = right
    try:
        if type(left) not in PLAIN:
            run.charge(comparison_work(left, right), position)
        if isinstance(left, bool) == isinstance(right, bool):
            return bool(COMPARISONS[operator](first, second))
    except (TypeError, ArithmeticError):  # the latter of a decimal NaN
        pass  # reported below
    raise run.error(f"{shown(left)} and {shown(right)} cannot be ordered", position)


def add(left: object, right: object, run: Evaluation, position: int) -> object:
    """Return the sum of two numbers, or two values joined as text if one of them is text."""
    if isinstance(left, str) or isinstance(right, str):
        return as_text(left, run, position) + as_text(right, run, position)
    return calculate("+", left, right, run, position)


def calculate(operator: str, left: object, right: object, run: Evaluation, position: int) -> object:
    """Return the result of arithmetic; integers divide as in Java, towards zero.

    Raises:
        ExpressionError: The values are not numbers, or have no such result.
        ExpressionLimitExceeded: The result is too large.
    """
    if not (_is_number(left) and _is_number(right)):
        raise run.error(f"{shown(left)} {operator} {shown(right)} cannot be calculated", position)
    if operator == "^":
        _check_power(left, right, run, position)
    try:
        result = _calculated(operator, left, right)
    except (ArithmeticError, TypeError, ValueError) as error:
        raise run.error(f"{shown(left)} {operator} {shown(right)}: {error}", position) from None
    if type(result) is not float and _bits(result) > MAX_NUMBER_BITS:
        raise run.exceeded(f"the result of {operator} has more than {MAX_NUMBER_BITS:,} bits", position)
    return result


def truncated(number: Any) -> int:
    """Return a number without its fraction.

    Raises:
        OverflowError: The number is too large to be written out: `Decimal("1E+999999999")` has a billion digits.
        ValueError: It is not a number (NaN).
    """
    if isinstance(number, Decimal) and number.is_finite() and number.adjusted() * 3 > MAX_NUMBER_BITS:
        raise OverflowError("the number is too large")
    return int(number)


def _check_power(left: Any, right: Any, run: Evaluation, position: int) -> None:
    try:
        if abs(right) > MAX_EXPONENT:
            raise run.exceeded(f"the exponent is too large: more than {MAX_EXPONENT:,}", position)
    except ArithmeticError as error:
        raise run.error(f"{shown(left)} ^ {shown(right)}: {error}", position) from None
    # The size of a power of two is known beforehand; of other bases only a lower bound is.
    if (_bits(left) - 1) * abs(right) > MAX_NUMBER_BITS:
        raise run.exceeded(f"the result of ^ has more than {MAX_NUMBER_BITS:,} bits", position)


def _calculated(operator: str, left: Any, right: Any) -> object:
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "^":
            return left**right
    if not (isinstance(left, int) and isinstance(right, int)):
        return left / right if operator == "/" else left - right * truncated(left / right)
    quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    return quotient if operator == "/" else left - right * quotient


def property_of(value: object, name: str, run: Evaluation, position: int) -> object:
    """Return a message's payload or headers, a mapping's value or null, or an object's public attribute.

    Raises:
        ExpressionError: The value has no such property.
    """
    if isinstance(value, Message):
        if name == "payload":
            return value.payload
        if name == "headers":
            return value.headers
        raise run.error(f"a message has payload and headers, not {name!r}", position)
    if isinstance(value, _BYTES):
        value = run.document(value, position)
    if isinstance(value, Mapping):
        return value.get(name)
    if value is None:
        raise run.error(f"null has no {name!r}; write ?.{name} where it may be null", position)
    if not name.startswith("_"):
        found = getattr(value, name, _MISSING)
        if found is not _MISSING and not callable(found):
            return found
    raise run.error(f"{shown(value)} has no property {name!r}", position)


def item_of(value: object, key: object, run: Evaluation, position: int) -> object:
    """Return a mapping's value or null, the item at an index of a list or text, else a property.

    Raises:
        ExpressionError: The value has no such item.
    """
    if isinstance(value, _BYTES):
        value = run.document(value, position)
    if isinstance(value, Mapping) and _is_key(key):
        return value.get(key)
    if isinstance(value, Sequence) and isinstance(key, int):
        if 0 <= key < len(value):
            return value[key]
        raise run.error(f"there is no index {key}: it has {len(value)} items", position)
    if isinstance(key, str):
        return property_of(value, key, run, position)
    raise run.error(f"{shown(value)} has no item {shown(key)}", position)


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """An entry of a map, as an item of a selection or projection.

    It equals only itself: comparing values would be work that nothing charges.
    """

    key: object
    value: object


def items_of(value: object, what: str, run: Evaluation, position: int) -> tuple[list[Any], bool]:
    """Return the items of a list, or the entries of a map, and whether the value is a map.

    Args:
        value: The list or map.
        what: `selection` or `projection`, for errors.
        run: The evaluation.
        position: The position, for errors.

    Raises:
        ExpressionError: The value is neither.
    """
    if isinstance(value, _BYTES):
        value = run.document(value, position)
    if isinstance(value, Mapping):
        return [Entry(key, item) for key, item in value.items()], True
    if isinstance(value, list | tuple | set | frozenset):
        return list(value), False
    if value is None:
        raise run.error(f"null has no items for a {what}; write ?.? or ?.! where it may be null", position)
    raise run.error(f"a {what} needs a list or a map, not {shown(value)}", position)


def selected(chosen: list[Any], kind: str, *, is_map: bool) -> object:
    """Return the result of a selection: all chosen items, or the first (`^`) or last (`$`), which is null if none is.

    Args:
        chosen: The items for which the condition of the selection is true.
        kind: `?`, `^` or `$`.
        is_map: Whether the items are entries of a map; the result is then a map too.
    """
    if kind != "?":
        chosen = chosen[:1] if kind == "^" else chosen[-1:]
        if not chosen:
            return None
    if is_map:
        return {entry.key: entry.value for entry in chosen}
    return chosen if kind == "?" else chosen[0]


def as_text(value: object, run: Evaluation, position: int) -> str:
    """Return the value as Java prints it, charging its characters.

    Raises:
        ExpressionLimitExceeded: The text is too long.
    """
    text = value if type(value) is str else _text_of(value, run, position)
    run.work_left -= len(text)  # `charge` without the call: conditions join texts for every message
    if run.work_left < 0:
        raise run.exhausted(position)
    return text


def _text_of(value: object, run: Evaluation, position: int) -> str:
    if type(value) is int and value.bit_length() <= MAX_NUMBER_BITS:
        return str(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (*CONTAINERS, Entry)):
        return _joined(value, run, position)
    try:
        return str(value)
    except ValueError as error:  # an integer beyond sys.get_int_max_str_digits()
        raise run.exceeded(str(error), position) from None


def _joined(items: Any, run: Evaluation, position: int) -> str:
    if isinstance(items, Entry):
        return f"{as_text(items.key, run, position)}={as_text(items.value, run, position)}"
    run.charge(ITEM_WORK * len(items), position)
    if isinstance(items, Mapping):
        pairs = (f"{as_text(key, run, position)}={as_text(item, run, position)}" for key, item in items.items())
        return f"{{{', '.join(pairs)}}}"
    return f"[{', '.join(as_text(item, run, position) for item in items)}]"


def shown(value: object) -> str:
    """Return a value's description for errors; payloads are not printed, because they may be large and secret."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float) and _bits(value) <= MAX_NUMBER_BITS:
        return str(value)
    if isinstance(value, str) and len(value) <= 40:
        return repr(value)
    return f"a {type(value).__name__}"


def _is_number(value: object) -> bool:
    kind = type(value)
    return kind is int or kind is float or (isinstance(value, Number) and kind is not bool)


def _is_key(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _bits(value: object) -> int:
    """Return the bits of an integer, or of the larger part of a fraction; 0 for numbers of a fixed size."""
    if type(value) is int:
        return value.bit_length()
    if isinstance(value, Rational):
        return max(int(value.numerator).bit_length(), int(value.denominator).bit_length())
    return 0
