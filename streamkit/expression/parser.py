"""Parses an expression into closures: one function for each node, called with the evaluation.

A Pratt parser: each operator has a binding power, and an operand reaches as far as operators bind stronger
than the one on its left.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from streamkit.errors import ExpressionError, ExpressionLimitExceeded
from streamkit.expression import methods, operators
from streamkit.expression.evaluation import Evaluation
from streamkit.expression.java_types import is_instance
from streamkit.expression.limits import ITEM_WORK, MAX_DEPTH, MAX_NUMBER_BITS, MAX_TOKENS
from streamkit.expression.patterns import PatternError, compile_pattern
from streamkit.expression.tokens import Kind, Token, tokenize
from streamkit.messaging.headers import MessageHeaders
from streamkit.messaging.message import Message

Evaluate: TypeAlias = Callable[[Evaluation], object]

_CONSTANTS: Final = {"true": True, "false": False, "null": None}
# Weakest first, as in Spring's grammar.
_CHOICE, _OR, _AND, _RELATION, _SUM, _PRODUCT, _POWER, _UNARY = range(1, 9)
_POWERS: Final = {
    "?": _CHOICE,
    "?:": _CHOICE,
    "||": _OR,
    "&&": _AND,
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">=", "matches", "between", "instanceof"), _RELATION),
    **dict.fromkeys("+-", _SUM),
    **dict.fromkeys("*/%", _PRODUCT),
    "^": _POWER,
}
_MAX_DIGITS: Final = len(str(2**MAX_NUMBER_BITS))
_VARIES: Final = object()


@dataclass(frozen=True, slots=True)
class _Node:
    """A part of the expression.

    Attributes:
        evaluate: Returns the node's value.
        position: Where the node starts.
        name: The name, if the node is only a name; between brackets a name is a key.
        constant: The node's value if it is the same for every root, else `_VARIES`.
    """

    evaluate: Evaluate
    position: int
    name: str | None = None
    constant: object = _VARIES


def parse(source: str) -> Evaluate:
    """Return the function that evaluates the expression.

    Raises:
        ExpressionError: The expression is malformed.
        ExpressionLimitExceeded: The expression is too large.
    """
    return _Parser(source).parse()


class _Parser:
    def __init__(self, source: str) -> None:
        self._source = source
        self._tokens = tokenize(source)
        if len(self._tokens) > MAX_TOKENS:
            reason = f"the expression is too long: more than {MAX_TOKENS} tokens"
            raise ExpressionLimitExceeded(reason, source, self._tokens[MAX_TOKENS].position)
        self._next = 0
        self._depth = 0
        # Constant patterns are compiled here to check them, which takes time.
        self._compilation = Evaluation(None, source)

    def parse(self) -> Evaluate:
        node = self._expression(0)
        if self._peek().kind is not Kind.END:
            raise self._error(f"{self._peek().text!r} is not expected here")
        return node.evaluate

    def _expression(self, power: int) -> _Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            reason = f"the expression is nested too deeply: more than {MAX_DEPTH} levels"
            raise ExpressionLimitExceeded(reason, self._source, self._peek().position)
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
        evaluate = operand.evaluate
        if token.text == "!":
            return _Node(lambda run: not operators.as_boolean(evaluate(run), run, operand.position), token.position)
        return _Node(lambda run: operators.calculate(token.text, 0, evaluate(run), run, token.position), token.position)

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
            case "instanceof":
                return self._instance_of(left)
        right = self._expression(_POWERS[operator.text])
        return _Node(self._operation(operator, left.evaluate, right.evaluate), left.position)

    @staticmethod
    def _operation(operator: Token, left: Evaluate, right: Evaluate) -> Evaluate:
        position, text = operator.position, operator.text
        match text:
            case "==":
                return lambda run: operators.equals(left(run), right(run), run, position)
            case "!=":
                return lambda run: not operators.equals(left(run), right(run), run, position)
            case "<" | "<=" | ">" | ">=":
                return lambda run: operators.compare(text, left(run), right(run), run, position)
            case "between":
                return lambda run: _between(left(run), right(run), run, position)
            case "+":
                return lambda run: operators.add(left(run), right(run), run, position)
        return lambda run: operators.calculate(text, left(run), right(run), run, position)

    def _ternary(self, condition: _Node) -> _Node:
        yes = self._expression(0).evaluate
        self._expect(":")
        no = self._expression(0).evaluate
        test, position = condition.evaluate, condition.position

        def evaluate(run: Evaluation) -> object:
            return yes(run) if operators.as_boolean(test(run), run, position) else no(run)

        return _Node(evaluate, position)

    def _elvis(self, left: _Node) -> _Node:
        """Return `a ?: b`, which is b if a is null or an empty text."""
        first, second = left.evaluate, self._expression(0).evaluate

        def evaluate(run: Evaluation) -> object:
            value = first(run)
            return second(run) if value is None or value == "" else value

        return _Node(evaluate, left.position)

    def _logical(self, left: _Node, operator: Token) -> _Node:
        right = self._expression(_POWERS[operator.text])
        first, second = left.evaluate, right.evaluate
        decided = operator.text == "||"

        def evaluate(run: Evaluation) -> bool:
            if operators.as_boolean(first(run), run, left.position) is decided:
                return decided
            return operators.as_boolean(second(run), run, right.position)

        return _Node(evaluate, left.position)

    def _matches(self, left: _Node, operator: Token) -> _Node:
        right = self._expression(_RELATION)
        self._check_pattern(right)
        evaluate = _matches(left.evaluate, right.evaluate, right.constant, operator.position)
        return _Node(evaluate, left.position)

    def _instance_of(self, left: _Node) -> _Node:
        """Return `a instanceof T(java.lang.String)`; types are reachable nowhere else."""
        start = self._take()
        if start.text != "T" or start.kind is not Kind.NAME:
            raise self._error("a type is missing here: T(String)", start)
        self._expect("(")
        type_ = self._take().text
        while self._accepts("."):
            type_ += f".{self._take().text}"
        if self._accepts("["):
            self._expect("]")
            type_ += "[]"
        self._expect(")")
        evaluate = left.evaluate
        return _Node(lambda run: is_instance(evaluate(run), type_), left.position)

    def _check_pattern(self, pattern: _Node) -> None:
        """Refuse a constant pattern that cannot be compiled."""
        if not isinstance(pattern.constant, str):
            return
        try:
            compiled = compile_pattern(pattern.constant)
        except PatternError as error:
            raise ExpressionError(str(error), self._source, pattern.position) from None
        self._compilation.charge(compiled.cost(""), pattern.position)

    # Operands

    def _primary(self) -> _Node:
        token = self._take()
        if token.kind is Kind.NUMBER:
            return _constant(self._number(token), token.position)
        if token.kind is Kind.TEXT:
            return _constant(token.text, token.position)
        if token.kind is Kind.NAME:
            return self._name(token)
        match token.text:
            case "(":
                inner = self._expression(0)
                self._expect(")")
                return _Node(inner.evaluate, token.position, constant=inner.constant)
            case "{":
                items = [item.evaluate for item in self._list_until("}")]
                return _Node(lambda run: [item(run) for item in items], token.position)
            case "#":
                return self._variable(token)
            case "@":
                raise self._error("beans are not reachable from expressions", token)
        raise self._error("an operand is missing here", token)

    def _number(self, token: Token) -> int | float:
        digits = token.text.rstrip("lLdDfF")
        if not digits.isdigit() or token.text[-1] in "dDfF":
            return float(digits)
        if len(digits) <= _MAX_DIGITS and int(digits).bit_length() <= MAX_NUMBER_BITS:
            return int(digits)
        reason = f"the number has more than {MAX_NUMBER_BITS:,} bits"
        raise ExpressionLimitExceeded(reason, self._source, token.position)

    def _name(self, token: Token) -> _Node:
        if token.text.lower() in _CONSTANTS:
            return _constant(_CONSTANTS[token.text.lower()], token.position)
        if token.text in ("T", "new"):
            raise self._error("types are not reachable from expressions", token)
        if self._peek().text == "(" and self._peek().kind is Kind.SYMBOL:
            return self._call(_Node(_root, token.position), token, safe=False)
        return _Node(_property_of_root(token.text, token.position), token.position, name=token.text)

    def _variable(self, hash_token: Token) -> _Node:
        name = self._take()
        if name.text not in ("root", "this"):
            raise self._error("the only variables are #root and #this", hash_token)
        return _Node(_root if name.text == "this" else _whole, hash_token.position)

    def _postfix(self, node: _Node) -> _Node:
        """Return the operand with the properties, items and calls that follow it."""
        while self._peek().kind is Kind.SYMBOL and self._peek().text in (".", "?.", "["):
            token = self._take()
            node = self._item(node, token) if token.text == "[" else self._member(node, token)
        return node

    def _item(self, node: _Node, token: Token) -> _Node:
        inner = self._expression(0)
        self._expect("]")
        # As in Spring's language, a bare name between brackets is the key itself: headers[type].
        name = inner.constant if inner.name is None else inner.name
        if isinstance(name, str):
            return _Node(_named_item(node.evaluate, name, token.position), node.position)
        target, key, position = node.evaluate, inner.evaluate, token.position
        return _Node(lambda run: operators.item_of(target(run), key(run), run, position), node.position)

    def _member(self, node: _Node, dot: Token) -> _Node:
        name = self._take()
        safe = dot.text == "?."
        if name.kind is Kind.SYMBOL and name.text in ("?[", "^[", "!["):
            return self._loop(node, name, safe)
        if name.text == "$" and self._accepts("["):
            return self._loop(node, name, safe)
        if name.kind is not Kind.NAME:
            raise self._error("a property's name is missing here", name)
        if self._peek().text == "(" and self._peek().kind is Kind.SYMBOL:
            return self._call(node, name, safe)
        if name.text.startswith("_"):
            raise self._error(f"{name.text!r} is private", name)
        target, key, position = node.evaluate, name.text, name.position

        def evaluate(run: Evaluation) -> object:
            value = target(run)
            if type(value) is MessageHeaders:
                return value.get(key)
            if safe and value is None:
                return None
            return operators.property_of(value, key, run, position)

        return _Node(evaluate, node.position)

    def _loop(self, node: _Node, start: Token, safe: bool) -> _Node:
        """Return a projection, `.![…]`, or a selection: `.?[…]`, `.^[…]` for the first item, `.$[…]` for the last.

        The part between brackets is evaluated for each item, and charged by its tokens.
        """
        kind, first = start.text[0], self._next
        what = "projection" if kind == "!" else "selection"
        inner = self._expression(0)
        self._expect("]")
        cost = ITEM_WORK * (1 + self._next - first)
        target, position = node.evaluate, start.position
        for_item, at = inner.evaluate, inner.position

        def evaluate(run: Evaluation) -> object:
            value = target(run)
            if safe and value is None:
                return None
            items, is_map = operators.items_of(value, what, run, position)
            run.charge(cost * len(items), position)
            if kind == "!":
                return [run.within(item, for_item) for item in items]
            chosen = [item for item in items if operators.as_boolean(run.within(item, for_item), run, at)]
            return operators.selected(chosen, kind, is_map=is_map)

        return _Node(evaluate, node.position)

    def _getter(self, node: _Node, name: Token, read: str, safe: bool) -> _Node:
        """Return the property that a method without arguments reads."""
        if read == "class":
            raise self._error("types are not reachable from expressions", name)
        self._expect(")")
        target, position = node.evaluate, name.position

        def evaluate(run: Evaluation) -> object:
            value = target(run)
            return None if safe and value is None else operators.property_of(value, read, run, position)

        return _Node(evaluate, node.position)

    def _call(self, node: _Node, name: Token, safe: bool) -> _Node:
        read = None if methods.is_method(name.text) else methods.property_read_by(name.text)
        if read is None and not methods.is_method(name.text):
            raise self._error(f"there is no method {name.text}()", name)
        self._expect("(")
        if read is not None:
            return self._getter(node, name, read, safe)
        given = self._list_until(")")
        if name.text == "matches" and given:
            self._check_pattern(given[0])
        arguments = [argument.evaluate for argument in given]
        target, method, position = node.evaluate, name.text, name.position

        def evaluate(run: Evaluation) -> object:
            value = target(run)
            if safe and value is None:
                return None
            return methods.call(value, method, [each(run) for each in arguments], run, position)

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

    def _accepts(self, symbol: str) -> bool:
        """Take the next token and return True, if it is this symbol."""
        token = self._peek()
        if token.kind is Kind.SYMBOL and token.text == symbol:
            self._take()
            return True
        return False

    def _expect(self, text: str) -> None:
        token = self._peek()
        if token.kind is not Kind.SYMBOL or token.text != text:
            raise self._error(f"{text!r} is missing here", token)
        self._take()

    def _error(self, reason: str, token: Token | None = None) -> ExpressionError:
        return ExpressionError(reason, self._source, (token or self._peek()).position)


def _root(run: Evaluation) -> object:
    return run.root


def _whole(run: Evaluation) -> object:
    return run.whole


def _constant(value: object, position: int) -> _Node:
    return _Node(lambda _: value, position, constant=value)


def _property_of_root(name: str, position: int) -> Evaluate:
    """Return a function that evaluates a bare name: nearly always a message's payload or headers."""

    def payload(run: Evaluation) -> object:
        root = run.root
        return root.payload if type(root) is Message else other(run)

    def headers(run: Evaluation) -> object:
        root = run.root
        return root.headers if type(root) is Message else other(run)

    def other(run: Evaluation) -> object:
        return operators.property_of(run.root, name, run, position)

    return payload if name == "payload" else headers if name == "headers" else other


def _named_item(target: Evaluate, key: str, position: int) -> Evaluate:
    """Return a function that evaluates `target['key']`: nearly always a header."""

    def evaluate(run: Evaluation) -> object:
        value = target(run)
        if type(value) is MessageHeaders:
            return value.get(key)
        return operators.item_of(value, key, run, position)

    return evaluate


def _matches(target: Evaluate, pattern: Evaluate, constant: object, position: int) -> Evaluate:
    """Return a function that evaluates `target matches pattern`: nearly always a text and a constant."""

    def matches_constant(run: Evaluation) -> object:
        text = target(run)
        if type(text) is not str or type(constant) is not str:
            return methods.call(text, "matches", (constant,), run, position)
        compiled = compile_pattern(constant)  # cached there, not here: compiled patterns may be large
        run.charge(compiled.cost(text), position)
        return compiled.matches(text)

    def matches(run: Evaluation) -> object:
        return methods.call(target(run), "matches", (pattern(run),), run, position)

    return matches if constant is _VARIES else matches_constant


def _between(value: object, bounds: object, run: Evaluation, position: int) -> bool:
    if not isinstance(bounds, list) or len(bounds) != 2:
        raise run.error("between takes two bounds: {1, 10}", position)
    low, high = bounds
    return operators.compare(">=", value, low, run, position) and operators.compare("<=", value, high, run, position)
