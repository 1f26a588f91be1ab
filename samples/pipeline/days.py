"""The days that a chart shows, and how they are named below it."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta

MOST_NAMES = 5
# More days than this are drawn as means of weeks in the terminal: as many single days would hide each other.
MANY = 60


@dataclass(frozen=True, slots=True)
class Days:
    """All days from the first to the last, numbered from 0.

    Attributes:
        first: The first day.
        last: The last one.
    """

    first: date
    last: date

    @classmethod
    def of(cls, days: Iterable[date]) -> "Days":
        """Return all days from the earliest to the latest of the given ones."""
        known = sorted(days)
        return cls(known[0], known[-1])

    @property
    def count(self) -> int:
        """The number of days."""
        return (self.last - self.first).days + 1

    @property
    def are_many(self) -> bool:
        """Whether there are too many days to show each of them."""
        return self.count > MANY

    def number_of(self, day: date) -> int:
        """Return the number of a day, counted from 0."""
        return (day - self.first).days

    def named(self) -> dict[int, str]:
        """Return labels by the numbers of days: names of months if there are many days, else of days."""
        days = {number: self.first + timedelta(days=number) for number in range(self.count)}
        if self.are_many:
            return {number: f"{day:%b}" for number, day in days.items() if day.day == 1}
        step = -(-self.count // MOST_NAMES)
        return {number: f"{day.day} {day:%b}" for number, day in days.items() if number % step == 0}
