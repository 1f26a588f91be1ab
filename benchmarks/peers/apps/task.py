"""The command line of a listening application, and its counting of orders from the first one to the last.

Imported by programs of several virtual environments, so it needs nothing but Python.
"""

import json
import sys
import time
from typing import NamedTuple


class Task(NamedTuple):
    """The arguments of an application.

    Attributes:
        system: The messaging system: rocketmq, kafka, nats or redis.
        address: The server.
        orders: The topic of the orders.
        group: The name of a new group.
        messages: The number of orders that wait.
        receipts: The topic of the receipts; empty for a listener that answers nothing.
        handlers: How many orders are handled at once.
        policy: When FastStream acknowledges an order: ``reject_on_error`` (at least once) or ``ack_first``.
    """

    system: str
    address: str
    orders: str
    group: str
    messages: int
    receipts: str
    handlers: int = 1
    policy: str = "reject_on_error"

    @classmethod
    def of_command_line(cls) -> "Task":
        """Return the arguments of this process."""
        system, address, orders, group, messages, receipts, handlers, policy = sys.argv[1:]
        return cls(system, address, orders, group, int(messages), receipts, int(handlers), policy)


class Count:
    """Counts orders; prints a line at the first one, and seconds and CPU at the last of those that waited."""

    def __init__(self, messages: int) -> None:
        """Expect this number of orders."""
        self._expected = messages
        self._seen = 0
        self._started = self._cpu = 0.0
        print("{}", flush=True)

    def add_one(self) -> None:
        """Count an order."""
        if not self._seen:
            print("{}", flush=True)
            self._started, self._cpu = time.perf_counter(), time.process_time()
        self._seen += 1
        if self._seen == self._expected:
            seconds, cpu = time.perf_counter() - self._started, time.process_time() - self._cpu
            print(json.dumps({"seconds": seconds, "cpu": cpu}), flush=True)
