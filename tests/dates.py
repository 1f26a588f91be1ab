"""Times of day and days, as the commands and the reports of campaigns have them."""

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta


def next_time(time: datetime) -> datetime:
    """Return when it is this time of day next."""
    now = datetime.now(UTC).astimezone()
    today = now.replace(hour=time.hour, minute=time.minute, second=0, microsecond=0)
    return today if today > now else today + timedelta(days=1)


def today() -> str:
    """Return the day, such as 2026-11-26."""
    return f"{datetime.now(UTC):%Y-%m-%d}"


def period(days: Iterable[str]) -> str:
    """Return in words from which of these days to which, such as `25 November 2026 to 26 November 2026`."""
    ordered = sorted(days)
    first, last = ordered[0], ordered[-1]
    return _words(first) if first == last else f"{_words(first)} to {_words(last)}"


def _words(day: str) -> str:
    made = date.fromisoformat(day)
    return f"{made.day} {made:%B %Y}"
