"""One document of a settings file."""

from dataclasses import dataclass, field

from streamkit.config.origin import Value
from streamkit.config.relaxed import Segments, uniform


@dataclass(slots=True)
class Document:
    """The settings of one document, by the segments of their keys, in the file's order."""

    entries: dict[Segments, Value] = field(default_factory=dict)

    def add(self, segments: Segments, value: Value) -> None:
        """Sets a value; a key that was there before is overridden."""
        self.entries[segments] = value

    def find(self, *names: str) -> Value | None:
        """The value of the key with these uniform segments, or None."""
        for segments, value in self.entries.items():
            if tuple(map(uniform, segments)) == names:
                return value
        return None
