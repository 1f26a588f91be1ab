"""The application that runs on the cluster while its masters are killed.

Two instances share the groups of all listeners; one of them sends. A message that could not be sent is sent again until
it is acknowledged, those of a key one after the other.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from random import Random
from typing import Annotated, Any, Final

from streamkit import Header, Message, Requeue, StreamApplication, TransactionState
from streamkit.errors import StreamkitError
from tests.cluster_campaign.ledger import DELAY, KINDS, Kind, Ledger
from tests.peer.stage import DELAY_LEVELS

KEYS: Final = 8
INSTANCES: Final = 2
QUEUES: Final = 4
PAYMENTS: Final = "cluster-payments"
PAUSE: Final[dict[Kind, float]] = {"plain": 0.05, "ordered": 0.1, "delayed": 0.2, "payments": 0.2}
"""Seconds of a sender after each message. Each kind has one sender; `ordered` has one for each key."""
RETRY_PAUSE: Final = 0.1
FAILING: Final = 10
"""One in so many plain messages fails at its first delivery."""

_STREAM = "spring.cloud.stream"
_ROCKET = f"{_STREAM}.rocketmq"

SETTINGS: Final[dict[str, object]] = {
    f"{_STREAM}.output-bindings": ";".join(f"{kind}-out" for kind in KINDS),
    **{f"{_STREAM}.bindings.{kind}-out.destination": f"cluster-{kind}" for kind in KINDS},
    **{f"{_STREAM}.bindings.{kind}.destination": f"cluster-{kind}" for kind in KINDS},
    **{f"{_STREAM}.bindings.{kind}.group": f"cluster-{kind}-readers" for kind in KINDS},
    f"{_STREAM}.bindings.plain.consumer.max-attempts": 1,
    f"{_STREAM}.bindings.ordered-out.producer.partition-key-expression": "headers['key']",
    f"{_ROCKET}.bindings.ordered.consumer.push.orderly": True,
    f"{_ROCKET}.bindings.plain.consumer.push.delay-level-when-next-consume": 1,
    f"{_ROCKET}.bindings.plain.consumer.push.max-reconsume-times": 1000,
    f"{_ROCKET}.default.consumer.consume-from-where": "CONSUME_FROM_FIRST_OFFSET",
    f"{_ROCKET}.bindings.payments-out.producer.transactional": True,
    f"{_ROCKET}.bindings.payments-out.producer.group": PAYMENTS,
    f"{_ROCKET}.binder.message-delay-level": DELAY_LEVELS,
    f"{_ROCKET}.binder.embedded": "never",
}
TOPICS: Final = tuple(f"cluster-{kind}" for kind in KINDS)


def application(name_server: str, ledger: Ledger, instance: int) -> StreamApplication:
    """Return one instance, which notes all that it receives."""
    where = {f"{_ROCKET}.binder.name-server": name_server, f"{_ROCKET}.binder.unit-name": f"instance{instance}"}
    app = StreamApplication(config_location="optional:/none", properties={**SETTINGS, **where})

    @app.stream_listener("plain")
    async def plain(name: str) -> None:
        if ledger.receive("plain", name) == 1 and int(name) % FAILING == 0:
            raise Requeue("it fails at its first delivery")

    @app.stream_listener("ordered")
    async def ordered(name: str) -> None:
        ledger.receive("ordered", name)

    @app.stream_listener("delayed")
    async def delayed(name: str) -> None:
        ledger.receive("delayed", name)

    @app.stream_listener("payments")
    async def payments(name: str) -> None:
        ledger.receive("payments", name)

    @app.transaction_listener(PAYMENTS)
    async def check(name: str, transaction: Annotated[str, Header("TRANSACTION_ID")]) -> TransactionState:
        decided = ledger.decided.get(name)
        if decided is None:
            return TransactionState.UNKNOWN
        return TransactionState.COMMIT if decided else TransactionState.ROLLBACK

    return app


class Senders:
    """Sends messages of each kind, at a steady rate, until it is stopped.

    Args:
        app: The instance that sends.
        ledger: Where it notes what it sends.
        chance: All random choices.
        patience: Seconds for which it tries, after its end, to send what was begun.
        slower: Factor of the pauses after each message.
    """

    def __init__(
        self, app: StreamApplication, ledger: Ledger, chance: Random, patience: float, *, slower: float = 1.0
    ) -> None:
        self._app = app
        self._slower = slower
        self._ledger = ledger
        self._chance = chance
        self._patience = patience
        self._is_over = False
        self._given_up_at = math.inf

    def use(self, app: StreamApplication) -> None:
        """Begin no more sends with the former instance; those under way go on there."""
        self._app = app

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Send while the context lasts; at its end finish each message that was begun."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._repeat("plain", str, self._send_plain))
            tasks.create_task(self._repeat("delayed", str, self._send_delayed))
            tasks.create_task(self._repeat("payments", str, self._pay))
            for key in range(KEYS):
                tasks.create_task(self._repeat("ordered", f"k{key}:{{}}".format, self._send_in_order))
            try:
                yield
            finally:
                self._is_over = True
                self._given_up_at = time.monotonic() + self._patience

    async def _repeat(
        self, kind: Kind, name_of: Callable[[int], str], send: Callable[[str], Coroutine[Any, Any, str | None]]
    ) -> None:
        """Send one message after the other; `send` returns the name that consumers get, or None if they get none."""
        number = 0
        while not self._is_over:
            name = name_of(number)
            self._ledger.begin(kind, name)
            while True:
                try:
                    sent = await send(name)
                except StreamkitError:
                    self._ledger.tallies[kind].failed += 1
                    if time.monotonic() > self._given_up_at:
                        return
                    await asyncio.sleep(RETRY_PAUSE)
                else:
                    break
            if sent is not None:
                self._ledger.acknowledge(kind, sent)
            number += 1
            await asyncio.sleep(self._slower * PAUSE[kind])

    async def _send_plain(self, name: str) -> str:
        await self._app.bridge.asend("plain-out", name)
        return name

    async def _send_delayed(self, name: str) -> str:
        await self._app.bridge.asend("delayed-out", Message(name, {"streamkit_delay": DELAY}))
        return name

    async def _send_in_order(self, name: str) -> str:
        await self._app.bridge.asend("ordered-out", Message(name, {"key": name.partition(":")[0]}))
        return name

    async def _pay(self, number: str) -> str | None:
        """Send in a transaction with a random outcome, which the broker learns at once or has to ask for."""
        tally = self._ledger.tallies["payments"]
        name = f"{number}/{tally.failed}"
        tally.begun[name] = tally.begun[number]
        commits, is_told = self._chance.random() < 0.7, self._chance.random() < 0.7
        try:
            async with self._app.channel("payments-out").transaction(Message(name)) as transaction:
                self._ledger.decided[name] = commits
                if not is_told:
                    transaction.unknown()
                elif not commits:
                    transaction.rollback()
        finally:
            # Without an answer the broker may have the message all the same: its transaction never began.
            self._ledger.decided.setdefault(name, False)
        return name if commits else None


@asynccontextmanager
async def instances(name_server: str, ledger: Ledger) -> AsyncIterator[StreamApplication]:
    """Run all instances, and yield the one that sends."""
    async with contextlib.AsyncExitStack() as stack:
        running = [
            await stack.enter_async_context(application(name_server, ledger, number)) for number in range(INSTANCES)
        ]
        yield running[0]
