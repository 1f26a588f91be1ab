"""The headers by which a message asks every binder for a later delivery."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from streamkit.messaging.headers import DELAY, DELAY_LEVEL, DELIVER_AT, MessageHeaders

__all__ = ["DELAYS", "requested_delay", "requested_level"]

DELAYS: Final = frozenset({DELAY, DELAY_LEVEL, DELIVER_AT})
"""The headers. A message without any of them, as most are, has no delay."""


def requested_level(headers: MessageHeaders) -> int:
    """Return the delay level of a message's headers, or 0 if there is none; a level overrides a delay.

    Spring Cloud Alibaba reads the header in the same way: a number or its text is a level, any other value is ignored.
    """
    level = headers.get(DELAY_LEVEL)
    if level is None:
        return 0
    if isinstance(level, str) and level.strip().isdecimal():
        return int(level)
    return max(0, int(level)) if isinstance(level, int) else 0


def requested_delay(headers: MessageHeaders, now_ms: Callable[[], int]) -> timedelta | None:
    """Return the delay of a message's headers, or None if there is none.

    Args:
        headers: The headers of the message; `DELAY` overrides `DELIVER_AT`.
        now_ms: Returns the time in milliseconds since the epoch; called for a `DELIVER_AT`.

    Returns:
        The time from now until the delivery; it is negative if that time is in the past.

    Raises:
        ValueError: A header cannot be parsed. An unparsable delay is an error, not zero.
    """
    delay, deliver_at = headers.get(DELAY), headers.get(DELIVER_AT)
    if delay is None and deliver_at is None:
        return None
    try:
        if isinstance(delay, timedelta):
            return delay
        if isinstance(delay, int | float):
            return timedelta(seconds=delay)
        if delay is None and isinstance(deliver_at, datetime):
            deliver_at = deliver_at.timestamp() * 1000
        if delay is None and isinstance(deliver_at, int | float):
            return timedelta(milliseconds=deliver_at - now_ms())
    except (ValueError, OverflowError):
        pass  # not a number, or beyond the range of dates; the error is raised below
    if delay is not None:
        raise ValueError(f"header {DELAY!r} is {delay!r}: expected a timedelta or a number of seconds")
    if deliver_at is not None:
        raise ValueError(
            f"header {DELIVER_AT!r} is {deliver_at!r}: expected an aware datetime or milliseconds since 1970"
        )
    return None
