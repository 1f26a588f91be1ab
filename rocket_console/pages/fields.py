"""Fields of forms, read as what they are; an error names the field."""

from collections.abc import Mapping
from typing import Final

__all__ = ["count_or_none", "number_of", "properties_of", "required", "text_or_none", "whole_numbers"]

_LARGEST: Final = 1 << 31


def text_or_none(form: Mapping[str, str], name: str) -> str | None:
    """Return a field's text without spaces around it; None if it is empty."""
    return form.get(name, "").strip() or None


def required(form: Mapping[str, str], name: str) -> str:
    """Return a field's text without spaces around it.

    Raises:
        ValueError: It is empty.
    """
    text = text_or_none(form, name)
    if text is None:
        raise ValueError(f"the field {name} is empty")
    return text


def count_or_none(query: Mapping[str, str], name: str) -> int | None:
    """Return a number that an action has put into the address of the page after it; None if it is not there."""
    text = query.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def number_of(form: Mapping[str, str], name: str, *, least: int = 0) -> int | None:
    """Return a field's whole number; None if it is empty.

    Args:
        form: The form.
        name: The field.
        least: The least number that it may be.

    Raises:
        ValueError: It is not a number, or too small or too large.
    """
    text = text_or_none(form, name)
    if text is None:
        return None
    try:
        number = int(text[:20])
    except ValueError:
        raise ValueError(f"the field {name} is {text!r}: expected a whole number") from None
    if not least <= number < _LARGEST:
        raise ValueError(f"the field {name} is {number}: expected {least} to {_LARGEST - 1}")
    return number


def whole_numbers(text: str, name: str, *, most: int) -> list[int]:
    """Return the whole numbers of a text, which has spaces between them.

    Args:
        text: The text.
        name: The field that it comes from, for the error.
        most: The most numbers.

    Raises:
        ValueError: A part is not a number, or there are too many.
    """
    parts = text.split()
    if len(parts) > most:
        raise ValueError(f"the field {name} has {len(parts):,} numbers: at most {most:,}")
    for part in parts:
        if not (part.isascii() and part.isdecimal() and len(part) < 19):
            raise ValueError(f"the field {name} has {part[:20]!r}: expected whole numbers")
    return [int(part) for part in parts]


def properties_of(text: str) -> dict[str, str]:
    """Return the properties of a text with a line ``name=value`` for each.

    Raises:
        ValueError: A line is not of this form.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            name, equals, value = line.partition("=")
            if not equals or not name.strip():
                raise ValueError(f"line {number} of the properties is {line!r}: expected name=value")
            found[name.strip()] = value
    return found
