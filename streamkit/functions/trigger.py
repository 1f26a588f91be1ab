"""Triggers: the times at which a supplier is polled, by fixed delay, fixed rate or cron expression."""

from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from streamkit.clock import Clock
from streamkit.config.cron import CronExpression
from streamkit.config.function_properties import PollerProperties

__all__ = ["CronTrigger", "FixedDelay", "FixedRate", "Trigger", "trigger_of"]

_DEFAULT_DELAY: Final = timedelta(seconds=1)


class Trigger(Protocol):
    """Determines the time until the next poll."""

    def pause(self, began: float | None, now: float) -> float:
        """Return the seconds until the next poll.

        Args:
            began: The loop's time at the beginning of the last poll, in seconds; None before the first poll.
            now: The loop's time, in seconds.
        """
        ...


class FixedDelay:
    """Waits the same time after the end of every poll."""

    def __init__(self, delay: timedelta, initial: timedelta = timedelta(0)) -> None:
        self._delay = delay.total_seconds()
        self._initial = initial.total_seconds()

    def pause(self, began: float | None, now: float) -> float:
        """Return the seconds until the next poll."""
        return self._initial if began is None else self._delay


class FixedRate:
    """Waits the same time from the beginning of a poll to the next; a poll that takes longer is followed at once."""

    def __init__(self, period: timedelta, initial: timedelta = timedelta(0)) -> None:
        self._period = period.total_seconds()
        self._initial = initial.total_seconds()

    def pause(self, began: float | None, now: float) -> float:
        """Return the seconds until the next poll."""
        return self._initial if began is None else max(0.0, began + self._period - now)


class CronTrigger:
    """Polls at the times of a cron expression, in the local time of the wall clock."""

    def __init__(self, expression: CronExpression, clock: Clock) -> None:
        self._expression = expression
        self._clock = clock

    def pause(self, began: float | None, now: float) -> float:
        """Return the seconds until the next poll."""
        wall = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).astimezone()
        return (self._expression.next(wall) - wall).total_seconds()


def trigger_of(poller: PollerProperties, clock: Clock) -> Trigger:
    """Return the trigger of the poller settings: a cron expression, a fixed rate, or a fixed delay."""
    initial = poller.initial_delay or timedelta(0)
    if poller.cron is not None:
        return CronTrigger(CronExpression(poller.cron), clock)
    if poller.fixed_rate is not None:
        return FixedRate(poller.fixed_rate, initial)
    return FixedDelay(poller.fixed_delay or _DEFAULT_DELAY, initial)
