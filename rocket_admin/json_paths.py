"""Paths to values in JSON documents: a small part of JSONPath (RFC 9535).

::

    $.customer.name            the value with this name in an object
    $['customer name']         the same, for names with other characters; also with "
    $.items[0]  $.items[-1]    the first and the last value of an array
    $.items[*].price           the prices of all values of an array
    $.*                        all values of an object

There are no filters, slices or descents (`..`): conditions compare what a path finds.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

__all__ = ["JsonPath"]

MAX_STEPS: Final = 32

_STEP: Final = re.compile(
    r"\.(?P<name>[^\s.\[\]=!~<>*'\"]+)"
    r"|\[(?P<index>-?[0-9]{1,9})\]"
    r"|\[(?P<quote>['\"])(?P<quoted>.*?)(?P=quote)\]"
    r"|(?P<every>\.\*|\[\*\])",
    re.DOTALL,
)


class _Every:
    """The step to all values of an array or object."""


_EVERY: Final = _Every()


class JsonPath(msgspec.Struct, frozen=True):
    """A path.

    Attributes:
        text: The path as it is written.
        steps: The steps: names, places in arrays, or all values.
    """

    text: str
    steps: tuple[str | int | _Every, ...]

    @classmethod
    def at_start_of(cls, text: str) -> "JsonPath | None":
        """Return the path that a text begins with; None if it begins with none, such as a text without ``$.``.

        Raises:
            ValueError: The path has too many steps.
        """
        steps: list[str | int | _Every] = []
        end = 1
        while text.startswith("$") and (found := _STEP.match(text, end)) is not None:
            end = found.end()
            if found["every"]:
                steps.append(_EVERY)
            elif found["index"]:
                steps.append(int(found["index"]))
            else:
                steps.append(found["quoted"] if found["name"] is None else found["name"])
            if len(steps) > MAX_STEPS:
                raise ValueError(f"a path has at most {MAX_STEPS} steps: {text[:end]}")
        return cls(text[:end], tuple(steps)) if steps else None

    def values(self, document: Any) -> Iterator[Any]:
        """Yield the values that the path leads to; none if the document has nothing there.

        Args:
            document: What `json.loads` returns.
        """
        values = iter((document,))
        for step in self.steps:
            values = _behind(values, step)
        return values


def _behind(values: Iterator[Any], step: str | int | _Every) -> Iterator[Any]:
    """Yield the values to which one step leads from any of the given ones."""
    for value in values:
        if isinstance(step, _Every):
            if isinstance(value, dict):
                yield from value.values()
            elif isinstance(value, list):
                yield from value
        elif isinstance(step, str):
            if isinstance(value, dict) and step in value:
                yield value[step]
        elif isinstance(value, list) and -len(value) <= step < len(value):
            yield value[step]
