"""The application's listeners: a processor makes delay events of flights, a sink puts them on the board."""

from samples.flights.board import Board, DelayEvent
from samples.flights.table import Flight
from streamkit import output_channel, send_to, stream_listener


class Airport:
    """The interface of the feeder: one output."""

    departures = output_channel("departures")


class FlightListeners:
    """The processor of flights and the sink of delay events."""

    def __init__(self, board: Board) -> None:
        self._board = board

    @stream_listener("flights")
    @send_to("delays")
    async def to_delay(self, flight: Flight) -> DelayEvent:
        """Return the delay event of a flight."""
        return DelayEvent(flight.row, flight.aircraft, flight.carrier, flight.departure_delay)

    @stream_listener("board")
    async def on_delay(self, event: DelayEvent) -> None:
        """Count the event on the board."""
        self._board.add(event)
