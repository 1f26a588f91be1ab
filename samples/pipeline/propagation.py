"""The propagation of delays along an aircraft's day, flight by flight, with Spark's state between batches."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import TimerValues, ValueState

PROPAGATED = (
    "scheduled timestamp, origin string, zone string, cancelled int, in_rain int, late int, late_in_rain int, "
    "inherited int, chain int"
)
"""A flight after :class:`Propagation`; `chain` counts those in a row that have inherited a delay."""

COLUMNS = [column.split()[0] for column in PROPAGATED.split(", ")]

Flight = tuple[str, int, int, bool, int, int]
"""What the propagation needs to know of a flight, in the order of `FOLLOWED`."""

FOLLOWED = ("aircraft", "number", "day", "has_flown", "late", "arrived_late")

NEVER_FLOWN = (-1, -1, 0, 0)


class Propagation(StatefulProcessor):
    """Adds to each flight the delay that its aircraft brought along.

    It is called once a batch for each queue, which has all flights of its aircraft in their order. Of each aircraft it
    keeps the number of the last flight, the day and the delay that flight arrived with, and how many in a row have
    inherited one. A flight whose number is not higher was sent twice. Spark keeps all aircraft of a queue as one JSON
    text: one call to write them instead of thousands.
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state of a queue."""
        self._state: ValueState = handle.getValueState("queue", "aircraft string")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: object,
        rows: Iterator[pd.DataFrame],
        timerValues: "TimerValues",  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Yield the flights that are new."""
        (kept,) = self._state.get() or ("{}",)
        fleet = json.loads(kept)
        flights = pd.concat(list(rows)).sort_values("number")
        columns = [flights[name].tolist() for name in FOLLOWED]
        followed = [_follow(fleet, flight) for flight in zip(*columns, strict=True)]
        flights["is_new"], flights["inherited"], flights["chain"] = zip(*followed, strict=True)
        self._state.update((json.dumps(fleet),))
        yield flights.loc[flights["is_new"], COLUMNS]

    def close(self) -> None:
        """Do nothing."""


def _follow(fleet: dict[str, tuple[int, int, int, int]], flight: Flight) -> tuple[bool, int, int]:
    """Return whether a flight is new, the delay it inherited, and how many in a row have, it included."""
    aircraft, number, day, has_flown, late, arrived_late = flight
    last, last_day, delay, chain = fleet.get(aircraft, NEVER_FLOWN)
    if number <= last:
        return False, 0, 0
    if not has_flown:
        fleet[aircraft] = number, last_day, delay, chain
        return True, 0, 0
    inherited = min(delay, late) if day == last_day else 0
    chain = chain + 1 if inherited else 0
    fleet[aircraft] = number, day, arrived_late, chain
    return True, inherited, chain
