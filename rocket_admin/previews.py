"""Bodies as text that a terminal can show: JSON and text as they are, other bytes in hexadecimal."""

import codecs
import json
from typing import Final

from streamkit.printable_text import LINES, printable

__all__ = ["PREVIEW_LENGTH", "body_text", "preview"]

PREVIEW_LENGTH: Final = 120
"""Characters of a preview."""

_BYTES_SHOWN: Final = 32
"""Bytes that the preview of a binary body shows."""
_CHARSETS: Final = frozenset({"utf-8", "ascii", "iso8859-1", "utf-16", "utf-16-le", "utf-16-be", "cp1252"})


def preview(body: bytes, content_type: str | None = None, length: int = PREVIEW_LENGTH) -> str:
    """Return a body as one line of at most `length` characters; a longer one ends with ``…``.

    Args:
        body: The body.
        content_type: The sender's content type, if the message has one.
        length: The most characters.
    """
    # Four bytes may be one character, and escapes are longer than what they stand for.
    text = _decoded(body[: 4 * length + 4], content_type, is_part=len(body) > 4 * length + 4)
    if text is None:
        shown = body[:_BYTES_SHOWN].hex(" ")
        return f"{shown}{' …' if len(body) > _BYTES_SHOWN else ''} ({len(body)} bytes)"
    line = printable(" ".join(text.split()))
    is_whole = len(line) <= length and len(body) <= 4 * length + 4
    return line if is_whole else f"{line[: length - 1]}…"


def body_text(body: bytes, content_type: str | None = None) -> str:
    """Return a whole body as text: JSON with indents, other text as it is, other bytes in hexadecimal."""
    text = _decoded(body, content_type, is_part=False)
    if text is None:
        return body.hex(" ")
    if text.lstrip()[:1] in ("{", "["):
        try:
            return printable(json.dumps(json.loads(text), indent=2, ensure_ascii=False), keep=LINES)
        except (ValueError, RecursionError):
            pass
    return printable(text, keep=LINES)


def _decoded(body: bytes, content_type: str | None, *, is_part: bool) -> str | None:
    """Return the body as text; None if it is not text.

    Args:
        body: The body, or its beginning.
        content_type: The sender's content type.
        is_part: Whether `body` is the beginning of a longer one, and may end within a character.
    """
    decoder = codecs.getincrementaldecoder(_charset(content_type))()
    try:
        text = decoder.decode(body, final=not is_part)
    except UnicodeDecodeError:
        return None
    # A text has line breaks and tabs, but no other control characters.
    return None if any(each < " " and each not in "\n\r\t" for each in text) else text


def _charset(content_type: str | None) -> str:
    """Return the charset of a content type; UTF-8 if it names none, or one that is not known here."""
    for parameter in (content_type or "").split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            try:
                found = codecs.lookup(value.strip().strip('"')).name
            except (LookupError, ValueError):
                break
            return found if found in _CHARSETS else "utf-8"
    return "utf-8"
