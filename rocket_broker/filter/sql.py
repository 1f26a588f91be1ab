"""Compilation of SQL92 expressions: from a text to a closure, or to an error with its position.

::

    text ──► tokens ──► LALR parser (sql92.lark) ──► clauses ──► SqlExpression

The clauses are built while the parser runs, without a syntax tree. The cost of an expression is bounded before any
message is filtered: its length here, its nesting in `clauses`.

A compiled expression takes some eighty bytes for each of its characters, so equal texts share one compiled expression
for as long as it is in use.
"""

from collections import OrderedDict
from collections.abc import Generator
from threading import Thread
from weakref import WeakValueDictionary

from rocket_broker.errors import BrokerError
from rocket_broker.filter.clauses import Clause, OperandError, Properties
from rocket_broker.filter.java_values import ComparisonError
from rocket_broker.loop.step_line import SLICE_SECONDS
from rocket_remoting.steps import run_all

__all__ = [
    "MAX_LENGTH",
    "SQL92",
    "SqlError",
    "SqlExpression",
    "compile_sql",
    "compile_steps",
    "is_compiled",
    "load_steps",
]

SQL92 = "SQL92"
"""The expression type of subscriptions."""

MAX_LENGTH = 8_192
"""Maximum length in characters; to parse as many takes some fifty milliseconds."""


class SqlError(BrokerError):
    """An expression cannot be compiled.

    Attributes:
        line: Line of the error, from 1.
        column: Column in the line, from 1.
        reason: What is wrong.
        at: Position in the text, from 0.
    """

    def __init__(self, text: str, at: int, reason: str) -> None:
        before = text[:at]
        self.at = at
        self.line = before.count("\n") + 1
        self.column = at - before.rfind("\n")
        self.reason = reason
        super().__init__(f"line {self.line}, column {self.column}: {reason}")


class SqlExpression:
    """A compiled expression.

    Attributes:
        text: The text; expressions with equal texts are equal.
        cost: Number of its comparisons.
    """

    __slots__ = ("__weakref__", "_answer", "cost", "text")

    def __init__(self, text: str, clause: Clause) -> None:
        self.text = text
        self.cost = clause.cost
        self._answer = clause.as_boolean()

    def matches(self, properties: Properties) -> bool:
        """Return whether a message with these properties matches; unknown, and no answer, do not match."""
        try:
            return self._answer(properties) is True
        except ComparisonError:
            return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SqlExpression) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"SqlExpression({self.text!r})"


def compile_sql(text: str | None) -> SqlExpression:
    """Return the compiled expression.

    Raises:
        SqlError: The text is not a valid expression, or is too long or too deeply nested.
    """
    return run_all(compile_steps(text))


def compile_steps(text: str | None) -> Generator[None, None, SqlExpression]:
    """Compile an expression; yield about every half a millisecond, and return the compiled expression.

    Raises:
        SqlError: The text is not a valid expression, or is too long or too deeply nested.
    """
    text = text or ""
    known = _in_use.get(text)
    if known is not None:
        return known
    if len(text) > MAX_LENGTH:
        raise SqlError(text, MAX_LENGTH, f"an expression has at most {MAX_LENGTH} characters, not {len(text)}")
    outcome = _recent.pop(text, None)
    if outcome is None:
        outcome = yield from _compiled(text)
    _recent[text] = outcome
    if len(_recent) > RECENT:
        _recent.popitem(last=False)
    if isinstance(outcome, SqlError):
        raise SqlError(text, outcome.at, outcome.reason)
    _in_use[text] = outcome
    return outcome


def load_steps() -> Generator[None, None, None]:
    """Load the parser in another thread; yield until it is loaded.

    Loading takes a twentieth of a second, once, and most brokers never see an expression.
    """
    if not _parser_is_made:
        thread = Thread(target=_make_parser, name="SQL92 parser", daemon=True)
        thread.start()
        while thread.is_alive():
            # Without `join` the loop would spin, and the thread wait 5 ms for Python's lock at each file that it reads.
            thread.join(SLICE_SECONDS)
            yield


def is_compiled(text: str | None) -> bool:
    """Return whether `compile_sql` can answer without compiling."""
    return (text or "") in _in_use or (text or "") in _recent


RECENT = 64
"""Results that are kept without users: pull requests bring their expressions each time, invalid ones too."""

_in_use: WeakValueDictionary[str, SqlExpression] = WeakValueDictionary()
_recent: OrderedDict[str, SqlExpression | SqlError] = OrderedDict()


_parser_is_made = False


def _make_parser() -> None:
    global _parser_is_made  # noqa: PLW0603 - there is one parser
    from rocket_broker.filter.grammar import load

    load()
    _parser_is_made = True


def _compiled(text: str) -> Generator[None, None, SqlExpression | SqlError]:
    from rocket_broker.filter.grammar import parse_steps

    try:
        return SqlExpression(text, (yield from parse_steps(text)))
    except OperandError as e:
        return SqlError(text, e.at, str(e))
