"""The services over the outbox: each message is a row of the transaction that did the work."""

from collections.abc import Callable, Mapping
from pathlib import Path

from sqlalchemy.orm import Session

from samples.points.services import Databases, Order, book, cancel, credit, release, reserve
from streamkit import StreamApplication
from streamkit.patterns.outbox import Outbox


def services(databases: Databases, settings: Mapping[str, str]) -> tuple[StreamApplication, Callable[[Order], None]]:
    """Return the application of the three services, and the function with which the shop takes an order."""
    app = StreamApplication(config_location=Path(__file__).with_name("bindings.properties"), properties=settings)
    shop = Outbox(app, databases.shop, "orders")
    stock = Outbox(app, databases.stock, "reservations", "sold-out")
    points = Outbox(app, databases.points, "no-account")

    def take(order: Order) -> None:
        with shop.transaction() as session:
            book(session, order)
            shop.send("orders", order, id=str(order.number), key=order.customer)

    @app.stream_listener("stock-orders")
    def reserve_order(order: Order) -> None:
        with stock.transaction() as session:
            is_there = reserve(session, order)
            if is_there is not None:
                stock.send("reservations" if is_there else "sold-out", order, id=str(order.number))

    @app.stream_listener("points-reservations")
    def credit_order(order: Order) -> None:
        with points.transaction() as session:
            if credit(session, order) is False:
                points.send("no-account", order, id=str(order.number))

    @app.stream_listener("stock-rejections")
    def release_order(order: Order) -> None:
        with Session(databases.stock) as session, session.begin():
            release(session, order)

    @app.stream_listener("shop-rejections")
    def cancel_order(order: Order) -> None:
        with Session(databases.shop) as session, session.begin():
            cancel(session, order)

    return app, take
