"""Values as text for people: numbers, rates, sizes, shares, times."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from streamkit.printable_text import LINES, printable

__all__ = ["UNKNOWN", "Format", "size_text", "span_text", "text_of", "time_text"]

UNKNOWN: Final = "–"
"""What a page shows for a value that is not known."""

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class Format(StrEnum):
    """How a value is written."""

    TEXT = "text"
    NUMBER = "number"
    RATE = "rate"
    """Per second."""
    SIZE = "size"
    """Bytes."""
    SHARE = "share"
    """0 to 1, as percent."""
    TIME = "time"
    """A `datetime`, in UTC to the second."""
    SECONDS = "seconds"
    """A span of time."""

    @property
    def is_number(self) -> bool:
        """Whether values are aligned to the right."""
        return self not in (Format.TEXT, Format.TIME)


def text_of(value: object, how: Format = Format.TEXT) -> str:
    """Return a value as text without characters that cannot be seen; `UNKNOWN` for None."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return time_text(value)
    if isinstance(value, int | float):
        return _number_text(value, how)
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return ", ".join(text_of(each) for each in value) or "none"
    return printable(str(value), keep=LINES)


def _number_text(value: float, how: Format) -> str:
    match how:
        case Format.RATE:
            return "under 0.01" if 0 < value < 0.01 else f"{value:,.2f}"
        case Format.SIZE:
            return size_text(value)
        case Format.SHARE:
            return f"{value * 100:.1f} %"
        case Format.SECONDS:
            return span_text(value)
        case Format.NUMBER:
            return f"{value:,}"
        case _:
            return str(value)


def time_text(time: datetime) -> str:
    """Return a time in UTC, to the second."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def size_text(size: float) -> str:
    """Return bytes with the largest unit that leaves a number of 1 or more."""
    unit = 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size /= 1024
        unit += 1
    return f"{size:,.0f} {_UNITS[unit]}" if unit == 0 else f"{size:,.1f} {_UNITS[unit]}"


def span_text(seconds: float) -> str:
    """Return a span of time with its one or two largest units, such as `3 d 4 h`."""
    whole = timedelta(seconds=max(0.0, seconds))
    hours, rest = divmod(whole.seconds, 3600)
    minutes, left = divmod(rest, 60)
    parts = [(whole.days, "d"), (hours, "h"), (minutes, "min"), (left, "s")]
    while len(parts) > 1 and not parts[0][0]:
        parts.pop(0)
    return " ".join(f"{number} {unit}" for number, unit in parts[:2] if number or unit == parts[0][1])
