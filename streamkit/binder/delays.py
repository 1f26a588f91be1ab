"""When a message is to be delivered: what its headers ask of every binder."""

from collections.abc import Callable
from datetime import datetime, timedelta

from streamkit.messaging.headers import DELAY, DELAY_LEVEL, DELIVER_AT, MessageHeaders

__all__ = ["requested_delay", "requested_level"]


def requested_level(headers: MessageHeaders) -> int:
    """Return the delay level that the message asks for, 0 where it asks for none; it wins over a delay.

    As Spring Cloud Alibaba reads it: a number or its text. Anything else is none.
    """
    level = headers.get(DELAY_LEVEL)
    if isinstance(level, str) and level.strip().isdecimal():
        return int(level)
    return max(0, int(level)) if isinstance(level, int) else 0


def requested_delay(headers: MessageHeaders, now_ms: Callable[[], int]) -> timedelta | None:
    """Return how much later the message is to be delivered, or None when it does not ask; it may be negative.

    Args:
        headers: Those of the message; `DELAY` wins over `DELIVER_AT`.
        now_ms: The time, if the message names one.

    Raises:
        ValueError: A header cannot be parsed: an unparsable delay is an error, not zero.
    """
    delay, deliver_at = headers.get(DELAY), headers.get(DELIVER_AT)
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
        pass  # not a number, or too large for a date: told below
    if delay is not None:
        raise ValueError(f"header {DELAY!r} is {delay!r}: expected a timedelta or a number of seconds")
    if deliver_at is not None:
        raise ValueError(
            f"header {DELIVER_AT!r} is {deliver_at!r}: expected an aware datetime or milliseconds since 1970"
        )
    return None
