"""The broker in memory: destinations by name, and the timers that delay.

A broker belongs to one event loop at a time. Applications of one process meet on a broker by its name
(`spring.cloud.stream.inmemory.binder.broker`); without a name each binder has one of its own.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from binders.inmemory.destination import Destination
from binders.inmemory.timers import Timers
from binders.inmemory.transactions import Transactions

DEAD_LETTER_PREFIX: Final = "%DLQ%"
CHECK_INTERVAL: Final = timedelta(minutes=1)
CHECK_MAX: Final = 15

_named: dict[str, "InMemoryBroker"] = {}


class InMemoryBroker:
    """Destinations in memory, made when they are first named.

    Attributes:
        destinations: By name.
        timers: Delayed messages and redeliveries.
        transactions: Messages whose senders have not decided about them yet.
    """

    def __init__(
        self,
        *,
        partitions: int = 4,
        retention: int = 10_000,
        check_interval: timedelta = CHECK_INTERVAL,
        check_max: int = CHECK_MAX,
    ) -> None:
        self.destinations: dict[str, Destination] = {}
        self.timers = Timers()
        self.transactions = Transactions(self.destination, check_interval=check_interval, check_max=check_max)
        self._partitions = partitions
        self._retention = retention
        self._loop: asyncio.AbstractEventLoop | None = None
        self._users: dict[object, asyncio.AbstractEventLoop] = {}

    @classmethod
    def named(cls, name: str, make: "Callable[[], InMemoryBroker] | None" = None) -> "InMemoryBroker":
        """The broker all applications of this process know by that name, made if it is new; it lives until `forget`."""
        found = _named.get(name)
        if found is None:
            found = _named[name] = (make or cls)()
        return found

    @staticmethod
    def forget(name: str) -> None:
        """Drop the broker of that name with everything in it."""
        broker = _named.pop(name, None)
        if broker is not None:
            broker.close()

    def enter(self, user: object) -> None:
        """Have `user`, of the running loop, on the broker; what is delayed waits on that loop from now on.

        Raises:
            RuntimeError: There is somebody of another loop.
        """
        loop = asyncio.get_running_loop()
        if any(other is not loop and other.is_running() for other in self._users.values()):
            raise RuntimeError(
                "an application on another event loop is on it: run both on one loop, with `async with app`"
            )
        self._users[user] = loop
        if self._loop is not loop:
            self._loop = loop
            self.timers.move(loop)
            self.transactions.move(loop)

    def leave(self, user: object) -> None:
        """Have `user` on the broker no more; what it holds stays."""
        self._users.pop(user, None)

    def destination(self, name: str) -> Destination:
        """The destination of that name; dead letters have one partition, as on RocketMQ."""
        found = self.destinations.get(name)
        if found is None:
            partitions = 1 if name.startswith(DEAD_LETTER_PREFIX) else self._partitions
            found = self.destinations[name] = Destination(name, partitions, self._retention)
        return found

    def unread(self) -> list[str]:
        """What nobody has read, in words: for tests in strict mode."""
        found = []
        for destination in self.destinations.values():
            if destination.unheard:
                found.append(f"{destination.unheard} sent to {destination.name!r}, which nobody consumes")
            if destination.lost:
                found.append(
                    f"{destination.lost} at {destination.name!r} waiting for a consumer without a group"
                )
            found += [
                f"{group.pending} at {destination.name!r} waiting for group {group.name!r}"
                for group in destination.pending()
            ]
        if self.timers:
            found.append(f"{len(self.timers)} delayed, not due yet")
        if self.transactions:
            found.append(f"{len(self.transactions)} of transactions that have not ended")
        return found

    def close(self) -> None:
        """Drop what is delayed, and what is not decided."""
        self.timers.close()
        self.transactions.close()

    def __repr__(self) -> str:
        return f"<InMemoryBroker destinations={sorted(self.destinations)}>"
