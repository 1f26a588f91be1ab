"""The delivery time of a message: by delay or by time, in each form."""

from datetime import UTC, datetime, timedelta

import pytest

from streamkit.binder.delays import requested_delay, requested_level
from streamkit.messaging.headers import DELAY, DELAY_LEVEL, DELIVER_AT, MessageHeaders

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)


def requested(headers: dict[str, object]) -> timedelta | None:
    """Return the delivery delay of a message with these headers, at noon."""
    return requested_delay(MessageHeaders(headers), lambda: NOON_MS)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({DELAY: timedelta(minutes=1)}, 60),
        ({DELAY: 90}, 90),
        ({DELAY: 0.5}, 0.5),
        ({DELIVER_AT: NOON + timedelta(minutes=2)}, 120),
        ({DELIVER_AT: NOON_MS + 1500}, 1.5),
        ({DELIVER_AT: NOON - timedelta(seconds=1)}, -1),
        ({DELAY: 10, DELIVER_AT: NOON + timedelta(hours=1)}, 10),
    ],
)
def test_delay_and_time_headers_are_understood(headers: dict[str, object], seconds: float) -> None:
    """Seconds or a timedelta, milliseconds since 1970 or an aware time; a delay overrides a time."""
    assert requested(headers) == timedelta(seconds=seconds)


def test_message_without_these_headers_is_not_delayed() -> None:
    """It is delivered at once."""
    assert requested({"colour": "red"}) is None


@pytest.mark.parametrize(
    "headers",
    [
        {DELAY: "soon"},
        {DELAY: float("nan")},
        {DELAY: 1e300},
        {DELAY: "soon", DELIVER_AT: NOON_MS},
        {DELIVER_AT: "tomorrow"},
        {DELIVER_AT: 10**300},
    ],
)
def test_invalid_delay_is_an_error(headers: dict[str, object]) -> None:
    """Not a missing delay; the error names the header and what is expected."""
    with pytest.raises(ValueError, match=f"header '{next(iter(headers))}' is .* expected"):
        requested(headers)


@pytest.mark.parametrize(
    ("header", "level"),
    [(3, 3), ("3", 3), (" 3 ", 3), (0, 0), ("0", 0), (-1, 0), ("soon", 0), (None, 0), (2.5, 0)],
)
def test_delay_level_is_a_number_or_its_text(header: object, level: int) -> None:
    """Anything else means none."""
    assert requested_level(MessageHeaders({DELAY_LEVEL: header})) == level
