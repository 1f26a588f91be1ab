"""The orders of the example, and the fate of each."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

IN_STOCK = 100


class Fate(Enum):
    """The event while the shop takes an order."""

    PAID = "paid"
    UNPAID = "the payment fails: an exception"
    CRASH_BEFORE_COMMIT = "the shop dies before it committed"
    CRASH_AFTER_COMMIT = "the shop dies after it committed"

    @property
    def is_booked(self) -> bool:
        """Whether the order is in the order book in the end."""
        return self in (Fate.PAID, Fate.CRASH_AFTER_COMMIT)


@dataclass(frozen=True)
class Order:
    """An order that the shop sends and the stock receives."""

    number: int
    quantity: int


STORY = (
    (Order(1, 10), Fate.PAID),
    (Order(2, 20), Fate.UNPAID),
    (Order(3, 30), Fate.CRASH_AFTER_COMMIT),
    (Order(4, 40), Fate.CRASH_BEFORE_COMMIT),
    (Order(5, 5), Fate.PAID),
)


@contextmanager
def database(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a transaction of a database, which commits when the block ends and is rolled back by an exception."""
    connection = sqlite3.connect(path, timeout=30)
    try:
        with connection:
            connection.execute("create table if not exists tried (number integer primary key)")
            connection.execute("create table if not exists booked (tx text primary key, number integer, quantity)")
            connection.execute("create table if not exists checked (number integer, said text)")
        with connection:
            yield connection
    finally:
        connection.close()
