"""The value of a setting together with its origin, so that errors can name the place that sets it."""

from typing import TypeAlias

import msgspec

from streamkit.config.secret import shown_text

Scalar: TypeAlias = str | int | float | bool | None


class Origin(msgspec.Struct, frozen=True):
    """A place that sets values; `str()` returns the text for errors, such as `application.yml:3`.

    Attributes:
        place: The file, `environment variable X`, `argument --x`, or the name of a table in code.
        line: The line in the file, from 1; None for places without lines.
    """

    place: str
    line: int | None = None

    def __str__(self) -> str:
        return self.place if self.line is None else f"{self.place}:{self.line}"


class Value(msgspec.Struct, frozen=True):
    """The value of a setting with its origin.

    Attributes:
        value: The value as read from the source: text, or a YAML or JSON scalar.
        origin: The place that sets the value.
        key: The key, as spelt at that place.
    """

    value: Scalar
    origin: Origin
    key: str

    @property
    def shown(self) -> str:
        """The value for logs and errors; secrets are hidden."""
        return shown_text(self.key, str(self))

    def __str__(self) -> str:
        return scalar_text(self.value)

    def __repr__(self) -> str:
        return f"Value({self.key}={self.shown}, {self.origin})"


def scalar_text(value: Scalar) -> str:
    """Return a value as written in a .properties file; None is the empty text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


DEFAULT = Origin("default")
