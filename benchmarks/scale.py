"""`python -m benchmarks.scale`: CPU and memory of the bundled broker with thousands of connections and topics."""

import asyncio
import shutil
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.brokers import MeasuredBroker, bundled_broker_of
from benchmarks.process import anonymous_mib, cpu_seconds
from rocket_client import Admin, ClientSettings
from rocket_remoting import TcpTransport
from rocket_remoting.wire.bodies import HeartbeatData, ProducerData
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from tests.end_to_end.raw_client import RawClient

QUEUES = 4
AT_ONCE = 64
HEARTBEATS = 3
WATCHED_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Cost:
    """Wall seconds, CPU seconds and anonymous memory (MiB) of the broker's process."""

    seconds: float
    cpu: float
    mib: float


@click.command()
@click.option("--connections", default=9_900, show_default=True, help="Idle connections; a broker takes 10,000.")
@click.option("--topics", default=10_000, show_default=True, help="Topics of four queues, a message in each queue.")
def main(*, connections: int, topics: int) -> None:
    """Connect idle clients, then make topics, then start again with their queues."""
    console = Console()
    home = Path(tempfile.mkdtemp(prefix="streamkit-bench-"))
    table = Table("", "", show_header=False)

    def add(what: str, cost: Cost, each: int) -> None:
        table.add_row(what, f"{cost.seconds:.1f} s, {cost.cpu / each * 1e6:.0f} µs CPU each, then {cost.mib:.0f} MiB")

    try:
        with console.status("connecting ..."), bundled_broker_of(home) as broker:
            table.add_row("anonymous memory at the start", f"{anonymous_mib(broker.pid):.0f} MiB")
            connected, beaten, watched = asyncio.run(_connect(broker, connections))
        add(f"{connections:,} connections", connected, connections)
        add(f"{connections * HEARTBEATS:,} heartbeats", beaten, connections * HEARTBEATS)
        table.add_row("idle", f"{watched.cpu / watched.seconds:.2%} of a core")
        with console.status("making topics ..."), bundled_broker_of(home) as broker:
            made, sent = asyncio.run(_make_topics(broker, topics))
        add(f"{topics:,} topics", made, topics)
        add(f"{topics * QUEUES:,} messages, the first of each queue", sent, topics * QUEUES)
        with console.status("starting ..."), bundled_broker_of(home, signal.SIGKILL) as broker:
            mib = anonymous_mib(broker.pid)
            start = f"{broker.start_seconds:.1f} s, {cpu_seconds(broker.pid):.1f} s of CPU, then {mib:.0f} MiB"
            table.add_row("start after an orderly stop", start)
        with console.status("starting after kill -9 ..."), bundled_broker_of(home) as broker:
            start = f"{broker.start_seconds:.1f} s, {cpu_seconds(broker.pid):.1f} s of CPU"
            table.add_row("start after kill -9", start)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    console.print(table)


async def _connect(broker: MeasuredBroker, connections: int) -> tuple[Cost, Cost, Cost]:
    address, transport = await _address(broker), TcpTransport()
    clients: list[RawClient] = []

    async def connect(number: int) -> None:
        clients.append(await RawClient.connect(transport, address))

    async def beat(number: int) -> None:
        heartbeat = HeartbeatData(
            client_id=f"127.0.0.1@{number}",
            producer_data_set=[ProducerData(group_name=f"group-{number % 100}")],
        )
        await clients[number].ask_ok(RequestCode.HEART_BEAT, body=heartbeat)

    async with AsyncExitStack() as stack:
        stack.push_async_callback(_close, clients)
        connected = await _cost(broker, _at_once(connect, range(connections)))
        numbers = [number for _ in range(HEARTBEATS) for number in range(connections)]
        beaten = await _cost(broker, _at_once(beat, numbers))
        watched = await _cost(broker, asyncio.sleep(WATCHED_SECONDS))
    return connected, beaten, watched


async def _make_topics(broker: MeasuredBroker, topics: int) -> tuple[Cost, Cost]:
    client = await RawClient.connect(TcpTransport(), await _address(broker))

    async def make(number: int) -> None:
        await client.create_topic(f"topic-{number}", QUEUES)

    async def send(number: int) -> None:
        answer = await client.try_send(f"topic-{number // QUEUES}", b"x" * 100, queue_id=number % QUEUES)
        if answer.code != ResponseCode.SUCCESS:
            raise click.ClickException(f"message {number} was refused: {answer.remark}")

    try:
        made = await _cost(broker, _at_once(make, range(topics)))
        return made, await _cost(broker, _at_once(send, range(topics * QUEUES)))
    finally:
        await client.connection.close()


async def _address(broker: MeasuredBroker) -> str:
    async with Admin(ClientSettings(name_servers=broker.name_server)) as admin:
        (data,) = (await admin.cluster_info()).broker_addr_table.values()
        return data.broker_addrs[0]


async def _at_once(work: Callable[[int], Awaitable[None]], numbers: Iterable[int]) -> None:
    remaining = iter(numbers)

    async def worker() -> None:
        for number in remaining:
            await work(number)

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))


async def _close(clients: list[RawClient]) -> None:
    await asyncio.gather(*(client.connection.close() for client in clients))


async def _cost(broker: MeasuredBroker, work: Awaitable[None]) -> Cost:
    cpu, begun = cpu_seconds(broker.pid), time.perf_counter()
    await work
    elapsed = time.perf_counter() - begun
    return Cost(elapsed, cpu_seconds(broker.pid) - cpu, anonymous_mib(broker.pid))


if __name__ == "__main__":
    main()
