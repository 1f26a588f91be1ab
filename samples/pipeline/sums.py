"""Totals of days, airports and time zones, summed up for the chart."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from samples.pipeline.totals import DayTotals

K = TypeVar("K")


@dataclass(slots=True)
class Sums:
    """The sums of several totals; the fields are those of :class:`DayTotals`."""

    flights: int = 0
    cancelled: int = 0
    in_rain: int = 0
    late: int = 0
    late_in_rain: int = 0
    inherited: int = 0
    longest_chain: int = 0

    def add(self, totals: DayTotals) -> None:
        """Add the totals of a day, airport and time zone."""
        self.flights += totals.flights
        self.cancelled += totals.cancelled
        self.in_rain += totals.in_rain
        self.late += totals.late
        self.late_in_rain += totals.late_in_rain
        self.inherited += totals.inherited
        self.longest_chain = max(self.longest_chain, totals.longest_chain)

    @property
    def departed(self) -> int:
        """The number of flights that were not cancelled."""
        return self.flights - self.cancelled

    @property
    def mean_late(self) -> float:
        """The mean departure delay in minutes."""
        return _mean(self.late, self.departed)

    @property
    def mean_inherited(self) -> float:
        """The mean delay in minutes that flights inherited from their aircraft."""
        return _mean(self.inherited, self.departed)

    @property
    def mean_late_in_rain(self) -> float:
        """The mean departure delay in minutes in hours of rain or snow; 0 without such flights."""
        return _mean(self.late_in_rain, self.in_rain)

    @property
    def mean_late_in_the_dry(self) -> float:
        """The mean departure delay in minutes in all other hours."""
        return _mean(self.late - self.late_in_rain, self.departed - self.in_rain)


def sums_by(key: Callable[[DayTotals], K], totals: Iterable[DayTotals]) -> dict[K, Sums]:
    """Return the sums of the totals with the same key."""
    sums: dict[K, Sums] = {}
    for each in totals:
        sums.setdefault(key(each), Sums()).add(each)
    return sums


def sum_of(totals: Iterable[DayTotals]) -> Sums:
    """Return the sum of all totals."""
    return sums_by(lambda _: None, totals).get(None, Sums())


def city_of(zone: str) -> str:
    """Return the city of a time zone: Los Angeles, not America/Los_Angeles."""
    return zone.rpartition("/")[2].replace("_", " ")


def _mean(minutes: int, flights: int) -> float:
    return minutes / flights if flights else 0.0
