"""`python -m benchmarks.spark`: RocketMQ's Spark connector beside Spark's Kafka connector, on real brokers.

Written and read: messages of 100 bytes, four queues or partitions, on two cores. Runs of the two alternate and the
best of each counts; CPU is that of the JVM, of Spark's Python workers and of the broker.
"""

import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import click
from rich.console import Console

from benchmarks.brokers import MeasuredBroker, apache_broker, bundled_broker
from benchmarks.kafka import connector_jars, kafka_broker
from benchmarks.page import Section, Table, console_tables, write_section
from benchmarks.process import cpu_seconds
from streamkit.spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROUNDS = 3
BODY = "rpad(cast(id AS string), 100, 'x')"
LATENCY_ROWS = 400
LATENCY_BATCHES = 60
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Run:
    """One measured run."""

    what: str
    system: str
    seconds: float
    rows_per_second: float
    cpu_seconds: float
    broker_cpu_seconds: float


@dataclass(frozen=True)
class Latency:
    """Milliseconds of micro-batches with few rows, each triggered right after the previous one."""

    system: str
    p50: float
    p95: float


class System(Protocol):
    """A messaging system with its Spark connector."""

    @property
    def broker(self) -> MeasuredBroker:
        """The address of the broker."""

    @property
    def format(self) -> str:
        """Spark's name of the format."""

    @property
    def column(self) -> str:
        """The column that has the bodies."""

    def options(self, topic: str) -> dict[str, str]:
        """Options of reader and writer."""


@dataclass(frozen=True)
class RocketMQ:
    """Format rocketmq."""

    broker: MeasuredBroker
    format: str = "rocketmq"
    column: str = "body"

    def options(self, topic: str) -> dict[str, str]:
        """Options of reader and writer."""
        return {"nameServer": self.broker.name_server, "topic": topic}


@dataclass(frozen=True)
class Kafka:
    """Format kafka."""

    broker: MeasuredBroker
    format: str = "kafka"
    column: str = "value"

    def options(self, topic: str) -> dict[str, str]:
        """Options of reader and writer; Kafka's connector refuses those of RocketMQ."""
        return {"kafka.bootstrap.servers": self.broker.name_server, "subscribe": topic, "topic": topic}


class Bench:
    """Runs the measurements in one Spark session."""

    def __init__(self, spark: "SparkSession", rows: int) -> None:
        self._spark = spark
        self._rows = rows
        self._names = 0

    def write(self, system: System, topic: str) -> Run:
        """Write a batch of generated rows to a topic."""
        frame = self._spark.range(0, self._rows, 1, 4).selectExpr(f"{BODY} AS {system.column}")
        writer = frame.write.format(system.format).options(**_writing(system, topic)).mode("append")
        return self._measured("batch write", system, writer.save)

    def read(self, system: System, topic: str) -> Run:
        """Read a topic as a batch."""
        reader = self._spark.read.format(system.format).options(**_reading(system, topic))
        return self._measured("batch read", system, lambda: _discard(reader.load()))

    def read_bodies(self, system: System, topic: str) -> Run:
        """Read the bodies of a topic as a batch."""
        reader = self._spark.read.format(system.format).options(**_reading(system, topic))
        if system.format == "rocketmq":
            reader = reader.schema("body binary")
        return self._measured("batch read, bodies only", system, lambda: _discard(reader.load().select(system.column)))

    def stream(self, system: System, topic: str) -> Run:
        """Read a topic as a stream that ends with the last available message."""

        def run() -> None:
            with tempfile.TemporaryDirectory() as checkpoint:
                reader = self._spark.readStream.format(system.format).options(**_reading(system, topic))
                frame = reader.option("startingOffsets", "earliest").load()
                writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
                writer.trigger(availableNow=True).start().awaitTermination()

        return self._measured("stream read", system, run)

    def latency(self, system: System, topic: str) -> Latency:
        """Measure micro-batches with few rows."""
        with tempfile.TemporaryDirectory() as checkpoint:
            reader = self._spark.readStream.format(system.format).options(**_reading(system, topic))
            reader = reader.options(startingOffsets="earliest", maxOffsetsPerTrigger=str(LATENCY_ROWS))
            query = reader.load().writeStream.format("noop").option("checkpointLocation", checkpoint).start()
            while (query.lastProgress or {"batchId": 0})["batchId"] < LATENCY_BATCHES and query.isActive:
                time.sleep(0.05)
            progress = query.recentProgress[10:]
            query.stop()
        times = [each["durationMs"]["triggerExecution"] for each in progress if each["numInputRows"]]
        return Latency(system.broker.name, statistics.median(times), statistics.quantiles(times, n=20)[-1])

    def _measured(self, what: str, system: System, run: Callable[[], object]) -> Run:
        _wait_until_processes_stay()
        cpu, broker_cpu = _spark_cpu(), cpu_seconds(system.broker.pid)
        started = time.perf_counter()
        run()
        seconds = time.perf_counter() - started
        return Run(
            what,
            system.broker.name,
            seconds,
            self._rows / seconds,
            _spark_cpu() - cpu,
            cpu_seconds(system.broker.pid) - broker_cpu,
        )


def _reading(system: System, topic: str) -> dict[str, str]:
    return {name: value for name, value in system.options(topic).items() if name != "topic" or system.format != "kafka"}


def _writing(system: System, topic: str) -> dict[str, str]:
    return {name: value for name, value in system.options(topic).items() if name != "subscribe"}


def _discard(frame: "DataFrame") -> None:
    frame.write.format("noop").mode("overwrite").save()


def _spark_cpu() -> float:
    """Return the CPU seconds of this process and its descendants, ended ones included."""
    total = 0.0
    for process in _below(os.getpid()):
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(int(field) for field in fields[11:15]) / _TICKS
    return total


def _wait_until_processes_stay() -> None:
    """Wait until the processes are the same for a second.

    A process of the earlier run that ended during a measurement would be missing in its second sum of the CPU.
    """
    found: list[int] = []
    while found != (found := sorted(_below(os.getpid()))):
        time.sleep(1)


def _below(process: int) -> list[int]:
    """Return this process and the JVM's descendants; brokers are measured separately."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, waiting = [process], list(children.get(process, []))
    while waiting:
        child = waiting.pop()
        command = Path(f"/proc/{child}/cmdline")
        try:
            text = command.read_bytes()
        except OSError:
            continue
        if b"KafkaServer" in text or b"ApacheServer" in text or b"streamkit.cli" in text:
            continue
        found.append(child)
        waiting += children.get(child, [])
    return found


def spark_section(runs: Sequence[Run], latencies: Sequence[Latency], rows: int) -> Section:
    """Return the section of the page: a column for each system, with the first one's multiples in the others."""
    systems = [each.system for each in latencies]
    measured = {(run.what, run.system): run for run in runs}
    table = [
        [what, *(_cell(measured[what, system], measured[what, systems[0]], rows) for system in systems)]
        for what in dict.fromkeys(run.what for run in runs)
    ]
    table.append([f"micro-batches of {LATENCY_ROWS} rows", *(_latency_cell(each, latencies[0]) for each in latencies)])
    return Section(
        title="Spark",
        name="spark",
        text=[
            f"""\
`python -m benchmarks.spark --report docs/performance.md` wrote this section. Spark's connectors for RocketMQ and Kafka
write and read {rows:,} messages of 100 bytes, in four queues or partitions, in one session on two cores, which the
servers use too. The systems take turns, and the best of {ROUNDS} rounds counts. What is read is dropped (`noop`).""",
            """\
Cells: rows per second · CPU of Spark with its Python workers + CPU of the server for each row. For micro-batches, each
of which begins right after the one before: the time of a batch. In brackets the first column's rate, CPU of both and
median time, as multiples of the column's.""",
        ],
        tables=[Table(["", *systems], table)],
        notes=[f"PySpark {version('pyspark')}, Python {platform.python_version()} on {sys.platform}."],
    )


def _cell(run: Run, first: Run, rows: int) -> str:
    text = f"{run.rows_per_second:,.0f}/s · {_microseconds(run.cpu_seconds, rows)} + "
    text += f"{_microseconds(run.broker_cpu_seconds, rows)} µs"
    if run is first:
        return text
    cpu = (first.cpu_seconds + first.broker_cpu_seconds) / (run.cpu_seconds + run.broker_cpu_seconds)
    return f"{text} ({first.rows_per_second / run.rows_per_second:.2f}×, {cpu:.2f}×)"


def _latency_cell(each: Latency, first: Latency) -> str:
    text = f"p50 {each.p50:.0f} ms · p95 {each.p95:.0f} ms"
    return text if each is first else f"{text} ({first.p50 / each.p50:.2f}×)"


def _microseconds(seconds: float, rows: int) -> str:
    return f"{1e6 * seconds / rows:.2f}"


@click.command()
@click.option("--messages", default=1_000_000, show_default=True, help="Messages written and read.")
@click.option("--apache/--no-apache", default=False, help="Measure Apache RocketMQ 5.3.3 too.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--report", type=click.Path(path_type=Path, dir_okay=False, exists=True), help="Write the section here.")
def main(*, messages: int, apache: bool, as_json: bool, report: Path | None) -> None:
    """Measure source and sink beside Spark's connector for Kafka."""
    with ExitStack() as stack:
        systems: list[System] = [RocketMQ(stack.enter_context(bundled_broker()))]
        if apache:
            systems.append(RocketMQ(stack.enter_context(apache_broker("5.3.3"))))
        systems.append(Kafka(stack.enter_context(kafka_broker())))
        settings = {
            "spark.jars": ",".join(connector_jars()),
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": "2g",
        }
        spark = session("benchmark", master="local[2]", low_latency=True, settings=settings)
        spark.sparkContext.setLogLevel("ERROR")
        stack.callback(spark.stop)
        bench = Bench(spark, messages)
        runs: list[Run] = []
        for measure in (bench.write, bench.read, bench.read_bodies, bench.stream):
            rounds: dict[str, list[Run]] = {}
            for number in range(ROUNDS):
                for system in systems:
                    topic = f"bench-{number}" if measure == bench.write else "bench-0"
                    run = measure(system, topic)
                    rounds.setdefault(run.system, []).append(run)
            runs += [min(each, key=lambda run: run.seconds) for each in rounds.values()]
        latencies = [bench.latency(system, "bench-0") for system in systems]
    section = spark_section(runs, latencies, messages)
    if as_json:
        print(json.dumps({"runs": [asdict(run) for run in runs], "latency": [asdict(each) for each in latencies]}))
    else:
        for table in console_tables(section):
            Console().print(table)
    if report is not None:
        write_section(report, section)


if __name__ == "__main__":
    main()
