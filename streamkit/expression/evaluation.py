"""One evaluation of an expression: the root it is evaluated for, and how much work it may still do."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from streamkit.errors import ExpressionError, ExpressionLimitExceeded
from streamkit.expression.limits import ITEM_WORK, MAX_WORK

__all__ = ["CONTAINERS", "PLAIN", "Evaluation", "comparison_work"]

CONTAINERS: Final = (list, tuple, dict, set, frozenset, Mapping)
"""The types of values that contain others."""

PLAIN: Final = frozenset((str, int, float, bool, type(None)))
"""The types of nearly all values that contain no others; testing them first is faster than `isinstance`."""


class Evaluation(msgspec.Struct):
    """The state that the parts of an expression share during one evaluation.

    A msgspec struct, because one is made for every message, in a third of the time of a class with `__init__`.

    Attributes:
        root: The value that bare names and `#this` refer to: the one for which the expression is evaluated, and an item
            of a list or map while a selection or projection works on it.
        source: The expression's text, for errors.
        work_left: Units of work the evaluation may still do.
    """

    root: object
    source: str
    work_left: int = MAX_WORK
    _whole: object = None
    _loops: int = 0
    _data: object = None
    _document: object = None

    @property
    def whole(self) -> object:
        """The value for which the whole expression is evaluated: `#root`."""
        return self._whole if self._loops else self.root

    def within(self, item: object, evaluate: "Callable[[Evaluation], object]") -> object:
        """Return the value of a part of the expression for an item of a list or map."""
        outer = self.root
        if not self._loops:
            self._whole = outer
        self._loops += 1
        self.root = item
        try:
            return evaluate(self)
        finally:
            self.root = outer
            self._loops -= 1

    def charge(self, work: int, position: int) -> None:
        """Subtract ``work`` from the remaining work, before it is done.

        Raises:
            ExpressionLimitExceeded: Less work is left.
        """
        self.work_left -= work
        if self.work_left < 0:
            raise self.exhausted(position)

    def document(self, data: bytes | bytearray | memoryview, position: int) -> object:
        """Return the JSON document in ``data``.

        The first document, nearly always the payload, is cached and not charged, because parsing it once is work in
        proportion to the message.

        Raises:
            ExpressionError: The data is not JSON.
            ExpressionLimitExceeded: It is not the first document, and too large for the work that is left.
        """
        if data is self._data:
            return self._document
        if self._data is not None:
            self.charge(len(data), position)
        try:
            self._document = msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError) as error:
            raise self.error(f"the payload is not JSON: {error}", position) from None
        self._data = data
        return self._document

    def error(self, reason: str, position: int) -> ExpressionError:
        """Return an error about the character at ``position``."""
        return ExpressionError(reason, self.source, position)

    def exhausted(self, position: int) -> ExpressionLimitExceeded:
        """Return the error for work beyond `MAX_WORK`."""
        return self.exceeded(
            f"the expression takes more than {MAX_WORK:,} units of work: it reads and makes too much data",
            position,
        )

    def exceeded(self, reason: str, position: int) -> ExpressionLimitExceeded:
        """Return the error for a bound of `streamkit.expression.limits` that is exceeded at ``position``."""
        return ExpressionLimitExceeded(reason, self.source, position)


def comparison_work(left: object, right: object) -> int:
    """Return the work of comparing two values: nothing, unless both contain others.

    Counting stops beyond `MAX_WORK`: no evaluation may do more.
    """
    if not (isinstance(left, CONTAINERS) and isinstance(right, CONTAINERS)):
        return 0
    work = 0
    containers: list[Any] = [left]
    while containers and work <= MAX_WORK:
        one = containers.pop()
        work += ITEM_WORK * (1 + len(one))
        items = one.values() if isinstance(one, Mapping) else one
        containers += [each for each in items if type(each) not in PLAIN and isinstance(each, CONTAINERS)]
    return work
