"""What the three services do in their databases. Each step does nothing if it was done before."""

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine, create_engine, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from streamkit.patterns.outbox.tables import PRODUCER_TABLES

IN_STOCK = 10
CUSTOMERS = ("ada", "grace")
"""The customers that have an account for points."""


@dataclass(frozen=True)
class Order:
    """An order, as the services send it to each other."""

    number: int
    customer: str
    quantity: int


STORY = (
    Order(1, "ada", 3),
    Order(2, "grace", 20),  # more than there is: the shop cancels it
    Order(3, "nobody", 2),  # no account for points: the stock releases it, and the shop cancels it
    Order(4, "grace", 5),
)


class Table(DeclarativeBase):
    """The tables of the services."""


class Booked(Table):
    """An order of the shop."""

    __tablename__ = "booked"
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    is_cancelled: Mapped[bool] = mapped_column(default=False)


class Reserved(Table):
    """A reservation of the stock; with quantity 0 it was refused or released."""

    __tablename__ = "reserved"
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    quantity: Mapped[int]


class Credited(Table):
    """The points for an order."""

    __tablename__ = "credited"
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    customer: Mapped[str]
    points: Mapped[int]


class Sent(Table):
    """A message of a transaction that has committed, for the broker's checks."""

    __tablename__ = "sent"
    transaction: Mapped[str] = mapped_column(primary_key=True)


@dataclass(frozen=True)
class Databases:
    """The database of each service."""

    shop: Engine
    stock: Engine
    points: Engine

    @classmethod
    def in_directory(cls, home: Path) -> "Databases":
        """Return new databases in files."""
        engines = [create_engine(f"sqlite:///{home}/{name}.db") for name in ("shop", "stock", "points")]
        for engine in engines:
            Table.metadata.create_all(engine)
            for table in PRODUCER_TABLES:
                table.create(engine)
        return cls(*engines)

    def close(self) -> None:
        """Close all connections."""
        for engine in (self.shop, self.stock, self.points):
            engine.dispose()

    def result(self, order: Order) -> tuple[str, int, int]:
        """Return what became of an order: the shop's state, the reserved quantity and the points."""
        with Session(self.shop) as shop, Session(self.stock) as stock, Session(self.points) as points:
            booked, reserved = shop.get(Booked, order.number), stock.get(Reserved, order.number)
            credited = points.get(Credited, order.number)
        state = "unknown" if booked is None else "cancelled" if booked.is_cancelled else "booked"
        return state, 0 if reserved is None else reserved.quantity, 0 if credited is None else credited.points

    @property
    def is_settled(self) -> bool:
        """Whether each order is cancelled and released, or has its points."""
        results = [self.result(order) for order in STORY]
        return all(each[1:] == (0, 0) if each[0] == "cancelled" else each[2] > 0 for each in results)


def book(session: Session, order: Order) -> None:
    """Book an order in the shop."""
    session.add(Booked(number=order.number))


def cancel(session: Session, order: Order) -> None:
    """Undo :func:`book`."""
    session.get_one(Booked, order.number).is_cancelled = True


def reserve(session: Session, order: Order) -> bool | None:
    """Reserve an order's quantity; return whether there was enough, or None if that was decided before."""
    if session.get(Reserved, order.number) is not None:
        return None
    taken = session.scalar(select(func.coalesce(func.sum(Reserved.quantity), 0))) or 0
    is_there = taken + order.quantity <= IN_STOCK
    session.add(Reserved(number=order.number, quantity=order.quantity if is_there else 0))
    return is_there


def release(session: Session, order: Order) -> None:
    """Undo :func:`reserve`."""
    session.get_one(Reserved, order.number).quantity = 0


def credit(session: Session, order: Order) -> bool | None:
    """Credit a point for each article; return whether there is an account, or None if that was decided before."""
    if session.get(Credited, order.number) is not None:
        return None
    has_account = order.customer in CUSTOMERS
    points = order.quantity if has_account else 0
    session.add(Credited(number=order.number, customer=order.customer, points=points))
    return has_account
