"""`python -m benchmarks.commands`: what commands cost before their first request, and on a large cluster.

Each command runs in processes of its own and asks a name server that does not exist, so it ends where its first answer
would begin. The first run is not counted: it writes the byte code. The time of the interpreter itself is measured by a
program that does nothing, and is part of each figure.

Then the commands that list what a cluster has run against a broker with many topics and groups.
"""

import platform
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import click

from benchmarks.listings import LISTINGS, Listed, listed, listings_table
from benchmarks.page import Section, Table, write_section
from benchmarks.process import variables_of

NOWHERE = "127.0.0.1:1"
SETTINGS = (
    f"spring.cloud.stream.rocketmq.binder.name-server={NOWHERE}\nspring.cloud.stream.bindings.orders.group=kitchen\n"
)
INTERPRETER = "the interpreter alone"
COMMANDS = (
    INTERPRETER,
    "--help",
    "cluster",
    "topic list",
    "topic stats orders",
    "group list",
    "top --rounds 1",
    "broker list",
    "offset show kitchen",
    "message show 1",
    "message query orders --key 1",
    "message tail orders",
    "dlq list",
    "trace show 1",
    "wire --read missing.pcap",
    "doctor --for 0",
    "send orders tea",
    "tail orders",
    "config report",
)


def cpu_seconds(command: str, checkout: Path, directory: Path) -> float:
    """Return the user and system time of one run of a command of a checkout."""
    what = ["-c", ""] if command == INTERPRETER else ["-m", "streamkit.cli", *command.split()]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *what],
        cwd=directory,
        env=variables_of(checkout),
        capture_output=True,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measured(commands: Sequence[str], checkouts: Sequence[Path], runs: int) -> dict[str, list[float]]:
    """Return the median of each command for each checkout, which take turns."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "application.properties").write_text(SETTINGS)
        found: dict[str, list[list[float]]] = {command: [[] for _ in checkouts] for command in commands}
        for number in range(runs + 1):
            for command in commands:
                for seconds, checkout in zip(found[command], checkouts, strict=True):
                    taken = cpu_seconds(command, checkout, directory)
                    if number:
                        seconds.append(taken)
    return {command: list(map(median, seconds)) for command, seconds in found.items()}


def section(
    figures: Mapping[str, Sequence[float]],
    runs: int,
    listings: Mapping[str, Sequence[Listed]],
    topics: int,
    groups: int,
) -> Section:
    """Return the section of the page.

    Args:
        figures: The seconds of CPU of each command.
        runs: The number of runs.
        listings: What the commands took that list something.
        topics: The number of topics that their cluster had.
        groups: The number of its groups.
    """
    rows = [
        [command if command == INTERPRETER else f"`streamkit {command}`", f"{seconds[0]:.2f} s"]
        for command, seconds in figures.items()
    ]
    return Section(
        "Commands",
        "commands",
        [
            (
                "`python -m benchmarks.commands --report docs/performance.md` wrote this section. User and system time "
                "of a fresh process until its first request to a name server, the interpreter's own included; medians "
                f"of {runs} runs, the commands in turns. The current directory is that of an application with a name "
                "server and one binding. "
                f"Python {platform.python_version()} on {platform.system()} {platform.machine()}."
            ),
            (
                f"The second table is from a bundled broker with {topics:,} topics of a queue each and {groups:,} "
                "groups, each with a message to consume in a topic of its own; every tenth has a dead letter. The "
                "commands ran on a terminal. Times are from the start of the process; the CPU is that of the whole "
                "command, and of the broker meanwhile."
            ),
        ],
        [Table(["command", "CPU"], rows), listings_table(listings)],
    )


@click.command()
@click.option("--runs", type=click.IntRange(min=1), default=11, show_default=True, help="Runs; the median counts.")
@click.option(
    "--only", multiple=True, type=click.Choice(list(dict.fromkeys((*COMMANDS, *LISTINGS)))), help="Only these commands."
)
@click.option("--topics", default=10_000, show_default=True, help="Topics of the large cluster.")
@click.option("--groups", default=1_000, show_default=True, help="Its groups; 0 to ask no large cluster.")
@click.option(
    "--beside", type=click.Path(exists=True, path_type=Path), help="Another checkout, whose commands are run in turns."
)
@click.option("--report", type=click.Path(exists=True, path_type=Path), help="The page that gets the section.")
def main(
    *, runs: int, only: tuple[str, ...], topics: int, groups: int, beside: Path | None, report: Path | None
) -> None:
    """Measure each command in the directory of an application, and those that list something on a large cluster."""
    checkouts = [Path.cwd(), *([beside.resolve()] if beside is not None else [])]
    figures = measured([command for command in COMMANDS if not only or command in only], checkouts, runs)
    for command, seconds in figures.items():
        click.echo(f"{'  '.join(f'{each:6.3f} s' for each in seconds)}  {command}")
    asked = [command for command in LISTINGS if groups and (not only or command in only)]
    listings = listed(asked, checkouts, topics, groups, runs) if asked else {}
    for command, results in listings.items():
        times = (f"{each.first:6.3f} s to {each.last:6.3f} s, CPU {each.cpu:6.3f} s" for each in results)
        click.echo(f"{'  '.join(times)}  {command}")
    if report is not None:
        write_section(report, section(figures, runs, listings, topics, groups))


if __name__ == "__main__":
    main()
