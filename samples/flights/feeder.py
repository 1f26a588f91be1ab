"""The feeder: sends the table row by row, flights of one aircraft one after the other."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from zlib import crc32

from samples.flights.table import Flight

# As many flights are on their way at once; those of one aircraft share a lane, so they keep their order.
LANES = 32
LANE_LENGTH = 64

Send = Callable[[Flight], Awaitable[object]]


async def feed(flights: Iterable[Flight], send: Send) -> None:
    """Return when `send` has returned for every flight.

    A lane sends its next flight when the one before is acknowledged. Rows are read as lanes have room for them.
    """
    lanes: list[asyncio.Queue[Flight | None]] = [asyncio.Queue(LANE_LENGTH) for _ in range(LANES)]
    async with asyncio.TaskGroup() as senders:
        for lane in lanes:
            senders.create_task(_send_lane(lane, send))
        for flight in flights:
            await lanes[crc32(flight.aircraft.encode()) % LANES].put(flight)
        for lane in lanes:
            await lane.put(None)


async def _send_lane(lane: "asyncio.Queue[Flight | None]", send: Send) -> None:
    while (flight := await lane.get()) is not None:
        await send(flight)
