"""`python -m benchmarks.replication`: how fast a slave catches up, and what a slave costs those who send.

Each pair is a master and a slave of one kind, each in its own process, with stores on the disk of the temporary
directory. Pairs are loaded in turns.
"""

import asyncio
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console

from benchmarks.brokers import MeasuredBroker, bundled_broker_of, have_java
from benchmarks.load.frames import QUEUES, SendFrames
from benchmarks.load.generator import send_at_rate, send_closed_loop, send_count
from benchmarks.load.servers import APACHE_DEFAULTS
from benchmarks.page import Section, Table, console_tables, write_section
from benchmarks.process import cpu_seconds
from rocket_client import Admin, ClientSettings
from rocket_remoting import TcpTransport
from rocket_remoting.wire.bodies import KVTable, decode_body
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from tests.peer.apache import ApacheBroker
from tests.ports import free_ports

TOPIC = "replicated"
BATCH = 32
SIZES = (128, 1024)
MIB = 1024 * 1024
PATIENCE = 600.0
LATENCY_RATE = 500
OURS, APACHES = "streamkit", "Apache 4.9.7"
VERSION = "4.9.7"


@dataclass(frozen=True, slots=True)
class Master:
    """A running master, whose slave is started when it is needed.

    Attributes:
        broker: The master.
        start_slave: Starts its slave.
    """

    broker: MeasuredBroker
    start_slave: Callable[[], AbstractContextManager[MeasuredBroker]]


StartMaster = Callable[[str], AbstractContextManager[Master]]
"""Starts a master with a role."""


@contextmanager
def our_master(role: str) -> Iterator[Master]:
    """Start a master of ours with a role."""
    home = Path(tempfile.mkdtemp(prefix="streamkit-replication-"))
    (home / "master").mkdir()
    ha_port = free_ports()[0]
    settings = {"brokerName": "broker-a", "brokerRole": role, "haListenPort": str(ha_port), **_ROOM}

    @contextmanager
    def start_slave() -> Iterator[MeasuredBroker]:
        directory = Path(tempfile.mkdtemp(prefix="slave-", dir=home))
        own = {
            "brokerName": "broker-a", "brokerRole": "SLAVE", "brokerId": "1", "namesrvAddr": master.name_server, **_ROOM
        }  # fmt: skip
        with bundled_broker_of(directory, settings=own) as slave:
            yield slave

    try:
        with bundled_broker_of(home / "master", settings=settings) as master:
            yield Master(master, start_slave)
    finally:
        shutil.rmtree(home, ignore_errors=True)


_PATIENT = {"brokerFastFailureEnable": "false"}
"""The log is filled as fast as the disk allows: a send that waits for it is not refused."""
_ROOM = {
    "diskSpaceWarningLevelRatio": "100",
    "cleanFileForciblyEnable": "false",
    "mappedFileSizeCommitLog": str(1024**3),
    **_PATIENT,
}
"""A full disk of the machine's is not what is measured."""


@contextmanager
def apaches_master(role: str) -> Iterator[Master]:
    """Start a master of Apache's 4.9.7 with a role."""

    @contextmanager
    def start_slave() -> Iterator[MeasuredBroker]:
        own = {"brokerRole": "SLAVE", "brokerId": "1", "namesrvAddr": master.name_server}
        with ApacheBroker(VERSION, settings=APACHE_DEFAULTS | own, optimizing=True) as slave:
            yield MeasuredBroker(APACHES, slave.name_server, slave.pid, 0.0, slave.address)

    with ApacheBroker(VERSION, settings=APACHE_DEFAULTS | _PATIENT | {"brokerRole": role}, optimizing=True) as master:
        yield Master(MeasuredBroker(APACHES, master.name_server, master.pid, 0.0, master.address), start_slave)


@dataclass(frozen=True, slots=True)
class CatchUp:
    """How a slave caught up.

    Attributes:
        mib: MiB of the log that were measured.
        seconds: The wall seconds that they took.
        master_cpu: The seconds of CPU of the master.
        slave_cpu: The seconds of CPU of the slave.
    """

    mib: float
    seconds: float
    master_cpu: float
    slave_cpu: float


def catch_up(start: StartMaster, size: int, mib: int) -> CatchUp:
    """Fill a master's log with messages whose bodies have `size` bytes, and start its slave."""
    with start("ASYNC_MASTER") as master:
        _make_topic(master.broker)
        frames = SendFrames(TOPIC, b"x" * size, batch=BATCH)
        while (end := _state(master.broker)[0]) < mib * MIB:
            send_count(master.broker.address, frames, 200)
        with master.start_slave() as slave:
            pids = master.broker.pid, slave.pid
            first = _until(slave, lambda state: state[0] > 0)
            began, cpus = time.perf_counter(), [cpu_seconds(pid) for pid in pids]
            # A slave that makes entries later than it copies has not caught up before they are made.
            last = _until(slave, lambda state: state[0] >= end and state[1] <= 0)
            seconds = time.perf_counter() - began
            master_cpu, slave_cpu = (cpu_seconds(pid) - cpu for pid, cpu in zip(pids, cpus, strict=True))
    return CatchUp((last[0] - first[0]) / MIB, seconds, master_cpu, slave_cpu)


@dataclass(frozen=True, slots=True)
class Sends:
    """How senders fared.

    Attributes:
        rate: Messages a second, with 32 connections that each wait for their answer.
        cpu_us: Microseconds of CPU of the master for each of these messages.
        latencies: Median and 99th percentile of the time to the answer at `LATENCY_RATE` messages a second, in
            milliseconds.
    """

    rate: float
    cpu_us: float
    latencies: tuple[float, float]


def sends(start: StartMaster, role: str, *, has_slave: bool, seconds: float) -> Sends:
    """Send to a master with a role, with or without a slave."""
    with ExitStack() as stack:
        master = stack.enter_context(start(role))
        _make_topic(master.broker)
        if has_slave:
            slave = stack.enter_context(master.start_slave())
            _until(slave, lambda state: state[0] >= _state(master.broker)[0])
        frames = SendFrames(TOPIC, b"x" * 128)
        address = master.broker.address
        _accepted(lambda: send_count(address, frames, 1))
        send_closed_loop(address, frames, connections=32, in_flight=1, seconds=seconds)  # to warm up
        cpu = cpu_seconds(master.broker.pid)
        load = send_closed_loop(address, frames, connections=32, in_flight=1, seconds=seconds)
        cpu = cpu_seconds(master.broker.pid) - cpu
        _, latencies = send_at_rate(address, frames, per_second=LATENCY_RATE, seconds=seconds)
    quantiles = statistics.quantiles(latencies, n=100)
    return Sends(load.messages / load.seconds, cpu / load.messages * 1e6, (quantiles[49] * 1000, quantiles[98] * 1000))


def _accepted(send: Callable[[], None]) -> None:
    """Send until the answer is SEND_OK: a SYNC_MASTER needs its slave for that."""
    until = time.perf_counter() + PATIENCE
    while True:
        try:
            send()
            return
        except ConnectionError:
            if time.perf_counter() > until:
                raise
            time.sleep(0.1)


def _make_topic(broker: MeasuredBroker) -> None:
    async def make() -> None:
        async with Admin(ClientSettings(name_servers=broker.name_server)) as admin:
            await admin.create_topic(TOPIC, queues=QUEUES)

    asyncio.run(make())


def _state(broker: MeasuredBroker) -> tuple[int, int]:
    """Return the end of a broker's log, and how many bytes of it have no entries yet."""

    async def ask() -> tuple[int, int]:
        connection = await TcpTransport().connect(broker.address, timeout=10)
        try:
            async with asyncio.timeout(PATIENCE):
                answer = await connection.invoke(RequestCode.GET_BROKER_RUNTIME_INFO, timeout=10)
                # In its first seconds Apache's broker fails, since it has counted nothing yet.
                while answer.code != ResponseCode.SUCCESS:
                    await asyncio.sleep(0.1)
                    answer = await connection.invoke(RequestCode.GET_BROKER_RUNTIME_INFO, timeout=10)
        finally:
            await connection.close()
        table = decode_body(answer.body, KVTable).table
        return int(table["commitLogMaxOffset"]), int(table.get("dispatchBehindBytes", "0"))

    return asyncio.run(ask())


def _until(broker: MeasuredBroker, is_reached: Callable[[tuple[int, int]], bool]) -> tuple[int, int]:
    until = time.perf_counter() + PATIENCE
    while not is_reached(state := _state(broker)):
        if time.perf_counter() > until:
            raise TimeoutError(f"the broker at {broker.address} has the log up to {state[0]}")
        time.sleep(0.02)
    return state


@click.command()
@click.option("--mib", default=1024, show_default=True, help="MiB of the log that a slave catches up.")
@click.option("--seconds", default=5.0, show_default=True, help="Seconds of each load.")
@click.option("--rounds", default=3, show_default=True, help="Rounds; the median of each figure counts.")
@click.option("--only", type=click.Choice(["catch-up", "sends"]), help="Only this part.")
@click.option("--apache/--no-apache", "with_apache", default=True, help="Measure Apache's pair too, where Java is.")
@click.option("--report", type=click.Path(exists=True, path_type=Path), help="The page that gets the section.")
def main(*, mib: int, seconds: float, rounds: int, only: str | None, with_apache: bool, report: Path | None) -> None:
    """Measure pairs of a master and a slave."""
    console = Console(stderr=True)
    starts: dict[str, StartMaster] = {OURS: our_master}
    if with_apache and have_java():
        starts[APACHES] = apaches_master
    tables = []
    if only != "sends":
        tables.append(_catch_ups(mib, rounds, console))
    if only != "catch-up":
        tables.append(_all_sends(starts, seconds, rounds, console))
    section = Section(
        "A master and its slave",
        "replication",
        [
            (
                "`python -m benchmarks.replication --report docs/performance.md` wrote this section. Each pair is a "
                f"master and a slave of one kind on one machine; the figures are medians of {rounds} rounds. A slave "
                f"catches up {mib} MiB of a log of messages with a key each, from the first bytes until all queues and "
                "the index are made. Messages that are sent have 128 bytes; 32 connections send one after the other "
                f"for {seconds:g} s, and for the latency one connection sends {LATENCY_RATE} messages/s."
            )
        ],
        tables,
    )
    for table in console_tables(section):
        console.print(table)
    if report is not None:
        write_section(report, section)


def _catch_ups(mib: int, rounds: int, console: Console) -> Table:
    """Measure our pair; Apache's slave has copied all before it answers, so the seconds are not known."""
    rows = []
    for size in SIZES:
        found = []
        for number in range(rounds):
            with console.status(f"round {number + 1}: {OURS} catches up, bodies of {size} bytes ..."):
                found.append(catch_up(our_master, size, mib))
        rows.append(_catch_up_row(f"bodies of {size} bytes: {OURS}", found))
    return Table(("a slave's catch-up", "MB/s", "CPU of the master, s/GiB", "CPU of the slave, s/GiB"), rows)


def _catch_up_row(name: str, found: Sequence[CatchUp]) -> Sequence[str]:
    rate = statistics.median(one.mib * MIB / 1e6 / one.seconds for one in found)
    master = statistics.median(one.master_cpu / one.mib * 1024 for one in found)
    slave = statistics.median(one.slave_cpu / one.mib * 1024 for one in found)
    return (name, f"{rate:,.0f}", f"{master:.2f}", f"{slave:.2f}")


def _all_sends(starts: dict[str, StartMaster], seconds: float, rounds: int, console: Console) -> Table:
    kinds = (
        ("without a slave", "ASYNC_MASTER", False),
        ("with a slave, ASYNC_MASTER", "ASYNC_MASTER", True),
        ("with a slave, SYNC_MASTER", "SYNC_MASTER", True),
    )
    rows = []
    for title, role, has_slave in kinds:
        for name, start in starts.items():
            found = []
            for number in range(rounds):
                with console.status(f"round {number + 1}: sends to {name} {title} ..."):
                    found.append(sends(start, role, has_slave=has_slave, seconds=seconds))
            rate = statistics.median(one.rate for one in found)
            cpu = statistics.median(one.cpu_us for one in found)
            p50, p99 = (statistics.median(one.latencies[at] for one in found) for at in (0, 1))
            rows.append((f"{title}: {name}", f"{rate:,.0f}/s", f"{cpu:.1f} µs", f"{p50:.2f} ms", f"{p99:.2f} ms"))
    return Table(("sends", "rate", "CPU of the master", "latency p50", "p99"), rows)


if __name__ == "__main__":
    main()
