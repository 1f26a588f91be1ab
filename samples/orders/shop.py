"""`python -m samples.orders.shop orders.db`: takes the orders that it has not tried yet.

Each order is written into the order book and sent to the stock, or neither. The shop may be killed at any moment. The
broker then asks the next process of the shop about open transactions, and that looks into the order book.
"""

import os
import sqlite3
import sys
from pathlib import Path
from typing import Annotated

from samples.orders.orders import STORY, Fate, Order, database
from streamkit import Header, Message, StreamApplication, TransactionState

app = StreamApplication(config_location=Path(__file__).with_name("shop.properties"))
BOOK = Path(sys.argv[-1])

CRASH = 9


@app.transaction_listener("OrderTransactionGroup")
def check(order: Order, transaction: Annotated[str, Header("TRANSACTION_ID")]) -> TransactionState:
    """Return COMMIT if the order is in the order book, else ROLLBACK."""
    with database(BOOK) as book:
        found = book.execute("select 1 from booked where tx = ?", [transaction]).fetchone()
        state = TransactionState.COMMIT if found else TransactionState.ROLLBACK
        book.execute("insert into checked values (?, ?)", [order.number, state.value])
    return state


def take(order: Order, fate: Fate) -> None:
    """Write the order into the order book and send it, or neither."""
    with app.channel("orders").transaction(Message(order)) as tx:
        with database(BOOK) as book:
            book.execute("insert into booked values (?, ?, ?)", [tx.transaction_id, order.number, order.quantity])
            if fate is Fate.UNPAID:
                raise ValueError(f"the payment of order {order.number} fails")
            if fate is Fate.CRASH_BEFORE_COMMIT:
                os._exit(CRASH)
        if fate is Fate.CRASH_AFTER_COMMIT:
            os._exit(CRASH)


def is_new(order: Order) -> bool:
    """Record that the order is being tried; return False if it was tried before."""
    try:
        with database(BOOK) as book:
            book.execute("insert into tried values (?)", [order.number])
    except sqlite3.IntegrityError:
        return False
    return True


def main() -> None:
    """Take the orders, then answer the broker's checks until standard input ends."""
    with app:
        for order, fate in STORY:
            if is_new(order):
                try:
                    take(order, fate)
                except ValueError as error:
                    print(error, flush=True)
        print("all orders are tried", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
