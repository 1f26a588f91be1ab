"""``python -m tests.outbox_campaign``: kill shop, relay, stock, broker and connections, and compare the tables."""

import random
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from rich.console import Console
from rich.table import Table

from tests.outbox_campaign.campaign import LEVELS, Campaign, Report, as_json


@click.command()
@click.option("--runs", default=200, show_default=True, help="Runs altogether, shared by the databases.")
@click.option("--orders", default=1000, show_default=True, help="Orders of each run.")
@click.option("--kills", default=10, show_default=True, help="Kills of each run.")
@click.option("--database", "databases", type=click.Choice(list(LEVELS)), multiple=True, help="May be repeated.")
@click.option("--seed", type=int, help="Repeats the choices of a run.")
@click.option("--json", "json_output", is_flag=True, help="Print the reports as JSON.")
def main(
    *, runs: int, orders: int, kills: int, databases: tuple[str, ...], seed: int | None, json_output: bool
) -> None:
    """Take orders over the outbox while everything is killed, and compare the tables of shop and stock."""
    console = Console(stderr=json_output)
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    names = databases or tuple(LEVELS)
    reports: list[Report] = []
    for number in range(runs):
        with TemporaryDirectory(prefix="streamkit-outbox-", ignore_cleanup_errors=True) as home:
            report = Campaign(Path(home), names[number % len(names)], seed + number).run(orders, kills)
            reports.append(report)
            console.print(f"{number + 1}/{runs} {report}", style="red" if report.problems else None)
            if report.problems:
                for log in sorted(Path(home).glob("*.log")):
                    console.print(f"{log.name}: {log.read_text(errors='replace')[-2000:]}", markup=False)
    if json_output:
        print(as_json(reports))
    else:
        console.print(table(reports))
    sys.exit(any(report.problems for report in reports))


def table(reports: list[Report]) -> Table:
    """Return the sums by database, for a terminal."""
    made = Table("database", "runs", "orders", "kills", "sent again", "promises broken", title="Outbox campaign")
    for database in dict.fromkeys(report.database for report in reports):
        own = [report for report in reports if report.database == database]
        made.add_row(
            database,
            str(len(own)),
            f"{sum(report.orders for report in own):,}",
            str(sum(sum(report.kills.values()) for report in own)),
            str(sum(report.sent_again for report in own)),
            str(sum(len(report.problems) for report in own)),
        )
    return made


if __name__ == "__main__":
    main()
