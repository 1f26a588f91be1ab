"""The broker in memory: it holds destinations, delayed messages and transactions.

A broker runs on one event loop at a time. Applications of one process share a broker by its name
(`spring.cloud.stream.inmemory.binder.broker`); a binder without this setting has a broker of its own.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from binders.inmemory.destination import Destination
from binders.inmemory.faults import Faults
from binders.inmemory.timers import Timers
from binders.inmemory.transactions import Transactions
from streamkit.chaos import Chaos
from streamkit.clock import Clock, SystemClock

CHECK_INTERVAL: Final = timedelta(minutes=1)
CHECK_MAX: Final = 15

_named: dict[str, "InMemoryBroker"] = {}


class InMemoryBroker:
    """A broker whose destinations are made when they are first used.

    Attributes:
        destinations: The destinations by name.
        timers: Delayed messages and redeliveries.
        transactions: The open transactions with their half messages.
        faults: The faults that happen, for tests; None for none.
    """

    def __init__(
        self,
        *,
        partitions: int = 4,
        retention: int = 10_000,
        check_interval: timedelta = CHECK_INTERVAL,
        check_max: int = CHECK_MAX,
        clock: Clock | None = None,
        chaos: Chaos | None = None,
    ) -> None:
        """Make a broker.

        Args:
            partitions: The number of partitions of each new destination.
            retention: The number of messages that each partition keeps for later groups.
            check_interval: The time until an open transaction is checked, and between checks.
            check_max: The largest number of checks of a transaction.
            clock: The time at which messages are stored.
            chaos: The faults that happen to sends and acceptances; None for none.
        """
        self.faults = None if chaos is None else Faults(chaos)
        self.destinations: dict[str, Destination] = {}
        self.timers = Timers()
        self.transactions = Transactions(self.destination, check_interval=check_interval, check_max=check_max)
        self._partitions = partitions
        self._retention = retention
        self._clock = clock or SystemClock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._users: dict[object, asyncio.AbstractEventLoop] = {}

    @classmethod
    def named(cls, name: str, make: "Callable[[], InMemoryBroker] | None" = None) -> "InMemoryBroker":
        """Return the broker of that name in this process; make it if it is new. It exists until `forget`.

        Args:
            name: The broker's name.
            make: Makes a new broker; by default one with default settings.
        """
        found = _named.get(name)
        if found is None:
            found = _named[name] = (make or cls)()
        return found

    @staticmethod
    def forget(name: str) -> None:
        """Remove the broker of that name with all its messages; do nothing if there is none."""
        broker = _named.pop(name, None)
        if broker is not None:
            broker.close()

    def enter(self, user: object) -> None:
        """Add a user that runs on the running loop, and move the broker's timers to this loop.

        Raises:
            RuntimeError: The broker has a user whose loop is another running loop.
        """
        loop = asyncio.get_running_loop()
        # A loop that does not run any more belongs to an application that never left, such as one of a failed test.
        if any(other is not loop and other.is_running() for other in self._users.values()):
            raise RuntimeError(
                "an application on another event loop uses it: run both applications on one loop, with `async with app`"
            )
        self._users[user] = loop
        if self._loop is not loop:
            self._loop = loop
            self.timers.move(loop)
            self.transactions.move(loop)

    def leave(self, user: object) -> None:
        """Remove a user; the broker keeps its messages."""
        self._users.pop(user, None)

    def destination(self, name: str, partitions: int | None = None) -> Destination:
        """Return the destination of that name; make it if it is new.

        Args:
            name: The name.
            partitions: The number of partitions of a new destination; None for the broker's default.
        """
        found = self.destinations.get(name)
        if found is None:
            found = self.destinations[name] = Destination(
                name, partitions or self._partitions, self._retention, self._clock
            )
        return found

    def unread(self) -> list[str]:
        """Return a description of each kind of messages that no consumer has handled, for tests in strict mode."""
        found = []
        for destination in self.destinations.values():
            if destination.unheard:
                found.append(f"{destination.unheard} sent to {destination.name!r}, which has no consumer")
            if destination.lost:
                found.append(f"{destination.lost} at {destination.name!r} waiting for a consumer without a group")
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
        """Drop delayed messages and open transactions."""
        self.timers.close()
        self.transactions.close()

    def __repr__(self) -> str:
        return f"<InMemoryBroker destinations={sorted(self.destinations)}>"
