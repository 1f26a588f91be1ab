"""`python -m samples.orders`: an order service that is killed during its work, and a stock that stays right.

The shop and the stock are processes with a database each. The shop is killed twice: once after it has committed an
order and before it can tell the broker, once before it commits. Both times the broker asks the next process of the
shop. The stock receives the first order and never the second.
"""

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.table import Table

from rocket_broker.threaded_broker import ThreadedBroker
from samples.orders.orders import IN_STOCK, STORY, database

PATIENCE_SECONDS = 60.0
# A second where a broker waits a minute by default, so that the example ends soon.
CHECKS = {"transactionTimeOut": "1000", "transactionCheckInterval": "1000"}


class Story:
    """The two services, their databases and the broker between them."""

    def __init__(self, home: Path, name_server: str, console: Console) -> None:
        self.book, self.shelf = home / "orders.db", home / "stock.db"
        self._environment = os.environ | {"SPRING_CLOUD_STREAM_ROCKETMQ_BINDER_NAME_SERVER": name_server}
        self._console = console
        self._running: list[subprocess.Popen[str]] = []

    def start(self, service: str, path: Path) -> "subprocess.Popen[str]":
        """Start a service; it runs until `stop`, unless it is killed before."""
        process = subprocess.Popen(
            [sys.executable, "-m", f"samples.orders.{service}", str(path)],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._running.append(process)
        return process

    def stop(self) -> None:
        """End the services."""
        for process in self._running:
            process.communicate()

    def play(self) -> None:
        """Run the shop until it has taken every order, however often it dies; return when all orders are settled."""
        self.start("stock", self.shelf)
        deaths = 0
        while not self._run_shop():
            deaths += 1
            self._console.print(f"The shop died ({deaths}), in the middle of an order. Another one is started.")
        hanging = [order.number for order, fate in STORY if "dies" in fate.value]
        self._wait(lambda: sorted(self.checks()) == hanging, "the broker to ask about the orders that hang")
        expected = [order.number for order, fate in STORY if fate.is_booked]
        self._wait(lambda: sorted(self.booked(self.shelf)) == expected, "the stock to hear of every order")

    def _run_shop(self) -> bool:
        """Run a process of the shop to its end; return whether it has taken all orders."""
        shop = self.start("shop", self.book)
        assert shop.stdout is not None
        for line in shop.stdout:
            self._console.print(f"  shop: {line.rstrip()}")
            if line.startswith("all orders"):
                return True
        return False

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        pause = threading.Event()
        for _ in range(int(PATIENCE_SECONDS / 0.05)):
            if condition():
                return
            pause.wait(0.05)
        raise TimeoutError(f"waited {PATIENCE_SECONDS:g} s for {what}")

    def booked(self, path: Path) -> dict[int, int]:
        """Return the quantities in a service's database by order number."""
        with database(path) as rows:
            return dict(rows.execute("select number, quantity from booked"))

    def checks(self) -> dict[int, str]:
        """Return the answers of the shop's checker by order number."""
        with database(self.book) as rows:
            return dict(rows.execute("select number, said from checked"))

    def table(self) -> Table:
        """Return a table with the result of each order."""
        table = Table(title="Orders and stock", caption=self._sum())
        for title in ("order", "quantity", "what happened", "in the order book", "the broker asked", "stock"):
            table.add_column(title)
        book, shelf, checks = self.booked(self.book), self.booked(self.shelf), self.checks()
        for order, fate in STORY:
            number = order.number
            table.add_row(
                str(number),
                str(order.quantity),
                fate.value,
                "yes" if number in book else "no",
                checks.get(number, "-"),
                f"-{shelf[number]}" if number in shelf else "untouched",
            )
        return table

    def _sum(self) -> str:
        ordered, taken = (sum(self.booked(path).values()) for path in (self.book, self.shelf))
        return f"{IN_STOCK} in stock, {ordered} in the order book, {IN_STOCK - taken} left"

    @property
    def is_consistent(self) -> bool:
        """Return whether both databases agree."""
        return self.booked(self.book) == self.booked(self.shelf)


def main() -> int:
    """Run the example; return 0 if the stock is right."""
    console = Console()
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="orders-")))
        broker = stack.enter_context(ThreadedBroker(settings=CHECKS))
        story = Story(home, broker.name_server, console)
        try:
            story.play()
        finally:
            story.stop()
        console.print(story.table())
        return 0 if story.is_consistent else 1


if __name__ == "__main__":
    sys.exit(main())
