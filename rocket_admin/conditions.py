"""Conditions on messages, in the form of ``--where``.

::

    NAME=VALUE     the property has this value
    NAME!=VALUE    it has another value, or the message has no such property
    NAME~TEXT      it contains the text
    NAME!~TEXT     it does not contain the text, or the message has no such property

The name ``body`` stands for the body as text, ``tags`` and ``keys`` for RocketMQ's properties `TAGS` and `KEYS`.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self

from rocket_remoting.wire.message import Message
from rocket_remoting.wire.properties import PROPERTY_KEYS, PROPERTY_TAGS

__all__ = ["Condition", "conditions_of", "matches_all"]

_FORM: Final = re.compile(r"(?P<name>[^=!~]+)(?P<operator>!=|!~|=|~)(?P<value>.*)", re.DOTALL)
_PROPERTIES: Final = {"tags": PROPERTY_TAGS, "keys": PROPERTY_KEYS}
_BODY: Final = "body"


@dataclass(frozen=True)
class Condition:
    """One condition.

    Attributes:
        name: The name of a property; or `body`, `tags`, `keys`.
        operator: `=`, `!=`, `~` or `!~`.
        value: The value or text to compare with.
    """

    name: str
    operator: str
    value: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the condition that the text is.

        Raises:
            ValueError: The text is no condition.
        """
        found = _FORM.fullmatch(text)
        if found is None or not found["name"].strip():
            raise ValueError(f"{text!r} is no condition: write NAME=VALUE, NAME!=VALUE, NAME~TEXT or NAME!~TEXT")
        return cls(found["name"].strip(), found["operator"], found["value"])

    def matches(self, message: Message) -> bool:
        """Return whether the condition is true of the message."""
        actual = self._actual(message)
        is_found = actual is not None and (actual == self.value if "=" in self.operator else self.value in actual)
        return is_found is not self.operator.startswith("!")

    def _actual(self, message: Message) -> str | None:
        if self.name == _BODY:
            return bytes(message.body).decode(errors="replace")
        return message.properties.get(_PROPERTIES.get(self.name, self.name))

    def __str__(self) -> str:
        return f"{self.name}{self.operator}{self.value}"


def conditions_of(texts: Iterable[str]) -> tuple[Condition, ...]:
    """Return the conditions that the texts are.

    Raises:
        ValueError: A text is no condition.
    """
    return tuple(map(Condition.parse, texts))


def matches_all(conditions: Sequence[Condition], message: Message) -> bool:
    """Return whether all conditions are true of the message; without conditions it is."""
    return all(condition.matches(message) for condition in conditions)
