"""One document of a settings file."""

from collections.abc import Iterator

import msgspec

from streamkit.config.origin import Value
from streamkit.config.relaxed import Segments, uniform


class Document(msgspec.Struct):
    """The settings of one document, by the segments of their keys, in the file's order.

    Attributes:
        entries: The values.
        replaced: Values that were replaced because the document sets their keys again, each with the value that won.
    """

    entries: dict[Segments, Value] = msgspec.field(default_factory=dict)
    replaced: list[tuple[Value, Value]] = msgspec.field(default_factory=list)
    _spellings: dict[Segments, Segments] = msgspec.field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Document({self.entries!r}, {self.replaced!r})"

    def add(self, segments: Segments, value: Value) -> None:
        """Set a value; a value that the key had before, in any relaxed spelling, is replaced."""
        form = tuple(map(uniform, segments))
        known = self._spellings.setdefault(form, segments)
        if known in self.entries:
            self.replaced.append((self.entries.pop(known), value))
        self._spellings[form] = segments
        self.entries[segments] = value

    def find(self, *names: str) -> Value | None:
        """Return the value of the key with these uniform segments; None if the document does not set the key."""
        return next((value for rest, value in self._below(names) if not rest), None)

    def find_list(self, *names: str) -> list[str] | None:
        """Return the items of a list, given as a comma-separated text or by index; None if the list is not set."""
        found = [str(value) for value in self.find_values(*names)]
        return [item.strip() for text in found for item in text.split(",") if item.strip()] if found else None

    def find_values(self, *names: str) -> list[Value]:
        """Return the values of the list with these uniform segments: a single text, or a value for each index."""
        return [value for rest, value in self._below(names) if not rest or rest[0].isdigit()]

    def _below(self, names: Segments) -> Iterator[tuple[Segments, Value]]:
        for segments, value in self.entries.items():
            if tuple(map(uniform, segments[: len(names)])) == names:
                yield segments[len(names) :], value
