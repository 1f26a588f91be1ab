"""The totals that the pipeline sends, and the same totals computed by pandas from the table, for comparison."""

from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np
import pandas as pd

from samples.flights.table import table_path
from samples.pipeline.departures import MINUTES_A_DAY, NEW_YORK_MIDNIGHT

Place = tuple[int, str, str]
"""Day, airport and time zone."""

ELSEWHERE = "elsewhere"
"""The time zone of the few airports that the table of airports does not have."""


@dataclass(frozen=True, slots=True)
class DayTotals:
    """The totals of a day's flights from one airport to one time zone.

    Attributes:
        day: Days since 1970, as New York has them.
        origin: The airport.
        zone: Where the flights went.
        flights: How many were scheduled.
        cancelled: How many did not leave.
        in_rain: How many left that were scheduled in an hour of rain or snow.
        late: Minutes that flights left late.
        late_in_rain: Those of them in hours of rain or snow.
        inherited: Those of the minutes that the aircraft brought along from its flight before.
        longest_chain: The most flights of one aircraft that inherited their delay one after the other.
    """

    day: int
    origin: str
    zone: str
    flights: int
    cancelled: int
    in_rain: int
    late: int
    late_in_rain: int
    inherited: int
    longest_chain: int

    @property
    def place(self) -> Place:
        """The day, airport and time zone."""
        return self.day, self.origin, self.zone

    @property
    def date(self) -> date:
        """The day as a date."""
        return date(1970, 1, 1) + timedelta(days=self.day)


def totals_of(table: pd.DataFrame) -> dict[Place, DayTotals]:
    """Return the totals of every day, airport and time zone of the given flights."""
    airports = pd.read_csv(table_path("airports.csv"), usecols=["faa", "tzone"])
    weather = pd.read_csv(table_path("weather.csv"), usecols=["origin", "time_hour", "precip"])
    rows = table.merge(airports, left_on="dest", right_on="faa", how="left")
    rows = rows.merge(weather, on=["origin", "time_hour"], how="left").sort_values("minute", kind="stable")
    rows["zone"] = rows["tzone"].fillna(ELSEWHERE)
    rows["day"] = (rows["minute"] - NEW_YORK_MIDNIGHT) // MINUTES_A_DAY
    rows["cancelled"] = rows["dep_delay"].isna()
    rows["in_rain"] = (rows["precip"] > 0) & ~rows["cancelled"]
    rows["late"] = rows["dep_delay"].clip(lower=0).fillna(0)
    rows["late_in_rain"] = rows["late"] * rows["in_rain"]
    _propagate(rows)
    sums = rows.groupby(["day", "origin", "zone"]).agg(
        flights=("minute", "size"),
        cancelled=("cancelled", "sum"),
        in_rain=("in_rain", "sum"),
        late=("late", "sum"),
        late_in_rain=("late_in_rain", "sum"),
        inherited=("inherited", "sum"),
        longest_chain=("chain", "max"),
    )
    found = (
        DayTotals(int(day), origin, zone, *map(int, figures))
        for (day, origin, zone), *figures in sums.itertuples(name=None)
    )
    return {totals.place: totals for totals in found}


def _propagate(rows: pd.DataFrame) -> None:
    """Add `inherited` and `chain`: a flight inherits no more than its aircraft was late with on the same day."""
    flown = rows[rows["tailnum"].notna() & rows["dep_delay"].notna()]
    by_aircraft = [flown["tailnum"], flown["day"]]
    before = flown["arr_delay"].fillna(0).groupby(by_aircraft).shift(fill_value=0)
    inherited = np.minimum(before.clip(lower=0), flown["late"])
    breaks = (inherited == 0).groupby(by_aircraft).cumsum()
    chain = (inherited > 0).groupby([*by_aircraft, breaks]).cumsum()
    rows["inherited"] = inherited.reindex(rows.index, fill_value=0)
    rows["chain"] = chain.reindex(rows.index, fill_value=0)
