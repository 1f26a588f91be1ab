"""How delays propagate along an aircraft's day, flight by flight, with Spark's state between the batches."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from samples.pipeline.departures import MINUTES_A_DAY, NEW_YORK_MIDNIGHT

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import TimerValues, ValueState

PROPAGATED = (
    "scheduled timestamp, origin string, zone string, cancelled int, in_rain int, late int, late_in_rain int, "
    "inherited int, chain int"
)
"""A flight after :class:`Propagation`; `chain` counts those in a row that have inherited a delay."""

NEVER_FLOWN = (-1, -1, 0, 0)


class Propagation(StatefulProcessor):
    """Adds to each flight what delay its aircraft brought along.

    The state of an aircraft is the number of its last flight, the day and the delay that flight arrived with, and how
    many in a row have inherited one. Its flights come in their order: one whose number is not higher was sent twice.
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state of an aircraft."""
        self._state: ValueState = handle.getValueState("aircraft", "last int, day int, delay int, chain int")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: object,
        rows: "Iterator[Row]",
        timerValues: "TimerValues",  # noqa: N803
    ) -> Iterator[Row]:
        """Yield a row for each flight that is new."""
        last, last_day, delay, chain = self._state.get() or NEVER_FLOWN
        for flight in sorted(rows, key=lambda row: row.number):
            if flight.number <= last:
                continue
            last = flight.number
            left = flight.departure_delay is not None
            late = max(flight.departure_delay, 0) if left else 0
            inherited, links = 0, 0
            if left and flight.tail_number is not None:
                day = (flight.minute - NEW_YORK_MIDNIGHT) // MINUTES_A_DAY
                inherited = min(max(delay, 0), late) if day == last_day else 0
                links = chain + 1 if inherited else 0
                last_day, delay, chain = day, flight.arrival_delay or 0, links
            in_rain = left and flight.rain
            yield Row(
                scheduled=flight.scheduled,
                origin=flight.origin,
                zone=flight.zone,
                cancelled=int(not left),
                in_rain=int(in_rain),
                late=late,
                late_in_rain=late if in_rain else 0,
                inherited=inherited,
                chain=links,
            )
        self._state.update((last, last_day, delay, chain))

    def close(self) -> None:
        """Nothing is held."""
