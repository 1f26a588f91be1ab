"""`spring.cloud.function.definition`: the functions to bind, and how they are composed.

::

    upper;charge|audit;ticks
    │     │             └ ticks-out-0
    │     └ two functions composed to one: chargeaudit-in-0, chargeaudit-out-0
    └ upper-in-0, upper-out-0
"""

import msgspec

__all__ = ["Definition", "parse_definitions"]


class Definition(msgspec.Struct, frozen=True):
    """One function to bind, perhaps composed of several.

    Attributes:
        parts: The names of the functions, in the order in which they are called.
    """

    parts: tuple[str, ...]

    @property
    def name(self) -> str:
        """The prefix of the names of its bindings."""
        return "".join(self.parts)

    def input(self, index: int) -> str:
        """Return the name of an input binding."""
        return f"{self.name}-in-{index}"

    def output(self, index: int) -> str:
        """Return the name of an output binding."""
        return f"{self.name}-out-{index}"

    def __str__(self) -> str:
        return "|".join(self.parts)


def parse_definitions(text: str) -> list[Definition]:
    """Return the definitions in ``text``: `;` separates definitions, `|` or `,` separates composed functions.

    Raises:
        ValueError: The name of a composed function is missing.
    """
    found = []
    for one in filter(None, map(str.strip, text.split(";"))):
        parts = tuple(part.strip() for part in one.replace(",", "|").split("|"))
        if not all(parts):
            raise ValueError(f"{one!r} has no name of a function on one side of a '|'")
        found.append(Definition(parts))
    return found
