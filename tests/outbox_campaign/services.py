"""The shop, its relay, the stock, and the broker between them: what a process of the campaign runs until it is killed.

The shop takes orders with an outbox until all are taken; the stock reserves each. Both go on where their databases say
that they are, so they may be killed at any moment.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import String, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from rocket_broker.process.cli import broker
from streamkit import StreamApplication
from streamkit.patterns.outbox import Consumptions, Outbox

LEASE_SECONDS: Final = 1.0
SETTINGS: Final = {
    # A service that starts while the broker is away binds soon after the broker is back.
    "spring.cloud.stream.binding-retry-interval": "1s",
    "spring.cloud.stream.output-bindings": "orders",
    "spring.cloud.stream.bindings.orders-check.group": "shop",
    "spring.cloud.stream.rocketmq.binder.provisioning": "create",
    "spring.cloud.stream.rocketmq.binder.poll-name-server-interval": "1s",
    "spring.cloud.stream.rocketmq.binder.heartbeat-broker-interval": "1s",
    "spring.cloud.stream.rocketmq.binder.persist-consumer-offset-interval": "1s",
    "spring.cloud.stream.rocketmq.default.consumer.consume-from-where": "CONSUME_FROM_FIRST_OFFSET",
    "streamkit.outbox.lease": f"{LEASE_SECONDS:g}s",
    "streamkit.outbox.poll-interval": "100ms",
    "streamkit.outbox.backoff": "100ms",
    "streamkit.outbox.max-backoff": "500ms",
    "streamkit.outbox.max-send-times": 1000,
    "streamkit.outbox.check-after": "500ms",
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


@dataclass(frozen=True)
class Place:
    """Where the services of one run work.

    Attributes:
        url: Their database, with an asynchronous driver.
        level: The isolation level of their transactions, or `default`.
        name_server: Of the broker.
        namespace: Put before the names of their topics and groups at the broker.
    """

    url: str
    level: str
    name_server: str
    namespace: str

    def engine(self) -> AsyncEngine:
        """Return an engine on the database."""
        options = {} if self.level == "default" else {"isolation_level": self.level.replace("_", " ")}
        return create_async_engine(self.url, **options)

    def application(self, settings: dict[str, Any]) -> StreamApplication:
        """Return an application on the broker."""
        binder = "spring.cloud.stream.rocketmq.binder"
        where = {f"{binder}.name-server": self.name_server, f"{binder}.namespace": self.namespace}
        return StreamApplication(config_location="optional:/none", properties={**SETTINGS, **settings, **where})


async def shop(place: Place, orders: int) -> None:
    """Take the orders that are not taken, four at a time."""
    app = place.application({})
    outbox = Outbox(app, place.engine(), "orders")
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
        await asyncio.Event().wait()


async def relay(place: Place, _: int) -> None:
    """Relay beside the shop."""
    app = place.application({})
    Outbox(app, place.engine(), "orders")
    async with app:
        await asyncio.Event().wait()


async def stock(place: Place, _: int) -> None:
    """Reserve what is ordered."""
    app = place.application(STOCK_SETTINGS)
    consumptions = Consumptions(app, place.engine())

    @consumptions.listener("orders")
    async def reserve(order: dict[str, int], session: AsyncSession) -> None:
        session.add(Reserved(number=order["number"]))
        await session.execute(select(1))

    async with app:
        await asyncio.Event().wait()


ROLES: Final[dict[str, Callable[[Place, int], Coroutine[Any, Any, None]]]] = {
    "shop": shop,
    "relay": relay,
    "stock": stock,
}


def serve(role: str, place: Place, orders: int) -> None:
    """Run a service."""
    asyncio.run(ROLES[role](place, orders))


def serve_broker(settings: str, name_server: str) -> None:
    """Run the broker of a settings file."""
    broker.main(["-c", settings, "-n", name_server])
