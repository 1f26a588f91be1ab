"""`python -m benchmarks.outbox [URL]`: rows relayed a second, and the time from a commit to the broker's answer.

Beside them stands a plain send through the same binding. The broker is the bundled one, in this process. Without a URL
the database is SQLite in a temporary file; a URL has an asynchronous driver, such as
postgresql+asyncpg://postgres@127.0.0.1/test, and its tables are created and dropped.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from rocket_broker.threaded_broker import ThreadedBroker
from streamkit import Message, StreamApplication
from streamkit.events import message_sent
from streamkit.patterns.outbox import OUTBOX_ID, Outbox
from streamkit.patterns.outbox.tables import PRODUCER_TABLES

ROWS = 5_000
SINGLES = 200
PAYLOAD = b"x" * 200


class Sends:
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


async def measure(engine: AsyncEngine, name_server: str) -> None:
    """Print the figures."""
    settings = {
        "spring.cloud.stream.output-bindings": "orders;plain",
        "spring.cloud.stream.rocketmq.binder.name-server": name_server,
        "spring.cloud.stream.rocketmq.binder.provisioning": "create",
    }
    app = StreamApplication(config_location="optional:/none", properties=settings)
    outbox, sends = Outbox(app, engine, "orders"), Sends()
    async with engine.begin() as connection:
        for table in PRODUCER_TABLES:
            await connection.run_sync(table.create)
    async with app:
        message_sent.connect(sends.note, sender=app)
        plain = [await _plain(app) for _ in range(SINGLES)]
        sends.at.clear()
        single = [await _single(outbox, sends, number) for number in range(SINGLES)]
        begun = time.perf_counter()
        async with outbox.transaction():
            for number in range(ROWS):
                outbox.send("orders", PAYLOAD, id=f"row-{number}", key=f"k{number % 100}")
        committed = time.perf_counter()
        await sends.wait(SINGLES + ROWS)
        relayed = time.perf_counter()
    print(f"{engine.dialect.name} with {engine.dialect.driver}")
    print(f"  plain send:               {_figures(plain)}")
    print(f"  commit to broker's answer: {_figures(single)}")
    print(f"  insert {ROWS:,} rows in one transaction: {ROWS / (committed - begun):,.0f} rows/s")
    print(f"  relay them, 100 keys:     {ROWS / (relayed - committed):,.0f} rows/s")
    async with engine.begin() as connection:
        for table in reversed(PRODUCER_TABLES):
            await connection.run_sync(table.drop)
    await engine.dispose()


async def _plain(app: StreamApplication) -> float:
    begun = time.perf_counter()
    await app.bridge.asend("plain", PAYLOAD)
    return time.perf_counter() - begun


async def _single(outbox: Outbox, sends: Sends, number: int) -> float:
    async with outbox.transaction():
        outbox.send("orders", PAYLOAD, id=f"single-{number}")
    committed = time.perf_counter()
    await sends.wait(number + 1)
    return sends.at[f"single-{number}"] - committed


def _figures(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    return f"{statistics.median(ordered) * 1000:.2f} ms median, {ordered[len(ordered) * 95 // 100] * 1000:.2f} ms 95 %"


def main() -> None:
    """Measure on the database of the argument."""
    with tempfile.TemporaryDirectory() as home, ThreadedBroker() as broker:
        url = sys.argv[1] if len(sys.argv) > 1 else f"sqlite+aiosqlite:///{Path(home)}/outbox.db"
        asyncio.run(measure(create_async_engine(url), broker.name_server))


if __name__ == "__main__":
    main()
