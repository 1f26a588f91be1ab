"""Where a setting's value comes from, kept beside it from the first byte read to the last error told."""

from dataclasses import dataclass
from typing import TypeAlias

from streamkit.config.secret import shown_text

Scalar: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Origin:
    """A place that sets values; `str()` of it is how people find it.

    Attributes:
        place: The file, `environment variable X`, `argument --x`, or the name of a table in code.
        line: The line in that file, from 1; None where there are no lines.
    """

    place: str
    line: int | None = None

    def __str__(self) -> str:
        return self.place if self.line is None else f"{self.place}:{self.line}"


@dataclass(frozen=True, slots=True)
class Value:
    """A setting's value with its origin.

    Attributes:
        value: As its source had it: text, or what a YAML or JSON scalar is.
        origin: Where that is.
        key: The key as it is spelt there.
    """

    value: Scalar
    origin: Origin
    key: str

    @property
    def shown(self) -> str:
        """The value as people may see it: secrets are hidden."""
        return shown_text(self.key, str(self))

    def __str__(self) -> str:
        return scalar_text(self.value)

    def __repr__(self) -> str:
        return f"Value({self.key}={self.shown}, {self.origin})"


def scalar_text(value: Scalar) -> str:
    """The value as a .properties file would spell it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


DEFAULT = Origin("default")
