"""Cron expressions with Spring's six fields; the first field is the second.

::

    0 0/15 9-17 * * MON-FRI
    │ │    │    │ │ └ day of the week: 0-7, both ends Sunday, or names; 5L the last Friday, MON#1 the first Monday
    │ │    │    │ └ month
    │ │    │    └ day of the month: L the last one, 15W the weekday nearest to the 15th
    │ │    └ hour
    │ └ minute
    └ second

All six fields must match: the day of the month *and* the day of the week. Unix cron requires only one of these two.
"""

import re
from datetime import UTC, datetime
from typing import Any, Final

__all__ = ["CronExpression"]

_MACROS: Final = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}
_DAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_LAST_WEEKDAY: Final = re.compile(r"\b([0-7]|SUN|MON|TUE|WED|THU|FRI|SAT)L\b", re.IGNORECASE)


class CronExpression:
    """A series of times, described by a cron expression."""

    def __init__(self, text: str) -> None:
        """Parse a cron expression.

        Args:
            text: The expression, or one of the macros such as ``@daily``.

        Raises:
            ValueError: The text is not a valid cron expression.
        """
        from croniter import croniter  # slow to import; few applications need croniter

        self._text = text.strip()
        fields = _MACROS.get(self._text.lower(), self._text).split()
        if len(fields) != 6:
            raise ValueError(
                f"{text!r} has {len(fields)} fields: expected six, second minute hour day month weekday, such as "
                "'0 */5 * * * *'"
            )
        fields[5] = _LAST_WEEKDAY.sub(_as_croniter_has_it, fields[5])
        self._pattern = " ".join(fields)
        self._croniter: Any = croniter
        try:
            self.next(datetime(2024, 1, 1, tzinfo=UTC))
        except ValueError as error:
            raise ValueError(f"{text!r} is not a cron expression: {error}") from error

    def next(self, after: datetime) -> datetime:
        """Return the first matching time after ``after``."""
        found: datetime = self._croniter(
            self._pattern, after, ret_type=datetime, day_or=False, second_at_beginning=True
        ).get_next()
        return found

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"CronExpression({self._text!r})"


def _as_croniter_has_it(found: "re.Match[str]") -> str:
    day = found[1].upper()
    return f"L{_DAYS.index(day) if day in _DAYS else day}"
