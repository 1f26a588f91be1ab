"""The parser: the grammar sql92.lark, and the clause that each of its alternatives builds."""

from collections.abc import Callable, Generator
from functools import cache

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from rocket_broker.filter.clauses import Clause, OperandError
from rocket_broker.filter.java_values import LONG_BITS, Long

__all__ = ["load", "parse_steps"]

_INTEGER_MAX = (1 << 31) - 1
_LONG_MAX = (1 << LONG_BITS) - 1
_LONG_DIGITS = 19
_KEYWORDS = frozenset(
    {"AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "TRUE", "FALSE", "CONTAINS", "STARTSWITH", "ENDSWITH"}
)
_CONSTANTS = frozenset({"NULL", "TRUE", "FALSE"})
_SHOWN = 30
_TOKENS_A_STEP = 16
"""Tokens that are parsed in one step, which takes half a millisecond."""

Alternative = Callable[..., Clause]


def parse_steps(text: str) -> Generator[None, None, Clause]:
    """Parse an expression; yield after every few tokens, and return the clause of the whole expression.

    Raises:
        OperandError: The text is not a valid expression.
    """
    try:
        parser = _parser().parse_interactive(text)
        for number, _ in enumerate(parser.iter_parse()):
            if not number % _TOKENS_A_STEP:
                yield
        clause: object = parser.feed_eof()  # type: ignore[no-untyped-call]
    except UnexpectedCharacters as e:
        at = sum(len(line) + 1 for line in text.split("\n")[: e.line - 1]) + e.column - 1
        raise OperandError(f"{_shown(text, at)} is not understood", at) from None
    except UnexpectedToken as e:
        if e.token.type == "$END":
            raise OperandError("the expression ends too early", len(text)) from None
        at = e.token.start_pos or 0
        raise OperandError(f"{_shown(text, at)} is not expected here", at) from None
    assert isinstance(clause, Clause)
    return clause


def load() -> None:
    """Build the parser now, which takes a tenth of a second."""
    _parser()


# Alternatives that differ only in a value


def _ordered(holds: Callable[[int], bool]) -> Alternative:
    @v_args(inline=True)
    def alternative(self: "_Clauses", left: Clause, right: Clause) -> Clause:
        return left.ordered(right, holds)

    return alternative


def _among(*, wanted: bool) -> Alternative:
    @v_args(inline=True)
    def alternative(self: "_Clauses", clause: Clause, *texts: Token) -> Clause:
        return clause.among([_unquoted(text) for text in texts], wanted=wanted)

    return alternative


def _like(holds: Callable[[str, str], bool], *, wanted: bool) -> Alternative:
    @v_args(inline=True)
    def alternative(self: "_Clauses", clause: Clause, text: Token) -> Clause:
        return clause.like(_unquoted(text), holds, wanted=wanted)

    return alternative


class _Clauses(Transformer[Token, Clause]):
    """Builds the clause of each alternative while the parser runs; methods have the names of the grammar's aliases."""

    # Logic

    def any_of(self, clauses: list[Clause]) -> Clause:
        return Clause.of_any(clauses)

    def all_of(self, clauses: list[Clause]) -> Clause:
        return Clause.of_all(clauses)

    @v_args(inline=True)
    def negation(self, clause: Clause) -> Clause:
        return clause.negated()

    # Comparisons

    @v_args(inline=True)
    def equal(self, left: Clause, right: Clause) -> Clause:
        return left.equal(right)

    @v_args(inline=True)
    def not_equal(self, left: Clause, right: Clause) -> Clause:
        return left.equal(right).negated()

    @v_args(inline=True)
    def is_null(self, clause: Clause, _: Token) -> Clause:
        return clause.is_null()

    @v_args(inline=True)
    def is_not_null(self, clause: Clause, _: Token) -> Clause:
        return clause.is_null().negated()

    greater = _ordered(lambda outcome: outcome > 0)
    greater_or_equal = _ordered(lambda outcome: outcome >= 0)
    less = _ordered(lambda outcome: outcome < 0)
    less_or_equal = _ordered(lambda outcome: outcome <= 0)

    @v_args(inline=True)
    def between(self, clause: Clause, low: Clause, high: Clause) -> Clause:
        return clause.between(low, high)

    @v_args(inline=True)
    def not_between(self, clause: Clause, low: Clause, high: Clause) -> Clause:
        return clause.not_between(low, high)

    one_of = _among(wanted=True)
    none_of = _among(wanted=False)
    contains = _like(str.__contains__, wanted=True)
    not_contains = _like(str.__contains__, wanted=False)
    starts_with = _like(str.startswith, wanted=True)
    not_starts_with = _like(str.startswith, wanted=False)
    ends_with = _like(str.endswith, wanted=True)
    not_ends_with = _like(str.endswith, wanted=False)

    # Operands

    @v_args(inline=True)
    def plus(self, clause: Clause) -> Clause:
        return clause

    @v_args(inline=True)
    def negative(self, clause: Clause) -> Clause:
        return clause.negative()

    @v_args(inline=True)
    def string(self, token: Token) -> Clause:
        return Clause.of_constant(_unquoted(token), _at(token))

    @v_args(inline=True)
    def decimal(self, token: Token) -> Clause:
        digits = token.rstrip("lL")
        if len(digits) > _LONG_DIGITS or int(digits) > _LONG_MAX:
            raise OperandError(f"{_shown(token)} does not fit a Long: at most {_LONG_MAX}", _at(token))
        number = int(digits)
        return Clause.of_constant(number if number <= _INTEGER_MAX else Long(number), _at(token))

    @v_args(inline=True)
    def double(self, token: Token) -> Clause:
        number = float(token)
        if not 0 < number < float("inf"):
            raise OperandError(f"{_shown(token)} does not fit a Double: more than 0, at most 1.797e308", _at(token))
        return Clause.of_constant(number, _at(token))

    @v_args(inline=True)
    def property(self, token: Token) -> Clause:
        return Clause.of_property(str(token), _at(token))

    @v_args(inline=True)
    def true(self, token: Token) -> Clause:
        return Clause.of_constant(True, _at(token))

    @v_args(inline=True)
    def false(self, token: Token) -> Clause:
        return Clause.of_constant(False, _at(token))

    @v_args(inline=True)
    def null(self, token: Token) -> Clause:
        return Clause.of_constant(None, _at(token))


@cache
def _parser() -> Lark:
    return Lark.open(
        "sql92.lark",
        rel_to=__file__,
        parser="lalr",
        lexer="basic",
        maybe_placeholders=False,
        transformer=_Clauses(),
        lexer_callbacks={"NAME": _keyword},
    )


def _keyword(token: Token) -> Token:
    """Return the token of a name, or the token of the keyword that the name is."""
    word = token.upper()
    if word not in _KEYWORDS:
        return token
    return Token.new_borrow_pos(word if word in _CONSTANTS else "_" + word, token.value, token)


def _unquoted(token: Token) -> str:
    """Return the text between the quotes; a doubled quote stands for one quote."""
    return token[1:-1].replace("''", "'")


def _at(token: Token) -> int:
    return token.start_pos or 0


def _shown(text: str, at: int = 0) -> str:
    return repr(text[at:] if len(text) - at <= _SHOWN else text[at : at + _SHOWN] + "…")
