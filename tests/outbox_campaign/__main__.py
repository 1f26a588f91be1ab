"""``python -m tests.outbox_campaign``: kill shop, relay, stock, broker and connections, and compare the tables."""

import random
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from rich.console import Console
from rich.table import Table

from tests.outbox_campaign.campaign import Campaign, Report, as_json
from tests.outbox_campaign.stage import LEVELS, Stage
from tests.peer.database_servers import SERVERS

BEGIN = "<!-- written by the outbox campaign -->\n"
END = "<!-- end of what the outbox campaign writes -->\n"


@click.command()
@click.option("--runs", default=200, show_default=True, help="Runs altogether, shared by the databases.")
@click.option("--orders", default=1000, show_default=True, help="Orders of each run.")
@click.option("--kills", default=10, show_default=True, help="Kills of each run.")
@click.option("--database", "databases", type=click.Choice(list(LEVELS)), multiple=True, help="May be repeated.")
@click.option("--seed", type=int, help="Repeats the choices of a run.")
@click.option("--json", "json_output", is_flag=True, help="Print the reports as JSON.")
@click.option("--report", "page", type=click.Path(path_type=Path, exists=True), help="Page to write the table into.")
def main(
    *,
    runs: int,
    orders: int,
    kills: int,
    databases: tuple[str, ...],
    seed: int | None,
    json_output: bool,
    page: Path | None,
) -> None:
    """Take orders over the outbox while everything is killed, and compare the tables of shop and stock."""
    console = Console(stderr=json_output)
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    names = databases or tuple(LEVELS)
    begun = time.monotonic()
    reports: list[Report] = []
    with ExitStack() as stack:
        stages = {name: stack.enter_context(stage(name)) for name in names}
        for number in range(runs):
            report = Campaign(stages[names[number % len(names)]], seed + number).run(orders, kills)
            reports.append(report)
            console.print(f"{number + 1}/{runs} {report}", style="red" if report.problems else None)
            for log, text in report.logs.items():
                console.print(f"{log}: {text}", markup=False)
    if json_output:
        print(as_json(reports))
    else:
        console.print(table(reports))
    if any(report.problems for report in reports):
        sys.exit(1)
    if page is not None:
        text = page.read_text()
        before, rest = text.split(BEGIN)
        minutes = (time.monotonic() - begun) / 60
        page.write_text(before + BEGIN + markdown(reports, seed, minutes) + END + rest.split(END)[1])
        console.print(f"✓ Every promise was kept; the table is in {page}", style="green")


@contextmanager
def stage(database: str) -> Iterator[Stage]:
    """Start a database and a broker for runs."""
    with ExitStack() as stack:
        home = stack.enter_context(TemporaryDirectory(prefix="streamkit-outbox-", ignore_cleanup_errors=True))
        server = stack.enter_context(SERVERS[database]()).url if database in SERVERS else ""
        yield stack.enter_context(Stage(Path(home), database, server))


def rows(reports: list[Report]) -> dict[str, list[str]]:
    """Return what was found, by its name, with a cell for each database."""
    columns = [[each for each in reports if each.database == database] for database in databases_of(reports)]
    attacks = {
        "shop": "kills of the sender",
        "relay": "kills of the relay",
        "stock": "kills of the consumer",
        "broker": "kills of the broker",
        "connections": "kills of all connections of the database",
        "relay stopped": "stops of the relay beyond its lease",
    }
    return {
        "runs": [f"{len(own)}" for own in columns],
        "isolation levels": [", ".join(sorted({each.level for each in own})) for own in columns],
        "orders": [f"{sum(each.orders for each in own):,}" for own in columns],
        **{
            name: [f"{sum(each.kills.get(attack, 0) for each in own)}" for own in columns]
            for attack, name in attacks.items()
        },
        "services that ended by themselves, and were started again": [
            f"{sum(count for each in own for attack, count in each.kills.items() if attack not in attacks)}"
            for own in columns
        ],
        "orders missing or reserved twice": [f"{sum(each.wrong for each in own)}" for own in columns],
        "sent again, because the consumer did not know it": [
            f"{sum(each.sent_again for each in own):,}" for own in columns
        ],
        "seconds of a run, median": [f"{sorted(each.seconds for each in own)[len(own) // 2]:.0f}" for own in columns],
        "seconds of a run, longest": [f"{max(each.seconds for each in own):.0f}" for own in columns],
    }


def databases_of(reports: list[Report]) -> list[str]:
    """Return the databases in the order of their first runs."""
    return list(dict.fromkeys(report.database for report in reports))


def table(reports: list[Report]) -> Table:
    """Return what was found, for a terminal."""
    made = Table("", *databases_of(reports), title="Outbox campaign")
    for name, cells in rows(reports).items():
        made.add_row(name, *cells)
    return made


def markdown(reports: list[Report], seed: int, minutes: float) -> str:
    """Return the reports as a paragraph and a table of the documentation."""
    today = datetime.now(UTC)
    names = databases_of(reports)
    count = f"{len(reports)} runs" if len(reports) > 1 else "A run"
    lines = [
        f"{count} of {today.day} {today:%B %Y}, seed {seed}, in {minutes:.0f} minutes:",
        "",
        "| | " + " | ".join(names) + " |",
        "|---" * (len(names) + 1) + "|",
        *(f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows(reports).items()),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
