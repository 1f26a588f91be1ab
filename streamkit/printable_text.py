"""Text from other programs (payloads, names, values of settings), escaped for a terminal or a page.

This module imports nothing of the framework, because `rocket_admin` and `rocket_console` use it, too.
"""

from typing import Final

__all__ = ["LINES", "printable"]

LINES: Final = "\n\t"
"""The control characters that multi-line text keeps."""


def printable(text: str, *, keep: str = "") -> str:
    """Return a text without characters that change the state of a terminal: these are written as escapes.

    Args:
        text: The text.
        keep: Characters that stay, such as `LINES`.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in keep else each.encode("unicode_escape").decode() for each in text
    )
