"""Times of brokers, which are milliseconds since 1970, as `datetime`."""

from datetime import UTC, datetime

__all__ = ["milliseconds", "moment", "time_of"]


def time_of(timestamp_ms: int) -> datetime | None:
    """Return a broker's timestamp as a time in UTC; None if it is not positive, as brokers say that they know none."""
    return moment(timestamp_ms) if timestamp_ms > 0 else None


def moment(timestamp_ms: int) -> datetime:
    """Return the time that is so many milliseconds after 1970, in UTC."""
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC)


def milliseconds(time: datetime) -> int:
    """Return a time as milliseconds since 1970."""
    return round(time.timestamp() * 1000)
