"""Outboxes for the console to show: a restaurant's with messages in all six statuses, and one with given messages.

The application runs in memory and in virtual time, then its outbox is copied into a file.

::

    orders      the kitchen consumes them, and gives up the lobsters; some of these are rolled back
    deliveries  the courier consumes them, and tries again where nobody opens
    receipts    nobody confirms them; an interceptor refuses some
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import Session

from streamkit import ChannelInterceptor, Message, StreamApplication
from streamkit.patterns.outbox import OUTBOX_ID, Consumptions, Outbox
from streamkit.patterns.outbox.administration import OutboxRow, Selection, list_rows, roll_back
from streamkit.patterns.outbox.database import Database, engine_in_memory
from streamkit.patterns.outbox.operator_database import database_at
from streamkit.patterns.outbox.status import MessageStatus
from streamkit.patterns.outbox.tables import CONSUMER_TABLES
from streamkit.testing.harness import Harness

__all__ = ["rows_with", "write_outbox", "write_refused_messages", "written"]

_SETTINGS: Final = {
    "spring.cloud.stream.default-binder": "rocketmq",
    "spring.cloud.stream.output-bindings": "orders;deliveries;receipts;answers-about-orders;answers-about-deliveries",
    "spring.cloud.stream.bindings.answers-about-orders.destination": "orders-check",
    "spring.cloud.stream.bindings.answers-about-deliveries.destination": "deliveries-check",
    "spring.cloud.stream.bindings.orders-check.group": "till",
    "spring.cloud.stream.bindings.deliveries-check.group": "till",
    "spring.cloud.stream.bindings.kitchen.destination": "orders",
    "spring.cloud.stream.bindings.kitchen.group": "kitchen",
    "spring.cloud.stream.bindings.kitchen.consumer.max-attempts": 1,
    "spring.cloud.stream.rocketmq.bindings.kitchen.consumer.push.max-reconsume-times": 0,
    "spring.cloud.stream.bindings.courier.destination": "deliveries",
    "spring.cloud.stream.bindings.courier.group": "courier",
    "spring.cloud.stream.bindings.courier.consumer.max-attempts": 1,
    "streamkit.outbox.max-send-times": 3,
}
_MENU: Final = ("soup", "risotto", "lobster", "espresso", "lasagne")
_ORDERS: Final = 80
_NEW: Final = 20
"""Orders that are taken last, and are not confirmed yet."""
_EVERY: Final = 5
"""One in so many orders, deliveries and receipts fails."""


class _Refusal(ChannelInterceptor):
    """Refuses messages.

    Attributes:
        reasons: The texts of the errors, by the ids of the messages.
    """

    def __init__(self) -> None:
        self.reasons: dict[object, str] = {}

    def pre_send(self, message: Message[object], channel: object) -> Message[object]:
        """Return the message, unless there is a reason to refuse it."""
        reason = self.reasons.get(message.headers.get(OUTBOX_ID))
        if reason is not None:
            raise RuntimeError(reason)
        return message


class _Restaurant:
    """An application with an outbox, and with the listeners that consume its messages."""

    def __init__(self, consumer: Engine) -> None:
        self.app = StreamApplication(config_location="optional:/none", properties=_SETTINGS)
        self.outbox = Outbox(self.app, create_engine("sqlite://"), "orders", "deliveries", "receipts")
        self.refusal = _Refusal()
        self.app.channel("receipts").add_interceptor(self.refusal)
        self.outbox.reconcile("orders")
        self.outbox.reconcile("deliveries")
        consumptions = Consumptions(self.app, consumer)

        @self.outbox.compensate("orders")
        def forget(order: dict[str, object], session: Session) -> None:
            pass

        @consumptions.listener("kitchen", topic="orders", answers="answers-about-orders")
        def cook(order: dict[str, object], session: Session) -> None:
            if order["dish"] == "lobster":
                raise ValueError("the kitchen has no recipe for lobster")

        @consumptions.listener("courier", topic="deliveries", answers="answers-about-deliveries")
        def deliver(delivery: dict[str, object], session: Session) -> None:
            if delivery["opens"] is False:
                raise TimeoutError("nobody opens the door")

    def take(self, orders: range) -> None:
        """Take orders, in one transaction with their deliveries and receipts."""
        with self.outbox.transaction():
            for number in orders:
                fails, guest = number % _EVERY == 2, f"guest-{number % 7}"
                order = {"order": number, "table": 1 + number % 5, "dish": _MENU[number % len(_MENU)]}
                self.outbox.send("orders", order, {"room": "hall"}, id=f"order-{number:03}", key=guest)
                if number % 2 == 0:
                    delivery = {"order": number, "street": f"Mill Lane {number}", "opens": not fails}
                    self.outbox.send("deliveries", delivery, id=f"delivery-{number:03}")
                receipt = f"receipt-{number:03}"
                if fails:
                    self.refusal.reasons[receipt] = "the printer has no paper"
                self.outbox.send("receipts", {"order": number, "total": 12.5 + number}, id=receipt)


@contextmanager
def _restaurant(file: Path) -> Iterator[tuple[_Restaurant, Harness[StreamApplication]]]:
    """Yield a restaurant that runs; write its outbox into a file at the end."""
    with engine_in_memory(*CONSUMER_TABLES, asynchronous=False) as consumer:
        assert isinstance(consumer, Engine)
        restaurant = _Restaurant(consumer)
        with restaurant.outbox.in_memory() as outbox:
            assert isinstance(outbox, Engine)
            with restaurant.app.test() as test:
                yield restaurant, test
            with outbox.connect() as connection:
                connection.exec_driver_sql("VACUUM INTO ?", (str(file),))


def write_outbox(file: Path) -> None:
    """Write the outbox of the restaurant: 250 messages, in all six statuses.

    Args:
        file: The SQLite database, which does not exist yet.
    """
    with _restaurant(file) as (restaurant, test):
        restaurant.take(range(_ORDERS))
        test.advance(minutes=3)
        given_up = [f"order-{number:03}" for number in range(2, 20, _EVERY)]
        now = restaurant.app.clock.now_ms()
        with restaurant.outbox.engine.begin() as connection:  # type: ignore[union-attr]
            roll_back(connection, Selection(ids=given_up, topic="orders"), now)
        restaurant.outbox.wake("orders")
        restaurant.take(range(_ORDERS, _ORDERS + _NEW))
        test.settle()


def write_refused_messages(file: Path, messages: Mapping[str, Message[object]], reason: str) -> None:
    """Write an outbox of messages to `receipts` that were refused as often as is allowed.

    Args:
        file: The SQLite database, which does not exist yet.
        messages: The messages, by their ids, which are their keys, too.
        reason: The text of the error that refuses them.
    """
    with _restaurant(file) as (restaurant, test):
        restaurant.refusal.reasons = dict.fromkeys(messages, reason)
        with restaurant.outbox.transaction():
            for id_, message in messages.items():
                restaurant.outbox.send("receipts", message, id=id_, key=id_)
        test.advance(minutes=1)


@contextmanager
def written(file: Path, write: Callable[[Path], None]) -> Iterator[Database]:
    """Yield the database in a file that a function writes.

    Args:
        file: The file, which does not exist yet.
        write: Writes it, on a thread of its own: virtual time needs one without an event loop.
    """
    with ThreadPoolExecutor(1) as thread:
        thread.submit(write, file).result()
    database = database_at(f"sqlite:///{file}")
    try:
        yield database
    finally:
        database.engine.dispose()  # type: ignore[union-attr]


def rows_with(database: Database, status: MessageStatus) -> Sequence[OutboxRow]:
    """Return the rows with a status, the oldest one first."""
    selection = Selection(statuses=[status])
    return database.run_sync(lambda connection: list_rows(connection, selection, _ORDERS, order="number"))
