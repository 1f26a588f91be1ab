"""`python -m tests.outbox_campaign.services ROLE URL NAME_SERVER LEVEL`: the shop, its relay, or the stock.

The shop takes orders with an outbox until all are taken; the stock reserves each. Both go on where their databases say
that they are, so they may be killed at any moment. A service ends with its standard input.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final

from sqlalchemy import String, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from streamkit import StreamApplication
from streamkit.patterns.outbox import Consumptions, Outbox

SETTINGS: Final = {
    "spring.cloud.stream.output-bindings": "orders",
    "spring.cloud.stream.bindings.orders-check.group": "shop",
    "spring.cloud.stream.rocketmq.binder.provisioning": "create",
    "spring.cloud.stream.rocketmq.default.consumer.consume-from-where": "CONSUME_FROM_FIRST_OFFSET",
    "streamkit.outbox.lease": "2s",
    "streamkit.outbox.poll-interval": "200ms",
    "streamkit.outbox.max-backoff": "1s",
    "streamkit.outbox.max-send-times": 1000,
    "streamkit.outbox.check-after": "3s",
}
STOCK_SETTINGS: Final = {
    "spring.cloud.stream.bindings.orders.group": "stock",
    "spring.cloud.stream.bindings.orders.consumer.concurrency": 4,
    "spring.cloud.stream.output-bindings": "orders-check",
    # A message waits for its database, however long that is killed for.
    "spring.cloud.stream.rocketmq.bindings.orders.consumer.push.max-reconsume-times": 1000,
    "spring.cloud.stream.rocketmq.bindings.orders.consumer.push.delay-level-when-next-consume": 1,
}
KEYS: Final = 20


class Table(DeclarativeBase):
    pass


class Taken(Table):
    """An order that the shop has taken."""

    __tablename__ = "taken"
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Reserved(Table):
    """One effect of an order at the stock; twice would be two rows."""

    __tablename__ = "reserved"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    number: Mapped[int]
    session: Mapped[str] = mapped_column(String(10), default="")


def application(name_server: str, settings: dict[str, Any]) -> StreamApplication:
    """Return an application on the broker of the campaign."""
    where = {"spring.cloud.stream.rocketmq.binder.name-server": name_server}
    return StreamApplication(config_location="optional:/none", properties={**SETTINGS, **settings, **where})


async def shop(engine: AsyncEngine, name_server: str, orders: int) -> None:
    """Take the orders that are not taken, four at a time."""
    app = application(name_server, {})
    outbox = Outbox(app, engine, "orders")
    outbox.reconcile("orders")
    numbers: asyncio.Queue[int] = asyncio.Queue()

    async def take() -> None:
        while not numbers.empty():
            number = numbers.get_nowait()
            try:
                async with outbox.transaction() as session:
                    if await session.get(Taken, number) is None:
                        session.add(Taken(number=number))
                        outbox.send("orders", {"number": number}, id=str(number), key=f"k{number % KEYS}")
            except (DBAPIError, OSError):  # the connection was killed, or the transaction could not be serialized
                numbers.put_nowait(number)
                await asyncio.sleep(0.1)
            await asyncio.sleep(0.01)

    async with app:
        for number in range(orders):
            numbers.put_nowait(number)
        await asyncio.gather(*(take() for _ in range(4)))
        await asyncio.to_thread(sys.stdin.read)


async def relay(engine: AsyncEngine, name_server: str, _: int) -> None:
    """Relay beside the shop."""
    app = application(name_server, {})
    Outbox(app, engine, "orders")
    async with app:
        await asyncio.to_thread(sys.stdin.read)


async def stock(engine: AsyncEngine, name_server: str, _: int) -> None:
    """Reserve what is ordered."""
    app = application(name_server, STOCK_SETTINGS)
    consumptions = Consumptions(app, engine)

    @consumptions.listener("orders")
    async def reserve(order: dict[str, int], session: AsyncSession) -> None:
        session.add(Reserved(number=order["number"]))
        await session.execute(select(1))

    async with app:
        await asyncio.to_thread(sys.stdin.read)


ROLES: Final[dict[str, Callable[[AsyncEngine, str, int], Coroutine[Any, Any, None]]]] = {
    "shop": shop,
    "relay": relay,
    "stock": stock,
}


async def main(role: str, url: str, name_server: str, level: str, orders: str) -> None:
    """Run a service."""
    options = {} if level == "default" else {"isolation_level": level.replace("_", " ")}
    engine = create_async_engine(url, pool_pre_ping=True, **options)
    try:
        await ROLES[role](engine, name_server, int(orders))
    finally:
        await engine.dispose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
