"""Rows of an outbox relayed a second, and the time from a commit to the broker's answer, beside a plain send.

The broker is the bundled one, in this process.
"""

import asyncio
import time
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from rocket_broker.threaded_broker import ThreadedBroker
from streamkit import Message, StreamApplication
from streamkit.events import message_sent
from streamkit.patterns.outbox import OUTBOX_ID, Outbox
from streamkit.patterns.outbox.tables import PRODUCER_TABLES

__all__ = ["OutboxFigures", "measure"]

PAYLOAD = b"x" * 200


@dataclass(frozen=True, slots=True)
class OutboxFigures:
    """What was measured on one database.

    Attributes:
        inserted: Rows a second that one transaction inserts.
        relayed: Rows a second that the relay sends, of 100 keys.
        commits: Seconds from each of some commits to the broker's answer, sorted.
        sends: Seconds of each of some plain sends through a binding without outbox, sorted.
    """

    inserted: float
    relayed: float
    commits: list[float]
    sends: list[float]


class _Sends:
    """When each message was sent."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}
        self.expected = 0
        self.done = asyncio.Event()

    def note(self, _: object, *, binding: str, message: Message[object]) -> None:
        """Note a message of the outbox."""
        self.at[str(message.headers.get(OUTBOX_ID))] = time.perf_counter()
        if len(self.at) >= self.expected:
            self.done.set()

    async def wait(self, count: int) -> None:
        """Wait until so many messages are sent in all."""
        self.expected = count
        self.done.clear()
        if len(self.at) < count:
            await self.done.wait()


def measure(url: str, *, rows: int, singles: int) -> OutboxFigures:
    """Measure on a database, whose tables are made and dropped.

    Args:
        url: The database, with an asynchronous driver.
        rows: How many rows are inserted and relayed together.
        singles: How many are inserted and awaited one after the other, and how many plain sends there are.
    """
    with ThreadedBroker() as broker:
        return asyncio.run(_measure(create_async_engine(url), broker.name_server, rows, singles))


async def _measure(engine: AsyncEngine, name_server: str, rows: int, singles: int) -> OutboxFigures:
    settings = {
        "spring.cloud.stream.output-bindings": "orders;plain",
        "spring.cloud.stream.rocketmq.binder.name-server": name_server,
        "spring.cloud.stream.rocketmq.binder.provisioning": "create",
    }
    app = StreamApplication(config_location="optional:/none", properties=settings)
    outbox, sends = Outbox(app, engine, "orders"), _Sends()
    async with engine.begin() as connection:
        for table in PRODUCER_TABLES:
            await connection.run_sync(table.create)
    try:
        async with app:
            message_sent.connect(sends.note, sender=app)
            plain = sorted([await _plain(app) for _ in range(singles)])
            sends.at.clear()
            single = sorted([await _single(outbox, sends, number) for number in range(singles)])
            begun = time.perf_counter()
            async with outbox.transaction():
                for number in range(rows):
                    outbox.send("orders", PAYLOAD, id=f"row-{number}", key=f"k{number % 100}")
            committed = time.perf_counter()
            await sends.wait(singles + rows)
            relayed = time.perf_counter()
    finally:
        async with engine.begin() as connection:
            for table in reversed(PRODUCER_TABLES):
                await connection.run_sync(table.drop)
        await engine.dispose()
    return OutboxFigures(rows / (committed - begun), rows / (relayed - committed), single, plain)


async def _plain(app: StreamApplication) -> float:
    begun = time.perf_counter()
    await app.bridge.asend("plain", PAYLOAD)
    return time.perf_counter() - begun


async def _single(outbox: Outbox, sends: _Sends, number: int) -> float:
    async with outbox.transaction():
        outbox.send("orders", PAYLOAD, id=f"single-{number}")
    committed = time.perf_counter()
    await sends.wait(number + 1)
    return sends.at[f"single-{number}"] - committed
