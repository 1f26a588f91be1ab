"""``python -m tests.spark_campaign``: kill the processes of a Spark cluster and the broker, and compare the results."""

import asyncio
import random
import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from rich.console import Console
from rich.table import Table

from tests.campaign_page import write_summary
from tests.spark_campaign.campaign import VICTIMS, Report, chosen, run_copies, run_flights
from tests.spark_campaign.network import NamespacesRefusedError, Network, enter

KILLED = {
    "driver": "kills of the driver with its JVM",
    "executor": "kills of an executor",
    "machine": "kills of a worker with all that it had started",
    "worker": "kills of a Python worker",
    "broker": "kills of the broker",
}


@click.command()
@click.option("--kills", default=20, show_default=True, help="Kills altogether, half of them in each query.")
@click.option("--rows", default=6000, show_default=True, help="Rows to copy.")
@click.option("--flights", default=100_000, show_default=True, help="Flights to add up.")
@click.option(
    "--network",
    "has_network",
    is_flag=True,
    help="Run each worker in a network namespace with an address and a disk of its own, which needs Linux.",
)
@click.option("--seed", type=int, help="Repeats the choices of a run.")
@click.option(
    "--report",
    "page",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Write the table into this page, between its two comments, if every promise was kept.",
)
def main(*, kills: int, rows: int, flights: int, has_network: bool, seed: int | None, page: Path | None) -> None:
    """Run two queries on a cluster while its processes and the broker are killed, and compare the results."""
    if has_network:
        try:
            enter(sys.argv[1:])
        except NamespacesRefusedError as error:
            raise click.ClickException(f"--network: this machine refuses the namespaces: {error}") from error
    console = Console()
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    chance = random.Random(seed)
    random.seed(seed)  # the moments of the kills
    reports = []
    with TemporaryDirectory(prefix="streamkit-spark-", ignore_cleanup_errors=True) as home, ExitStack() as stack:
        network = Network(Path(home)) if has_network else None
        if network is not None:
            stack.callback(network.close)
        copies, added = Path(home, "copies"), Path(home, "flights")
        copies.mkdir()
        added.mkdir()
        with console.status(f"copies, seed {seed}: killing ..."):
            reports.append(run_copies(copies, rows, chosen(kills // 2, chance), chance, network))
        console.print(reports[-1])
        with console.status(f"flights, seed {seed}: killing ..."):
            reports.append(asyncio.run(run_flights(added, flights, chosen(kills - kills // 2, chance), network)))
        console.print(reports[-1])
        problems = [f"{report.query}: {problem}" for report in reports for problem in report.problems]
        for log in sorted(Path(home).glob("*/driver.log")) if problems else ():
            console.print(log.read_text(errors="replace")[-2000:], markup=False)
    console.print(table(reports))
    for problem in problems:
        console.print(f"✗ {problem}", style="red")
    if problems:
        sys.exit(1)
    if page is not None:
        write_summary(page, "Spark", markdown(reports, seed, has_network=has_network))
        console.print(f"✓ Every promise was kept; the table is in {page}", style="green")


def cells(reports: list[Report]) -> dict[str, list[str]]:
    """Return what was found, by its name, with a cell for each query."""
    return {
        "messages read": [f"{report.messages:,}" for report in reports],
        **{KILLED[victim]: [f"{report.counted[victim]}" for report in reports] for victim in VICTIMS},
        "broken promises": [f"{len(report.problems)}" for report in reports],
        "seconds, with the start of the cluster": [f"{report.seconds:.0f}" for report in reports],
    }


def table(reports: list[Report]) -> Table:
    """Return what was found, for a terminal."""
    made = Table("", *(report.query for report in reports), title="Spark campaign")
    for name, values in cells(reports).items():
        made.add_row(name, *values)
    return made


def markdown(reports: list[Report], seed: int, *, has_network: bool) -> str:
    """Return the reports as a paragraph and a table of the documentation."""
    today = datetime.now(UTC)
    where = ", each worker in a network namespace with a disk of its own" if has_network else ""
    lines = [
        f"A run of {today.day} {today:%B %Y}, seed {seed}{where}:",
        "",
        "| | " + " | ".join(report.query for report in reports) + " |",
        "|---" * (len(reports) + 1) + "|",
        *(f"| {name} | " + " | ".join(values) + " |" for name, values in cells(reports).items()),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
