"""Durations in Spring's notation: `10s`, `1m`, `PT0.5S`, or a plain number in the unit of the setting."""

import re
from datetime import timedelta
from typing import Annotated

from streamkit.config.setting_values import DURATION_LIMIT, After, Before

_SIMPLE = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*(ns|us|ms|s|m|h|d)", re.IGNORECASE)
_ISO = re.compile(r"[+-]?P", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(text: str, unit: str) -> timedelta | str:
    """Return the duration that a text describes; ISO 8601 text is returned unchanged for pydantic to parse.

    Args:
        text: The duration, such as `10s`.
        unit: The unit of plain numbers: `ns`, `us`, `ms`, `s`, `m`, `h` or `d`.

    Raises:
        ValueError: The text is not a duration, or the duration is too long.
    """
    stripped = text.strip()
    if _NUMBER.fullmatch(stripped):
        return _seconds(float(stripped) * _SECONDS[unit])
    if simple := _SIMPLE.fullmatch(stripped):
        return _seconds(float(simple[1]) * _SECONDS[simple[2].lower()])
    if _ISO.match(stripped):
        return stripped
    raise ValueError(f"expected a duration, such as 500ms, 10s, 1m, 2h, PT10S, or a number of {unit}")


def _seconds(amount: float) -> timedelta:
    try:
        return timedelta(seconds=amount)
    except OverflowError:
        raise ValueError(DURATION_LIMIT) from None


def format_duration(duration: timedelta) -> str:
    """Return a duration as text, in the largest unit that gives a whole number: `1500ms`, `10s`, `15m`."""
    milliseconds = duration / timedelta(milliseconds=1)
    for unit in ("d", "h", "m", "s"):
        amount = milliseconds / (_SECONDS[unit] * 1000)
        if amount and amount == int(amount):
            return f"{int(amount)}{unit}"
    return f"{milliseconds:g}ms"


def _counted_in(unit: str) -> Before:
    def read(value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            return value
        return parse_duration(str(value), unit)

    return Before(read)


def _longer_than_nothing(value: timedelta) -> timedelta:
    if value <= timedelta():
        raise ValueError("expected a duration longer than 0")
    return value


Positive = After(_longer_than_nothing)
"""A validator that refuses durations of 0 and less, as in `Annotated[Seconds, Positive]`."""
Milliseconds = Annotated[timedelta, _counted_in("ms")]
"""A duration whose plain numbers are milliseconds."""
Seconds = Annotated[timedelta, _counted_in("s")]
"""A duration whose plain numbers are seconds."""
Minutes = Annotated[timedelta, _counted_in("m")]
"""A duration whose plain numbers are minutes."""
