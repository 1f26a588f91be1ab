"""Expressions over messages: the subset of Spring's expression language that settings need.

    headers['type'] == 'refund' && payload.amount > 100        a condition
    payload.customer.id                                        a partition key
    payload.name?.toUpperCase() ?: 'NOBODY'

What there is: `payload` and `headers` with properties, keys and indexes; literals, and lists in braces;
`== != < <= > >=` and `eq ne lt le gt ge`; `&& || !` and `and or not`; `+ - * / % ^` and `div mod`; `? :`,
`?:` and `?.`; `matches` and `between`; the methods of `streamkit.expression.methods`. Arithmetic of whole
numbers is Java's. Nothing else is reachable: no types, no constructors, no beans, no assignments, no methods
or private names of Python objects.

A payload that is still bytes is read as JSON when a part of it is asked for.

An expression and the data it works with may come from a stranger's message. So every evaluation is bounded
(`streamkit.expression.limits`), and patterns match in linear time (`streamkit.expression.patterns`).
"""

from streamkit.errors import ExpressionLimitExceeded
from streamkit.expression.evaluation import Evaluation
from streamkit.expression.operators import as_boolean
from streamkit.expression.parser import parse
from streamkit.messaging.message import Message

__all__ = ["Expression", "compile_expression"]


class Expression:
    """A compiled expression.

    Attributes:
        source: The expression's text.
    """

    __slots__ = ("_evaluate", "source")

    def __init__(self, source: str) -> None:
        self.source = source
        self._evaluate = parse(source)

    def __call__(self, root: Message[object] | object) -> object:
        """Return the expression's value for `root`: a message, or what a selector is asked about.

        Raises:
            ExpressionError: The root does not have what the expression asks for.
            ExpressionLimitExceeded: The value takes too much work.
        """
        return self.evaluate(Evaluation(root, self.source))

    def evaluate(self, evaluation: Evaluation) -> object:
        """Return the expression's value, with the work that `evaluation` may still do.

        Raises:
            ExpressionError: The root does not have what the expression asks for.
            ExpressionLimitExceeded: The value takes too much work.
        """
        try:
            return self._evaluate(evaluation)
        except RecursionError as error:
            raise ExpressionLimitExceeded(
                "the values that the expression works with are nested too deeply", self.source, 0
            ) from error

    def test(self, root: Message[object] | object) -> bool:
        """Return whether the expression is true for `root`.

        Raises:
            ExpressionError: The value is neither true nor false, or there is none.
            ExpressionLimitExceeded: The value takes too much work.
        """
        evaluation = Evaluation(root, self.source)
        return as_boolean(self.evaluate(evaluation), evaluation, 0)

    def __repr__(self) -> str:
        return f"Expression({self.source!r})"


def compile_expression(source: str) -> Expression:
    """Return the expression that `source` spells, ready to be evaluated for many messages.

    Raises:
        ExpressionError: The text is not an expression; position and a caret show where.
        ExpressionLimitExceeded: The text is too long, or nested too deeply.
    """
    return Expression(source)
