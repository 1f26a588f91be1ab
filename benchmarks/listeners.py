"""The CPU that attempts, an error channel and conversion add to a listener: two applications, the same messages.

Bare is a listener of bytes with one attempt and no subscriber of errors. The other one reads a dataclass out of
JSON, with three attempts, exceptions that are retried or not, an error handler and a subscriber of its error channel.
Only receiving is measured: the messages wait in memory before the binding starts.
"""

import asyncio
import time
from dataclasses import dataclass

from streamkit import ErrorMessage, Message, StreamApplication

PAYLOAD = b'{"number":7,"customer":"Ann","items":[{"name":"tea","price":3.5}]}'
GROUP = "bench"
ROUNDS = 3


@dataclass
class Item:
    """A part of an order."""

    name: str
    price: float


@dataclass
class Order:
    """The payload type of the listener with conversion."""

    number: int
    customer: str
    items: list[Item]


@dataclass(frozen=True, slots=True)
class ListenerResult:
    """Microseconds of CPU per message received, the best of some rounds."""

    bare_us: float
    dressed_us: float

    @property
    def ratio(self) -> float:
        """CPU of the listener with all features divided by the CPU of the bare one."""
        return self.dressed_us / self.bare_us


async def measure(messages: int) -> ListenerResult:
    """Return what a received message costs each of the two applications.

    They receive `messages` in turns, so that other load of the machine affects both.
    """
    bare, dressed = [], []
    for _ in range(ROUNDS):
        bare.append(await _received(messages, _Seen(messages), is_dressed=False))
        dressed.append(await _received(messages, _Seen(messages), is_dressed=True))
    return ListenerResult(min(bare), min(dressed))


class _Seen:
    """Counts calls up to the last one."""

    def __init__(self, expected: int) -> None:
        self._left = expected
        self.all = asyncio.Event()

    def add_one(self) -> None:
        self._left -= 1
        if not self._left:
            self.all.set()


async def _received(messages: int, seen: _Seen, *, is_dressed: bool) -> float:
    prefix = "spring.cloud.stream"
    own = {"max-attempts": "3", "retryable-exceptions.ValueError": "false"} if is_dressed else {"max-attempts": "1"}
    app = StreamApplication(
        properties={
            f"{prefix}.default-binder": "inmemory",
            f"{prefix}.inmemory.binder.retention": str(messages),
            f"{prefix}.output-bindings": "out",
            f"{prefix}.bindings.out.destination": "orders",
            f"{prefix}.bindings.out.producer.required-groups": GROUP,
            f"{prefix}.bindings.in.destination": "orders",
            f"{prefix}.bindings.in.group": GROUP,
            f"{prefix}.bindings.in.consumer.auto-startup": "false",
            f"{prefix}.bindings.in.consumer.concurrency": "8",
            **{f"{prefix}.bindings.in.consumer.{key}": value for key, value in own.items()},
            **({f"{prefix}.bindings.in.error-handler-definition": "handler"} if is_dressed else {}),
        }
    )
    _listen(app, seen, is_dressed)
    async with app:
        send = app.channel("out").asend
        for _ in range(messages):
            await send(Message(PAYLOAD))
        cpu = time.process_time()
        await app.binding("in").start()
        await seen.all.wait()
        return (time.process_time() - cpu) / messages * 1e6


def _listen(app: StreamApplication, seen: _Seen, is_dressed: bool) -> None:
    if not is_dressed:

        @app.stream_listener("in")
        async def bare(payload: bytes) -> None:
            seen.add_one()

        return

    @app.stream_listener("in")
    async def dressed(order: Order) -> None:
        seen.add_one()

    @app.named("handler")
    async def handle(error: ErrorMessage) -> None:
        raise AssertionError("nothing fails here")

    app.error_listener(f"orders.{GROUP}.errors")(handle)
