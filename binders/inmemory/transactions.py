"""Half messages, which no consumer receives before the sender's transaction commits.

::

    begin ─▶ open ── commit ──▶ the message is put into its destination
                 ├── rollback ▶ the message is dropped
                 └── unknown ─▶ every `check_interval` the checker of a member of the producer group is called, the
                                members in turn; after `check_max` checks the message is moved to
                                TRANS_CHECK_MAX_TIME_TOPIC, which operators can read
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Final

from binders.inmemory.destination import Destination
from streamkit.binder.binder import TransactionChecker
from streamkit.messaging.headers import MessageHeaders
from streamkit.messaging.message import Message
from streamkit.messaging.transaction import TransactionState

logger = logging.getLogger(__name__)

PUT_ASIDE: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
"""The topic of messages whose transaction was still unknown after the last check; named as on RocketMQ."""


@dataclass(slots=True, eq=False)
class Half:
    """A half message.

    Attributes:
        group: The producer group.
        destination: The destination of the message.
        payload: The payload.
        headers: The headers that a receiver will see.
        partition: The number of the partition, or None.
        due: The loop's time in seconds of the next check.
        checks: The number of checks so far.
    """

    group: str
    destination: Destination
    payload: bytes
    headers: dict[str, object]
    partition: int | None
    due: float = 0.0
    checks: int = field(default=0)

    @property
    def message(self) -> Message[bytes]:
        """The message for a checker."""
        return Message(self.payload, MessageHeaders(self.headers))


class Transactions:
    """The open transactions of a broker."""

    def __init__(self, destination: Callable[[str], Destination], *, check_interval: timedelta, check_max: int) -> None:
        self._destination = destination
        self._interval = check_interval.total_seconds()
        self._check_max = check_max
        # In the order of their next checks, because all wait for the same interval.
        self._open: dict[Half, None] = {}
        self._members: dict[str, list[TransactionChecker]] = {}
        self._turns = count()
        self._handle: asyncio.TimerHandle | None = None
        self._checks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._open)

    def join(self, group: str, checker: TransactionChecker) -> None:
        """Add the checker of a member of a producer group."""
        self._members.setdefault(group, []).append(checker)

    def leave(self, group: str, checker: TransactionChecker) -> None:
        """Remove the checker of a member of a producer group."""
        self._members[group].remove(checker)

    def begin(self, half: Half) -> "InMemoryTransaction":
        """Keep a half message until its transaction ends."""
        self._wait(half)
        return InMemoryTransaction(self, half)

    def end(self, half: Half, state: TransactionState) -> None:
        """End a transaction: put its message into the destination, or drop it.

        Do nothing if the state is UNKNOWN, or if the transaction has ended.
        """
        if state is TransactionState.UNKNOWN or half not in self._open:
            return
        del self._open[half]
        if state is TransactionState.COMMIT:
            half.destination.put(half.payload, half.headers, half.partition)

    def close(self) -> None:
        """Drop all half messages, and cancel the checks."""
        self._open.clear()
        for task in self._checks:
            task.cancel()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def move(self, loop: asyncio.AbstractEventLoop) -> None:
        """Make the checks on `loop` from now on; the loop before may be closed."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._arm(loop)

    def _wait(self, half: Half) -> None:
        loop = asyncio.get_running_loop()
        half.due = loop.time() + self._interval
        # Moved to the end, which keeps `_open` in the order of the next checks.
        self._open.pop(half, None)
        self._open[half] = None
        if self._handle is None:
            self._handle = loop.call_at(half.due, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._handle = None
        # The loop may run a timer early, by up to the resolution of its clock.
        now = loop.time() + 1e-6
        for half in [half for half in self._open if half.due <= now]:
            self._ask(half, loop)
        self._arm(loop)

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        first = next(iter(self._open), None)
        if first is not None and self._handle is None:
            self._handle = loop.call_at(first.due, self._look, loop)

    def _ask(self, half: Half, loop: asyncio.AbstractEventLoop) -> None:
        if half.checks >= self._check_max:
            del self._open[half]
            logger.warning(
                "A transaction stayed unknown after %d check(s), so its message is put aside: %r",
                half.checks,
                half,
            )
            self._destination(PUT_ASIDE).put(half.payload, half.headers, None)
            return
        half.checks += 1
        # Before the check, which may have no answer: the next check is due all the same.
        self._wait(half)
        members = self._members.get(half.group)
        if members:
            task = loop.create_task(self._check(half, members[next(self._turns) % len(members)]))
            self._checks.add(task)
            task.add_done_callback(self._checks.discard)

    async def _check(self, half: Half, checker: TransactionChecker) -> None:
        self.end(half, await checker(half.message))

    def __repr__(self) -> str:
        return f"<Transactions: {len(self._open)} open>"


class InMemoryTransaction:
    """An open transaction, for its sender."""

    def __init__(self, transactions: Transactions, half: Half) -> None:
        self._transactions = transactions
        self._half = half

    async def commit(self) -> None:
        """Put the message into its destination."""
        self._transactions.end(self._half, TransactionState.COMMIT)

    async def rollback(self) -> None:
        """Drop the message."""
        self._transactions.end(self._half, TransactionState.ROLLBACK)

    async def unknown(self) -> None:
        """Leave the transaction open; the checker of a member of the producer group is called later."""
        self._transactions.end(self._half, TransactionState.UNKNOWN)

    def __repr__(self) -> str:
        return f"<InMemoryTransaction of {self._half.group!r}, {self._half.checks} checks>"
