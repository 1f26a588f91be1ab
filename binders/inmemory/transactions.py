"""Half messages: what nobody sees until the transaction of its sender says what becomes of it.

::

    begin ─▶ open ── commit ──▶ the message is put into its destination
                 ├── rollback ▶ forgotten
                 └── every `check_interval` a member of its producer group is asked, any of them;
                     after `check_max` questions the message is put aside, where people see it
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
"""Where messages go whose transaction nobody could tell about; named as on RocketMQ."""


@dataclass(slots=True, eq=False)
class Half:
    """One message, and how often its group was asked."""

    group: str
    destination: Destination
    payload: bytes
    headers: dict[str, object]
    partition: int | None
    due: float = 0.0
    checks: int = field(default=0)

    @property
    def message(self) -> Message[bytes]:
        """The message as a checker gets it."""
        return Message(self.payload, MessageHeaders(self.headers))


class Transactions:
    """The transactions of one broker that are open."""

    def __init__(
        self, destination: Callable[[str], Destination], *, check_interval: timedelta, check_max: int
    ) -> None:
        self._destination = destination
        self._interval = check_interval.total_seconds()
        self._check_max = check_max
        # In the order of their next questions, since all wait equally long.
        self._open: dict[Half, None] = {}
        self._members: dict[str, list[TransactionChecker]] = {}
        self._turns = count()
        self._handle: asyncio.TimerHandle | None = None
        self._checks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._open)

    def join(self, group: str, checker: TransactionChecker) -> None:
        """Have this member of the group be asked, too."""
        self._members.setdefault(group, []).append(checker)

    def leave(self, group: str, checker: TransactionChecker) -> None:
        """Ask this member no more."""
        self._members[group].remove(checker)

    def begin(self, half: Half) -> "InMemoryTransaction":
        """Keep a half message until its transaction ends."""
        self._wait(half)
        return InMemoryTransaction(self, half)

    def end(self, half: Half, state: TransactionState) -> None:
        """Do with a half message what its transaction says; nothing if that was done already."""
        if state is TransactionState.UNKNOWN or half not in self._open:
            return
        del self._open[half]
        if state is TransactionState.COMMIT:
            half.destination.put(half.payload, half.headers, half.partition)

    def close(self) -> None:
        """Forget all of them."""
        self._open.clear()
        for task in self._checks:
            task.cancel()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def move(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ask on `loop` from now on: the one before may be gone."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._arm(loop)

    def _wait(self, half: Half) -> None:
        loop = asyncio.get_running_loop()
        half.due = loop.time() + self._interval
        self._open.pop(half, None)
        self._open[half] = None
        if self._handle is None:
            self._handle = loop.call_at(half.due, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._handle = None
        # The loop calls a timer up to its clock's resolution early.
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
                "%d checks could not tell about a message, which is put aside: %r", half.checks, half
            )
            self._destination(PUT_ASIDE).put(half.payload, half.headers, None)
            return
        half.checks += 1
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
    """One transaction, in the hands of who began it."""

    def __init__(self, transactions: Transactions, half: Half) -> None:
        self._transactions = transactions
        self._half = half

    async def commit(self) -> None:
        """Let consumers get the message."""
        self._transactions.end(self._half, TransactionState.COMMIT)

    async def rollback(self) -> None:
        """Let nobody ever get it."""
        self._transactions.end(self._half, TransactionState.ROLLBACK)

    async def unknown(self) -> None:
        """Let the checker be asked."""
        self._transactions.end(self._half, TransactionState.UNKNOWN)

    def __repr__(self) -> str:
        return f"<InMemoryTransaction of {self._half.group!r}, {self._half.checks} checks>"
