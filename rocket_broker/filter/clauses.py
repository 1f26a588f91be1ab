"""The clauses of an expression: the operands that each accepts, and the closure that evaluates it for a message.

A closure takes a message's properties. It returns a value, or None for "unknown" (three-valued logic), or raises
`ComparisonError`. A clause with an operand of the wrong kind is refused when it is built, by the rules of Apache's
filter module:

::

    needs a boolean      AND, OR, NOT, the whole expression    comparisons, TRUE, FALSE, NULL, a bare property
    needs a number       <, <=, >, >=, BETWEEN                 numbers, properties, operands with a sign
    needs a value        =, <>                                 everything except NULL
    needs a property     IN                                    a bare property

A bare property as a boolean is false if the message has it, and unknown otherwise: a text is never a true boolean.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeGuard, cast

from rocket_broker.filter.java_values import Value, compare, is_equal

__all__ = ["MAX_DEPTH", "Clause", "OperandError", "Properties"]

Properties = Mapping[str, str]
Answer = Callable[[Properties], Value]
Truth = Callable[[Properties], bool | None]

MAX_DEPTH = 100
"""Maximum nesting: to evaluate a level of nesting takes a level of Python's stack."""


class OperandError(Exception):  # becomes an `SqlError` once the text is known
    """A clause cannot be built from this operand.

    Attributes:
        at: Position of the operand in the text, from 0.
    """

    def __init__(self, reason: str, at: int) -> None:
        super().__init__(reason)
        self.at = at


class Clause(NamedTuple):
    """A part of an expression.

    Attributes:
        answer: Evaluates the clause for a message's properties.
        at: Position of its start in the text, from 0.
        cost: Number of its comparisons, which is the cost of evaluating it.
        depth: Levels of nesting.
        is_boolean: Whether its value is a boolean.
        is_constant: Whether its value is `constant` for every message.
        constant: That value.
        name: The property's name, if the clause is a bare property.
    """

    answer: Answer
    at: int
    cost: int = 1
    depth: int = 1
    is_boolean: bool = False
    is_constant: bool = False
    constant: Value = None
    name: str | None = None

    @classmethod
    def of_constant(cls, value: Value, at: int) -> "Clause":
        """Return the clause of a number, a text, TRUE, FALSE or NULL."""
        is_boolean = value is None or isinstance(value, bool)
        return cls(lambda _: value, at, is_boolean=is_boolean, is_constant=True, constant=value)

    @classmethod
    def of_property(cls, name: str, at: int) -> "Clause":
        """Return the clause of a bare property, which is unknown for a message without the property."""
        return cls(lambda properties: properties.get(name), at, name=name)

    def as_boolean(self) -> Truth:
        """Return the closure of a boolean clause or of a bare property.

        Raises:
            OperandError: The clause is neither.
        """
        answer = self.answer
        if self.is_boolean:
            return cast(Truth, answer)
        if self.name is not None:
            return lambda properties: None if answer(properties) is None else False
        raise OperandError("expected a condition, such as a = 'x'", self.at)

    # Logic

    @classmethod
    def of_any(cls, clauses: list["Clause"]) -> "Clause":
        """``a OR b OR …``"""
        truths = [clause.as_boolean() for clause in clauses]

        def answer(properties: Properties) -> bool | None:
            known = True
            for truth in truths:
                value = truth(properties)
                if value:
                    return True
                if value is None:
                    known = False
            return False if known else None

        return _over(answer, clauses)

    @classmethod
    def of_all(cls, clauses: list["Clause"]) -> "Clause":
        """``a AND b AND …``"""
        truths = [clause.as_boolean() for clause in clauses]

        def answer(properties: Properties) -> bool | None:
            known = True
            for truth in truths:
                value = truth(properties)
                if value is None:
                    known = False
                elif not value:
                    return False
            return True if known else None

        return _over(answer, clauses)

    def negated(self) -> "Clause":
        """``NOT a``"""
        truth = self.as_boolean()

        def answer(properties: Properties) -> bool | None:
            value = truth(properties)
            return None if value is None else not value

        return _over(answer, [self])

    # Comparisons

    def equal(self, other: "Clause") -> "Clause":
        """``a = b``

        Raises:
            OperandError: A side is NULL, or a boolean beside a number or a text.
        """
        for clause in (self, other):
            if clause.is_constant and clause.constant is None:
                raise OperandError("NULL cannot be compared: write IS NULL", clause.at)
        if self.is_constant and self.is_boolean and other.is_constant and not other.is_boolean:
            raise OperandError("a boolean cannot be compared with a number or a string", other.at)
        return self._equal(other)

    def is_null(self) -> "Clause":
        """``a IS NULL``"""
        return self._equal(Clause.of_constant(None, self.at))

    def _equal(self, other: "Clause") -> "Clause":
        left, right = self.answer, other.answer
        return _over(lambda properties: is_equal(left(properties), right(properties)), [self, other])

    def ordered(self, other: "Clause", holds: Callable[[int], bool]) -> "Clause":
        """``a < b``, ``<=``, ``>``, ``>=``; ``holds`` decides from the result of `compare`."""
        self._check_number()
        other._check_number()
        left, right = self.answer, other.answer

        def answer(properties: Properties) -> bool | None:
            left_value = left(properties)
            if left_value is None:
                return None
            right_value = right(properties)
            return None if right_value is None else holds(compare(left_value, right_value))

        return _over(answer, [self, other])

    def between(self, low: "Clause", high: "Clause") -> "Clause":
        """``a BETWEEN low AND high``

        Raises:
            OperandError: A bound is not a number, or the constant bounds are in the wrong order.
        """
        clause = Clause.of_all(
            [
                self.ordered(low, lambda outcome: outcome >= 0),
                self.ordered(high, lambda outcome: outcome <= 0),
            ]
        )
        if low.constant is not None and high.constant is not None and compare(high.constant, low.constant) < 0:
            raise OperandError(
                f"BETWEEN {low.constant} AND {high.constant}: the first value is greater than the second",
                low.at,
            )
        return clause

    def not_between(self, low: "Clause", high: "Clause") -> "Clause":
        """``a NOT BETWEEN low AND high``"""
        return Clause.of_any(
            [self.ordered(low, lambda outcome: outcome < 0), self.ordered(high, lambda outcome: outcome > 0)]
        )

    def among(self, texts: list[str], *, wanted: bool) -> "Clause":
        """``a IN ('x', …)``; not ``wanted``: ``NOT IN``.

        Raises:
            OperandError: The clause is not a property.
        """
        if self.name is None:
            raise OperandError("IN needs a property, such as a IN ('x')", self.at)
        name, members = self.name, frozenset(texts)

        def answer(properties: Properties) -> bool | None:
            value = properties.get(name)
            return None if value is None else (value in members) is wanted

        return _over(answer, [self])

    def like(self, text: str, holds: Callable[[str, str], bool], *, wanted: bool) -> "Clause":
        """``a CONTAINS 'x'`` and similar (5.x); false, and its negation too, for a value that is not a text."""
        left = self.answer

        def answer(properties: Properties) -> bool:
            value = left(properties)
            return isinstance(value, str) and text != "" and holds(value, text) is wanted

        return _over(answer, [self])

    # Signs

    def negative(self) -> "Clause":
        """``-a``: unknown for a value that is not a number, and so for every property."""
        answer = self.answer

        def negate(properties: Properties) -> Value:
            value = answer(properties)
            return type(value)(-value) if _is_number(value) else None

        return _over(negate, [self], is_boolean=False)

    def _check_number(self) -> None:
        if self.is_boolean or (self.is_constant and not _is_number(self.constant)):
            raise OperandError("<, <=, > and >= need numbers or properties", self.at)


def _is_number(value: Value) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _over(answer: Answer, clauses: list[Clause], *, is_boolean: bool = True) -> Clause:
    """Return a clause one level of nesting above its operands.

    Raises:
        OperandError: The nesting is deeper than `MAX_DEPTH`.
    """
    depth = 1 + max(clause.depth for clause in clauses)
    if depth > MAX_DEPTH:
        raise OperandError(f"nested more than {MAX_DEPTH} levels deep", clauses[0].at)
    cost = 1 + sum(clause.cost for clause in clauses)
    return Clause(answer, clauses[0].at, cost, depth, is_boolean=is_boolean)
