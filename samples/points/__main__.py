"""`python -m samples.points outbox` or `… transactions`: four orders, two of which are undone."""

import sys
import tempfile
import threading
from contextlib import closing
from pathlib import Path

from rich.console import Console
from rich.table import Table

from rocket_broker.threaded_broker import ThreadedBroker
from samples.points import over_outbox, over_transactions
from samples.points.services import STORY, Databases

WAYS = {"outbox": over_outbox.services, "transactions": over_transactions.services}
PATIENCE_SECONDS = 60.0


def main() -> int:
    """Take the orders and show what became of them; return 0 if everything is settled."""
    way = sys.argv[1] if len(sys.argv) > 1 else "outbox"
    if way not in WAYS:
        print(f"{way!r} is neither of {', '.join(WAYS)}", file=sys.stderr)
        return 2
    with (
        tempfile.TemporaryDirectory(prefix="points-") as home,
        ThreadedBroker() as broker,
        closing(Databases.in_directory(Path(home))) as databases,
    ):
        settings = {"spring.cloud.stream.rocketmq.binder.name-server": broker.name_server}
        app, take = WAYS[way](databases, settings)
        with app:
            for order in STORY:
                take(order)
            pause = threading.Event()
            for _ in range(int(PATIENCE_SECONDS / 0.05)):
                if databases.is_settled:
                    break
                pause.wait(0.05)
        Console().print(table(way, databases))
        return 0 if databases.is_settled else 1


def table(way: str, databases: Databases) -> Table:
    """Return a table with the result of each order."""
    made = Table("order", "customer", "quantity", "shop", "reserved", "points", title=f"Over {way}")
    for order in STORY:
        state, reserved, points = databases.result(order)
        made.add_row(str(order.number), order.customer, str(order.quantity), state, str(reserved), str(points))
    return made


if __name__ == "__main__":
    sys.exit(main())
