"""`python -m samples.orders.stock stock.db`: reduces the stock by each order, until standard input ends."""

import sqlite3
import sys
from pathlib import Path
from typing import Annotated

from samples.orders.orders import Order, database
from streamkit import Header, StreamApplication

app = StreamApplication(config_location=Path(__file__).with_name("stock.properties"))
SHELF = Path(sys.argv[-1])


@app.stream_listener("orders")
def reduce(order: Order, transaction: Annotated[str, Header("TRANSACTION_ID")]) -> None:
    """Reduce the stock by the order's quantity, once, however often the message is delivered."""
    try:
        with database(SHELF) as shelf:
            shelf.execute("insert into booked values (?, ?, ?)", [transaction, order.number, order.quantity])
    except sqlite3.IntegrityError:
        print(f"order {order.number} came again and is passed over", flush=True)


def main() -> None:
    """Listen until standard input ends."""
    with app:
        print("listening", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
