"""Commands that list topics, groups and brokers of a large cluster: how soon their first line is there.

A bundled broker is a process of its own. So is each command, which runs on a terminal, as a person would run it:
`streamkit top` shows there what it knows so far. The first run of each is not counted.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.brokers import MeasuredBroker, bundled_broker_of
from benchmarks.console import write_tables
from benchmarks.page import Table
from benchmarks.process import cpu_seconds, variables_of
from rocket_client import Producer, ProducerSettings
from rocket_remoting import Message
from rocket_remoting.wire.topics import dlq_topic

__all__ = ["LIMIT", "LISTINGS", "Listed", "listed", "listings_table"]

LIMIT: Final = 1.0
"""Seconds in which the first line should be there."""
LISTINGS: Final = (
    "topic list",
    "topic list --json",
    "topic stats topic-00007",
    "group list",
    "group list --json",
    "offset show group-0007",
    "cluster",
    "broker list",
    "dlq list",
    "top --rounds 1",
    "top --rounds 1 --json",
)

_AT_ONCE: Final = 64
_PATIENCE: Final = timedelta(minutes=1)
_COLUMNS: Final = "160"


@dataclass(frozen=True, slots=True)
class Listed:
    """How long a command took.

    Attributes:
        first: Seconds from the start of its process to its first line.
        last: Seconds to its end.
        cpu: Seconds of CPU of the command.
        broker_cpu: Those of the broker.
    """

    first: float
    last: float
    cpu: float
    broker_cpu: float


def listed(
    commands: Sequence[str], checkouts: Sequence[Path], topics: int, groups: int, runs: int
) -> dict[str, list[Listed]]:
    """Return the medians of each command for each checkout, which take turns, on one cluster.

    Args:
        commands: The commands, some of `LISTINGS`.
        checkouts: The checkouts whose commands are run; the broker is that of the current directory.
        topics: The number of topics of the cluster, with a queue each.
        groups: The number of groups. Each has a message to consume in a topic of its own, as long as there are topics.
        runs: The number of runs that count.
    """
    with tempfile.TemporaryDirectory(prefix="streamkit-bench-") as home, _cluster(Path(home), topics, groups) as broker:
        found: dict[str, list[list[Listed]]] = {command: [[] for _ in checkouts] for command in commands}
        for number in range(runs + 1):
            for command in commands:
                for results, checkout in zip(found[command], checkouts, strict=True):
                    result = _run(command, checkout, Path(home), broker)
                    if number:
                        results.append(result)
    return {command: [_median(results) for results in of_checkouts] for command, of_checkouts in found.items()}


def listings_table(figures: Mapping[str, Sequence[Listed]]) -> Table:
    """Return the figures of the first checkout as a table."""
    rows = []
    for command, (result, *_) in figures.items():
        first = f"{result.first:.2f} s" if result.first <= LIMIT else f"**{result.first:.2f} s**"
        cpu = f"{result.cpu:.2f} + {result.broker_cpu:.2f} s"
        rows.append([f"`streamkit {command}`", first, f"{result.last:.2f} s", cpu])
    return Table(["command", "first line", "end", "CPU: command + broker"], rows)


@contextmanager
def _cluster(home: Path, topics: int, groups: int) -> Iterator[MeasuredBroker]:
    write_tables(home, topics, groups, queues=1)
    with bundled_broker_of(home) as broker:
        asyncio.run(_send(broker.name_server, topics, groups))
        yield broker


async def _send(name_server: str, topics: int, groups: int) -> None:
    """Send a message to the topic of each group, and a dead letter to each group that has a topic for them."""
    names = [f"topic-{number:05}" for number in range(min(topics, groups))]
    names += [dlq_topic(f"group-{number:04}") for number in range(7, groups, 10)]
    turns = asyncio.Semaphore(_AT_ONCE)
    settings = ProducerSettings(name_servers=name_server, send_timeout=_PATIENCE)
    async with Producer("bench", settings) as producer:

        async def send(topic: str) -> None:
            async with turns:
                await producer.send(Message(topic, b"tea"))

        await asyncio.gather(*map(send, names))


def _run(command: str, checkout: Path, directory: Path, broker: MeasuredBroker) -> Listed:
    """Run a command on a terminal of its own, in a directory without an application.

    Raises:
        RuntimeError: The command failed.
    """
    broker_before = cpu_seconds(broker.pid)
    ours, its = os.openpty()
    begun = time.perf_counter()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "streamkit.cli", *command.split()],
            stdin=subprocess.DEVNULL,
            stdout=its,
            stderr=its,
            env=variables_of(checkout) | {"NAMESRV_ADDR": broker.name_server, "COLUMNS": _COLUMNS},
            cwd=directory,
        )
    finally:
        os.close(its)
    first: float | None = None
    output = b""
    try:
        while part := _read(ours):
            output += part
            if first is None and b"\n" in output:
                first = time.perf_counter() - begun
    finally:
        os.close(ours)
    _, status, usage = os.wait4(process.pid, 0)
    last = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode or first is None:
        raise RuntimeError(f"streamkit {command} ended with {process.returncode}: {output[-500:].decode()}")
    return Listed(first, last, usage.ru_utime + usage.ru_stime, cpu_seconds(broker.pid) - broker_before)


def _read(terminal: int) -> bytes:
    """Return what a terminal shows next; nothing at its end."""
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # Linux reports the end of the last process on a terminal as an error
        return b""


def _median(results: Sequence[Listed]) -> Listed:
    firsts, lasts = [each.first for each in results], [each.last for each in results]
    cpu, broker_cpu = [each.cpu for each in results], [each.broker_cpu for each in results]
    return Listed(median(firsts), median(lasts), median(cpu), median(broker_cpu))
