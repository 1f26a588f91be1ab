"""`spring.cloud.function.definition`: which functions are bound, and what they are composed of.

::

    upper;charge|audit;ticks
    │     │             └ ticks-out-0
    │     └ two functions as one: chargeaudit-in-0, chargeaudit-out-0
    └ upper-in-0, upper-out-0
"""

from dataclasses import dataclass

__all__ = ["Definition", "parse_definitions"]


@dataclass(frozen=True, slots=True)
class Definition:
    """One function to bind.

    Attributes:
        parts: The names of the functions it is composed of, in the order they are called.
    """

    parts: tuple[str, ...]

    @property
    def name(self) -> str:
        """What the names of its bindings begin with."""
        return "".join(self.parts)

    def input(self, index: int) -> str:
        """The name of an input binding."""
        return f"{self.name}-in-{index}"

    def output(self, index: int) -> str:
        """The name of an output binding."""
        return f"{self.name}-out-{index}"

    def __str__(self) -> str:
        return "|".join(self.parts)


def parse_definitions(text: str) -> list[Definition]:
    """Return the definitions in ``text``: `;` stands between them, `|` or `,` between composed functions.

    Raises:
        ValueError: A name is missing.
    """
    found = []
    for one in filter(None, map(str.strip, text.split(";"))):
        parts = tuple(part.strip() for part in one.replace(",", "|").split("|"))
        if not all(parts):
            raise ValueError(f"{one!r} lacks the name of a function beside a '|'")
        found.append(Definition(parts))
    return found
