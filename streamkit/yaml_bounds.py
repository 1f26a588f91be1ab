"""Bounds what a YAML text becomes when it is read: how deep it is, and what its aliases stand for.

An alias stands for the value of its anchor. So a few lines may stand for billions of values, or for a value that
contains itself; and a reader that calls itself for each level of brackets overflows its stack. This module reads the
text as a row of events, which has neither problem, before a reader makes values of it. It imports nothing of the
framework, because the broker, which reads accounts in YAML, imports nothing else of it.
"""

from typing import Any, Final

import yaml

__all__ = ["MOST_LEVELS", "MOST_REPEATED", "YamlTooLargeError", "check_bounds"]

MOST_LEVELS: Final = 100
"""Levels of lists and mappings."""
MOST_REPEATED: Final = 100_000
"""Values that all aliases of a text stand for; a long value counts once more for each `_CHARACTERS` of it."""
_CHARACTERS: Final = 64


class YamlTooLargeError(Exception):
    """A YAML text has too many levels, or its aliases stand for too much.

    Attributes:
        line: The line, from 1 on.
    """

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line


def check_bounds(text: str | bytes, loader: Any) -> None:
    """Check a text before values are made of it.

    Args:
        text: The text.
        loader: PyYAML's loader that is going to read it.

    Raises:
        YamlTooLargeError: The text has too many levels, an alias stands for a value that contains it, or all aliases
            stand for too many values.
        yaml.YAMLError: The text is not YAML.
    """
    # Of each list or mapping that has begun and not ended: its anchor, and the number of values in it.
    open_values: list[tuple[str | None, int]] = []
    sizes: dict[str, int] = {}  # of the values with anchors that have ended
    count = repeated = 0
    for event in yaml.parse(text, Loader=loader):
        match event:
            case yaml.DocumentStartEvent():
                sizes.clear()
            case yaml.ScalarEvent():
                size = 1 + len(event.value) // _CHARACTERS
                count += size
                if event.anchor is not None:
                    sizes[event.anchor] = size
            case yaml.CollectionStartEvent():
                if len(open_values) == MOST_LEVELS:
                    raise _too_large(event, f"lists and mappings have more than {MOST_LEVELS} levels here")
                open_values.append((event.anchor, count))
                count += 1
            case yaml.CollectionEndEvent():
                anchor, before = open_values.pop()
                if anchor is not None:
                    sizes[anchor] = count - before
            case yaml.AliasEvent(anchor=str(name)):
                if any(anchor == name for anchor, _ in open_values):
                    raise _too_large(event, "an alias stands for a value that contains it")
                size = sizes.get(name, 0)  # without an anchor, the reader refuses the alias
                count, repeated = count + size, repeated + size
                if repeated > MOST_REPEATED:
                    raise _too_large(event, f"the aliases up to here stand for more than {MOST_REPEATED} values")


def _too_large(event: yaml.Event, problem: str) -> YamlTooLargeError:
    mark = event.start_mark
    assert mark is not None  # parsed events have marks
    return YamlTooLargeError(mark.line + 1, problem)
