"""When a message asks to be delivered: by a delay or by a time, in whatever form."""

from datetime import UTC, datetime, timedelta

import pytest

from streamkit.binder.delays import requested_delay, requested_level
from streamkit.messaging.headers import DELAY, DELAY_LEVEL, DELIVER_AT, MessageHeaders

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)


def asked(headers: dict[str, object]) -> timedelta | None:
    """What a message with these headers asks for, at noon."""
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
def test_what_is_asked(headers: dict[str, object], seconds: float) -> None:
    """Seconds or a timedelta, milliseconds since 1970 or an aware time; a delay wins over a time."""
    assert asked(headers) == timedelta(seconds=seconds)


def test_nothing_is_asked() -> None:
    """Without these headers the message is delivered at once."""
    assert asked({"colour": "red"}) is None


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
def test_what_nobody_understands_is_an_error(headers: dict[str, object]) -> None:
    """It must not be no delay; the error names the header and says what is expected."""
    with pytest.raises(ValueError, match=f"header '{next(iter(headers))}' is .* expected"):
        asked(headers)


@pytest.mark.parametrize(
    ("header", "level"),
    [(3, 3), ("3", 3), (" 3 ", 3), (0, 0), ("0", 0), (-1, 0), ("soon", 0), (None, 0), (2.5, 0)],
)
def test_a_level_is_a_number_or_its_text(header: object, level: int) -> None:
    """Anything else asks for none."""
    assert requested_level(MessageHeaders({DELAY_LEVEL: header})) == level
