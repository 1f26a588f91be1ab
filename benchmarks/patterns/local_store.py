"""How many messages a second the local store keeps while the messaging system is away, and sends later.

The messaging system is an object that accepts messages at once when it is there, so the store alone is measured.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from streamkit import Message
from streamkit.binder.binder import ProducerBinding
from streamkit.binder.keeping import KeptOutput, MessageKept
from streamkit.binder.named_objects import NamedObjects
from streamkit.clock import SystemClock
from streamkit.config.environment import Environment
from streamkit.errors import BinderError, BinderUnavailable
from streamkit.patterns.local_store.keeper import KeeperLimits, LocalKeeper
from streamkit.patterns.local_store.local_store import LocalStore

__all__ = ["StoreFigures", "measure"]

PAYLOAD = b"x" * 500
LIMITS = KeeperLimits(1_000_000, 1 << 30, timedelta(days=1), 1_000_000, retry_interval=0.001, max_retry_interval=0.001)


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """What was measured with some senders.

    Attributes:
        kept: Messages a second that are kept.
        kept_cpu: Seconds of a processor for each.
        sent: Messages a second that are sent later.
    """

    kept: float
    kept_cpu: float
    sent: float


class _System(ProducerBinding):
    def __init__(self) -> None:
        self.is_away = True
        self.stored = 0

    async def send(self, message: Message[bytes]) -> None:
        """Store a message."""
        if self.is_away:
            raise BinderUnavailable("away")
        self.stored += 1

    async def send_all(self, messages: Sequence[Message[bytes]]) -> Sequence[Exception | None]:
        """Store messages."""
        self.stored += len(messages)
        return [None] * len(messages)

    async def stop(self) -> None:
        """Do nothing."""


async def _lost(message: Message[bytes], error: BinderError) -> None:
    raise error


def measure(file: Path, *, senders: int, messages: int) -> StoreFigures:
    """Measure a store in a file that does not exist yet, with so many senders at once."""
    return asyncio.run(_measure(file, senders, messages))


async def _measure(file: Path, senders: int, messages: int) -> StoreFigures:
    store = LocalStore(str(file))
    output = KeptOutput("out", "topic", False, _lost, Environment([]), NamedObjects())
    keeper = LocalKeeper(None, output, lambda: store, rule=lambda _: True, limits=LIMITS, clock=SystemClock())
    system = _System()
    producer = keeper.producer(system)

    async def keep(share: int) -> None:
        for number in range(share):
            try:
                await producer.send(Message(PAYLOAD, {"streamkit_key": str(number % 100)}))
            except MessageKept:
                pass

    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(keep(messages // senders) for _ in range(senders)))
    kept, used = time.perf_counter() - began, time.process_time() - cpu
    count, system.is_away = store.count, False
    began = time.perf_counter()
    await keeper.start()
    while store.count:  # noqa: ASYNC110 - it is measured, not waited for
        await asyncio.sleep(0.001)
    sent = time.perf_counter() - began
    await keeper.stop(1)
    store.close()
    return StoreFigures(count / kept, used / count, count / sent)
