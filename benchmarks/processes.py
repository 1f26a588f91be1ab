"""`python -m benchmarks.processes`: the load that one and two brokers of `streamkit broker --processes` carry.

The load generator is one process and runs on the same machine, so it takes CPU from the brokers. It is as cheap as it
can be: it writes requests that were encoded before, many in one call, and counts answers in what it reads without
looking at them one by one.
"""

import json
import os
import platform
import select
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path

import click
from rich.console import Console

from benchmarks.brokers import MeasuredBroker
from benchmarks.load.frames import SendFrames
from benchmarks.load.scenarios import make_topics
from benchmarks.page import Section, Table, console_tables, write_section
from benchmarks.process import cpu_seconds
from tests.ports import free_ports

BODY = b"x" * 128
PROCESSES = (1, 2)
CONNECTIONS = 4
"""Connections to each broker."""

_DIFFERENT = 64
"""Writes of a connection until it sends the same bytes again."""
_SUCCESS = b'{"code":0,'
_RECEIVE_BYTES = 256 * 1024
_SEND_BYTES = 512 * 1024
_ANSWER_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """Brokers of one command: their addresses and process ids, and their name server."""

    name_server: str
    addresses: Sequence[str]
    pids: Sequence[int]

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of all brokers."""
        return sum(map(cpu_seconds, self.pids))


@dataclass(frozen=True, slots=True)
class Carried:
    """One load on one cluster.

    Attributes:
        per_second: Messages acknowledged each second.
        brokers_cpu_us: CPU of the brokers for each message, in microseconds.
        generator_cpu_us: CPU of the load generator for each message, in microseconds.
    """

    per_second: float
    brokers_cpu_us: float
    generator_cpu_us: float


@dataclass(frozen=True, slots=True)
class Sends:
    """A load.

    Attributes:
        topic: The topic, and the name on the command line.
        title: The row in tables.
        batch: Messages in a request.
        at_once: Requests in one write; the next ones are written when all are answered.
    """

    topic: str
    title: str
    batch: int
    at_once: int


LOADS = {
    load.topic: load
    for load in (
        Sends("single", f"single sends, {CONNECTIONS} connections × 256 in flight", 1, 256),
        Sends("batch-32", f"batches of 32, {CONNECTIONS} connections × 4 in flight", 32, 4),
        Sends("batch-100", f"batches of 100, {CONNECTIONS} connections × 2 in flight", 100, 2),
    )
}


class _Connection:
    """A connection that writes some requests at once, and the next ones when all are answered."""

    def __init__(self, address: str, frames: SendFrames, at_once: int) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=_ANSWER_SECONDS)
        self.socket.settimeout(None)  # with a timeout, Python asks the system before each call whether it would block
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)
        self._writes = [frames.next(at_once) for _ in range(_DIFFERENT)]
        self._at_once = at_once
        self._written = 0
        self._pending = 0
        self._rest = b""

    def write(self) -> None:
        self.socket.sendall(self._writes[self._written % _DIFFERENT])
        self._written += 1
        self._pending = self._at_once

    def read(self) -> bool:
        """Read what has come; return whether all requests are answered. The successful answers are counted."""
        data = self._rest + self.socket.recv(_RECEIVE_BYTES)
        if len(data) == len(self._rest):
            raise ConnectionError("the broker closed the connection")
        self._pending -= data.count(_SUCCESS)
        self._rest = data[1 - len(_SUCCESS) :]  # may have the begin of an answer, but no whole `_SUCCESS`
        return not self._pending


@contextmanager
def cluster_of(processes: int) -> Iterator[Cluster]:
    """Start brokers with stores in a temporary directory, and stop them at the end."""
    home = Path(tempfile.mkdtemp(prefix="streamkit-processes-"))
    name_server_port, port = free_ports(brokers=processes)
    ports = ["-p", str(port), "--name-server-port", str(name_server_port)]
    command = ["broker", "--processes", str(processes), "--store", str(home), *ports, "--json"]
    environment = {key: value for key, value in os.environ.items() if key != "NAMESRV_ADDR"}
    try:
        with subprocess.Popen(
            [sys.executable, "-m", "streamkit.cli", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        ) as process:
            assert process.stdout is not None
            try:
                started = json.loads(process.stdout.readline())
                brokers = started["brokers"]
                addresses, pids = [each["address"] for each in brokers], [each["pid"] for each in brokers]
                yield Cluster(started["nameServers"], addresses, pids)
            finally:
                process.send_signal(signal.SIGTERM)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def measure(load: Sends, cluster: Cluster, seconds: float) -> Carried:
    """Put a load on all brokers of a cluster at once, for a number of seconds."""
    with ExitStack() as stack:
        poll = select.epoll()
        stack.callback(poll.close)
        connections = {}
        for address in cluster.addresses:
            for _ in range(CONNECTIONS):
                connection = _Connection(address, SendFrames(load.topic, BODY, batch=load.batch), load.at_once)
                stack.callback(connection.socket.close)
                connections[connection.socket.fileno()] = connection
                poll.register(connection.socket, select.EPOLLIN)
        brokers, own, begun = cluster.cpu_seconds(), time.process_time(), time.perf_counter()
        writes = _write_until(poll, connections, begun + seconds)
        elapsed = time.perf_counter() - begun
        brokers, own = cluster.cpu_seconds() - brokers, time.process_time() - own
    messages = writes * load.at_once * load.batch
    return Carried(messages / elapsed, brokers / messages * 1e6, own / messages * 1e6)


def _write_until(poll: select.epoll, connections: dict[int, _Connection], until: float) -> int:
    for connection in connections.values():
        connection.write()
    pending, answered = len(connections), 0
    while pending:
        ready = poll.poll(_ANSWER_SECONDS)
        if not ready:
            raise ConnectionError(f"a request was refused, or not answered within {_ANSWER_SECONDS:g} s")
        for number, _ in ready:
            connection = connections[number]
            if connection.read():
                answered += 1
                if time.perf_counter() < until:
                    connection.write()
                else:
                    pending -= 1
    return answered


def median(rounds: Sequence[Carried]) -> Carried:
    """Return the median of each figure."""
    return Carried(*(statistics.median(column) for column in zip(*map(astuple, rounds), strict=True)))


def section(figures: dict[str, list[Carried]], *, rounds: int, seconds: float) -> Section:
    """Return the section of the page."""
    rows = []
    for name, (one, two) in figures.items():
        rate, cpu = two.per_second / one.per_second, two.brokers_cpu_us / one.brokers_cpu_us
        cells = (
            f"{each.per_second:,.0f}/s · {each.brokers_cpu_us:.3g} µs · {each.generator_cpu_us:.2g} µs"
            for each in (one, two)
        )
        rows.append([LOADS[name].title, *cells, f"{rate:.2f}×", f"{len(PROCESSES) / cpu:.2f}×"])
    return Section(
        "Several brokers",
        "processes",
        [
            (
                "`python -m benchmarks.processes --report docs/performance.md` wrote this section. The same load was "
                "put on one and on two brokers of `streamkit broker --processes 2`, in turns, in one run, after a "
                f"warm-up. The figures are medians of {rounds} rounds of {seconds:g} s: messages per second, "
                "microseconds of CPU of all brokers for each message, and of the load generator. Bodies have 128 "
                f"bytes. Python {platform.python_version()} on {platform.system()} {platform.machine()} with "
                f"{os.cpu_count()} cores."
            )
        ],
        [
            Table(
                ["load", *(f"{each} process{'es' * (each > 1)}" for each in PROCESSES), "rate", "by CPU"],
                rows,
            )
        ],
        notes=[
            (
                "*Rate* is the rate of two processes over that of one. One broker has a core of its own, and the load "
                "generator the other core; two brokers share both cores with it. *By CPU* is what two cores would "
                "carry over what one carries if the load came from another machine: twice the CPU for each message of "
                "one process over that of two."
            )
        ],
    )


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(LOADS)), help="Only these loads.")
@click.option("--rounds", default=5, show_default=True, help="Rounds; the median of each figure counts.")
@click.option("--seconds", default=2.0, show_default=True, help="Seconds of each load in each round.")
@click.option("--warm-up", default=2.0, show_default=True, help="Seconds of each load before the first round.")
@click.option("--report", type=click.Path(exists=True, path_type=Path), help="The page that gets the section.")
def main(*, only: tuple[str, ...], rounds: int, seconds: float, warm_up: float, report: Path | None) -> None:
    """Measure rates and CPU for each message of one broker and of two."""
    console = Console(stderr=True)
    names = list(only or LOADS)
    measured: dict[str, list[list[Carried]]] = {name: [[] for _ in PROCESSES] for name in names}
    with ExitStack() as stack, console.status("starting the brokers ...") as status:
        clusters = [stack.enter_context(cluster_of(processes)) for processes in PROCESSES]
        for cluster in clusters:
            make_topics(MeasuredBroker("bundled", cluster.name_server, 0, 0.0), names)
            for name in names:
                status.update(f"warming up {name} ...")
                measure(LOADS[name], cluster, warm_up)
        for number in range(rounds):
            for name in names:
                status.update(f"round {number + 1} of {rounds}: {name} ...")
                for position in range(len(clusters)):
                    at = (position + number) % len(clusters)
                    measured[name][at].append(measure(LOADS[name], clusters[at], seconds))
    own = section({name: list(map(median, measured[name])) for name in names}, rounds=rounds, seconds=seconds)
    for table in console_tables(own):
        console.print(table)
    if report is not None:
        write_section(report, own)
        console.print(f"{report} was written.")


if __name__ == "__main__":
    main()
