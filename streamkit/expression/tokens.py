"""The tokenizer of expressions."""

import re
from dataclasses import dataclass
from enum import Enum

from streamkit.errors import ExpressionError, ExpressionLimitExceeded
from streamkit.expression.limits import MAX_LENGTH


class Kind(Enum):
    """The kind of a token."""

    NAME = "a name"
    NUMBER = "a number"
    TEXT = "a text"
    SYMBOL = "an operator"
    END = "the end"


@dataclass(frozen=True, slots=True)
class Token:
    """A token of an expression.

    Attributes:
        kind: The kind of token.
        text: The token as it is written; of a text literal, its value.
        position: The index of its first character.
    """

    kind: Kind
    text: str
    position: int


_TOKEN = re.compile(
    r"""\s*(?:
        (?P<NUMBER>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?[lLdDfF]?(?![\w.]))
      | (?P<NAME>[A-Za-z_$][\w$]*)
      | (?P<TEXT>'(?:[^']|'')*'|"(?:[^"]|"")*")
      | (?P<SYMBOL>[?!^]\[|\?\.|\?:|&&|\|\||[=!<>]=|[][()<>!?:.,+\-*/%^{}\#@])
    )""",
    re.VERBOSE,
)
_WORD_OPERATORS = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "and": "&&",
    "or": "||",
    "not": "!",
    "div": "/",
    "mod": "%",
    "matches": "matches",
    "between": "between",
    "instanceof": "instanceof",
}


def tokenize(source: str) -> list[Token]:
    """Return the tokens of the expression, an END last.

    Raises:
        ExpressionError: A character starts no token.
        ExpressionLimitExceeded: The text is too long.
    """
    if len(source) > MAX_LENGTH:
        reason = f"the expression has {len(source):,} characters, more than {MAX_LENGTH:,}"
        raise ExpressionLimitExceeded(reason, source, MAX_LENGTH)
    tokens: list[Token] = []
    position = 0
    end = len(source.rstrip())
    while position < end:
        found = _TOKEN.match(source, position)
        if found is None:
            raise _unreadable(source, position)
        kind = Kind[str(found.lastgroup)]
        tokens.append(_token(kind, found[kind.name], found.start(kind.name), tokens))
        position = found.end()
    tokens.append(Token(Kind.END, "", end))
    return tokens


def _token(kind: Kind, text: str, position: int, before: list[Token]) -> Token:
    if kind is Kind.TEXT:
        quote = text[0]
        return Token(kind, text[1:-1].replace(quote * 2, quote), position)
    # After a dot even `and` and `matches` are names: headers.and, payload.matches('x').
    is_property = bool(before) and before[-1].text in (".", "?.") and before[-1].kind is Kind.SYMBOL
    if kind is Kind.NAME and not is_property and text.lower() in _WORD_OPERATORS:
        return Token(Kind.SYMBOL, _WORD_OPERATORS[text.lower()], position)
    return Token(kind, text, position)


def _unreadable(source: str, position: int) -> ExpressionError:
    while source[position].isspace():
        position += 1
    if source[position] in "'\"":
        return ExpressionError("the closing quote of this text is missing", source, position)
    if source[position] == "=":
        return ExpressionError("assignments are not supported; to compare, write ==", source, position)
    return ExpressionError(f"{source[position]!r} is not expected here", source, position)
