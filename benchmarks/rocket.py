"""A producer and a consumer of `rocket_client` against one broker: rates, CPU on both sides, latency."""

import asyncio
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.brokers import MeasuredBroker
from benchmarks.process import anonymous_mib, cpu_seconds
from rocket_client import (
    ConsumeContext,
    ConsumeFromWhere,
    Producer,
    ProducerSettings,
    PushConsumer,
    PushConsumerSettings,
    Success,
)
from rocket_remoting import Message, MessageExt

BODY = b"x" * 100
IN_FLIGHT = 64
LATENCY_MESSAGES = 1_000
WARM_UP = 2_000


@dataclass(frozen=True, slots=True)
class Flow:
    """One direction of traffic: messages per second, and CPU in microseconds per message."""

    per_second: float
    client_cpu_us: float
    broker_cpu_us: float


@dataclass(frozen=True, slots=True)
class RocketResult:
    """The measurements of one broker."""

    broker: str
    start_seconds: float
    anonymous_mib: float
    send: Flow
    consume: Flow
    latency_p50_ms: float
    latency_p99_ms: float


async def measure(broker: MeasuredBroker, messages: int) -> RocketResult:
    """Send `messages` of 100 bytes with 64 in flight, consume them, then time single messages from end to end."""
    async with Producer("bench", ProducerSettings(name_servers=broker.name_server)) as producer:
        await _send(producer, WARM_UP, "bench-warm")
        send = await _flow(broker, messages, _send(producer, messages, "bench"))
        consume = await _consume(broker, messages)
        latencies = await _latencies(broker, producer)
    quantiles = statistics.quantiles(latencies, n=100)
    return RocketResult(
        broker.name,
        broker.start_seconds,
        anonymous_mib(broker.pid),
        send,
        consume,
        quantiles[49] * 1e3,
        quantiles[98] * 1e3,
    )


async def _flow(broker: MeasuredBroker, messages: int, work: "asyncio.Future[None] | object") -> Flow:
    broker_cpu, client_cpu, started = cpu_seconds(broker.pid), cpu_seconds(os.getpid()), time.perf_counter()
    await work  # type: ignore[misc]
    elapsed = time.perf_counter() - started
    return Flow(
        messages / elapsed,
        (cpu_seconds(os.getpid()) - client_cpu) / messages * 1e6,
        (cpu_seconds(broker.pid) - broker_cpu) / messages * 1e6,
    )


async def _send(producer: Producer, messages: int, topic: str) -> None:
    remaining = iter(range(messages))

    async def sender() -> None:
        for _ in remaining:
            await producer.send(Message(topic, BODY))

    await asyncio.gather(*(sender() for _ in range(IN_FLIGHT)))


def _consumer(broker: MeasuredBroker, group: str) -> PushConsumer:
    settings = PushConsumerSettings(
        name_servers=broker.name_server, consume_from_where=ConsumeFromWhere.FIRST_OFFSET, concurrency=64
    )
    return PushConsumer(group, settings)


async def _consume(broker: MeasuredBroker, messages: int) -> Flow:
    seen = 0
    done = asyncio.Event()

    async def listen(batch: list[MessageExt], context: ConsumeContext) -> Success:
        nonlocal seen
        seen += len(batch)
        if seen >= messages:
            done.set()
        return _SUCCESS

    consumer = _consumer(broker, "bench-consumer")
    consumer.subscribe("bench")
    consumer.listen_concurrently(listen)

    async def run() -> None:
        await consumer.start()
        await done.wait()

    try:
        return await _flow(broker, messages, run())
    finally:
        await consumer.shutdown()


async def _latencies(broker: MeasuredBroker, producer: Producer) -> Sequence[float]:
    arrived: asyncio.Queue[float] = asyncio.Queue()

    async def listen(batch: list[MessageExt], context: ConsumeContext) -> Success:
        arrived.put_nowait(time.perf_counter())
        return _SUCCESS

    consumer = _consumer(broker, "bench-latency")
    consumer.subscribe("bench-latency")
    consumer.listen_concurrently(listen)
    await producer.send(Message("bench-latency", BODY))
    await consumer.start()
    latencies = []
    try:
        await arrived.get()
        for _ in range(LATENCY_MESSAGES):
            sent = time.perf_counter()
            await producer.send(Message("bench-latency", BODY))
            latencies.append(await arrived.get() - sent)
    finally:
        await consumer.shutdown()
    return latencies


_SUCCESS = Success()
