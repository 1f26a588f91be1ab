"""Times of brokers, which are milliseconds since 1970, as `datetime`, and durations in RocketMQ's units."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["duration_of", "iso_text", "milliseconds", "moment", "time_of"]

_DURATION: Final = re.compile(r"(\d{1,9})\s*([smhd])", re.ASCII)
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def duration_of(text: str) -> timedelta | None:
    """Return a duration such as `30m`, in seconds, minutes, hours or days (s, m, h, d); None if the text is not one."""
    match = _DURATION.fullmatch(text)
    return None if match is None else timedelta(**{_UNITS[match[2]]: int(match[1])})


def time_of(timestamp_ms: int) -> datetime | None:
    """Return a broker's timestamp as a time in UTC; None if it is not positive, as brokers say that they know none."""
    return moment(timestamp_ms) if timestamp_ms > 0 else None


def moment(timestamp_ms: int) -> datetime:
    """Return the UTC time of a timestamp in milliseconds since 1970."""
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC)


def milliseconds(time: datetime) -> int:
    """Return a time as milliseconds since 1970."""
    return round(time.timestamp() * 1000)


def iso_text(time: datetime) -> str:
    """Return a time in ISO 8601, in UTC and to the millisecond."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
