"""Compiling SQL92 expressions: text in, closure out, or an error that says where.

::

    text ──► tokens ──► LALR parser (sql92.lark) ──► clauses ──► SqlExpression

Clauses are made while the parser runs, so there is no tree. What an expression costs is bounded before any
message is looked at: its length here, its nesting in `clauses`.

A compiled expression takes some eighty bytes for each of its characters, so who asks for the same text gets the
same one, for as long as anybody has it.
"""

from collections import OrderedDict
from collections.abc import Generator
from threading import Thread
from weakref import WeakValueDictionary

from rocket_broker.errors import BrokerError
from rocket_broker.filter.clauses import Clause, Properties, Unfit
from rocket_broker.filter.java_values import NoAnswer
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
"""The expression type that subscriptions name."""

MAX_LENGTH = 8_192
"""Characters: parsing as many takes some fifty milliseconds."""


class SqlError(BrokerError):
    """An expression cannot be compiled.

    Attributes:
        line: Where, from 1.
        column: Where in the line, from 1.
        reason: What is wrong.
        at: Where in the text, from 0.
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
        text: What it was compiled from; two expressions are equal when their texts are.
        cost: Comparisons in it.
    """

    __slots__ = ("__weakref__", "_answer", "cost", "text")

    def __init__(self, text: str, clause: Clause) -> None:
        self.text = text
        self.cost = clause.cost
        self._answer = clause.as_boolean()

    def matches(self, properties: Properties) -> bool:
        """Whether a message with these properties is wanted; unknown and unanswerable are no."""
        try:
            return self._answer(properties) is True
        except NoAnswer:
            return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SqlExpression) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"SqlExpression({self.text!r})"


def compile_sql(text: str | None) -> SqlExpression:
    """Return the expression.

    Raises:
        SqlError: The text is no expression, or one too large to be served.
    """
    return run_all(compile_steps(text))


def compile_steps(text: str | None) -> Generator[None, None, SqlExpression]:
    """Compile an expression; yield about every half a millisecond, return the expression.

    Raises:
        SqlError: The text is no expression, or one too large to be served.
    """
    text = text or ""
    known = _in_use.get(text)
    if known is not None:
        return known
    if len(text) > MAX_LENGTH:
        raise SqlError(
            text, MAX_LENGTH, f"an expression has at most {MAX_LENGTH} characters, not {len(text)}"
        )
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

    That takes a tenth of a second, once, for a broker that is asked for the first expression: most see none.
    """
    if not _parser_is_made:
        thread = Thread(target=_make_parser, name="SQL92 parser", daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(
                _LOADING_STEP
            )  # not only yield: a loop that spins would leave the thread hardly any time
            yield


def is_compiled(text: str | None) -> bool:
    """Whether `compile_sql` has its answer at hand."""
    return (text or "") in _in_use or (text or "") in _recent


RECENT = 64
"""Outcomes kept though nobody has them: pulls bring their expression each time, the wrong ones too."""

_in_use: WeakValueDictionary[str, SqlExpression] = WeakValueDictionary()
_recent: OrderedDict[str, SqlExpression | SqlError] = OrderedDict()


_parser_is_made = False

_LOADING_STEP = 0.002
"""Seconds that the loop waits for the thread in one step; as long as a slice of other work."""


def _make_parser() -> None:
    global _parser_is_made  # noqa: PLW0603 - there is one parser
    from rocket_broker.filter.grammar import load

    load()
    _parser_is_made = True


def _compiled(text: str) -> Generator[None, None, SqlExpression | SqlError]:
    from rocket_broker.filter.grammar import parse_steps

    try:
        return SqlExpression(text, (yield from parse_steps(text)))
    except Unfit as e:
        return SqlError(text, e.at, str(e))
