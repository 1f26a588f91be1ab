"""Queries on a standalone cluster of Spark, while its processes and the broker are killed.

::

    copies      a topic is copied to two others, one of them with `deduplicated`
    flights     the demo: state in RocksDB, a watermark, windows, a shuffle, and `deduplicated`

    master, two workers, an executor on each      `samples.pipeline.cluster`, on request in a network (`network`)
    kill -9      of the driver with its JVM, an executor, a worker with all that it has started, a Python worker, or
                 the broker; what does not come back by itself is started again at once

In the end each row is stored once, and each total of the flights is what pandas computes.
"""

import asyncio
import random
import time
from collections import Counter
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from samples.flights.broker_process import BrokerProcess
from samples.flights.running import Stalled
from samples.pipeline.cluster import SparkCluster
from samples.pipeline.demo import verdict
from samples.pipeline.departures import read_table
from samples.pipeline.run import Run, Victim
from samples.pipeline.totals import totals_of
from tests.spark_campaign.copies import Copies
from tests.spark_campaign.network import HOST, Network

VICTIMS: tuple[Victim, ...] = ("driver", "worker", "executor", "machine", "broker")


@dataclass
class Report:
    """What happened to a query.

    Attributes:
        query: `copies` or `flights`.
        messages: How many messages it was to read.
        kills: What was killed, in this order.
        seconds: How long it took.
        problems: Broken promises; empty, if all is well.
    """

    query: str
    messages: int
    kills: list[Victim]
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    @property
    def counted(self) -> Counter[str]:
        """How often each was killed."""
        return Counter(self.kills)


def run_copies(
    directory: Path, rows: int, victims: list[Victim], chance: random.Random, network: Network | None = None
) -> Report:
    """Copy rows while these are killed.

    Args:
        directory: For all files of the run.
        rows: How many rows there are.
        victims: What is killed, one after the other.
        chance: Chooses the moments.
        network: The machines of the cluster; None: this machine.
    """
    report = Report("copies", rows, victims)
    begun = time.monotonic()
    with ExitStack() as stack:
        cluster = _cluster(directory, network)
        registration = None if network is None else stack.enter_context(network.registration(directory))
        stack.callback(cluster.stop)
        asyncio.run(cluster.start())
        report.problems = Copies(directory, stack, cluster, registration).run(rows, list(victims), chance)
    report.seconds = time.monotonic() - begun
    return report


async def run_flights(directory: Path, flights: int, victims: list[Victim], network: Network | None = None) -> Report:
    """Add up flights while these are killed; the arguments are those of `run_copies`."""
    report = Report("flights", flights, victims)
    begun = time.monotonic()
    table = read_table(flights)
    expected = totals_of(table)
    cluster = _cluster(directory, network)
    with nullcontext() if network is None else network.registration(directory) as registration:
        broker = BrokerProcess(directory / "store", registration)
        run = Run(broker, directory, Console(quiet=True), cluster=cluster)
        try:
            await broker.start()
            await cluster.start()
            await run.start()
            await run.play(table, expected, victims)
            report.problems = verdict(run, expected)
        except Stalled as error:
            report.problems = [f"{run.board.describe()}: {error}"]
        finally:
            await run.stop()
            cluster.stop()
            await broker.stop()
    report.seconds = time.monotonic() - begun
    return report


def _cluster(directory: Path, network: Network | None) -> SparkCluster:
    if network is None:
        return SparkCluster(directory / "cluster")
    return SparkCluster(directory / "cluster", HOST, network.workers(directory))


def chosen(kills: int, chance: random.Random) -> list[Victim]:
    """Return so many victims in a random order, of each kind equally many, or one more."""
    victims = [VICTIMS[number % len(VICTIMS)] for number in range(kills)]
    chance.shuffle(victims)
    return victims
