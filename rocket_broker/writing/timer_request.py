"""What a sender asks of the timers, by the properties of 5.x::

    TIMER_DELAY_SEC       so many seconds from now
    TIMER_DELAY_MS        so many milliseconds from now
    TIMER_DELIVER_MS      at this time, in ms since 1970
    TIMER_DEL_UNIQKEY     not a message: cancels the one of this key that is due at the very same time

The first that is there counts. Who is delayed by a level (``DELAY``) is not timed, and a time that is past is
no delay. A timed message gets ``TIMER_OUT_MS``: the moment after which it is delivered.
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

__all__ = ["TIMED_BYTES", "asked_moment", "is_delayed"]

TIMED_BYTES = b"TIMER_DEL"
"""What the names of `TIMER_PROPERTIES` begin with: properties without these bytes need no second look."""


_LONG = 2**63
_LONG_TEXT = re.compile(r"[+-]?\d+")
"""What Java reads as one; Python's ``int`` takes spaces and underscores too."""


def asked_moment(properties: dict[str, str], now_ms: int, settings: BrokerSettings) -> int | None:
    """Return the moment after which a message is to be delivered, None if it is not timed.

    Raises:
        Refusal: What it asks is no time, too far away, or not to be had here; or it cancels what is due.
    """
    if TIMER_PROPERTIES.isdisjoint(properties) or PROPERTY_TIMER_OUT_MS in properties:
        return None
    if is_delayed(properties):
        for name in TIMER_PROPERTIES & properties.keys():
            del properties[name]
        return None
    if not settings.timer_wheel_enable:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR, "accurate timer message is not enabled, timerWheelEnable is false"
        )
    due = _due(properties, now_ms)
    if due <= now_ms:
        if PROPERTY_TIMER_DEL_UNIQKEY in properties:
            raise _illegal(settings, f"it is to cancel what was due at {due}, {now_ms - due} ms ago")
        return None
    if due - now_ms > settings.timer_max_delay_sec * 1000:
        raise _illegal(settings, f"it asks for a delay of {due - now_ms} ms")
    # A moment is over when the next one begins: a time on the border belongs to the moment before.
    precision = settings.timer_precision_ms
    return (due - 1) // precision * precision


def is_delayed(properties: Mapping[str, str]) -> bool:
    """Whether a message asks for a delay level; zero and less are none."""
    level = properties.get(PROPERTY_DELAY_TIME_LEVEL, "0")
    return level != "0" and not level.startswith("-")


def _due(properties: Mapping[str, str], now_ms: int) -> int:
    """Return when the message is due."""
    for name, unit in ((PROPERTY_TIMER_DELAY_SEC, 1000), (PROPERTY_TIMER_DELAY_MS, 1)):
        if name in properties:
            return now_ms + _number(name, properties[name]) * unit
    return _number(PROPERTY_TIMER_DELIVER_MS, properties[PROPERTY_TIMER_DELIVER_MS])


def _number(name: str, text: str) -> int:
    try:
        number = int(text) if _LONG_TEXT.fullmatch(text) else None
    except ValueError:  # more digits than Python reads
        number = None
    if number is None:
        raise Refusal(
            ResponseCode.MESSAGE_ILLEGAL, f"timer message illegal: {name} is no number: {text[:40]!r}"
        )
    return max(-_LONG, min(number, _LONG))  # one of thousands of digits could not be told


def _illegal(settings: BrokerSettings, problem: str) -> Refusal:
    return Refusal(
        ResponseCode.MESSAGE_ILLEGAL,
        "timer message illegal, the delay time should not be bigger than the max delay "
        f"{settings.timer_max_delay_sec * 1000}ms; or if set del msg, the delay time should be bigger than the "
        f"current time: {problem}",
    )
