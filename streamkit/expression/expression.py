"""Compiled expressions."""

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
        """Return the expression's value for `root`, which is a message, or the key that a selector receives.

        Raises:
            ExpressionError: The root lacks something that the expression reads.
            ExpressionLimitExceeded: The evaluation takes too much work.
        """
        return self.evaluate(Evaluation(root, self.source))

    def evaluate(self, evaluation: Evaluation) -> object:
        """Return the expression's value, within the work that `evaluation` has left.

        Raises:
            ExpressionError: The root lacks something that the expression reads.
            ExpressionLimitExceeded: The evaluation takes too much work.
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
            ExpressionError: There is no value, or it is neither true nor false.
            ExpressionLimitExceeded: The evaluation takes too much work.
        """
        evaluation = Evaluation(root, self.source)
        return as_boolean(self.evaluate(evaluation), evaluation, 0)

    def __repr__(self) -> str:
        return f"Expression({self.source!r})"


def compile_expression(source: str) -> Expression:
    """Compile an expression, which may then be evaluated for many messages.

    Raises:
        ExpressionError: The text is not an expression; position and a caret show where.
        ExpressionLimitExceeded: The text is too long, or nested too deeply.
    """
    return Expression(source)
