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
"""

from streamkit.expression.evaluation import as_boolean
from streamkit.expression.parser import parse
from streamkit.messaging.message import Message

__all__ = ["Expression", "compile_expression"]


class Expression:
    """A compiled expression.

    Attributes:
        source: Its text.
    """

    __slots__ = ("_evaluate", "source")

    def __init__(self, source: str) -> None:
        self.source = source
        self._evaluate = parse(source)

    def __call__(self, root: Message[object] | object) -> object:
        """Its value for `root`: a message, or what a selector is asked about.

        Raises:
            ExpressionError: The root does not have what the expression asks for.
        """
        return self._evaluate(root)

    def test(self, root: Message[object] | object) -> bool:
        """Whether it holds for `root`.

        Raises:
            ExpressionError: Its value is neither true nor false, or it has none.
        """
        return as_boolean(self._evaluate(root), self.source, 0)

    def __repr__(self) -> str:
        return f"Expression({self.source!r})"


def compile_expression(source: str) -> Expression:
    """The expression `source` spells, ready to be evaluated for many messages.

    Raises:
        ExpressionError: It spells none; position and a caret show where.
    """
    return Expression(source)
