"""`python -m benchmarks.load`: put the same load on several brokers in turns, and compare."""

import json
import platform
import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console

from benchmarks.brokers import MeasuredBroker, have_java
from benchmarks.load.report import WITHOUT, console_table, section
from benchmarks.load.scenarios import SCENARIOS, Figures, make_topics, measure, warm_up
from benchmarks.load.servers import Server, apache, bundled
from benchmarks.page import write_section
from rocket_remoting.native import has_native_core

APACHE_VERSIONS = ("4.9.7", "5.3.3")
HERE = Path(__file__).parents[2]

Rounds = dict[str, list[list[Figures]]]
"""For each scenario and broker, in their order, the figures of each round."""


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(SCENARIOS)), help="Only these loads.")
@click.option("--rounds", default=5, show_default=True, help="Rounds; the median of each figure counts.")
@click.option("--seconds", default=2.0, show_default=True, help="Seconds of each load in each round.")
@click.option(
    "--warm-up",
    "warm_up_seconds",
    default=10.0,
    show_default=True,
    help="Seconds of load on each broker before the first round.",
)
@click.option(
    "--against",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Another checkout of this project, whose broker is measured too.",
)
@click.option("--apache/--no-apache", "with_apache", default=True, help="Measure Apache's brokers too, where Java is.")
@click.option("--json", "as_json", is_flag=True, help="Print all figures as JSON.")
@click.option(
    "--report",
    type=click.Path(exists=True, path_type=Path),
    help="The page that gets the section; its plot is put beside it.",
)
def main(
    *,
    only: tuple[str, ...],
    rounds: int,
    seconds: float,
    warm_up_seconds: float,
    against: Path | None,
    with_apache: bool,
    as_json: bool,
    report: Path | None,
) -> None:
    """Measure rates, CPU of the broker for each message, and latency, on several brokers in turns."""
    console = Console(stderr=True)
    servers = [bundled("streamkit", HERE)]
    if has_native_core():
        servers.append(bundled(WITHOUT, HERE, native=False))
    if against is not None:
        servers.append(bundled("the other checkout", against.resolve()))
    if with_apache and have_java():
        servers += [apache(version) for version in APACHE_VERSIONS]
    names = list(only or SCENARIOS)
    figures = _measure_in_turns(servers, names, rounds, seconds, warm_up_seconds, console)
    if as_json:
        everything = {
            name: {
                server.name: [asdict(one) for one in of_server]
                for server, of_server in zip(servers, figures[name], strict=True)
            }
            for name in names
        }
        print(json.dumps(everything, indent=1))
    medians = {name: [_median(of_server) for of_server in figures[name]] for name in names}
    console.print(console_table([server.name for server in servers], medians))
    if report is not None:
        own = section([server.name for server in servers], medians, rounds=rounds, seconds=seconds)
        write_section(report, own)
        console.print(f"{report} was written. {platform.python_version()}")


def _measure_in_turns(  # noqa: PLR0917 - one call
    servers: Sequence[Server], names: list[str], rounds: int, seconds: float, warm_up_seconds: float, console: Console
) -> Rounds:
    """Start all brokers, warm them up, and load one after the other, in every round in another order."""
    figures: Rounds = {name: [[] for _ in servers] for name in names}
    with ExitStack() as stack, console.status("starting the brokers ...") as status:
        brokers: dict[bool, list[MeasuredBroker]] = {}
        for is_guarded in sorted({SCENARIOS[name].is_signed for name in names}):
            own = [name for name in names if SCENARIOS[name].is_signed is is_guarded]
            brokers[is_guarded] = [stack.enter_context(server.start(is_guarded)) for server in servers]
            for broker in brokers[is_guarded]:
                make_topics(broker, own)
            for broker in brokers[is_guarded]:
                status.update(f"warming up {broker.name} ...")
                for name in own:
                    warm_up(SCENARIOS[name], broker, warm_up_seconds / len(own))
        for number in range(rounds):
            for name in names:
                loaded = brokers[SCENARIOS[name].is_signed]
                for position in range(len(loaded)):
                    at = (position + number) % len(loaded)
                    status.update(f"round {number + 1} of {rounds}: {name} on {loaded[at].name} ...")
                    figures[name][at].append(measure(SCENARIOS[name], loaded[at], seconds))
    return figures


def _median(rounds: Sequence[Figures]) -> Figures:
    columns = zip(*(asdict(figures).values() for figures in rounds), strict=True)
    return Figures(*(statistics.median(column) for column in columns))


if __name__ == "__main__":
    main()
