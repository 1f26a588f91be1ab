"""The application's listeners: a processor makes delay events of flights, a sink puts them on the board."""

from samples.flights.board import Board, DelayEvent
from samples.flights.table import Flight
from streamkit import output_channel, send_to, stream_listener


class Airport:
    """Where the feeder's flights depart."""

    departures = output_channel("departures")


class FlightListeners:
    """What happens to a flight, and to its delay."""

    def __init__(self, board: Board) -> None:
        self._board = board

    @stream_listener("flights")
    @send_to("delays")
    async def to_delay(self, flight: Flight) -> DelayEvent:
        """One delay event for each flight, in the order of the aircraft's flights."""
        return DelayEvent(flight.row, flight.aircraft, flight.carrier, flight.departure_delay)

    @stream_listener("board")
    async def on_delay(self, event: DelayEvent) -> None:
        """Count the event on the board."""
        self._board.add(event)
