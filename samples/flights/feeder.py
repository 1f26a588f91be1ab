"""The feeder: sends a table row by row, flights of one aircraft one after the other."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, Protocol, TypeVar
from zlib import crc32

from streamkit import Message
from streamkit.errors import BinderError, MessagingError

# As many flights are on their way at once; those of one aircraft share a lane, so they keep their order.
LANES = 32
LANE_LENGTH = 64
RESEND_SECONDS = 0.2


class HasAircraft(Protocol):
    """A row that belongs to an aircraft."""

    @property
    def aircraft(self) -> str:
        """The name of the aircraft."""
        ...


F = TypeVar("F", bound=HasAircraft)


class Feeder(Generic[F]):
    """Sends flights, a limited number ahead of the listeners.

    A lane sends its next flight when the one before is acknowledged. No lane gets far ahead of the slowest: rows are
    read as lanes have room for them.

    Args:
        send: Sends a message and returns when it is acknowledged.
        lead: About so many flights are sent and not yet read, at most.
        resends: Whether a flight that was refused is sent again until it is not; it may be stored twice then.

    Attributes:
        sent: How many flights are acknowledged.
    """

    def __init__(self, send: Callable[[Message[object]], Awaitable[object]], *, lead: int, resends: bool) -> None:
        self._send = send
        self._lead = lead
        self._resends = resends
        self._room = asyncio.Event()
        self._room.set()
        self.sent = 0

    async def feed(self, flights: Iterable[F]) -> None:
        """Send the flights, and return when every flight is acknowledged."""
        lanes: list[asyncio.Queue[F | None]] = [asyncio.Queue(LANE_LENGTH) for _ in range(LANES)]
        async with asyncio.TaskGroup() as senders:
            for lane in lanes:
                senders.create_task(self._send_lane(lane))
            for flight in flights:
                await lanes[crc32(flight.aircraft.encode()) % LANES].put(flight)
            for lane in lanes:
                await lane.put(None)

    def note_read(self, flights: int) -> None:
        """Set the number of flights that have been received, so that more can be sent."""
        if self.sent - flights < self._lead:
            self._room.set()
        else:
            self._room.clear()

    async def send(self, flight: F) -> None:
        """Send a flight, and return when it is acknowledged."""
        while True:
            try:
                await self._send(Message(flight))
            except (BinderError, MessagingError):
                if not self._resends:
                    raise
                await asyncio.sleep(RESEND_SECONDS)
            else:
                self.sent += 1
                return

    async def _send_lane(self, lane: "asyncio.Queue[F | None]") -> None:
        while (flight := await lane.get()) is not None:
            await self._room.wait()
            await self.send(flight)
