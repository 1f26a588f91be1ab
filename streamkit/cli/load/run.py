"""One load: an application sends messages through one of its bindings and receives them through another one."""

import asyncio
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from secrets import randbits

from streamkit.application import StreamApplication
from streamkit.cli.load.ledger import HEADER_BYTES, Arrival, Ledger
from streamkit.cli.load.verdict import Verdict, judge
from streamkit.config.origin import Scalar
from streamkit.messaging.channel import SubscribableChannel
from streamkit.messaging.message import Message

__all__ = ["Load", "Progress", "put_load"]

NANOSECONDS = 1_000_000_000
_PREFIX = "spring.cloud.stream"
_OUT = "bench-out"
_IN = "bench-in"
_SENDER = "bench-sender"
_PAUSE_AFTER_FAILURE = 0.1
"""Seconds that a sender waits after a failed send."""
_PROBE_INTERVAL = 1.0
"""Seconds between two probes, which find out whether messages are received yet."""
_TICK = 0.1
"""Seconds between two reports of progress."""

Progress = Callable[[str, Ledger], None]
"""Called several times a second with the phase, such as ``sending``, and the ledger of the load."""


@dataclass(frozen=True, slots=True)
class Load:
    """The settings of a load: what is sent, how fast and for how long.

    Attributes:
        binder: The name of a binder; None for the one that the settings name.
        destination: Where the messages go.
        group: The group that receives them.
        messages: How many are sent, at most; None for no bound.
        seconds: For how long messages are sent.
        warm_up: Seconds at the beginning whose messages do not count for latencies and rates.
        rate: Messages a second; None for as many as possible.
        size: Bytes of each payload.
        senders: How many sends are under way at once.
        concurrency: How many calls of the listener are under way at once.
        ordered: Whether the messages of one sender must arrive in order.
        patience: Seconds without an arrival, after the last send, until the rest counts as lost.
    """

    binder: str | None
    destination: str
    group: str
    messages: int | None
    seconds: float
    warm_up: float
    rate: float | None
    size: int
    senders: int
    concurrency: int
    ordered: bool
    patience: float

    def properties(self) -> dict[str, Scalar]:
        """Return the settings of the two bindings."""
        bindings = f"{_PREFIX}.bindings"
        settings: dict[str, Scalar] = {
            f"{_PREFIX}.output-bindings": _OUT,
            f"{bindings}.{_OUT}.destination": self.destination,
            f"{bindings}.{_OUT}.content-type": "application/octet-stream",
            f"{bindings}.{_OUT}.producer.required-groups": self.group,
            f"{bindings}.{_IN}.destination": self.destination,
            f"{bindings}.{_IN}.group": self.group,
            f"{bindings}.{_IN}.consumer.concurrency": str(self.concurrency),
        }
        if self.binder is not None:
            settings |= {f"{bindings}.{name}.binder": self.binder for name in (_OUT, _IN)}
        if self.ordered:
            settings |= {
                f"{bindings}.{_OUT}.producer.partition-key-expression": f"headers['{_SENDER}']",
                f"{_PREFIX}.inmemory.bindings.{_IN}.consumer.ordered": "true",
                f"{_PREFIX}.kafka.bindings.{_IN}.consumer.ordered": "true",
                f"{_PREFIX}.rocketmq.bindings.{_IN}.consumer.push.orderly": "true",
            }
        return settings


async def put_load(load: Load, arguments: Sequence[str], progress: Progress) -> Verdict:
    """Put a load on a messaging system, and return what became of it.

    The first Ctrl-C ends the sending; what was sent is still received and judged. The second one ends the load.

    Args:
        load: What is sent.
        arguments: Settings as arguments; they win over those of files.
        progress: Called with how far the load has come.

    Raises:
        ConfigurationError: A setting is wrong.
        BinderError: The messaging system cannot be used.
    """
    ledger = Ledger(randbits(64), load.senders, load.size)
    application = StreamApplication(properties=load.properties())
    application.take_arguments(arguments)
    probes = Ledger(ledger.run ^ 1, 1, HEADER_BYTES)
    news = asyncio.Event()

    @application.stream_listener(_IN)
    async def receive(payload: bytes) -> None:
        if probes.receive(payload, 0) is not Arrival.FOREIGN or (
            ledger.receive(payload, time.monotonic_ns()) is Arrival.FIRST and not ledger.unreceived
        ):
            news.set()

    progress("starting", ledger)
    async with application:
        end = asyncio.Event()
        with _interrupts(end):
            await _begin_to_receive(load, probes, application.channel(_OUT), news, end)
            cpu, begun = time.process_time(), time.monotonic_ns()
            ledger.measured_from = begun + int(load.warm_up * NANOSECONDS)
            await _Sending(load, ledger, application.channel(_OUT), begun, end).run(progress)
        await _drain(load, ledger, news, progress)
        seconds = (ledger.last_acknowledged - begun) / NANOSECONDS if ledger.acknowledged else 0.0
        cpu = time.process_time() - cpu
    return judge(ledger, load.ordered, seconds, cpu, was_interrupted=end.is_set())


async def _begin_to_receive(
    load: Load, probes: Ledger, channel: SubscribableChannel, news: asyncio.Event, end: asyncio.Event
) -> None:
    """Send probes until one is received, for at most `load.patience` seconds: a new member waits for its partitions."""
    deadline = time.monotonic() + load.patience
    while not (news.is_set() or end.is_set()) and time.monotonic() < deadline:
        with suppress(Exception):  # the load's own sends show what is wrong
            await channel.asend(Message(probes.payload(probes.sent, 0), {_SENDER: 0}))
        with suppress(TimeoutError):
            await asyncio.wait_for(news.wait(), _PROBE_INTERVAL)


@dataclass(frozen=True, slots=True)
class _Sending:
    """The part of a load that sends.

    Attributes:
        load: What is sent.
        ledger: The accounts.
        channel: The channel of the output binding.
        begun: When the first message is due, in nanoseconds.
        end: Set when the sending should end early.
    """

    load: Load
    ledger: Ledger
    channel: SubscribableChannel
    begun: int
    end: asyncio.Event

    async def run(self, progress: Progress) -> None:
        """Send all messages, or as many as the time allows."""
        async with asyncio.TaskGroup() as senders:
            tasks = [senders.create_task(self._one_by_one(sender)) for sender in range(self.load.senders)]
            while not all(task.done() for task in tasks):
                progress("sending", self.ledger)
                await asyncio.wait(tasks, timeout=_TICK)

    async def _one_by_one(self, sender: int) -> None:
        load, ledger = self.load, self.ledger
        deadline = self.begun + int((load.warm_up + load.seconds) * NANOSECONDS)
        number = sender
        while not self.end.is_set() and (load.messages is None or number < load.messages):
            now = time.monotonic_ns()
            due = now if load.rate is None else self.begun + int(number / load.rate * NANOSECONDS)
            if max(due, now) >= deadline:
                return
            if due > now:
                await asyncio.sleep(min((due - now) / NANOSECONDS, _TICK))
                if due > time.monotonic_ns():
                    continue  # look whether the load has ended
            try:
                await self.channel.asend(Message(ledger.payload(number, due), {_SENDER: sender}))
            except Exception as error:  # whatever it is, it is part of the verdict
                ledger.fail(error)
                await asyncio.sleep(_PAUSE_AFTER_FAILURE)
            else:
                ledger.acknowledge(number, due, time.monotonic_ns())
            await asyncio.sleep(0)  # a send in memory does not wait
            number += load.senders


async def _drain(load: Load, ledger: Ledger, news: asyncio.Event, progress: Progress) -> None:
    """Wait until all acknowledged messages have arrived, or none has arrived for `load.patience` seconds."""
    received, since = ledger.received, time.monotonic()
    while ledger.unreceived and time.monotonic() - since < load.patience:
        progress("receiving", ledger)
        news.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(news.wait(), _TICK)
        if ledger.received != received:
            received, since = ledger.received, time.monotonic()


@contextmanager
def _interrupts(end: asyncio.Event) -> Iterator[None]:
    """Within the block the first Ctrl-C sets `end`; the next one acts as before."""
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        end.set()
        loop.remove_signal_handler(signal.SIGINT)

    loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
