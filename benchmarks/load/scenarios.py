"""What is measured: one load for a few seconds, on one broker."""

import asyncio
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from benchmarks.brokers import MeasuredBroker
from benchmarks.guarded import KEYS, OPERATOR
from benchmarks.load.frames import QUEUES, SendFrames
from benchmarks.load.generator import FlowControlError, Load, pull_again, send_at_rate, send_closed_loop, send_count
from benchmarks.process import cpu_seconds
from rocket_client import Admin, ClientSettings

__all__ = ["SCENARIOS", "Figures", "Scenario", "make_topics", "measure", "warm_up"]

BODY = b"x" * 128
LARGE_BODY = b"x" * 1024
LATENCY_RATE = 1_000
PULLED_AT_ONCE = 32
_PULLED = 64_000
"""Messages of the backlog, the same number in each queue."""

_FLOW_CONTROL_ATTEMPTS = 10
"""How often a load is measured that the broker refuses as busy."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One round.

    Attributes:
        per_second: Messages each second.
        broker_cpu_us: CPU of the broker's process for each message, in microseconds.
        own_cpu_share: CPU seconds of the load generator for each wall second; near 1 it is the bottleneck.
        latency_p50_us: Median time from when a message was due to its answer, in microseconds; 0 if not measured.
        latency_p99_us: The 99th percentile.
    """

    per_second: float
    broker_cpu_us: float
    own_cpu_share: float
    latency_p50_us: float = 0.0
    latency_p99_us: float = 0.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """A load with a name.

    Attributes:
        name: The name on the command line, also the topic's.
        title: The row in tables.
        run: Puts the load on the broker at an address, for a number of seconds; returns it with latencies in seconds.
        is_signed: Whether the broker must be one that checks signatures, and accepts TLS connections.
    """

    name: str
    title: str
    run: Callable[[str, float], tuple[Load, list[float]]]
    is_signed: bool = False


def _sends(  # noqa: PLR0917 - a table's columns
    name: str, title: str, connections: int, in_flight: int, body: bytes = BODY, batch: int = 1
) -> Scenario:
    def run(address: str, seconds: float) -> tuple[Load, list[float]]:
        frames = SendFrames(name, body, batch=batch)
        load = send_closed_loop(address, frames, connections=connections, in_flight=in_flight, seconds=seconds)
        return load, []

    return Scenario(name, title, run)


def _signed_sends(name: str, title: str, connections: int, in_flight: int, *, tls: bool = False) -> Scenario:
    def run(address: str, seconds: float) -> tuple[Load, list[float]]:
        frames = SendFrames(name, BODY, keys=KEYS)
        load = send_closed_loop(address, frames, connections=connections, in_flight=in_flight, seconds=seconds, tls=tls)
        return load, []

    return Scenario(name, title, run, is_signed=True)


def _latency(address: str, seconds: float) -> tuple[Load, list[float]]:
    return send_at_rate(address, SendFrames("latency", BODY), per_second=LATENCY_RATE, seconds=seconds)


def _pull(address: str, seconds: float) -> tuple[Load, list[float]]:
    return pull_again(address, "pull", "load", _PULLED // QUEUES, most=PULLED_AT_ONCE, seconds=seconds), []


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        _sends("sync-1", "send, 1 connection, synchronous", 1, 1),
        _sends("sync-8", "send, 8 connections, synchronous", 8, 1),
        _sends("sync-32", "send, 32 connections, synchronous", 32, 1),
        _sends("pipelined", "send, 4 connections × 64 in flight", 4, 64),
        _sends("pipelined-1k", "the same, bodies of 1 KiB", 4, 64, LARGE_BODY),
        _signed_sends("signed-8", "send signed, 8 connections, synchronous", 8, 1),
        _signed_sends("signed", "send signed, 4 connections × 64 in flight", 4, 64),
        _signed_sends("encrypted-8", "send signed and encrypted, 8 connections, synchronous", 8, 1, tls=True),
        _signed_sends("encrypted", "send signed and encrypted, 4 connections × 64 in flight", 4, 64, tls=True),
        _sends("batch-32", "send in batches of 32, 8 connections", 8, 1, batch=32),
        _sends("batch-100", "send in batches of 100, 8 connections", 8, 1, batch=100),
        Scenario("latency", f"send at {LATENCY_RATE:,} messages/s", _latency),
        Scenario("pull", f"pull a backlog, {PULLED_AT_ONCE} messages a request", _pull),
    )
}
"""Bodies have 128 bytes where the title does not say otherwise."""


def make_topics(broker: MeasuredBroker, names: list[str]) -> None:
    """Make the scenarios' topics, and send what is to be pulled."""

    async def make() -> None:
        # A broker that checks no signatures ignores them.
        async with Admin(ClientSettings(name_servers=broker.name_server, credentials=OPERATOR)) as admin:
            for name in names:
                await admin.create_topic(name, queues=QUEUES)

    asyncio.run(make())
    if "pull" in names:
        send_count(broker.address, SendFrames("pull", BODY), _PULLED)


def warm_up(scenario: Scenario, broker: MeasuredBroker, seconds: float) -> None:
    """Put a scenario's load on a broker for some seconds, and begin again whenever it refuses a request as busy."""
    end = time.monotonic() + seconds
    while (rest := end - time.monotonic()) > 0:
        with suppress(FlowControlError):
            scenario.run(broker.address, rest)


def measure(scenario: Scenario, broker: MeasuredBroker, seconds: float) -> Figures:
    """Put a scenario's load on a broker, and return the figures.

    A JVM that has compiled little refuses requests that wait for 200 ms, so what is refused for that is measured again.
    """
    for attempt in range(_FLOW_CONTROL_ATTEMPTS):
        cpu = cpu_seconds(broker.pid)
        try:
            load, latencies = scenario.run(broker.address, seconds)
        except FlowControlError:
            if attempt == _FLOW_CONTROL_ATTEMPTS - 1:
                raise
            continue
        cpu = cpu_seconds(broker.pid) - cpu
        break
    p50 = p99 = 0.0
    if latencies:
        quantiles = statistics.quantiles(latencies, n=100)
        p50, p99 = quantiles[49] * 1e6, quantiles[98] * 1e6
    return Figures(load.messages / load.seconds, cpu / load.messages * 1e6, load.own_cpu / load.seconds, p50, p99)
