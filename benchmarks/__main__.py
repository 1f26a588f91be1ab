"""`python -m benchmarks`: measure, and print the table."""

import asyncio
import json
import platform
from contextlib import AbstractContextManager
from dataclasses import asdict

import click
from rich.console import Console
from rich.table import Table

from benchmarks import listeners, memory, rocket
from benchmarks.brokers import MeasuredBroker, apache_broker, bundled_broker, have_java
from benchmarks.memory import MemoryResult
from benchmarks.rocket import RocketResult

APACHE_VERSIONS = ("4.9.7", "5.3.3")


def _rows(results: list[RocketResult]) -> Table:
    table = Table(title="One rocket_client producer and consumer, 100-byte messages", title_justify="left")
    table.add_column("", style="bold")
    for result in results:
        table.add_column(result.broker, justify="right")
    lines = {
        "send, 64 in flight": [f"{r.send.per_second:,.0f}/s" for r in results],
        "  CPU of the client": [f"{r.send.client_cpu_us:.1f} µs" for r in results],
        "  CPU of the broker": [f"{r.send.broker_cpu_us:.1f} µs" for r in results],
        "consume": [f"{r.consume.per_second:,.0f}/s" for r in results],
        "  CPU of the client ": [f"{r.consume.client_cpu_us:.1f} µs" for r in results],
        "  CPU of the broker ": [f"{r.consume.broker_cpu_us:.1f} µs" for r in results],
        "send to listener, p50": [f"{r.latency_p50_ms:.2f} ms" for r in results],
        "send to listener, p99": [f"{r.latency_p99_ms:.2f} ms" for r in results],
        "start to first request": [f"{r.start_seconds:.2f} s" for r in results],
        "anonymous memory": [f"{r.anonymous_mib:.0f} MiB" for r in results],
    }
    for name, cells in lines.items():
        table.add_row(name.rstrip() if not name.startswith("  ") else name, *cells)
    return table


def _brokers(versions: tuple[str, ...]) -> list[AbstractContextManager[MeasuredBroker]]:
    return [bundled_broker(), *(apache_broker(version) for version in versions)]


@click.command()
@click.option("--messages", default=50_000, show_default=True, help="Messages sent and consumed on each broker.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--apache/--no-apache", default=True, help="Measure Apache's brokers too, where Java is.")
def main(*, messages: int, as_json: bool, apache: bool) -> None:
    """Measure throughput, CPU per message, latency, start and memory, side by side."""
    console = Console(stderr=as_json)
    versions = APACHE_VERSIONS if apache and have_java() else ()
    with console.status("in memory ..."):
        in_memory: MemoryResult = asyncio.run(memory.measure(messages))
        listening = asyncio.run(listeners.measure(messages))
    results: list[RocketResult] = []
    for context in _brokers(versions):
        with console.status("a broker starts ..."), context as broker:
            console.print(f"measuring {broker.name} ...", style="dim")
            results.append(asyncio.run(rocket.measure(broker, messages)))
    if as_json:
        figures = {
            "in_memory": asdict(in_memory),
            "listeners": asdict(listening),
            "brokers": [asdict(result) for result in results],
        }
        print(json.dumps(figures, indent=1))
        return
    console.print(_rows(results))
    console.print(
        f"In memory, channel to listener: {in_memory.cpu_us:.1f} µs CPU per message ({in_memory.per_second:,.0f}/s)"
    )
    console.print(
        f"Receiving in memory: {listening.bare_us:.1f} µs by a bare listener, {listening.dressed_us:.1f} µs with JSON "
        f"to a dataclass, attempts and an error channel: {listening.ratio:.2f} times as much"
    )
    if not versions:
        console.print("Apache's brokers were left out: " + ("asked to" if not apache else "no java and mvn here"))
    console.print(
        f"Python {platform.python_version()}. Compare CPU and ratios; wall times move with the machine's load."
    )


if __name__ == "__main__":
    main()
