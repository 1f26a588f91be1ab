"""The CPU of the framework itself: an application on the in-memory binder, from channel to listener."""

import asyncio
import time
from dataclasses import dataclass

from streamkit import Message, StreamApplication, output_channel

PAYLOAD = b"x" * 100
WINDOW = 500


class Numbers:
    """The output that sends the messages."""

    out = output_channel("out")


@dataclass(frozen=True, slots=True)
class MemoryResult:
    """Microseconds of CPU per message, sent and handled."""

    cpu_us: float
    per_second: float


async def measure(messages: int) -> MemoryResult:
    """Send `messages` through an output binding to a listener, with conversion, attempts and headers."""
    seen = 0
    done = asyncio.Event()
    app = StreamApplication(
        Numbers,
        properties={
            "spring.cloud.stream.default-binder": "inmemory",
            "spring.cloud.stream.bindings.out.destination": "numbers",
            "spring.cloud.stream.bindings.out.content-type": "application/octet-stream",
            "spring.cloud.stream.bindings.in.destination": "numbers",
            "spring.cloud.stream.bindings.in.group": "bench",
            "spring.cloud.stream.bindings.in.consumer.concurrency": "8",
        },
    )

    @app.stream_listener("in")
    async def listen(payload: bytes) -> None:
        nonlocal seen
        seen += 1
        if seen == messages:
            done.set()

    async with app:
        send = app.bound(Numbers).out.asend
        cpu, started = time.process_time(), time.perf_counter()
        for number in range(messages):
            await send(Message(PAYLOAD))
            if number % WINDOW == 0:
                await asyncio.sleep(0)
        await done.wait()
        elapsed = time.perf_counter() - started
        return MemoryResult((time.process_time() - cpu) / messages * 1e6, messages / elapsed)
