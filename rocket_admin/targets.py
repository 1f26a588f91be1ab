"""Where a group shall be moved to, as people write it."""

from datetime import UTC, datetime
from typing import Final

from rocket_admin.offsets import End, Target
from rocket_admin.times import duration_of

__all__ = ["TARGET_FORMS", "target_of", "time_or_end_of"]

TARGET_FORMS: Final = "earliest, latest, 30m (ago; s, m, h, d), or 2026-11-26T14:30"
"""What can be written for a time or an end of the queues."""


def time_or_end_of(text: str) -> Target:
    """Return the time or the end of the queues that a text names; a time without a zone is local.

    Raises:
        ValueError: The text is neither.
    """
    word = text.strip().lower()
    if word in (End.EARLIEST, End.LATEST):
        return End(word)
    try:
        if (ago := duration_of(word)) is not None:
            return datetime.now(UTC) - ago
        time = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is none of {TARGET_FORMS}") from None
    return time if time.tzinfo is not None else time.astimezone()


def target_of(text: str) -> Target:
    """Return the offset, the time or the end of the queues that a text names.

    Raises:
        ValueError: The text is none of them.
    """
    if text.isdecimal():
        return int(text)
    try:
        return time_or_end_of(text)
    except ValueError:
        raise ValueError(f"{text!r} is none of an offset, {TARGET_FORMS}") from None
