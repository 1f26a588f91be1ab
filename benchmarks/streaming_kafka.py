"""`python -m benchmarks.streaming_kafka`: listeners on Kafka, streamkit's beside FastStream's.

Each is one process. It reads orders that wait in a topic of four partitions, and measures itself from the first message
to the last: JSON is made an object of each, and in the second round each is answered to another topic, acknowledged by
the broker. streamkit keeps the order of each partition, its default, with one handler, its default, or four, or has 64
without order. FastStream commits before it handles, its default, or after, as streamkit does; it has one handler, its
default, four or 64. It lives in a virtual environment of its own in the cache, made when it is first needed.
"""

import itertools
import json
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic
from rich.console import Console
from rich.table import Table

from benchmarks.kafka import kafka_broker
from benchmarks.kafka_listeners.counting import Task
from tests.peer.artifacts import cache_directory, locked

FASTSTREAM = ("faststream[kafka]==0.7.8", "aiokafka==0.14.0")
PROGRAMS = "benchmarks.kafka_listeners"
ROOT = Path(__file__).parents[1]
PARTITIONS = 4
TIMEOUT = 600.0


@dataclass(frozen=True, slots=True)
class Listener:
    """A program that listens.

    Attributes:
        name: What the table calls it.
        command: Returns how it is started.
        mode: How it does it, and with how many handlers.
    """

    name: str
    command: Callable[[], list[str]]
    mode: str


@dataclass(frozen=True, slots=True)
class Run:
    """The measurements of one process."""

    per_second: float
    cpu_us: float


def _streamkit() -> list[str]:
    return [sys.executable, "-m", f"{PROGRAMS}.with_streamkit"]


def _faststream() -> list[str]:
    home = cache_directory() / f"faststream-{platform.python_version()}-{'-'.join(FASTSTREAM).translate(_PLAIN)}"
    python = home / "bin" / "python"
    with locked(cache_directory() / "faststream.lock"):
        if not (home / "complete").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
            subprocess.run([python, "-m", "pip", "install", "-q", *FASTSTREAM], check=True)
            (home / "complete").touch()
    return [str(python), "-m", f"{PROGRAMS}.with_faststream"]


_PLAIN = str.maketrans("[]=", "---")
LISTENERS = (
    Listener("streamkit", _streamkit, "true/1"),
    Listener("streamkit, four handlers", _streamkit, "true/4"),
    Listener("streamkit, not ordered, 64 handlers", _streamkit, "false/64"),
    Listener("FastStream, at least once", _faststream, "reject_on_error/1"),
    Listener("FastStream, at least once, four handlers", _faststream, "reject_on_error/4"),
    Listener("FastStream, at most once", _faststream, "ack_first/1"),
    Listener("FastStream, at most once, four handlers", _faststream, "ack_first/4"),
    Listener("FastStream, at most once, 64 handlers", _faststream, "ack_first/64"),
)


def _fill(brokers: str, topic: str, messages: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=brokers)
    admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (topic, f"{topic}-answers")])
    admin.close()
    producer = KafkaProducer(bootstrap_servers=brokers, linger_ms=20, batch_size=65536)
    for number in range(messages):
        order = {"number": number, "customer": "Ann", "price": 3.5}
        headers = [("contentType", b"application/json")]
        producer.send(topic, msgspec.json.encode(order), partition=number % PARTITIONS, headers=headers)
    producer.close()


def _run(listener: Listener, task: Task) -> Run:
    command = [*listener.command(), *map(str, task)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False, cwd=ROOT)
    if done.returncode:
        raise RuntimeError(f"{listener.name} failed:\n{done.stdout}{done.stderr}")
    result = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    return Run(task.messages / result["seconds"], result["cpu_seconds"] / task.messages * 1e6)


@click.command()
@click.option("--messages", default=50_000, show_default=True, help="Messages that wait in the topic.")
@click.option(
    "--rounds",
    default=3,
    show_default=True,
    help="Number of measurements of each listener; the table has the median.",
)
@click.option("--only", help="Only listeners whose names begin with this text.")
def main(*, messages: int, rounds: int, only: str | None) -> None:
    """Measure throughput and CPU per message of listeners on one Kafka broker."""
    console = Console()
    listeners = [each for each in LISTENERS if each.name.startswith(only or "")]
    groups = (f"group-{number}" for number in itertools.count())
    runs: dict[tuple[str, str], list[Run]] = {}
    with kafka_broker() as broker:
        _fill(broker.name_server, "orders", messages)
        for _ in range(rounds):
            for work, answers in (("receive", ""), ("answer", "orders-answers")):
                for listener in listeners:
                    with console.status(f"{listener.name}: {work} ..."):
                        task = Task(broker.name_server, "orders", next(groups), messages, answers, listener.mode)
                        run = _run(listener, task)
                    runs.setdefault((work, listener.name), []).append(run)
    table = Table(title=f"{messages:,} orders on {broker.name}, median of {rounds}", title_justify="left")
    for name in ("", "", "messages/s", "CPU per message"):
        table.add_column(name, justify="right" if name else "left")
    for (work, name), measured in runs.items():
        rate = statistics.median(run.per_second for run in measured)
        cpu = statistics.median(run.cpu_us for run in measured)
        table.add_row(work, name, f"{rate:,.0f}", f"{cpu:.0f} µs")
    console.print(table)


if __name__ == "__main__":
    main()
