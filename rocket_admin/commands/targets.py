"""Where a group shall be moved to, as people write it on a command line."""

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from rocket_admin.offsets import Target

__all__ = ["offset_or_time", "time_or_end"]

_AGO = re.compile(r"(\d{1,9})\s*([smhd])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_FORMS: Final = "earliest, latest, 30m (ago; s, m, h, d), or 2026-11-26T14:30"


def time_or_end(text: str) -> "Target":
    """Return the time or the end of the queues that a text names.

    Raises:
        click.BadParameter: The text is neither.
    """
    from rocket_admin.offsets import End

    word = text.strip().lower()
    if word in (End.EARLIEST, End.LATEST):
        return End(word)
    try:
        if match := _AGO.fullmatch(word):
            return datetime.now(UTC) - timedelta(**{_UNITS[match[2]]: int(match[1])})
        time = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{text!r} is none of {_FORMS}") from None
    return time if time.tzinfo is not None else time.astimezone()


def offset_or_time(text: str) -> "Target":
    """Return the offset, the time or the end of the queues that a text names.

    Raises:
        click.BadParameter: The text is none of them.
    """
    if text.isdecimal():
        return int(text)
    try:
        return time_or_end(text)
    except click.BadParameter:
        raise click.BadParameter(f"{text!r} is none of an offset, {_FORMS}") from None
