"""The messages of the feeder: the table's flights, in the order of their scheduled departures."""

from collections.abc import Iterator
from math import isnan

import msgspec
import pandas as pd

from samples.flights.table import table_path

MINUTES_A_DAY = 24 * 60
NEW_YORK_MIDNIGHT = 5 * 60
"""Minutes after midnight UTC when a day begins in New York, in winter time all the year."""


class Departure(msgspec.Struct, frozen=True):
    """One flight.

    Attributes:
        number: Its place in the order of scheduled departures.
        aircraft: Its key: its tail number, or its carrier if the table has none.
        tail_number: None where the table has none.
        origin: The airport it leaves.
        destination: The airport it flies to.
        hour: The hour of the scheduled departure as in the weather table.
        minute: The scheduled departure, in minutes since 1970.
        departure_delay: In minutes, negative when early, None when cancelled.
        arrival_delay: In minutes, None when it did not arrive where it should.
    """

    number: int
    aircraft: str
    tail_number: str | None
    origin: str
    destination: str
    hour: str
    minute: int
    departure_delay: int | None
    arrival_delay: int | None


def read_table(limit: int | None = None) -> pd.DataFrame:
    """Return at most `limit` flights, sorted by scheduled departure; `minute` is that of :class:`Departure`."""
    columns = ["time_hour", "minute", "tailnum", "carrier", "origin", "dest", "dep_delay", "arr_delay"]
    table = pd.read_csv(table_path("flights.csv.zip"), usecols=columns)
    hours = pd.to_datetime(table["time_hour"], utc=True).dt.tz_localize(None)
    table["minute"] += hours.astype("datetime64[s]").astype("int64") // 60
    return table.sort_values("minute", kind="stable").head(limit or len(table)).reset_index(drop=True)


def departures(table: pd.DataFrame) -> Iterator[Departure]:
    """Yield the rows of the table as messages. Where the table has no value, it has NaN."""
    tail_numbers = [number if isinstance(number, str) else None for number in table["tailnum"].tolist()]
    aircraft = [number or carrier for number, carrier in zip(tail_numbers, table["carrier"].tolist(), strict=True)]
    columns = [table[name].tolist() for name in ("origin", "dest", "time_hour", "minute")]
    delays = [
        [None if isnan(minutes) else int(minutes) for minutes in table[name].tolist()]
        for name in ("dep_delay", "arr_delay")
    ]
    yield from map(Departure, range(len(table)), aircraft, tail_numbers, *columns, *delays)


def closing(last_minute: int) -> Departure:
    """Return a flight a year after the last. It moves the watermark, so every window before it closes; its own never
    does."""
    minute = last_minute + 365 * MINUTES_A_DAY
    return Departure(2**31 - 1, "end", None, "end", "end", "", minute, None, None)
