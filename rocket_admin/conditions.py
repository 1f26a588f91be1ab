"""Conditions on messages, in the form of ``--where``.

::

    NAME=VALUE     the property has this value
    NAME!=VALUE    it has another value, or the message has no such property
    NAME~TEXT      it contains the text
    NAME!~TEXT     it does not contain the text, or the message has no such property

The name ``body`` stands for the body as text, ``tags`` and ``keys`` for RocketMQ's properties `TAGS` and `KEYS`. A
path such as ``$.customer.name`` (`rocket_admin.json_paths`) stands for a value in a body that is JSON, or Avro if
schemas are given (`rocket_admin.avro_schemas`). Numbers there are also compared by size:

::

    $.total>100    $.total>=100    $.total<100    $.total<=100

Where a path leads to several values, the condition is true if it is true of one of them; ``!=`` and ``!~`` are true if
``=`` and ``~`` are true of none.
"""

import json
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Self

from rocket_admin.json_paths import JsonPath
from rocket_remoting.wire.message import Message
from rocket_remoting.wire.properties import PROPERTY_KEYS, PROPERTY_TAGS

__all__ = ["Condition", "DocumentReader", "ReadMessage", "conditions_of", "json_document", "matches_all"]

_FORM: Final = re.compile(r"(?P<name>[^=!~]+)(?P<operator>!=|!~|=|~)(?P<value>.*)", re.DOTALL)
_BEHIND_PATH: Final = re.compile(r"\s*(?P<operator>!=|!~|<=|>=|=|~|<|>)(?P<value>.*)", re.DOTALL)
_PROPERTIES: Final = {"tags": PROPERTY_TAGS, "keys": PROPERTY_KEYS}
_BODY: Final = "body"

_SIZES: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NUMBER: Final = re.compile(r"\s*-?[0-9]{1,30}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?\s*")

DocumentReader = Callable[[Message], Any]
"""Parses the body of a message into the values that `json.loads` returns; returns None if it cannot."""


def json_document(message: Message) -> Any:
    """Return the body of a message, parsed as JSON; None if it is not JSON, or nested too deeply to be parsed."""
    try:
        return json.loads(bytes(message.body))
    except (ValueError, RecursionError):
        return None


@dataclass(frozen=True)
class Condition:
    """One condition.

    Attributes:
        name: The name of a property; or `body`, `tags`, `keys`; or a path, as it is written.
        operator: `=`, `!=`, `~` or `!~`; behind a path also `<`, `<=`, `>` or `>=`.
        value: The value or text to compare with.
        path: The path; None if the condition is not on a value in the body.
        documents: Reads the bodies that the path leads into.
    """

    name: str
    operator: str
    value: str
    path: JsonPath | None = None
    documents: DocumentReader = field(default=json_document, compare=False, repr=False)

    @classmethod
    def parse(cls, text: str, documents: DocumentReader = json_document) -> Self:
        """Return the condition that the text is.

        Args:
            text: The text.
            documents: Reads the bodies that a path leads into.

        Raises:
            ValueError: The text is not a condition.
        """
        path = JsonPath.at_start_of(text.lstrip())
        if path is not None:
            return cls._on_path(path, text, documents)
        found = _FORM.fullmatch(text)
        if found is None or not found["name"].strip():
            raise ValueError(f"{text!r} is not a condition: write NAME=VALUE, NAME!=VALUE, NAME~TEXT or NAME!~TEXT")
        return cls(found["name"].strip(), found["operator"], found["value"])

    @classmethod
    def _on_path(cls, path: JsonPath, text: str, documents: DocumentReader) -> Self:
        found = _BEHIND_PATH.fullmatch(text.lstrip(), len(path.text))
        if found is None:
            raise ValueError(
                f"{text!r} is not a condition: write =, !=, ~, !~, <, <=, > or >= and a value "
                f"behind the path {path.text}; a path is written as $.name, $['any name'], $.items[0] or $.items[*]"
            )
        condition = cls(path.text, found["operator"], found["value"], path, documents)
        if condition.operator in _SIZES and condition._number is None:
            raise ValueError(f"{text!r} compares by size: write a number behind {condition.operator}")
        return condition

    def matches(self, message: "ReadMessage") -> bool:
        """Return whether the condition is true of the message."""
        if self.path is not None:
            is_found = any(map(self._is_true_of_value, self.path.values(message.document(self.documents))))
        else:
            actual = message.body if self.name == _BODY else message.property(_PROPERTIES.get(self.name, self.name))
            is_found = actual is not None and self._is_true_of(actual)
        return is_found is not self.operator.startswith("!")

    def _is_true_of(self, actual: str) -> bool:
        return actual == self.value if "=" in self.operator else self.value in actual

    def _is_true_of_value(self, actual: Any) -> bool:
        """Return whether the condition without its ``!`` is true of a value of a JSON document."""
        is_number = isinstance(actual, int | float) and not isinstance(actual, bool)
        if self.operator in _SIZES:
            return is_number and self._number is not None and _SIZES[self.operator](actual, self._number)
        if is_number and "=" in self.operator and self._number is not None:
            return bool(actual == self._number)
        return self._is_true_of(actual if isinstance(actual, str) else _json_text(actual))

    @cached_property
    def _number(self) -> float | None:
        """The value as a number; None if the text is not a number."""
        if _NUMBER.fullmatch(self.value) is None:
            return None
        return float(self.value) if any(each in self.value for each in ".eE") else int(self.value)

    def __str__(self) -> str:
        return f"{self.name}{self.operator}{self.value}"


class ReadMessage:
    """A message whose body is read at most once for all conditions."""

    def __init__(self, message: Message) -> None:
        self._message = message
        self._documents: dict[DocumentReader, Any] = {}

    @cached_property
    def body(self) -> str:
        """The body as text."""
        return bytes(self._message.body).decode(errors="replace")

    def document(self, reader: DocumentReader) -> Any:
        """Return the body as the reader parses it; None if the reader cannot."""
        if reader not in self._documents:
            self._documents[reader] = reader(self._message)
        return self._documents[reader]

    def property(self, name: str) -> str | None:
        """Return the value of a property; None if the message does not have it."""
        return self._message.properties.get(name)


def _json_text(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        return ""


def conditions_of(texts: Iterable[str], documents: DocumentReader = json_document) -> tuple[Condition, ...]:
    """Return the conditions that the texts are.

    Args:
        texts: The texts.
        documents: Reads the bodies that paths lead into.

    Raises:
        ValueError: A text is not a condition.
    """
    return tuple(Condition.parse(text, documents) for text in texts)


def matches_all(conditions: Sequence[Condition], message: Message) -> bool:
    """Return whether all conditions are true of the message; without conditions it is."""
    read = ReadMessage(message)
    return all(condition.matches(read) for condition in conditions)
