"""The timer that a message's properties ask for, as in 5.x::

    TIMER_DELAY_SEC       deliver after this number of seconds
    TIMER_DELAY_MS        deliver after this number of milliseconds
    TIMER_DELIVER_MS      deliver at this time, in milliseconds since 1970
    TIMER_DEL_UNIQKEY     cancel the timed message with this key that is due at the very same time

The first of these properties counts. A message with a delay level (``DELAY``) is not timed, and a time in the past is
no delay. A timed message gets the property ``TIMER_OUT_MS``: the moment after which it is delivered.
"""

import re
from collections.abc import Mapping

from rocket_broker.limits.refusal import Refusal
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TIMER_OUT_MS,
    TIMER_PROPERTIES,
)

__all__ = ["TIMED_BYTES", "TIMED_NAME", "asked_moment", "is_delayed"]

TIMED_NAME = "TIMER_DEL"
"""The common prefix of the names in `TIMER_PROPERTIES`."""

TIMED_BYTES = TIMED_NAME.encode()
"""Properties without these bytes need no parsing."""

_LONG = 2**63
_LONG_TEXT = re.compile(r"[+-]?\d+")
"""The texts that Java's Long.parseLong reads; Python's ``int`` also takes spaces and underscores."""


def asked_moment(properties: dict[str, str], now_ms: int, settings: BrokerSettings) -> int | None:
    """Return the moment after which a message is to be delivered, in milliseconds since 1970; None if it is not timed.

    Args:
        properties: The message's properties; timer properties are removed if it has a delay level.
        now_ms: The present time, in milliseconds since 1970.
        settings: The broker's settings.

    Returns:
        The moment, in milliseconds since 1970.

    Raises:
        Refusal: The time is not a number, too far in the future or timers are disabled; or the message to cancel is
            due already.
    """
    if TIMER_PROPERTIES.isdisjoint(properties) or PROPERTY_TIMER_OUT_MS in properties:
        return None
    if is_delayed(properties):
        for name in TIMER_PROPERTIES & properties.keys():
            del properties[name]
        return None
    if not settings.timer_wheel_enable:
        raise Refusal(ResponseCode.SYSTEM_ERROR, "accurate timer message is not enabled, timerWheelEnable is false")
    due = _due(properties, now_ms)
    if due <= now_ms:
        if PROPERTY_TIMER_DEL_UNIQKEY in properties:
            raise _illegal(settings, f"it is to cancel what was due at {due}, {now_ms - due} ms ago")
        return None
    if due - now_ms > settings.timer_max_delay_sec * 1000:
        raise _illegal(settings, f"it asks for a delay of {due - now_ms} ms")
    # A moment covers the times after it, up to and including the next one: hence the -1.
    precision = settings.timer_precision_ms
    return (due - 1) // precision * precision


def is_delayed(properties: Mapping[str, str]) -> bool:
    """Return whether a message asks for a delay level above zero."""
    level = properties.get(PROPERTY_DELAY_TIME_LEVEL, "0")
    return level != "0" and not level.startswith("-")


def _due(properties: Mapping[str, str], now_ms: int) -> int:
    """Return the time at which the message is due, in milliseconds since 1970."""
    for name, unit in ((PROPERTY_TIMER_DELAY_SEC, 1000), (PROPERTY_TIMER_DELAY_MS, 1)):
        if name in properties:
            return now_ms + _number(name, properties[name]) * unit
    return _number(PROPERTY_TIMER_DELIVER_MS, properties[PROPERTY_TIMER_DELIVER_MS])


def _number(name: str, text: str) -> int:
    try:
        number = int(text) if _LONG_TEXT.fullmatch(text) else None
    except ValueError:  # more digits than Python converts
        number = None
    if number is None:
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"timer message illegal: {name} is not a number: {text[:40]!r}")
    return max(-_LONG, min(number, _LONG))  # thousands of digits would not fit in a message


def _illegal(settings: BrokerSettings, problem: str) -> Refusal:
    return Refusal(
        ResponseCode.MESSAGE_ILLEGAL,
        "timer message illegal, the delay time should not be bigger than the max delay "
        f"{settings.timer_max_delay_sec * 1000}ms; or if set del msg, the delay time should be bigger than the "
        f"current time: {problem}",
    )
