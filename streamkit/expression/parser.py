"""Parses an expression into closures: one function for each node, called with the root.

A Pratt parser: each operator has a binding power, and an operand reaches as far as operators bind stronger
than the one on its left.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from streamkit.errors import ExpressionError
from streamkit.expression import evaluation, methods
from streamkit.expression.tokens import Kind, Token, tokenize

Evaluate: TypeAlias = Callable[[object], object]

_CONSTANTS: Final = {"true": True, "false": False, "null": None}
# Weakest first, as in Spring's grammar.
_CHOICE, _OR, _AND, _RELATION, _SUM, _PRODUCT, _POWER, _UNARY = range(1, 9)
_POWERS: Final = {
    "?": _CHOICE,
    "?:": _CHOICE,
    "||": _OR,
    "&&": _AND,
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">=", "matches", "between"), _RELATION),
    **dict.fromkeys("+-", _SUM),
    **dict.fromkeys("*/%", _PRODUCT),
    "^": _POWER,
}
_DEEPEST: Final = 50
_LONGEST: Final = 500


@dataclass(frozen=True, slots=True)
class _Node:
    """A part of the expression.

    Attributes:
        evaluate: Its value for a root.
        position: Where it starts.
        name: What it is when it is only a name: a key, between the brackets of a map.
        constant: Whether its value is the same for every root.
    """

    evaluate: Evaluate
    position: int
    name: str | None = None
    constant: bool = False


def parse(source: str) -> Evaluate:
    """The function that evaluates the expression.

    Raises:
        ExpressionError: It is malformed.
    """
    return _Parser(source).parse()


class _Parser:
    def __init__(self, source: str) -> None:
        self._source = source
        self._tokens = tokenize(source)
        if len(self._tokens) > _LONGEST:
            raise ExpressionError("the expression is too long", source, self._tokens[_LONGEST].position)
        self._next = 0
        self._depth = 0

    def parse(self) -> Evaluate:
        node = self._expression(0)
        if self._peek().kind is not Kind.END:
            raise self._error(f"{self._peek().text!r} is not expected here")
        return node.evaluate

    def _expression(self, power: int) -> _Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._error("the expression is nested too deeply")
        left = self._unary()
        while self._peek().kind is Kind.SYMBOL and _POWERS.get(self._peek().text, 0) > power:
            left = self._binary(left, self._take())
        self._depth -= 1
        return left

    # Operators

    def _unary(self) -> _Node:
        token = self._peek()
        if token.kind is not Kind.SYMBOL or token.text not in ("!", "-", "+"):
            return self._postfix(self._primary())
        self._take()
        operand = self._expression(_UNARY)
        evaluate, source = operand.evaluate, self._source
        if token.text == "!":
            return _Node(
                lambda root: not evaluation.as_boolean(evaluate(root), source, operand.position),
                token.position,
            )
        return _Node(
            lambda root: evaluation.calculate(token.text, 0, evaluate(root), source, token.position),
            token.position,
        )

    def _binary(self, left: _Node, operator: Token) -> _Node:
        match operator.text:
            case "?":
                return self._ternary(left)
            case "?:":
                return self._elvis(left)
            case "&&" | "||":
                return self._logical(left, operator)
            case "matches":
                return self._matches(left, operator)
        right = self._expression(_POWERS[operator.text])
        return _Node(self._operation(operator, left.evaluate, right.evaluate), left.position)

    def _operation(self, operator: Token, left: Evaluate, right: Evaluate) -> Evaluate:
        source, position, text = self._source, operator.position, operator.text
        match text:
            case "==":
                return lambda root: evaluation.equal(left(root), right(root))
            case "!=":
                return lambda root: not evaluation.equal(left(root), right(root))
            case "<" | "<=" | ">" | ">=":
                return lambda root: evaluation.compare(text, left(root), right(root), source, position)
            case "between":
                return lambda root: _between(left(root), right(root), source, position)
            case "+":
                return lambda root: evaluation.add(left(root), right(root), source, position)
        return lambda root: evaluation.calculate(text, left(root), right(root), source, position)

    def _ternary(self, condition: _Node) -> _Node:
        yes = self._expression(0).evaluate
        self._expect(":")
        no = self._expression(0).evaluate
        test, source = condition.evaluate, self._source
        return _Node(
            lambda root: (
                yes(root) if evaluation.as_boolean(test(root), source, condition.position) else no(root)
            ),
            condition.position,
        )

    def _elvis(self, left: _Node) -> _Node:
        """`a ?: b` is b where a is null or an empty text."""
        first, second = left.evaluate, self._expression(0).evaluate

        def evaluate(root: object) -> object:
            value = first(root)
            return second(root) if value is None or value == "" else value

        return _Node(evaluate, left.position)

    def _logical(self, left: _Node, operator: Token) -> _Node:
        right = self._expression(_POWERS[operator.text])
        source = self._source
        decided = operator.text == "||"

        def evaluate(root: object) -> bool:
            if evaluation.as_boolean(left.evaluate(root), source, left.position) is decided:
                return decided
            return evaluation.as_boolean(right.evaluate(root), source, right.position)

        return _Node(evaluate, left.position)

    def _matches(self, left: _Node, operator: Token) -> _Node:
        right = self._expression(_RELATION)
        if right.constant:
            self._check_pattern(right)
        source, position = self._source, operator.position
        return _Node(
            lambda root: methods.call(
                left.evaluate(root), "matches", (right.evaluate(root),), source, position
            ),
            left.position,
        )

    def _check_pattern(self, pattern: _Node) -> None:
        try:
            re.compile(str(pattern.evaluate(None)))
        except re.error as error:
            raise ExpressionError(f"no regular expression: {error}", self._source, pattern.position) from None

    # Operands

    def _primary(self) -> _Node:
        token = self._take()
        if token.kind is Kind.NUMBER:
            return _constant(_number(token.text), token.position)
        if token.kind is Kind.TEXT:
            return _constant(token.text, token.position)
        if token.kind is Kind.NAME:
            return self._name(token)
        match token.text:
            case "(":
                inner = self._expression(0)
                self._expect(")")
                return _Node(inner.evaluate, token.position)
            case "{":
                items = [item.evaluate for item in self._list_until("}")]
                return _Node(lambda root: [item(root) for item in items], token.position)
            case "#":
                return self._variable(token)
            case "@":
                raise self._error("beans are not reachable from expressions", token)
        raise self._error("an operand is missing here", token)

    def _name(self, token: Token) -> _Node:
        if token.text.lower() in _CONSTANTS:
            return _constant(_CONSTANTS[token.text.lower()], token.position)
        if token.text in ("T", "new", "instanceof"):
            raise self._error("types are not reachable from expressions", token)
        if self._peek().text == "(" and self._peek().kind is Kind.SYMBOL:
            return self._call(_Node(lambda root: root, token.position), token, safe=False)
        name, source, position = token.text, self._source, token.position
        return _Node(
            lambda root: evaluation.property_of(root, name, source, position), position, name=token.text
        )

    def _variable(self, hash_token: Token) -> _Node:
        name = self._take()
        if name.text not in ("root", "this"):
            raise self._error("the only variables are #root and #this", hash_token)
        return _Node(lambda root: root, hash_token.position)

    def _postfix(self, node: _Node) -> _Node:
        """The operand with the properties, items and calls that follow it."""
        while self._peek().kind is Kind.SYMBOL and self._peek().text in (".", "?.", "["):
            token = self._take()
            node = self._item(node, token) if token.text == "[" else self._member(node, token)
        return node

    def _item(self, node: _Node, token: Token) -> _Node:
        inner = self._expression(0)
        self._expect("]")
        target, source, position = node.evaluate, self._source, token.position
        # As in Spring's language, a bare name between brackets is the key itself: headers[type].
        key = inner.evaluate if inner.name is None else _constant(inner.name, position).evaluate
        return _Node(
            lambda root: evaluation.item_of(target(root), key(root), source, position), node.position
        )

    def _member(self, node: _Node, dot: Token) -> _Node:
        name = self._take()
        if name.kind is not Kind.NAME:
            raise self._error("a property's name is missing here", name)
        safe = dot.text == "?."
        if self._peek().text == "(" and self._peek().kind is Kind.SYMBOL:
            return self._call(node, name, safe)
        if name.text.startswith("_"):
            raise self._error(f"{name.text!r} is private", name)
        target, source = node.evaluate, self._source

        def evaluate(root: object) -> object:
            value = target(root)
            if safe and value is None:
                return None
            return evaluation.property_of(value, name.text, source, name.position)

        return _Node(evaluate, node.position)

    def _call(self, node: _Node, name: Token, safe: bool) -> _Node:
        if not methods.is_method(name.text):
            raise self._error(f"there is no method {name.text}()", name)
        self._expect("(")
        arguments = [argument.evaluate for argument in self._list_until(")")]
        target, source = node.evaluate, self._source

        def evaluate(root: object) -> object:
            value = target(root)
            if safe and value is None:
                return None
            return methods.call(value, name.text, [each(root) for each in arguments], source, name.position)

        return _Node(evaluate, node.position)

    def _list_until(self, closing: str) -> list[_Node]:
        items: list[_Node] = []
        while self._peek().text != closing or self._peek().kind is not Kind.SYMBOL:
            if items:
                self._expect(",")
            items.append(self._expression(0))
        self._take()
        return items

    # Tokens

    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _take(self) -> Token:
        token = self._tokens[self._next]
        if token.kind is not Kind.END:
            self._next += 1
        return token

    def _expect(self, text: str) -> None:
        token = self._peek()
        if token.kind is not Kind.SYMBOL or token.text != text:
            raise self._error(f"{text!r} is missing here", token)
        self._take()

    def _error(self, reason: str, token: Token | None = None) -> ExpressionError:
        return ExpressionError(reason, self._source, (token or self._peek()).position)


def _constant(value: object, position: int) -> _Node:
    return _Node(lambda _: value, position, constant=True)


def _number(text: str) -> int | float:
    digits = text.rstrip("lLdDfF")
    is_whole = digits.isdigit() and text[-1] not in "dDfF"
    return int(digits) if is_whole else float(digits)


def _between(value: object, bounds: object, source: str, position: int) -> bool:
    if not isinstance(bounds, list) or len(bounds) != 2:
        raise ExpressionError("between takes two bounds: {1, 10}", source, position)
    low, high = bounds
    return evaluation.compare(">=", value, low, source, position) and evaluation.compare(
        "<=", value, high, source, position
    )
