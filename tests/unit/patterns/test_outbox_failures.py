"""Orders reach the stock once, and in order, whichever statement of the database fails, and with faults of the broker.

A failure takes the place of a relay, a sender or a consumer that is killed at that statement: its transaction is rolled
back, and what it has sent is sent.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Engine, String, create_engine, event, select
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from streamkit import StreamApplication
from streamkit.patterns.outbox import Consumptions, Outbox
from streamkit.patterns.outbox.database import engine_in_memory
from streamkit.patterns.outbox.tables import CONSUMER_TABLES

SETTINGS = {
    "spring.cloud.stream.default-binder": "rocketmq",
    "spring.cloud.stream.bindings.orders.producer.partition-key-expression": "headers['streamkit_key']",
    "spring.cloud.stream.bindings.orders.producer.partition-count": 4,
    "spring.cloud.stream.bindings.reservations.destination": "orders",
    "spring.cloud.stream.bindings.reservations.group": "stock",
    "spring.cloud.stream.rocketmq.bindings.reservations.consumer.orderly": "true",
    "streamkit.outbox.batch-size": 4,
}
ORDERS = 12


class Table(DeclarativeBase):
    pass


class Taken(Table):
    __tablename__ = "taken"
    number: Mapped[str] = mapped_column(String(10), primary_key=True)


class Reserved(Table):
    __tablename__ = "reserved"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    number: Mapped[str] = mapped_column(String(10))


class Shop:
    """A shop and its stock, each with a database in memory."""

    def __init__(self) -> None:
        self.app = StreamApplication(config_location="optional:/none", properties=SETTINGS)
        self.outbox = Outbox(self.app, create_engine("sqlite://"), "orders")
        stock = engine_in_memory(*CONSUMER_TABLES, Reserved.__table__, asynchronous=False)  # type: ignore[arg-type]
        with stock as self.stock:
            consumptions = Consumptions(self.app, self.stock)

        @consumptions.listener("reservations", topic="orders")
        def reserve(order: dict[str, str], session: Session) -> None:
            session.add(Reserved(number=order["number"]))

    def take(self, number: int) -> None:
        """Take an order, again and again until it is taken."""
        for _ in range(3):
            try:
                with self.outbox.transaction() as session:
                    session.add(Taken(number=str(number)))
                    self.outbox.send("orders", {"number": str(number)}, id=str(number), key=str(number % 2))
                return
            except OperationalError:
                pass

    def numbers(self, engine: object, table: type[Taken] | type[Reserved]) -> list[int]:
        assert isinstance(engine, Engine)
        with Session(engine) as session:
            return [int(each) for each in session.scalars(select(table.number).order_by(*table.__table__.primary_key))]

    def prove(self) -> None:
        """Both tables have each order once; those of one key came in order."""
        reserved = self.numbers(self.stock, Reserved)
        assert sorted(reserved) == sorted(self.numbers(self.outbox.engine, Taken)) == list(range(ORDERS))
        assert [each for each in reserved if each % 2] == list(range(1, ORDERS, 2))
        assert [each for each in reserved if not each % 2] == list(range(0, ORDERS, 2))


@contextmanager
def failing(engine: object, at: int) -> Iterator[None]:
    """Make two statements in a row fail, the first being number `at`, as after the loss of a connection."""
    count = 0

    def fail(*_: object) -> None:
        nonlocal count
        count += 1
        if at <= count < at + 2:
            raise OperationalError("statement", {}, Exception("connection lost"))

    event.listen(engine, "before_cursor_execute", fail)
    try:
        yield
    finally:
        event.remove(engine, "before_cursor_execute", fail)


@pytest.mark.parametrize("side", ["shop", "stock"])
@pytest.mark.parametrize("at", range(1, 37, 6))
def test_lost_connection_loses_and_repeats_nothing(side: str, at: int) -> None:
    shop = Shop()
    with shop.outbox.in_memory(Taken.__table__) as engine, shop.app.test() as test:  # type: ignore[arg-type]
        with failing(engine if side == "shop" else shop.stock, at):
            for number in range(ORDERS):
                shop.take(number)
            test.advance(minutes=5)
        test.advance(hours=1)
        shop.prove()


@pytest.mark.parametrize("seed", range(3))
def test_faults_of_the_broker_lose_and_repeat_nothing(seed: int) -> None:
    shop = Shop()
    faults = f"seed={seed},duplicate=20%,drop-connection=20%,delay=20ms"
    with shop.outbox.in_memory(Taken.__table__), shop.app.test(chaos=faults) as test:  # type: ignore[arg-type]
        for number in range(ORDERS):
            shop.take(number)
        test.advance(hours=2)
        shop.prove()
