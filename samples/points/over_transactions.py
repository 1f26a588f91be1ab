"""The services over transactional messages: the broker keeps each message until the transaction has committed."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from samples.points.services import Databases, Order, Sent, book, cancel, credit, release, reserve
from streamkit import Header, Message, StreamApplication, TransactionState

OUTPUTS = ("orders", "reservations", "sold-out", "no-account")
PREFIX = "spring.cloud.stream.rocketmq.bindings"
TRANSACTIONAL = {f"{PREFIX}.{name}.producer.transactional": "true" for name in OUTPUTS} | {
    f"{PREFIX}.{name}.producer.group": f"{name}-transactions" for name in OUTPUTS
}


def services(databases: Databases, settings: Mapping[str, str]) -> tuple[StreamApplication, Callable[[Order], None]]:
    """Return the application of the three services, and the function with which the shop takes an order."""
    app = StreamApplication(
        config_location=Path(__file__).with_name("bindings.properties"), properties={**TRANSACTIONAL, **settings}
    )

    def checked(output: str, engine: Engine) -> None:
        """Answer the broker's checks of an output by the database of its service."""

        @app.transaction_listener(f"{output}-transactions")
        def check(order: Order, transaction: Annotated[str, Header("TRANSACTION_ID")]) -> TransactionState:
            with Session(engine) as session:
                found = session.get(Sent, transaction)
            return TransactionState.ROLLBACK if found is None else TransactionState.COMMIT

    checked("orders", databases.shop)
    checked("reservations", databases.stock)
    checked("sold-out", databases.stock)
    checked("no-account", databases.points)

    def work_and_send(engine: Engine, output: str, order: Order, work: Callable[[Session], object]) -> None:
        """Do the work in a local transaction of a message."""
        with app.channel(output).transaction(Message(order)) as tx, Session(engine) as session, session.begin():
            work(session)
            session.add(Sent(transaction=tx.transaction_id))

    def take(order: Order) -> None:
        work_and_send(databases.shop, "orders", order, lambda session: book(session, order))

    @app.stream_listener("stock-orders")
    def reserve_order(order: Order) -> None:
        # The output is part of the transaction's begin, so the decision is made before, and made again within.
        with Session(databases.stock) as session:
            is_there = reserve(session, order)
        if is_there is not None:
            output = "reservations" if is_there else "sold-out"
            work_and_send(databases.stock, output, order, lambda session: reserve(session, order))

    @app.stream_listener("points-reservations")
    def credit_order(order: Order) -> None:
        with Session(databases.points) as session, session.begin():
            has_account = credit(session, order)
            if has_account is False:
                session.rollback()
        if has_account is False:
            work_and_send(databases.points, "no-account", order, lambda session: credit(session, order))

    @app.stream_listener("stock-rejections")
    def release_order(order: Order) -> None:
        with Session(databases.stock) as session, session.begin():
            release(session, order)

    @app.stream_listener("shop-rejections")
    def cancel_order(order: Order) -> None:
        with Session(databases.shop) as session, session.begin():
            cancel(session, order)

    return app, take
